//! Through the Rust objects of the device.

use std::collections::HashMap;
use std::sync::Arc;

use ferroce_nic::{AsyncSubject, Context, Cq, Device, Error, Mr, Nic, Pd, Qp, QpInit};
use ferroce_proto::ids::{Gid, Key, Qpn};
use ferroce_proto::mr::Access;
use ferroce_proto::verbs::{AsyncEvent, AttrMask, QpAttr, RecvWr, SendWr, Wc};

use super::{About, Errno, Memory, Side};
use crate::bench::Spec;

/// Cookies of the objects in events.
const QP: usize = 1;
const CQ: usize = 2;

/// A side through the Rust objects.
#[derive(Debug)]
pub struct RustSide {
    regions: HashMap<Key, Arc<Mr>>,
    qp: Arc<Qp>,
    cq: Arc<Cq>,
    pd: Arc<Pd>,
    other_pd: Arc<Pd>,
    context: Arc<Context>,
    memory: Memory,
}

/// The loopback device.
#[must_use]
pub fn loopback() -> Arc<Device> {
    let nic = Nic::get().expect("a device");
    let devices = nic.devices();
    devices
        .iter()
        .find(|d| d.name() == "ferroce_lo")
        .cloned()
        .expect("lo is up and has an address")
}

impl RustSide {
    /// Makes the objects; the queue pair is in RESET.
    #[must_use]
    pub fn open(spec: &Spec) -> Self {
        let context = Context::open(&loopback()).expect("a context");
        let pd = Pd::alloc(&context).expect("a protection domain");
        let other_pd = Pd::alloc(&context).expect("a protection domain");
        let cq = Cq::create(&context, spec.cqe, None).expect("a completion queue");
        cq.set_cookie(CQ);
        let init = QpInit {
            qp_type: spec.qp_type,
            send_cq: Arc::clone(&cq),
            recv_cq: Arc::clone(&cq),
            cap: spec.cap,
            sq_sig_all: spec.sq_sig_all,
            srq: None,
        };
        let qp = Qp::create(&pd, init).expect("a queue pair");
        qp.set_cookie(QP);
        Self {
            regions: HashMap::new(),
            qp,
            cq,
            pd,
            other_pd,
            context,
            memory: Memory::new(spec.memory),
        }
    }

    fn register_in(
        &mut self,
        pd: &Arc<Pd>,
        (offset, len): (usize, usize),
        access: Access,
    ) -> Result<Key, Errno> {
        let addr = self.memory.base() + offset as u64;
        let mr = Mr::register(pd, addr, len as u64, addr, access).map_err(errno)?;
        let key = mr.key();
        self.regions.insert(key, mr);
        Ok(key)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn errno(e: Error) -> Errno {
    Errno(e.errno)
}

impl Side for RustSide {
    fn qpn(&self) -> Qpn {
        self.qp.qpn()
    }
    fn gid(&self, index: u8) -> Option<Gid> {
        self.context.device().gid(index.into())
    }
    fn memory(&self) -> &Memory {
        &self.memory
    }
    fn register(&mut self, offset: usize, len: usize, access: Access) -> Result<Key, Errno> {
        let pd = Arc::clone(&self.pd);
        self.register_in(&pd, (offset, len), access)
    }
    fn register_elsewhere(
        &mut self,
        offset: usize,
        len: usize,
        access: Access,
    ) -> Result<Key, Errno> {
        let pd = Arc::clone(&self.other_pd);
        self.register_in(&pd, (offset, len), access)
    }
    fn deregister(&mut self, key: Key) {
        let mr = self.regions.remove(&key).expect("a registered key");
        assert_eq!(Arc::strong_count(&mr), 1, "nobody else keeps the region");
    }
    fn modify(&self, attr: &QpAttr, mask: AttrMask) -> Result<(), Errno> {
        self.qp.modify(attr, mask).map_err(errno)
    }
    fn query(&self) -> QpAttr {
        self.qp.query()
    }
    fn post_send(&self, wr: SendWr) -> Result<(), Errno> {
        let result = self.qp.post_send(&mut [wr].into_iter());
        result.map_err(|(_, e)| errno(e))
    }
    fn post_recv(&self, wr: RecvWr) -> Result<(), Errno> {
        let result = self.qp.post_recv(&mut [wr].into_iter());
        result.map_err(|(_, e)| errno(e))
    }
    fn poll(&self) -> Result<Option<Wc>, Errno> {
        let mut found = None;
        let mut take = |_, wc: &Wc| found = Some(*wc);
        self.cq.poll(1, &mut take).map_err(errno)?;
        Ok(found)
    }
    fn event(&self) -> Option<(AsyncEvent, About)> {
        let (event, subject) = self.context.pop_async_event()?;
        let about = match subject {
            AsyncSubject::Qp(QP) => About::Qp,
            AsyncSubject::Cq(CQ) => About::Cq,
            _ => About::Other,
        };
        Some((event, about))
    }
}

impl Drop for RustSide {
    fn drop(&mut self) {
        self.qp.destroy();
    }
}
