//! Queue pairs.

mod agree;
mod datagram;
mod direct;
mod fast;
mod ferroce_peer;
mod guard;
mod handles;
mod input;
mod locked;
mod modify;
mod multicast;
mod output;
mod paced;
mod post;
mod queues;
mod results;
mod share;
mod step;
mod stream;
mod table;
mod tags;
mod transport;
mod within_host;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use ferroce_proto::ids::Qpn;
use ferroce_proto::iwarp::IwQp;
use ferroce_proto::rc::{RcConfig, RcQp};
use ferroce_proto::uc::UcQp;
use ferroce_proto::ud::UdQp;
use ferroce_proto::verbs::{AttrMask, QpAttr, QpCap, QpState, QpType};

pub(crate) use self::fast::brief::BriefTaken;
pub(crate) use self::fast::idle::IdleLook;
pub(crate) use self::fast::watched::{
    LateWakeUps, NewShortRings, RingEnd, ShortRingOffer, Watch, WatchedShortRings,
};
use self::guard::QpLock;
pub(crate) use self::handles::HandleElsewhere;
use self::handles::Handles;
use self::locked::Locked;
pub(crate) use self::modify::Stations;
use self::queues::Queues;
pub(crate) use self::table::QpTable;
use self::transport::Transport;
use crate::base::sync::lock;
use crate::base::tally::{Tallied, Tally};
use crate::objects::device::{DeviceAttr, Limit, Permit, Protocol};
use crate::objects::services::Services;
use crate::objects::xrc::Opened;
use crate::{Cq, Error, Pd, Srq, Xrcd};

/// Attributes of `ibv_create_qp`.
#[derive(Debug)]
#[expect(missing_docs, reason = "the names are those of ibv_create_qp(3)")]
pub struct QpInit {
    pub qp_type: QpType,
    pub send_cq: Arc<Cq>,
    pub recv_cq: Arc<Cq>,
    pub cap: QpCap,
    pub sq_sig_all: bool,
    /// Receives come from here, and the receive capacities do not count.
    pub srq: Option<Arc<Srq>>,
}

/// A queue pair. Dropping the last reference does nothing by itself: call
/// [`destroy`](Self::destroy).
#[derive(Debug)]
pub struct Qp {
    me: Weak<Self>,
    pd: Arc<Pd>,
    /// Services of the context, which each message asks for a few times.
    services: Arc<Services>,
    queues: Queues,
    qpn: Qpn,
    qp_type: QpType,
    cap: QpCap,
    sq_sig_all: bool,
    handles: Handles,
    /// A target of another process: this is a handle of it.
    opened: Option<Opened>,
    /// Own multicast packets are not received (`IBV_QP_CREATE_BLOCK_SELF_MCAST_LB`).
    deaf_to_itself: AtomicBool,
    /// The peer is known to be a Ferroce on another host.
    is_ferroce_peer: AtomicBool,
    /// When to ask the peer whether it is a Ferroce.
    question: ferroce_peer::QuestionDue,
    /// Changed under the lock only.
    tally: Arc<Tally>,
    /// Taken after the progress lock and before the rights table, a CQ or a link; never two of them
    /// at once.
    locked: QpLock,
    _permit: Permit,
}

impl Qp {
    /// Packets that it has sent.
    pub(crate) fn sent(&self) -> u64 {
        self.tally.get(Tallied::TxPackets)
    }

    /// Makes a queue pair in RESET. An XRC initiator has no receive side: its `recv_cq` and `srq`
    /// do not count.
    ///
    /// # Errors
    /// EINVAL for capacities above the device's limits, EOPNOTSUPP for a type that is not built,
    /// ENOMEM when numbers run out.
    pub fn create(pd: &Arc<Pd>, init: QpInit) -> Result<Arc<Self>, Error> {
        if !matches!(
            init.qp_type,
            QpType::Rc | QpType::Uc | QpType::Ud | QpType::XrcSend
        ) {
            return Err(Error::unsupported(format!(
                "queue pairs of type {:?} are not built",
                init.qp_type
            )));
        }
        let device = pd.context().device();
        if device.protocol() == Protocol::Iwarp && init.qp_type != QpType::Rc {
            return Err(Error::unsupported(format!(
                "iWARP has queue pairs of type RC only, not {:?}",
                init.qp_type
            )));
        }
        let cap = check_cap(&init, device.limits())?;
        check_srq(pd, init.srq.as_deref())?;
        let (qp_type, sq_sig_all) = (init.qp_type, init.sq_sig_all);
        let shared_recv = init.srq.is_some();
        let config = |qpn| RcConfig {
            qpn,
            qp_type,
            pd: pd.id(),
            cap,
            sq_sig_all,
            shared_recv,
        };
        Self::build(pd, config, Queues::of(init))
    }

