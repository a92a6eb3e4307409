//! What a program hands to a device and gets back: work requests, attributes, completions, events.
//!
//! The numbers of the enums are those of the C interface (`infiniband/verbs.h`).

pub mod attr;
pub mod event;
pub mod wc;
pub mod wr;

pub use attr::{
    AddressHandleAttr, AttrMask, GlobalRoute, Mtu, PathMigState, QpAttr, QpCap, QpState, QpType,
};
pub use event::{AsyncEvent, QpEvent};
pub use wc::{Wc, WcFlags, WcImm, WcOpcode, WcStatus};
pub use wr::{
    Datagram, Flush, InlineData, Payload, Placement, PlainPayload, PlainSend, PostError, RecvWr,
    RemoteAddr, Selectivity, SendFlags, SendOp, SendTo, SendWr, Sge, Sges,
};
