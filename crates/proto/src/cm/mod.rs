//! Connection manager conversations.