    /// Makes an XRC target in RESET: it has neither work queues nor completion queues nor a
    /// protection domain.
    ///
    /// # Errors
    /// ENOMEM at the device's limit.
    pub fn create_target(xrcd: &Arc<Xrcd>) -> Result<Arc<Self>, Error> {
        let queues = Queues::of_target(Arc::clone(xrcd));
        let qp = Self::build(xrcd.pd(), |qpn| target_config(xrcd, qpn), queues)?;
        lock(xrcd.domain().targets()).insert(qp.qpn, Arc::clone(&qp));
        Ok(qp)
    }

    fn build(
        pd: &Arc<Pd>,
        config: impl FnOnce(Qpn) -> RcConfig,
        queues: Queues,
    ) -> Result<Arc<Self>, Error> {
        let device = pd.context().device();
        let permit = device.permit(Limit::Qp)?;
        let services = pd.context().services();
        let qp = services.qps.insert(&services.numbers, |qpn| {
            let config = config(qpn);
            let transport = match config.qp_type {
                _ if device.protocol() == Protocol::Iwarp => {
                    Transport::Iwarp(Box::new(IwQp::new(config)))
                }
                QpType::Uc => Transport::Uc(Box::new(UcQp::new(config))),
                QpType::Ud => {
                    let mtu = pd.context().device().port().fitting_mtu;
                    Transport::Ud(Box::new(UdQp::new(config, mtu)))
                }
                _ => Transport::Rc(Box::new(RcQp::new(config))),
            };
            let tally = device.counters().open_tally(config.qpn);
            Arc::new_cyclic(|me| Self {
                tally,
                ..Self::bare(me, pd, permit, config, queues, transport)
            })
        })?;
        qp.pd.attach();
        qp.queues.attach();
        tracing::debug!(target: "ferroce::qp", qpn = qp.qpn.get(), qp_type = ?qp.qp_type, device = device.name(), "created");
        Ok(qp)
    }

    /// A handle of a target that another process has made. Its own transport stays in RESET,
    /// where nothing can be posted.
    fn imported_handle(xrcd: &Arc<Xrcd>, opened: Opened) -> Result<Arc<Self>, Error> {
        let pd = xrcd.pd();
        let permit = pd.context().device().permit(Limit::Qp)?;
        let config = target_config(xrcd, opened.qpn());
        let transport = Transport::Rc(Box::new(RcQp::new(config)));
        let queues = Queues::of_target(Arc::clone(xrcd));
        Ok(Arc::new_cyclic(|me| Self {
            opened: Some(opened),
            ..Self::bare(me, pd, permit, config, queues, transport)
        }))
    }

    fn bare(
        me: &Weak<Self>,
        pd: &Arc<Pd>,
        permit: Permit,
        config: RcConfig,
        queues: Queues,
        transport: Transport,
    ) -> Self {
        Self {
            me: Weak::clone(me),
            pd: Arc::clone(pd),
            services: Arc::clone(pd.context().services()),
            queues,
            qpn: config.qpn,
            qp_type: config.qp_type,
            cap: config.cap,
            sq_sig_all: config.sq_sig_all,
            handles: Handles::default(),
            opened: None,
            is_ferroce_peer: AtomicBool::new(false),
            question: ferroce_peer::QuestionDue::default(),
            tally: Arc::default(),
            deaf_to_itself: AtomicBool::new(false),
            locked: QpLock::new(Locked::new(transport)),
            _permit: permit,
        }
    }

    /// Returns the queue pair number.
    #[must_use]
    pub fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// Returns the queue pair type.
    #[must_use]
    pub fn qp_type(&self) -> QpType {
        self.qp_type
    }

    /// True capacities.
    #[must_use]
    pub fn cap(&self) -> QpCap {
        self.cap
    }

    /// Whether every send work request is signalled.
    #[must_use]
    pub fn sq_sig_all(&self) -> bool {
        self.sq_sig_all
    }

    /// Its protection domain.
    #[must_use]
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Returns the shared receive queue, if the queue pair has no receive queue of its own.
    #[must_use]
    pub fn srq(&self) -> Option<&Arc<Srq>> {
        self.queues.srq.as_ref()
    }

    /// Current state.
    #[must_use]
    pub fn state(&self) -> QpState {
        match &self.opened {
            Some(opened) => opened.last().qp_state,
            None => self.lock().transport.state(),
        }
    }

    /// `ibv_modify_qp`.
    ///
    /// # Errors
    /// * EINVAL, with the reason.
    /// * ENETUNREACH: the destination is on another host, and UDP 4791 is not available, or there
    ///   is no route.
    /// * ETIMEDOUT: nobody answers for the destination on the local network within a second.
    /// * For a target of another process, EIO if that process is gone, and ETIMEDOUT if it does not
    ///   answer.
    pub fn modify(&self, attr: &QpAttr, mask: AttrMask) -> Result<(), Error> {
        match &self.opened {
            Some(opened) => {
                // Here, since the owner's device thread must not wait.
                let primary = mask.contains(AttrMask::AV).then_some(attr.ah_attr);
                let alternate = mask
                    .contains(AttrMask::ALT_PATH)
                    .then_some(attr.alt_ah_attr);
                let to = primary.into_iter().chain(alternate);
                self.await_stations(to.map(|ah| ah.grh.dgid))?;
                opened.modify(self, attr, mask)
            }
            None if self.pd.context().device().protocol() == Protocol::Iwarp => {
                self.modify_on_iwarp(attr, mask)
            }
            None => self.apply(attr, mask, Stations::Unknown),
        }
    }

