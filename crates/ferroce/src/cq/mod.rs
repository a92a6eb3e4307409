//! Completion queues: how work ended.

mod completion;
mod completions;
mod outcome;
mod shown;
mod work_error;

pub use completion::{Completion, CompletionQueue, Done, Timestamp, Timestamps, WorkKind};
pub use completions::{CompletionBuffer, CompletionRef, Completions};
pub use outcome::Outcome;
pub use work_error::{FirstFailure, WorkError, WorkStatus};
