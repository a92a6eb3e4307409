//! The verbs of a datagram rsocket at one address of this host: a UD queue pair and its memory.

use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::ptr;
use std::sync::Arc;

use ferroce_nic::{Device, Protocol};
use ferroce_proto::ids::{Gid, Qpn};
use ferroce_proto::ud::{GRH_LEN, GrhRoute};
use ferroce_proto::verbs::Mtu;

use super::super::buffers::Buffers;
use super::super::cm_id::CmId;
use super::super::completion_queue::CompletionQueue;
use super::super::endpoint::Polled;
use super::super::errno::{Errno, Result};
use super::super::memory::Memory;
use super::super::service::Service;
use crate::convert::gid_to_c;
use crate::rdmacm::id::Id;
use crate::rdmacm::types::RDMA_PS_UDP;
use crate::rdmacm::{rdma_create_qp, rdma_destroy_qp};
use crate::types::{
    IBV_ACCESS_LOCAL_WRITE, IBV_QPT_UD, IBV_SEND_SIGNALED, IBV_WC_GRH, IBV_WC_SUCCESS, IBV_WR_SEND,
    ibv_ah, ibv_ah_attr, ibv_global_route, ibv_pd, ibv_qp, ibv_qp_cap, ibv_qp_init_attr,
    ibv_recv_wr, ibv_send_wr, ibv_send_wr_ud, ibv_sge, ibv_wc,
};
#[cfg(test)]
use crate::types::{IBV_QP_STATE, IBV_QPS_ERR, ibv_qp_attr};
#[cfg(test)]
use crate::verbs::ibv_modify_qp;
use crate::verbs::{ibv_create_ah, ibv_destroy_ah, post_recv, post_send};

/// Datagrams that wait to be received, and to be sent, at most.
const RECEIVES: u32 = 256;
const SENDS: u32 = 64;
/// Key of all queue pairs of the port space for datagrams (`RDMA_UDP_QKEY`).
const QKEY: u32 = 0x0123_4567;
/// Bit of a work request's number that says that it is a receive.
const RECEIVE: u64 = 1 << 63;
/// Completions that are taken at once.
const BATCH: usize = 16;
/// Most bytes of a packet's payload. Each receive has room for them, since a peer's port may have a
/// larger MTU than this one's: a packet that is longer than its receive ends the queue pair.
const LONGEST: usize = Mtu::B4096.bytes() as usize;
/// Bytes of a receive.
const SLOT: usize = GRH_LEN + LONGEST;

/// A datagram that came, with what the device says of its sender.
pub(super) struct Came<'a> {
    /// Where the packet came from.
    pub(super) ip: IpAddr,
    pub(super) qpn: Qpn,
    /// Header and bytes of the datagram.
    pub(super) bytes: &'a [u8],
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct DatagramEndpoint {
    /// Dropped first: it is of the identifier's device.
    queue: CompletionQueue,
    id: CmId,
    device: Arc<Device>,
    pd: *mut ibv_pd,
    receive: Memory,
    send: Memory,
    gid_index: u8,
    /// A work request has failed, so all later ones do.
    has_failed: bool,
    /// Places of the send memory that no work request uses.
    free: Vec<usize>,
}

// SAFETY: verbs may be called on objects from any thread.
unsafe impl Send for DatagramEndpoint {}

impl Drop for DatagramEndpoint {
    fn drop(&mut self) {
        // SAFETY: made in `new` and destroyed only here, before what it uses.
        unsafe { rdma_destroy_qp(self.id.as_ptr()) };
    }
}

