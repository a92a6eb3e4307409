//! The queue pair state table.
