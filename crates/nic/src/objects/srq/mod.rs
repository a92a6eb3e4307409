//! Shared receive queues: one stock of receive work requests for many queue pairs.
//!
//! Lock order: a queue pair, then its shared receive queue, then a completion queue or the queue of
//! events. A queue pair that found nothing is noted here and gets its turn from the thread that
//! posts, which holds no lock of the queue by then.

mod queue;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_os::memory::RawMemory;
use ferroce_proto::ids::{Qpn, Srqn};
use ferroce_proto::rc::{SharedRecv, place};
use ferroce_proto::verbs::{AsyncEvent, RecvWr, Wc};

use self::queue::{ReceiveQueue, ReceiveWaiter};
use crate::base::sync::lock;
use crate::objects::device::{AsyncSubject, DeviceAttr, Limit, Permit};
use crate::objects::xrc::Borrower;
use crate::{Context, Cq, Error, Pd, Qp, Xrcd};

/// Sizes of a shared receive queue and its limit (`struct ibv_srq_attr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of ibv_create_srq(3)")]
pub struct SrqAttr {
    pub max_wr: u32,
    pub max_sge: u32,
    /// An event comes once when fewer work requests are left; 0 for none.
    pub srq_limit: u32,
}

/// What an XRC shared receive queue has besides.
#[derive(Debug)]
struct Xrc {
    number: Srqn,
    xrcd: Arc<Xrcd>,
    /// Where completions of receives from it go.
    cq: Arc<Cq>,
}

/// A shared receive queue.
#[derive(Debug)]
pub struct Srq {
    pd: Arc<Pd>,
    xrc: Option<Xrc>,
    max_sge: u32,
    cookie: AtomicUsize,
    users: AtomicUsize,
    queue: Mutex<ReceiveQueue>,
    _permit: Permit,
}

impl Srq {
    /// Makes a queue for queue pairs of the protection domain's context. The limit is not looked
    /// at: it is armed by [`modify`](Self::modify).
    ///
    /// # Errors
    /// EINVAL for sizes of 0 or above the device's limits, ENOMEM at the device's limit of queues.
    pub fn create(pd: &Arc<Pd>, attr: SrqAttr) -> Result<Arc<Self>, Error> {
        Self::build(pd, attr, || Ok(None))
    }

    /// Makes an XRC queue: targets of the domain take from it what initiators address to its
    /// [number](Self::number).
    ///
    /// # Errors
    /// As [`create`](Self::create), and EINVAL for a domain or a completion queue of another
    /// context.
    pub fn create_xrc(
        pd: &Arc<Pd>,
        attr: SrqAttr,
        xrcd: &Arc<Xrcd>,
        cq: &Arc<Cq>,
    ) -> Result<Arc<Self>, Error> {
        let context = pd.context();
        if !Arc::ptr_eq(context, xrcd.context()) || !Arc::ptr_eq(context, cq.context()) {
            return Err(Error::invalid(
                "the XRC domain or the completion queue belongs to another context",
            ));
        }
        let services = context.services();
        let srq = Self::build(pd, attr, || {
            Ok(Some(Xrc {
                number: services.domains.take_srqn(&services.numbers)?,
                xrcd: Arc::clone(xrcd),
                cq: Arc::clone(cq),
            }))
        })?;
        if let Some(xrc) = &srq.xrc {
            xrcd.attach();
            cq.attach();
            xrcd.domain().insert_srq(xrc.number, Arc::clone(&srq));
        }
        Ok(srq)
    }

    fn build(
        pd: &Arc<Pd>,
        attr: SrqAttr,
        xrc: impl FnOnce() -> Result<Option<Xrc>, Error>,
    ) -> Result<Arc<Self>, Error> {
        let device = pd.context().device();
        check_sizes(attr, device.limits())?;
        let permit = device.permit(Limit::Srq)?;
        let xrc = xrc()?;
        pd.attach();
        Ok(Arc::new(Self {
            pd: Arc::clone(pd),
            xrc,
            max_sge: attr.max_sge.max(1),
            cookie: AtomicUsize::new(0),
            users: AtomicUsize::new(0),
            queue: Mutex::new(ReceiveQueue::new(attr.max_wr)),
            _permit: permit,
        }))
    }