impl DatagramEndpoint {
    /// Makes all that datagrams from and to an address of this host need, and posts the receives.
    ///
    /// # Errors
    /// ENODEV if no device has the address, ENOTSUP if it has no datagrams, ENOMEM.
    pub(super) fn new(local: IpAddr) -> Result<Self> {
        let service = Service::get()?;
        let id = CmId::create(&service, RDMA_PS_UDP)?;
        id.bind((local, 0).into())?;
        // SAFETY: live as long as `id`.
        let bound = unsafe { Id::new(id.as_ptr()) }?;
        let (context, pd) = (bound.bound_verbs()?, bound.pd());
        let device = bound.nic().device().ok_or(Errno(libc::ENODEV))?;
        if device.protocol() == Protocol::Iwarp {
            return Err(Errno(libc::ENOTSUP));
        }
        let gids = device.gids();
        let own = gids.iter().find(|entry| entry.gid == Gid::from_ip(local));
        let gid_index = own.and_then(|entry| u8::try_from(entry.index).ok());
        let gid_index = gid_index.ok_or(Errno(libc::ENODEV))?;
        let bytes = |count: u32, each: usize| count as usize * each;
        // SAFETY: the identifier's protection domain is the device's, which lives for ever.
        let (receive, send) = unsafe {
            let access = IBV_ACCESS_LOCAL_WRITE;
            (
                Memory::new(pd, bytes(RECEIVES, SLOT), access)?,
                Memory::new(pd, bytes(SENDS, LONGEST), access)?,
            )
        };
        // SAFETY: a live context, of the identifier that the endpoint holds.
        let queue = unsafe { CompletionQueue::new(context, RECEIVES + SENDS) }?;
        let free = (0..SENDS as usize).collect();
        let endpoint = Self {
            queue,
            id,
            device,
            pd,
            receive,
            send,
            gid_index,
            has_failed: false,
            free,
        };
        endpoint.start()?;
        Ok(endpoint)
    }

