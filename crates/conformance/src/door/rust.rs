//! Through the Rust objects of the device.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::sync::Arc;

use ferroce_abi::types::ibv_wc;
use ferroce_nic::objects::cq::Entry;
use ferroce_nic::{
    Ah, AsyncSubject, CompChannel, Context, Cq, Device, Error, Mr, Nic, Pd, Qp, QpInit, Srq,
    SrqAttr, Window, Xrcd, XrcdFlags,
};
use ferroce_proto::ids::{Gid, Key, Qpn, Srqn};
use ferroce_proto::mr::{Access, WindowType};
use ferroce_proto::ud::{GRH_LEN, GrhRoute};
use ferroce_proto::verbs::{
    AddressHandleAttr, AsyncEvent, AttrMask, GlobalRoute, QpAttr, QpType, RecvWr, SendWr, Wc,
};

use super::{About, Change, Domain, Errno, Memory, MemoryPart, Side, c_work, count};
use crate::bench::{Poll, Spec};

/// Cookies of the objects in events.
const QP: usize = 1;
const CQ: usize = 2;
const SRQ: usize = 3;

/// A side through the Rust objects.
#[derive(Debug)]
pub struct RustSide {
    windows: Vec<Window>,
    handles: Vec<Arc<Ah>>,
    regions: HashMap<Key, Arc<Mr>>,
    qp: Arc<Qp>,
    /// The last is the one to which receives are posted.
    srqs: Vec<Arc<Srq>>,
    xrcd: Option<Arc<Xrcd>>,
    cq: Arc<Cq>,
    channel: Arc<CompChannel>,
    poll: Poll,
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

fn shared_receive_queue(
    pd: &Arc<Pd>,
    attr: SrqAttr,
    xrcd: Option<&Arc<Xrcd>>,
    cq: &Arc<Cq>,
) -> Arc<Srq> {
    let srq = match xrcd {
        Some(xrcd) => Srq::create_xrc(pd, attr, xrcd, cq),
        None => Srq::create(pd, attr),
    };
    let srq = srq.expect("a shared receive queue");
    srq.set_cookie(SRQ);
    srq
}

impl RustSide {
    /// Makes the objects; the queue pair is in RESET.
    #[must_use]
    pub fn open(spec: &Spec, memory: Memory) -> Self {
        let context = Context::open(&loopback()).expect("a context");
        let pd = Pd::alloc(&context).expect("a protection domain");
        let other_pd = Pd::alloc(&context).expect("a protection domain");
        let channel = CompChannel::new(&context).expect("a channel");
        let cq = Cq::create(&context, spec.cqe, Some(Arc::clone(&channel)));
        let cq = cq.expect("a completion queue");
        cq.set_cookie(CQ);
        let xrcd = (spec.qp_type == QpType::XrcRecv).then(|| {
            let flags = XrcdFlags {
                create: true,
                exclusive: false,
            };
            Xrcd::open(&context, None, flags).expect("a domain")
        });
        let srq = spec.srq.map(|max_wr| {
            let attr = SrqAttr {
                max_wr,
                max_sge: spec.cap.max_recv_sge,
                srq_limit: 0,
            };
            shared_receive_queue(&pd, attr, xrcd.as_ref(), &cq)
        });
        let init = QpInit {
            qp_type: spec.qp_type,
            send_cq: Arc::clone(&cq),
            recv_cq: Arc::clone(&cq),
            cap: spec.cap,
            sq_sig_all: spec.sq_sig_all,
            srq: srq.clone(),
        };
        let qp = match &xrcd {
            Some(xrcd) => Qp::create_target(xrcd),
            None => Qp::create(&pd, init),
        };
        let qp = qp.expect("a queue pair");
        qp.set_cookie(QP);
        Self {
            windows: Vec::new(),
            handles: Vec::new(),
            regions: HashMap::new(),
            qp,
            srqs: srq.into_iter().collect(),
            xrcd,
            cq,
            channel,
            poll: spec.poll,
            pd,
            other_pd,
            context,
            memory,
        }
    }

