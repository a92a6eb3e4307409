//! Pacing of what nobody acknowledges (UC, UD) on the wire.
//!
//! A receiver's socket buffer is all that there is between a sender and a process that is not
//! scheduled just now. So what may be on the way to a receiver is bounded by the room that it says
//! it has. It says so when it is asked ([`Drain`]): the question travels behind the data, and its
//! answer means that the data was taken out. A peer that does not answer (other makes) is sent to
//! without bound, as by hardware.

mod askers;
mod flow;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};

use ferroce_os::random;
use ferroce_proto::ids::{Gid, Qpn};
use ferroce_proto::time::Time;
use ferroce_proto::wire::Drain;

use crate::base::numbers::slot_of;
use crate::base::sync::{lock, read, write};
use crate::base::waiter::{self, Waiter};

pub(crate) use askers::Askers;
use flow::{FlowState, Quota};

/// More flows than this are not remembered at once.
const MAX_FLOWS: usize = 4096;

/// What goes to one process of one address.
#[derive(Debug)]
pub(crate) struct PacedFlow {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: FlowState,
    /// Queue pairs that want to send when the window opens.
    waiting: Vec<Arc<dyn Waiter>>,
}

impl PacedFlow {
    fn new() -> Self {
        let state = FlowState::new();
        Self {
            inner: Mutex::new(Inner {
                state,
                waiting: Vec::new(),
            }),
        }
    }

    /// How much may be sent now, as the receiver's kernel counts; or until when to wait: `qp` has
    /// its turn when an answer comes.
    pub(crate) fn quota(
        &self,
        now: Time,
        qp: impl FnOnce() -> Arc<dyn Waiter>,
    ) -> Result<u64, Time> {
        let mut inner = lock(&self.inner);
        match inner.state.quota(now) {
            Quota::Room(room) => Ok(room),
            Quota::Wait(until) => {
                inner.waiting.push(qp());
                Err(until)
            }
        }
    }

    /// Something was sent that costs so much there. Returns whether a question is due.
    pub(crate) fn on_sent(&self, cost: u64, now: Time) -> bool {
        lock(&self.inner).state.on_sent(cost, now)
    }

    /// Whether a question should be repeated.
    pub(crate) fn wants_again(&self, now: Time) -> bool {
        lock(&self.inner).state.wants_again(now)
    }

    /// Ends the wait of a queue pair.
    pub(crate) fn leave(&self, one: &dyn Waiter) {
        waiter::remove(&mut lock(&self.inner).waiting, one);
    }

    fn is_idle(&self) -> bool {
        lock(&self.inner).waiting.is_empty()
    }
}

/// All flows of this process.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    flows: RwLock<HashMap<(Gid, u16), Arc<PacedFlow>>>,
}

impl Pacer {
    /// The flow to the process of a queue pair.
    pub(crate) fn to(&self, dst: Gid, dest: Qpn) -> Arc<PacedFlow> {
        let key = (dst, slot_of(dest));
        if let Some(flow) = read(&self.flows).get(&key) {
            return Arc::clone(flow);
        }
        let mut flows = write(&self.flows);
        if flows.len() >= MAX_FLOWS {
            flows.retain(|_, flow| !flow.is_idle());
        }
        Arc::clone(
            flows
                .entry(key)
                .or_insert_with(|| Arc::new(PacedFlow::new())),
        )
    }

    /// A question of `from` behind what went to `to` in this flow.
    pub(crate) fn ask(flow: &PacedFlow, from: Qpn, to: Qpn, now: Time) -> Drain {
        // Nobody else can answer it.
        let mark = random::u64();
        lock(&flow.inner).state.on_asked(mark, now);
        Drain {
            room: None,
            to,
            from,
            mark,
        }
    }

    /// An answer of `src`. Returns the queue pairs that waited for it.
    pub(crate) fn on_answer(&self, src: Gid, answer: &Drain) -> Vec<Arc<dyn Waiter>> {
        let flow = read(&self.flows).get(&(src, slot_of(answer.from))).cloned();
        let (Some(flow), Some(room)) = (flow, answer.room) else {
            return Vec::new();
        };
        let mut inner = lock(&flow.inner);
        if inner.state.on_answer(answer.mark, room) {
            std::mem::take(&mut inner.waiting)
        } else {
            Vec::new()
        }
    }
}