    fn start(&self) -> Result<()> {
        let mut attr = ibv_qp_init_attr {
            send_cq: self.queue.as_ptr(),
            recv_cq: self.queue.as_ptr(),
            qp_type: IBV_QPT_UD,
            cap: ibv_qp_cap {
                max_send_wr: SENDS,
                max_recv_wr: RECEIVES,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            ..ibv_qp_init_attr::zeroed()
        };
        // SAFETY: live objects. NULL is the identifier's own protection domain.
        Errno::check(unsafe { rdma_create_qp(self.id.as_ptr(), ptr::null_mut(), &raw mut attr) })?;
        (0..RECEIVES as usize).try_for_each(|slot| self.post_receive(slot))
    }

    fn qp(&self) -> *mut ibv_qp {
        // SAFETY: the identifier is live, and has its queue pair as long as `self`.
        unsafe { (*self.id.as_ptr()).qp }
    }

    /// Puts the queue pair into ERR, as what cannot be received or sent does.
    #[cfg(test)]
    pub(super) fn break_down(&self) {
        let mut attr = ibv_qp_attr {
            qp_state: IBV_QPS_ERR,
            ..ibv_qp_attr::zeroed()
        };
        let mask = libc::c_int::try_from(IBV_QP_STATE).unwrap();
        // SAFETY: a live queue pair, and attributes.
        assert_eq!(unsafe { ibv_modify_qp(self.qp(), &raw mut attr, mask) }, 0);
    }

    /// Number of the queue pair.
    pub(super) fn qpn(&self) -> Qpn {
        // SAFETY: live as long as `self`.
        Qpn::new(unsafe { (*self.qp()).qp_num })
    }

    /// Most bytes of a datagram, with its header: the port's MTU, which follows its interface.
    pub(super) fn mtu(&self) -> usize {
        self.device.port().active_mtu.bytes() as usize
    }

    /// Whether nothing comes or goes any more: the owner drops the endpoint, and the peers that it
    /// knows by it.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether a datagram can be sent now.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Its completion queue.
    pub(super) fn queue(&self) -> &CompletionQueue {
        &self.queue
    }

    fn post_receive(&self, slot: usize) -> Result<()> {
        let mut sge = ibv_sge {
            addr: self.receive.address(slot * SLOT),
            length: u32::try_from(SLOT).unwrap_or(0),
            lkey: self.receive.local_key(),
        };
        let mut wr = ibv_recv_wr {
            wr_id: RECEIVE | slot as u64,
            next: ptr::null_mut(),
            sg_list: &raw mut sge,
            num_sge: 1,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair; the request and its list live through the call.
        match unsafe { post_recv(self.qp(), &raw mut wr, &raw mut bad) } {
            0 => Ok(()),
            errno => Err(Errno(errno)),
        }
    }

    /// Sends `header` and the bytes of `from` in one datagram. The caller has asked
    /// [`has_room`](Self::has_room) and kept to [`mtu`](Self::mtu).
    pub(super) fn send(
        &mut self,
        to: (&AddressHandle, Qpn),
        header: &[u8],
        from: &mut Buffers<'_>,
    ) -> Result<()> {
        let slot = self.free.pop().ok_or(Errno(libc::EAGAIN))?;
        let start = slot * LONGEST;
        // SAFETY: the header can be read.
        unsafe { self.send.put(start, header.as_ptr(), header.len()) };
        let mut at = start + header.len();
        from.advance(LONGEST - header.len(), |piece, len| {
            // SAFETY: bytes of the program's buffer.
            unsafe { self.send.put(at, piece, len) };
            at += len;
        });
        let mut sge = ibv_sge {
            addr: self.send.address(start),
            length: u32::try_from(at - start).unwrap_or(0),
            lkey: self.send.local_key(),
        };
        let mut wr = ibv_send_wr {
            wr_id: slot as u64,
            sg_list: &raw mut sge,
            num_sge: 1,
            opcode: IBV_WR_SEND,
            send_flags: IBV_SEND_SIGNALED,
            ..ibv_send_wr::zeroed()
        };
        wr.wr.ud = ibv_send_wr_ud {
            ah: to.0.0,
            remote_qpn: to.1.get(),
            remote_qkey: QKEY,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair and address handle; the request and its list live through the
        // call.
        match unsafe { post_send(self.qp(), &raw mut wr, &raw mut bad) } {
            0 => Ok(()),
            errno => {
                self.free.push(slot);
                Err(Errno(errno))
            }
        }
    }

    /// Takes what has completed, at most one batch, and posts receives again. After a failure it
    /// posts none: they would be flushed, and taking their completions would never end.
    pub(super) fn poll(&mut self, mut each: impl FnMut(&Came<'_>)) -> Polled {
        let mut room = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
        let Some(wcs) = self.queue.poll(&mut room) else {
            self.has_failed = true;
            return Polled::All;
        };
        for wc in wcs {
            let slot = usize::try_from(wc.wr_id & !RECEIVE).unwrap_or(0);
            if wc.status != IBV_WC_SUCCESS {
                self.has_failed = true;
            } else if wc.wr_id & RECEIVE == 0 {
                self.free.push(slot);
            } else {
                self.take(slot, wc, &mut each);
                self.has_failed |= self.post_receive(slot).is_err();
            }
        }
        match wcs.len() {
            0 => Polled::Nothing,
            BATCH if !self.has_failed => Polled::Part,
            _ => Polled::All,
        }
    }

    fn take(&self, slot: usize, wc: &ibv_wc, each: &mut impl FnMut(&Came<'_>)) {
        let len = wc.byte_len as usize;
        if wc.wc_flags & IBV_WC_GRH == 0 || len < GRH_LEN {
            return;
        }
        let mut bytes = vec![0; len.min(SLOT)];
        // SAFETY: the buffer is so long.
        unsafe {
            let at = slot * SLOT;
            self.receive.get(at, bytes.as_mut_ptr(), bytes.len());
        }
        let Some((route, bytes)) = bytes.split_first_chunk::<GRH_LEN>() else {
            return;
        };
        if let Some(route) = GrhRoute::parse(route) {
            each(&Came {
                ip: route.src.ip(),
                qpn: Qpn::new(wc.src_qp & 0x00ff_ffff),
                bytes,
            });
        }
    }

    /// An address handle for datagrams to the host with this address.
    pub(super) fn address_handle(&self, ip: IpAddr) -> Result<AddressHandle> {
        let mut attr = ibv_ah_attr {
            grh: ibv_global_route {
                dgid: gid_to_c(Gid::from_ip(ip)),
                flow_label: 0,
                sgid_index: self.gid_index,
                hop_limit: 64,
                traffic_class: 0,
            },
            is_global: 1,
            port_num: 1,
            ..ibv_ah_attr::zeroed()
        };
        // SAFETY: the identifier's protection domain, which lives for ever.
        let ah = unsafe { ibv_create_ah(self.pd, &raw mut attr) };
        if ah.is_null() {
            return Err(Errno::last());
        }
        Ok(AddressHandle(ah))
    }
}

/// An address handle, destroyed on drop.
#[derive(Debug)]
pub(super) struct AddressHandle(*mut ibv_ah);

// SAFETY: verbs may be called on objects from any thread.
unsafe impl Send for AddressHandle {}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: made by `address_handle`, and destroyed only here. Datagrams that still wait to
        // go out are lost, as datagrams may be.
        unsafe { ibv_destroy_ah(self.0) };
    }
}
