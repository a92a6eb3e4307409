//! Completions that go straight to the program that polls for them, past the ring of their queue.
//!
//! A queue pair gives a completion to the thread that polls only if the queue has nothing queued
//! and is not armed. It looks at that under its own lock, so what it has completed before is taken
//! already: completions of a queue pair keep their order.

use std::fmt;
use std::mem::MaybeUninit;

use ferroce_proto::verbs::{Wc, WcOpcode, WcStatus};

use super::{CompletionTimes, Cq, Entry};

/// What is done with each completion that a poll takes: its index, itself and its times.
pub(super) type Each<'a> = dyn FnMut(usize, &Wc, CompletionTimes) + 'a;

/// Where completions go.
#[derive(Default)]
enum To<'a> {
    #[default]
    Nowhere,
    Array(&'a mut [MaybeUninit<Entry>]),
    Each(&'a mut Each<'a>),
}

/// What a poll takes: from its queue, and, where it has found that empty, while it does the
/// device's work. By default nothing.
#[derive(Default)]
pub(crate) struct DirectDelivery<'a> {
    /// Tells the queue from others.
    of: usize,
    room: usize,
    delivered: usize,
    to: To<'a>,
    leaves_acks: bool,
    has_sent: bool,
}

impl<'a> DirectDelivery<'a> {
    /// Makes one for a program that has room for `room` completions of a queue.
    pub(super) fn of(cq: &Cq, room: usize, each: &'a mut Each<'a>) -> Self {
        Self::new(cq, room, To::Each(each))
    }

    /// Makes one for a program that has an array.
    pub(super) fn into_array(cq: &Cq, array: &'a mut [MaybeUninit<Entry>]) -> Self {
        Self::new(cq, array.len(), To::Array(array))
    }

    #[inline]
    fn new(cq: &Cq, room: usize, to: To<'a>) -> Self {
        Self {
            of: cq.id(),
            room,
            delivered: 0,
            to,
            leaves_acks: false,
            has_sent: false,
        }
    }

    /// For a program that waits for an event, and polls once it has it: takes nothing itself.
    pub(crate) fn awaited() -> Self {
        Self {
            room: 1,
            ..Self::default()
        }
    }

    /// As [`awaited`](Self::awaited), for a program that may answer before it waits.
    pub(crate) fn about_to_answer() -> Self {
        Self {
            leaves_acks: true,
            ..Self::awaited()
        }
    }

    /// The program is about to wait for an event: what it has not answered by then is acknowledged
    /// then.
    pub(crate) fn leave_acks(&mut self) {
        self.leaves_acks = true;
    }

    /// Whether acknowledgements that wait for the program's answer wait on.
    #[inline]
    pub(crate) fn leaves_acks(&self) -> bool {
        self.leaves_acks
    }

    /// Whether a program polls, or will before long.
    #[inline]
    pub(crate) fn is_polled(&self) -> bool {
        self.room > 0
    }

    /// Whether it takes one more completion of a queue.
    #[inline]
    pub(super) fn takes(&self, cq: &Cq) -> bool {
        self.of == cq.id() && !self.is_full()
    }

    /// Whether it takes no more.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.delivered >= self.room
    }

    /// Gives one to the program.
    #[expect(
        clippy::inline_always,
        reason = "a completion is not to go through memory"
    )]
    #[inline(always)]
    pub(super) fn push(&mut self, wc: &Wc, timestamps: CompletionTimes) {
        match &mut self.to {
            To::Nowhere => return,
            To::Array(array) => match array.get_mut(self.delivered) {
                Some(place) => drop(place.write(Entry::from(wc))),
                None => return,
            },
            To::Each(each) => {
                let given = *wc;
                each(self.delivered, &given, timestamps);
            }
        }
        self.delivered += 1;
    }

    /// A completion was taken from the queue and given to the program.
    #[inline]
    pub(super) fn note_taken(&mut self, wc: &Wc) {
        let is_sent = matches!(wc.opcode, WcOpcode::RdmaWrite | WcOpcode::Send)
            && wc.status == WcStatus::Success;
        self.has_sent = is_sent && (self.has_sent || self.delivered == 1);
    }

    /// Whether completions were taken from the queue, each of which says that a message was sent.
    pub(super) fn has_sent(&self) -> bool {
        self.has_sent
    }

    /// Number of completions that were delivered.
    #[inline]
    pub(super) fn delivered(&self) -> usize {
        self.delivered
    }
}

impl fmt::Debug for DirectDelivery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectDelivery")
            .field("room", &self.room)
            .field("delivered", &self.delivered)
            .finish_non_exhaustive()
    }
}