    /// The cookie that asynchronous events carry; set once.
    pub fn set_cookie(&self, cookie: usize) {
        self.cookie.store(cookie, Ordering::Relaxed);
    }

    /// Its protection domain, to which the keys of its work requests belong.
    #[must_use]
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// The context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        self.pd.context()
    }

    /// Its number, which only XRC queues have.
    #[must_use]
    pub fn number(&self) -> Option<Srqn> {
        self.xrc.as_ref().map(|xrc| xrc.number)
    }

    /// Queue pairs that take from it (XRC: none, since packets name it, not queue pairs).
    /// `ibv_destroy_srq` answers EBUSY unless 0.
    #[must_use]
    pub fn users(&self) -> usize {
        self.users.load(Ordering::Acquire)
    }

    /// Sizes and limit (`ibv_query_srq`). The limit is 0 once its event has come.
    #[must_use]
    pub fn query(&self) -> SrqAttr {
        let queue = lock(&self.queue);
        SrqAttr {
            max_wr: queue.max_wr(),
            max_sge: self.max_sge,
            srq_limit: queue.limit(),
        }
    }

    /// Changes the size, or arms the limit, or both or nothing (`ibv_modify_srq`).
    ///
    /// # Errors
    /// EINVAL for a size of 0, above the device's limit or below what is queued, or a limit above
    /// the size.
    pub fn modify(&self, max_wr: Option<u32>, srq_limit: Option<u32>) -> Result<(), Error> {
        if let Some(max_wr) = max_wr {
            check_max_wr(max_wr, self.context().device().limits())?;
        }
        lock(&self.queue).modify(max_wr, srq_limit)
    }

    /// Queues receive work. Stops at the first that is refused: the error tells its index.
    ///
    /// # Errors
    /// Index of the refused request with ENOMEM for a full queue or EINVAL for too many elements;
    /// those before it are queued.
    pub fn post_recv(&self, wrs: &mut dyn Iterator<Item = RecvWr>) -> Result<(), (usize, Error)> {
        let mut queue = lock(&self.queue);
        let (mut posted, mut result) = (0, Ok(()));
        for wr in wrs {
            if let Err(e) = queue.push(wr, self.max_sge) {
                result = Err((posted, e));
                break;
            }
            posted += 1;
        }
        drop(queue);
        self.wake(posted);
        result
    }

    /// Ends it: no event and no completion comes from it any more. Call it when nobody
    /// [uses](Self::users) it.
    pub fn destroy(&self) {
        if let Some(xrc) = &self.xrc {
            xrc.xrcd.domain().remove_srq(xrc.number);
        }
        if !lock(&self.queue).retire() {
            return;
        }
        self.send_borrowers_away();
        self.pd.detach();
        if let Some(xrc) = &self.xrc {
            xrc.cq.detach();
            xrc.xrcd.detach();
            self.context().services().domains.return_srqn(xrc.number);
        }
    }

    /// Counts a queue pair in.
    pub(crate) fn attach(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a queue pair out.
    pub(crate) fn detach(&self) {
        self.users.fetch_sub(1, Ordering::AcqRel);
    }

    /// Takes the oldest work request. If there is none, a queue pair that `waits` is told of the
    /// next ones by [`Qp::on_recv_available`].
    pub(crate) fn take(&self, waits: Option<&Qp>) -> Option<SharedRecv> {
        let wr = self.pop(waits.map(|qp| (qp.qpn(), ReceiveWaiter::Qp(qp.weak()))))?;
        Some(SharedRecv {
            wr,
            pd: self.pd.id(),
        })
    }

    /// As [`take`](Self::take), for a target of another process.
    pub(crate) fn take_for(&self, borrower: Borrower) -> Option<RecvWr> {
        self.pop(Some((borrower.qpn, ReceiveWaiter::Borrower(borrower))))
    }

    /// Whether a queue pair that found nothing is still to be told of what is posted.
    pub(crate) fn is_awaited_by(&self, qpn: Qpn) -> bool {
        lock(&self.queue).is_awaited_by(qpn)
    }

    fn pop(&self, waits: Option<(Qpn, ReceiveWaiter)>) -> Option<RecvWr> {
        let mut queue = lock(&self.queue);
        let Some(wr) = queue.pop() else {
            if let Some((qpn, waiter)) = waits {
                queue.note_waiting(qpn, waiter);
            }
            return None;
        };
        if queue.fell_below_limit() {
            // Under the lock, so that no event comes once `destroy` has returned.
            let subject = AsyncSubject::Srq(self.cookie.load(Ordering::Relaxed));
            self.context()
                .push_async(AsyncEvent::SrqLimitReached, subject);
        }
        Some(wr)
    }

    /// Gives back what [`take_for`](Self::take_for) gave, as the oldest receive.
    pub(crate) fn put_back(&self, wr: RecvWr) {
        lock(&self.queue).put_back(wr);
        self.wake(1);
    }

    /// Puts a part of a message into the memory of a work request that was taken for another
    /// process. Returns whether its keys open the memory.
    pub(crate) fn fill(&self, wr: &RecvWr, offset: u64, part: &[u8]) -> bool {
        let rights = self.context().services().rights.read();
        // Held, so that nothing is written once `destroy` has returned.
        let queue = lock(&self.queue);
        queue.is_retired()
            || place(&rights, &RawMemory, self.pd.id(), &wr.sges, offset, part).is_ok()
    }

    /// Queues a completion of a receive from an XRC queue. Returns false if its CQ overflowed.
    pub(crate) fn complete(&self, wc: Wc, solicited: bool) -> bool {
        // Held, so that none comes once `destroy` has returned.
        let queue = lock(&self.queue);
        match &self.xrc {
            Some(xrc) if !queue.is_retired() => xrc.cq.push(wc, solicited),
            _ => true,
        }
    }

    /// Tells processes that wait for receives that the queue has ended.
    fn send_borrowers_away(&self) {
        while let Some(waiting) = lock(&self.queue).next_waiting() {
            if let ReceiveWaiter::Borrower(borrower) = waiting {
                self.context().services().refuse_to_lend(borrower);
            }
        }
    }

    /// Gives turns to as many waiting queue pairs as there are new work requests.
    fn wake(&self, mut posted: usize) {
        while posted > 0 {
            let Some(waiting) = lock(&self.queue).next_waiting() else {
                return;
            };
            match waiting {
                // One that has got a receive in the meantime, after its peer came again, leaves its
                // turn to others.
                ReceiveWaiter::Qp(qp) => {
                    if qp.upgrade().is_some_and(|qp| qp.on_recv_available()) {
                        posted -= 1;
                    }
                }
                // Whether its peer still waits only its process knows.
                ReceiveWaiter::Borrower(borrower) => {
                    self.context().services().offer_to_lend(borrower)
                }
            }
        }
    }
}

fn check_sizes(attr: SrqAttr, limits: &DeviceAttr) -> Result<(), Error> {
    check_max_wr(attr.max_wr, limits)?;
    if attr.max_sge > limits.max_srq_sge {
        return Err(Error::invalid(format!(
            "max_sge is {}, shared receive queues have at most {}",
            attr.max_sge, limits.max_srq_sge
        )));
    }
    Ok(())
}

fn check_max_wr(max_wr: u32, limits: &DeviceAttr) -> Result<(), Error> {
    let max = limits.max_srq_wr;
    if (1..=max).contains(&max_wr) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "a shared receive queue has 1 to {max} work requests, not {max_wr}"
    )))
}