    fn srq(&self) -> &Srq {
        self.srqs.last().expect("a shared receive queue")
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn errno(e: Error) -> Errno {
    Errno(e.errno)
}

/// The completion in an array, with what the functions of C check.
fn as_in_c(entry: &Entry) -> ibv_wc {
    let mut wc = ibv_wc::zeroed();
    (wc.wr_id, wc.status) = (entry.wr_id, entry.status);
    (wc.opcode, wc.vendor_err) = (entry.opcode, entry.vendor_err);
    (wc.byte_len, wc.imm_data) = (entry.byte_len, entry.imm_data);
    (wc.qp_num, wc.src_qp) = (entry.qp_num, entry.src_qp);
    (wc.wc_flags, wc.sl) = (entry.wc_flags, entry.sl);
    wc
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

    fn register_in(
        &mut self,
        domain: Domain,
        MemoryPart { offset, len }: MemoryPart,
        access: Access,
    ) -> Result<Key, Errno> {
        let pd = match domain {
            Domain::Own => &self.pd,
            Domain::Other => &self.other_pd,
        };
        let addr = self.memory.base() + offset as u64;
        let mr = Mr::register(pd, addr, len as u64, addr, access).map_err(errno)?;
        let key = mr.key();
        self.regions.insert(key, mr);
        Ok(key)
    }

    fn reregister(&mut self, key: Key, change: &Change) -> Result<(), Errno> {
        let base = self.memory.base();
        let range = change
            .range
            .map(|(offset, len)| (base + offset as u64, len as u64));
        let pd = change.elsewhere.then_some(&self.other_pd);
        self.regions[&key]
            .reregister(range, pd, change.access)
            .map_err(errno)
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
        let mut wrs = [wr].into_iter();
        let result = match self.srqs.last() {
            Some(srq) => srq.post_recv(&mut wrs),
            None => self.qp.post_recv(&mut wrs),
        };
        result.map_err(|(_, e)| errno(e))
    }

    fn poll(&self) -> Result<Option<Wc>, Errno> {
        if self.poll == Poll::Other {
            let mut array = [MaybeUninit::uninit()];
            let found = self.cq.poll_into(&mut array).map_err(errno)?;
            // SAFETY: the poll has written as many places as it says.
            let entry = (found == 1).then(|| unsafe { array[0].assume_init() });
            return Ok(entry.map(|entry| c_work::completion(&as_in_c(&entry))));
        }
        let mut found = None;
        let mut take = |_, wc: &Wc| found = Some(*wc);
        self.cq.poll(1, &mut take).map_err(errno)?;
        Ok(found)
    }

    fn arm(&self, solicited_only: bool) {
        self.cq.req_notify(solicited_only);
    }

    fn take_cq_event(&self) -> bool {
        count::is_readable(self.channel.fd())
            && self.channel.take_count().is_ok()
            && self.channel.pop() == Some(CQ)
    }

    fn moderate(&self, count: u16, period: u16) {
        self.cq.moderate(count, period);
    }

    fn address_handle(&mut self, attr: &AddressHandleAttr) -> Result<u32, Errno> {
        let ah = Ah::create(&self.pd, *attr).map_err(errno)?;
        let number = ah.number();
        self.handles.push(ah);
        Ok(number)
    }

    fn handle_to_sender(&mut self, _wc: &Wc, offset: usize) -> Result<u32, Errno> {
        let header = self.memory.bytes(offset, GRH_LEN);
        let header = header.first_chunk().expect("as long as asked for");
        let came = GrhRoute::parse(header).expect("an IP header");
        let gids = self.context.device().gids();
        let own = gids.iter().find(|e| e.gid == came.dst).expect("our own");
        self.address_handle(&AddressHandleAttr {
            grh: GlobalRoute {
                dgid: came.src,
                flow_label: came.flow_label,
                sgid_index: u8::try_from(own.index).expect("small"),
                hop_limit: came.hop_limit,
                traffic_class: came.traffic_class,
            },
            is_global: true,
            port_num: 1,
            ..AddressHandleAttr::default()
        })
    }

    fn attach(&self, group: Gid) -> Result<(), Errno> {
        self.qp.attach_mcast(group).map_err(errno)
    }

    fn detach(&self, group: Gid) -> Result<(), Errno> {
        self.qp.detach_mcast(group).map_err(errno)
    }

    fn resize_cq(&self, cqe: u32) -> Result<(), Errno> {
        self.cq.resize(cqe).map_err(errno)
    }

    fn srqn(&self) -> Srqn {
        self.srq().number().expect("XRC queues have numbers")
    }

    fn another_srq(&mut self) {
        let xrcd = self.xrcd.as_ref().expect("an XRC target");
        let attr = self.srq().query();
        let srq = Srq::create_xrc(&self.pd, attr, xrcd, &self.cq).expect("another queue");
        srq.set_cookie(SRQ);
        self.srqs.push(srq);
    }

    fn arm_srq(&self, limit: u32) -> Result<(), Errno> {
        let srq = self.srq();
        srq.modify(None, Some(limit)).map_err(errno)
    }

    fn srq_limit(&self) -> u32 {
        self.srq().query().srq_limit
    }

    fn window(&mut self) -> Result<Key, Errno> {
        let window = Window::alloc(&self.pd, WindowType::Two).map_err(errno)?;
        let key = window.first_key();
        self.windows.push(window);
        Ok(key)
    }

    fn event(&self) -> Option<(AsyncEvent, About)> {
        let (event, subject) = self.context.pop_async_event()?;
        let about = match subject {
            AsyncSubject::Qp(QP) => About::Qp,
            AsyncSubject::Cq(CQ) => About::Cq,
            AsyncSubject::Srq(SRQ) => About::Srq,
            _ => About::Other,
        };
        Some((event, about))
    }
}

impl Drop for RustSide {
    fn drop(&mut self) {
        self.qp.destroy();
        for srq in &self.srqs {
            srq.destroy();
        }
        for ah in &self.handles {
            ah.destroy();
        }
    }
}
