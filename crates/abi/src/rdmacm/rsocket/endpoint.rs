//! The verbs of a connection: queue pair, completion queue, memory, and messages over them.
//!
//! On InfiniBand and RoCE a message is a WRITE with immediate. iWARP has none: there it is a WRITE,
//! if there are data, and a SEND of the message's 4 bytes in the byte order of the host.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use ferroce_nic::Protocol;
use ferroce_proto::rsocket::{ByteOrder, ConnectionData, IomapEntry, IomapSize, Message, Target};

use super::cm_id::CmId;
use super::completion_queue::CompletionQueue;
use super::errno::{Errno, Result};
use super::memory::Memory;
use crate::rdmacm::id::Id;
use crate::rdmacm::{rdma_create_qp, rdma_destroy_qp};
use crate::types::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_QPT_RC, IBV_WC_SUCCESS, IBV_WC_WITH_IMM,
    ibv_qp_cap, ibv_qp_init_attr, ibv_recv_wr, ibv_sge, ibv_wc,
};
use crate::verbs::post_recv;

/// Receives beyond the credits that the peer gets: its control messages and updates use none. Twice
/// what it can have unfinished.
const SPARE_RECEIVES: u32 = 8;
/// Bytes of a message on iWARP.
const MESSAGE: usize = 4;
/// Bit of a work request's number that says that it is a receive.
const RECEIVE: u64 = 1 << 63;
/// What goes inline in any case: targets and iomap entries.
const LEAST_INLINE: u32 = 32;
/// Completions that are taken at once.
const BATCH: usize = 32;

/// Sizes that a socket asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndpointSizes {
    /// Messages of the send queue.
    pub(super) send_queue: u32,
    /// Messages that the peer may send at once.
    pub(super) credits: u16,
    pub(super) inline: u32,
    /// Bytes of the receive ring's two halves.
    pub(super) half: u32,
    pub(super) send_ring: u32,
    pub(super) iomap: IomapSize,
}

/// What a completion says.
#[derive(Clone, Copy, Debug)]
pub(super) enum Completion {
    /// The oldest message has gone out.
    Sent,
    /// A message came.
    Received(Message),
    /// Work failed with this `enum ibv_wc_status`.
    Failed(u32),
}

/// What a look at the completion queue gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Polled {
    /// It was empty.
    Nothing,
    /// All that was there.
    All,
    /// As much as it holds, and there may be more.
    Part,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct StreamEndpoint {
    /// Dropped first: it is of the identifier's device.
    queue: CompletionQueue,
    id: Arc<CmId>,
    /// The receive ring; the 4-byte messages of iWARP; the list of targets; the iomap table.
    pub(super) receive: Memory,
    pub(super) send: Memory,
    sizes: EndpointSizes,
    pub(super) is_iwarp: bool,
}

// SAFETY: verbs may be called on objects from any thread.
unsafe impl Send for StreamEndpoint {}
// SAFETY: verbs lock what they use.
unsafe impl Sync for StreamEndpoint {}

impl Drop for StreamEndpoint {
    fn drop(&mut self) {
        // SAFETY: made in `new` and destroyed only here, before what it uses.
        unsafe { rdma_destroy_qp(self.id.as_ptr()) };
    }
}

impl StreamEndpoint {
    /// Makes all that a connection needs on an identifier that is bound to a device, and posts its
    /// receives.
    pub(super) fn new(id: &Arc<CmId>, sizes: EndpointSizes) -> Result<Self> {
        // SAFETY: live as long as `id`.
        let bound = unsafe { Id::new(id.as_ptr()) }?;
        let context = bound.bound_verbs()?;
        let device = bound.nic().device();
        let is_iwarp = device.is_some_and(|device| device.protocol() == Protocol::Iwarp);
        let table = IomapEntry::LEN * usize::from(sizes.iomap.entries());
        let len = sizes.list_at() + ConnectionData::TARGETS as usize * Target::LEN + table;
        let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
        // SAFETY: the identifier's protection domain is the device's, which lives for ever.
        let (receive, send) = unsafe {
            (
                Memory::new(bound.pd(), len, access)?,
                Memory::new(bound.pd(), sizes.send_ring as usize, IBV_ACCESS_LOCAL_WRITE)?,
            )
        };
        // SAFETY: a live context, of the identifier that the endpoint holds.
        let queue = unsafe { CompletionQueue::new(context, sizes.completions(is_iwarp)) }?;
        let endpoint = Self {
            queue,
            id: Arc::clone(id),
            receive,
            send,
            sizes,
            is_iwarp,
        };
        endpoint.create_qp()?;
        let receives: Vec<u32> = (0..sizes.receives()).collect();
        endpoint.post_receives(&receives)?;
        Ok(endpoint)
    }

    fn create_qp(&self) -> Result<()> {
        let mut attr = ibv_qp_init_attr {
            send_cq: self.queue.as_ptr(),
            recv_cq: self.queue.as_ptr(),
            qp_type: IBV_QPT_RC,
            cap: ibv_qp_cap {
                max_send_wr: self.sizes.sends(self.is_iwarp),
                max_recv_wr: self.sizes.receives(),
                max_send_sge: 2,
                max_recv_sge: 1,
                max_inline_data: self.sizes.inline.max(LEAST_INLINE),
            },
            ..ibv_qp_init_attr::zeroed()
        };
        // SAFETY: live objects. NULL is the identifier's own protection domain.
        Errno::check(unsafe { rdma_create_qp(self.id.as_ptr(), ptr::null_mut(), &raw mut attr) })
    }

