//! The calls into C. Everything `unsafe` of this crate is here.
//!
//! Each type owns one C object and destroys it when it is dropped; it holds on to what the object
//! was made from, so that destruction goes in the order that C demands. Their methods are safe:
//! what C trusts its caller with, the types guarantee.
//!
//! C's objects may be used by several threads at once (`ibv_*` and `rdma_*` lock themselves).
//! Fields of C's structures are read only where no call can be writing them: right after the object
//! was made, or in the thread that fetched the event.
#![allow(unsafe_code, reason = "the boundary to C")]

mod address;
mod advice;
mod async_event;
mod borrowed;
mod bytes;
mod cm;
mod completion_channel;
mod descriptor;
mod device;
mod exclusive;
mod extended;
mod failures;
mod fetch;
mod held;
mod inbox;
mod ledger;
mod limits;
mod locks;
mod machine;
mod mapping;
mod memory;
#[cfg(test)]
mod model;
mod pieces;
mod place;
mod poller;
mod post;
mod queue;
mod queue_pair;
mod raw;
mod shared_queue;
mod shelf;
mod sleep;
#[cfg(feature = "software")]
mod software;
mod system;
mod table;
mod unfinished;
mod window;
mod work;

pub(crate) use address::{AddressObject, Addressed, Sender, path_from_c, path_to_c};

pub(crate) use async_event::{AsyncEvent, AsyncEvents, Element};
pub(crate) use borrowed::{BorrowedMut, BorrowedRegion, Posts};
pub(crate) use bytes::Bytes;
pub(crate) use cm::{Channel, FetchedEvent, IdOption, Identifier, Service};
pub(crate) use completion_channel::CompletionChannel;
#[cfg(feature = "tokio")]
pub(crate) use descriptor::watch;
pub(crate) use descriptor::{wait_either, wait_one};
pub(crate) use device::{DeviceHandle, DeviceListHandle, OpenDevice};
pub(crate) use exclusive::Exclusive;
pub(crate) use failures::cause;
pub(crate) use held::{Held, Refused};
pub(crate) use inbox::Next;
pub(crate) use ledger::{Ledger, Reader};
pub(crate) use mapping::Mapping;
pub(crate) use memory::{Domain, Region};
pub(crate) use pieces::{Copied, Given, Memory, Pieces, Raw};
pub(crate) use place::{BATCH, Fetched, PollBuffer, View};
pub(crate) use poller::{Alarm, Poller, Signal};
pub(crate) use post::Checked;
pub(crate) use queue::Queue;
pub(crate) use queue_pair::{Plan, QueuePairHandle};
pub(crate) use shared_queue::{SharedQueue, XrcDomainObject};
pub(crate) use shelf::Shelf;
#[cfg(feature = "software")]
pub(crate) use software::choose_protocols;
pub(crate) use system::system;
#[cfg(feature = "software")]
pub(crate) use table::SOFTWARE;
pub(crate) use table::Verbs;
pub(crate) use unfinished::{Unfinished, spawn};
pub(crate) use window::{Bind, Window, WindowNumber};
pub(crate) use work::{Destination, Order};
