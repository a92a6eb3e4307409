//! Queue pairs, and posting to them.

use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ferroce_abi::types::{
    IBV_QPT_RC, ibv_qp, ibv_qp_cap, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr,
};

use super::work::{Elements, Held, Owner, Request, send_request};
use super::{Domain, Identifier, Queue};
use crate::{Error, Operation, Result};

/// A queue pair of an identifier.
pub(crate) struct QueuePairHandle {
    identifier: Arc<Identifier>,
    domain: Arc<Domain>,
    send: Arc<Queue>,
    receive: Arc<Queue>,
    raw: NonNull<ibv_qp>,
    number: u32,
    /// Tells its work from that of others. Numbers of queue pairs come again.
    owner: Owner,
}

/// A work request that was not posted: why, and its memory.
pub(crate) type Refused = (Error, Held);

// SAFETY: C's queue pairs may be used by several threads at once.
unsafe impl Send for QueuePairHandle {}
// SAFETY: as above.
unsafe impl Sync for QueuePairHandle {}

impl QueuePairHandle {
    /// `rdma_create_qp` for a reliable connection. `cap` is set to what it really can.
    pub(crate) fn new(
        identifier: &Arc<Identifier>,
        domain: &Arc<Domain>,
        send: &Arc<Queue>,
        receive: &Arc<Queue>,
        cap: &mut ibv_qp_cap,
    ) -> Result<Self> {
        if !send.is_of(&domain.device) || !receive.is_of(&domain.device) {
            return Err(Error::Misuse(
                "the completion queues and the protection domain are of different contexts",
            ));
        }
        let mut init = ibv_qp_init_attr::zeroed();
        init.send_cq = send.raw.as_ptr();
        init.recv_cq = receive.raw.as_ptr();
        init.cap = *cap;
        init.qp_type = IBV_QPT_RC;
        let raw = identifier.create_queue_pair(domain, &mut init)?;
        *cap = init.cap;
        // SAFETY: a live queue pair, whose number never changes.
        let number = unsafe { (*raw.as_ptr()).qp_num };
        Ok(Self {
            identifier: Arc::clone(identifier),
            domain: Arc::clone(domain),
            send: Arc::clone(send),
            receive: Arc::clone(receive),
            raw,
            number,
            owner: Owner::new(),
        })
    }

    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Where its sends complete.
    pub(crate) fn send_queue(&self) -> &Arc<Queue> {
        &self.send
    }

    /// Where its receives complete.
    pub(crate) fn receive_queue(&self) -> &Arc<Queue> {
        &self.receive
    }

    /// `ibv_post_send`; the `wr_id`.
    pub(crate) fn post_send(
        &self,
        request: Request,
        operation: Operation,
    ) -> std::result::Result<u64, Refused> {
        self.post(&self.send, request, |id, elements| {
            let mut posted = send_request(operation);
            posted.wr_id = id;
            posted.sg_list = elements.as_mut_ptr();
            posted.num_sge = count(elements)?;
            let mut bad: *mut ibv_send_wr = ptr::null_mut();
            // SAFETY: an open context has its operations filled in, and does not change them.
            let post_send = unsafe { (*self.domain.device.raw.as_ptr()).ops.post_send };
            let post_send = post_send.ok_or(Error::Misuse("the device has no ibv_post_send"))?;
            // SAFETY: a live queue pair and one request; its memory is held until its completion.
            Error::check("ibv_post_send", unsafe {
                post_send(self.raw.as_ptr(), &raw mut posted, &raw mut bad)
            })
        })
    }

    /// `ibv_post_recv`; the `wr_id`.
    pub(crate) fn post_receive(&self, request: Request) -> std::result::Result<u64, Refused> {
        self.post(&self.receive, request, |id, elements| {
            let mut posted = ibv_recv_wr::zeroed();
            posted.wr_id = id;
            posted.sg_list = elements.as_mut_ptr();
            posted.num_sge = count(elements)?;
            let mut bad: *mut ibv_recv_wr = ptr::null_mut();
            // SAFETY: an open context has its operations filled in, and does not change them.
            let post_recv = unsafe { (*self.domain.device.raw.as_ptr()).ops.post_recv };
            let post_recv = post_recv.ok_or(Error::Misuse("the device has no ibv_post_recv"))?;
            // SAFETY: as in `post_send`.
            Error::check("ibv_post_recv", unsafe {
                post_recv(self.raw.as_ptr(), &raw mut posted, &raw mut bad)
            })
        })
    }

    /// Takes note of a request in its completion queue, and has it posted.
    fn post(
        &self,
        queue: &Queue,
        request: Request,
        post: impl FnOnce(u64, &mut Elements) -> Result<()>,
    ) -> std::result::Result<u64, Refused> {
        if let Err(error) = request.check(&self.domain) {
            return Err((error, request.into_held()));
        }
        let (tag, reader, mut elements, held) = request.into_parts();
        let id = queue.add(tag, self.owner, held, reader);
        match post(id, &mut elements) {
            Ok(()) => Ok(id),
            Err(error) => Err((error, queue.withdraw(id))),
        }
    }
}

fn count(elements: &Elements) -> Result<c_int> {
    c_int::try_from(elements.len())
        .map_err(|_| Error::Misuse("too many pieces of memory for one work request"))
}

impl Drop for QueuePairHandle {
    fn drop(&mut self) {
        // SAFETY: the identifier's own queue pair, made by `new` and used by nobody any more.
        unsafe { self.identifier.destroy_queue_pair() };
        // The device works on nothing of it any more.
        self.send.forget(self.owner, self.number);
        self.receive.forget(self.owner, self.number);
    }
}