    /// What the peer is told of this side.
    pub(super) fn connection_data(&self) -> ConnectionData {
        let key = self.receive.remote_key();
        ConnectionData {
            order: ByteOrder::NATIVE,
            has_iomaps: true,
            credits: self.sizes.credits,
            iomap_size: self.sizes.iomap,
            list: Target {
                address: self.receive.address(self.sizes.list_at()),
                key,
                length: ConnectionData::TARGETS,
            },
            buffer: Target {
                address: self.receive.address(0),
                key,
                length: self.sizes.half,
            },
        }
    }

    pub(super) fn sizes(&self) -> &EndpointSizes {
        &self.sizes
    }

    pub(super) fn id(&self) -> &Arc<CmId> {
        &self.id
    }

    pub(super) fn is_iwarp(&self) -> bool {
        self.is_iwarp
    }

    /// Its completion queue.
    pub(super) fn queue(&self) -> &CompletionQueue {
        &self.queue
    }

    /// Takes what has completed, and posts receives again. A peer that sends all the time does not
    /// keep the caller here: it takes at most as many completions as the queue holds.
    pub(super) fn poll(&self, mut each: impl FnMut(Completion)) -> Result<Polled> {
        let most = self.sizes.completions(self.is_iwarp) as usize;
        let mut total = 0;
        while total < most {
            let mut room = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
            let wcs = self.queue.poll(&mut room).ok_or(Errno(libc::EIO))?;
            let mut taken = [0; BATCH];
            let mut received = 0;
            for wc in wcs {
                if wc.status == IBV_WC_SUCCESS && wc.wr_id & RECEIVE != 0 {
                    taken[received] = slot_of(wc);
                    received += 1;
                }
                each(self.completion(wc));
            }
            self.post_receives(&taken[..received])?;
            total += wcs.len();
            if wcs.len() < BATCH {
                return Ok(match total {
                    0 => Polled::Nothing,
                    _ => Polled::All,
                });
            }
        }
        Ok(Polled::Part)
    }

    fn completion(&self, wc: &ibv_wc) -> Completion {
        if wc.status != IBV_WC_SUCCESS {
            return Completion::Failed(wc.status);
        }
        if wc.wr_id & RECEIVE == 0 {
            return Completion::Sent;
        }
        let word = if wc.wc_flags & IBV_WC_WITH_IMM != 0 {
            u32::from_be(wc.imm_data)
        } else {
            let mut bytes = [0; MESSAGE];
            let at = self.sizes.messages_at() + MESSAGE * slot_of(wc) as usize;
            // SAFETY: the buffer is as long as a message.
            unsafe { self.receive.get(at, bytes.as_mut_ptr(), MESSAGE) };
            u32::from_ne_bytes(bytes)
        };
        Completion::Received(Message::decode(word))
    }

    /// Posts the receives of these numbers.
    fn post_receives(&self, slots: &[u32]) -> Result<()> {
        for &slot in slots {
            let at = self.sizes.messages_at() + MESSAGE * slot as usize;
            let mut sge = ibv_sge {
                addr: self.receive.address(at),
                length: size_of::<u32>().try_into().unwrap_or(0),
                lkey: self.receive.local_key(),
            };
            let mut wr = ibv_recv_wr {
                wr_id: RECEIVE | u64::from(slot),
                next: ptr::null_mut(),
                sg_list: if self.is_iwarp {
                    &raw mut sge
                } else {
                    ptr::null_mut()
                },
                num_sge: self.is_iwarp.into(),
            };
            let mut bad = ptr::null_mut();
            // SAFETY: a live queue pair; the request and its list live through the call.
            let failed = unsafe { post_recv(self.qp(), &raw mut wr, &raw mut bad) };
            if failed != 0 {
                return Err(Errno(failed));
            }
        }
        Ok(())
    }

    pub(super) fn qp(&self) -> *mut crate::types::ibv_qp {
        // SAFETY: the identifier is live, and has its queue pair as long as `self`.
        unsafe { (*self.id.as_ptr()).qp }
    }
}

impl EndpointSizes {
    /// Work requests of the send queue: on iWARP a message takes two.
    fn sends(&self, is_iwarp: bool) -> u32 {
        self.send_queue * if is_iwarp { 2 } else { 1 }
    }

    /// Completions that can be there at once. When a queue pair fails, work that is not signalled
    /// completes too.
    fn completions(&self, is_iwarp: bool) -> u32 {
        self.sends(is_iwarp) + self.receives()
    }

    /// Receives that are posted.
    fn receives(&self) -> u32 {
        u32::from(self.credits) + SPARE_RECEIVES
    }

    /// Where the messages of iWARP are.
    fn messages_at(&self) -> usize {
        2 * self.half as usize
    }

    /// Where the list of targets is.
    pub(super) fn list_at(&self) -> usize {
        (self.messages_at() + MESSAGE * self.receives() as usize).next_multiple_of(Target::LEN)
    }

    /// Where an entry of the iomap table is.
    pub(super) fn iomap_at(&self, index: usize) -> usize {
        let table = self.list_at() + ConnectionData::TARGETS as usize * Target::LEN;
        table + IomapEntry::LEN * index
    }
}

/// The number that the receive of a completion was posted with.
fn slot_of(wc: &ibv_wc) -> u32 {
    u32::try_from(wc.wr_id & u64::from(u32::MAX)).unwrap_or(0)
}
