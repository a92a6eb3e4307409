//! MPA: connection set-up and framing (RFC 5044), with the enhanced set-up of RFC 6581.
//!
//! | module | holds |
//! |---|---|
//! | [`frame`] | the request and the reply as bytes |
//! | [`agree`] | what both ends agree on |
//! | [`initiator`], [`responder`] | the conversation, with its timers |
//! | [`fpdu`] | lengths, pad, largest segment |
//! | `marker` | markers |
//! | [`deframe`] | the byte stream to segments |
//! | [`outgoing`] | segments to the byte stream |

pub mod agree;
pub mod deframe;
pub mod fpdu;
pub mod frame;
mod held;
pub mod initiator;
mod marker;
pub mod outgoing;
pub mod responder;

pub use agree::{Agreement, Ready, Wishes, WithinHost};
pub use deframe::{Deframed, Deframer};
pub use frame::{Frame, FrameKind, ReadWords, Rtr, StartupError, Ticket};
pub use initiator::{Initiator, Outcome};
pub use outgoing::{AppendedFpdu, Framing, OutgoingFpdus, Run};
pub use responder::{Asked, Responder};