    /// `ibv_query_qp`. Of a target of another process that does not answer: what it said last, and
    /// ERR if that process is gone.
    #[must_use]
    pub fn query(&self) -> QpAttr {
        match &self.opened {
            Some(opened) => opened.query(self),
            None => self.lock().transport.query(),
        }
    }

    /// Removes it from the device. Returns when no packet and no completion of it is in work;
    /// completions already queued stay in the CQ, as the manual page says. A second call does
    /// nothing.
    pub fn destroy(&self) {
        if let Some(opened) = &self.opened {
            opened.close(self.services());
            return self.handles.clear();
        }
        if !self.retire() {
            return;
        }
        self.end_grant();
        self.services().forget_borrower(self.qpn);
        self.leave_groups();
        self.services().qps.remove(self.qpn);
        self.unbind_windows();
        self.pd.detach();
        self.queues.detach();
        if let Some(xrcd) = &self.queues.xrcd {
            lock(xrcd.domain().targets()).remove(&self.qpn);
        }
        self.handles.clear();
        self.pd.context().device().counters().close_tally(self.qpn);
        tracing::debug!(target: "ferroce::qp", qpn = self.qpn.get(), "destroyed");
    }

    /// Ends the windows of type 2 that the queue pair bound.
    fn unbind_windows(&self) {
        let mut rights = self.services().rights.write();
        for key in rights.unbind_windows_of(self.qpn) {
            // Peers that use the window are waited for by the queue pair's number.
            let _ = self.services().boards.close_window(key);
        }
    }

    /// What its peer may hold for taken is taken when this returns, and another queue pair may
    /// promise something.
    pub(crate) fn end_early_completion(&self) {
        let mut fast = self.lock_fast();
        fast.settle_early_completion();
        // Even if it promised nothing just now.
        self.services().release_early_completion(self.qpn);
    }

    fn me(&self) -> Arc<Self> {
        self.me
            .upgrade()
            .expect("invariant: a queue pair that runs is in an Arc")
    }

    /// What stands behind the handle of another process's target.
    pub(crate) fn opened(&self) -> Option<&Opened> {
        self.opened.as_ref()
    }

    /// Returns a reference for lists that must not keep the queue pair.
    pub(crate) fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.me)
    }

    pub(crate) fn services(&self) -> &Arc<Services> {
        &self.services
    }
}

fn target_config(xrcd: &Xrcd, qpn: Qpn) -> RcConfig {
    RcConfig {
        qpn,
        qp_type: QpType::XrcRecv,
        pd: xrcd.pd().id(),
        cap: QpCap::default(),
        sq_sig_all: false,
        shared_recv: true,
    }
}

/// Bytes of a scatter/gather element (`struct ibv_sge`).
const SGE_BYTES: u32 = 16;

/// Holds the capacities against the limits. What is true is at least what was asked for; inline
/// data always fits.
fn check_cap(init: &QpInit, limits: &DeviceAttr) -> Result<QpCap, Error> {
    let mut asked = init.cap;
    if init.srq.is_some() || init.qp_type == QpType::XrcSend {
        // There is no receive queue.
        (asked.max_recv_wr, asked.max_recv_sge) = (0, 0);
    }
    for (name, asked, max) in [
        ("max_send_wr", asked.max_send_wr, limits.max_qp_wr),
        ("max_recv_wr", asked.max_recv_wr, limits.max_qp_wr),
        ("max_send_sge", asked.max_send_sge, limits.max_sge),
        ("max_recv_sge", asked.max_recv_sge, limits.max_sge),
        (
            "max_inline_data",
            asked.max_inline_data,
            limits.max_inline_data,
        ),
    ] {
        if asked > max {
            return Err(Error::invalid(format!(
                "{name} is {asked}, the device has at most {max}"
            )));
        }
    }
    // Programs take for granted that a work request has room for inline data where its scatter list
    // would be, since on every adapter it has. (rdma_xclient posts 16 bytes on a queue pair for
    // which it asked for none.)
    let list = asked.max_send_sge.saturating_mul(SGE_BYTES);
    asked.max_inline_data = asked.max_inline_data.max(list.min(limits.max_inline_data));
    Ok(asked)
}

/// A shared receive queue serves queue pairs of its own context; the protection domain may be
/// another.
fn check_srq(pd: &Pd, srq: Option<&Srq>) -> Result<(), Error> {
    if srq.is_some_and(|srq| !Arc::ptr_eq(srq.context(), pd.context())) {
        return Err(Error::invalid(
            "the shared receive queue belongs to another context",
        ));
    }
    Ok(())
}
