//! One direction of a TCP connection.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use crate::testkit::Rng;
use crate::time::Time;

/// How a connection is broken off from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// After so many bytes have arrived in this direction.
    pub after: usize,
    /// Both ends see a reset; else the receiver sees the end of the stream.
    pub reset: bool,
}

/// Longest time between two parts.
const DELAY: u64 = 200_000;

/// What arrives.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// One direction.
#[derive(Debug, Default)]
pub(super) struct Channel {
    flying: VecDeque<(Time, Vec<u8>)>,
    in_flight: usize,
    arrived: usize,
    cut: Option<Cut>,
    /// The sender has closed it.
    closed: Option<Time>,
    is_over: bool,
}

impl Channel {
    pub(super) fn new(cut: Option<Cut>) -> Self {
        Self {
            cut,
            ..Self::default()
        }
    }

    /// Bytes that it takes now, of the most that it holds.
    pub(super) fn room(&self, most: usize) -> usize {
        if self.closed.is_some() {
            0
        } else {
            most.saturating_sub(self.in_flight)
        }
    }

    /// Takes bytes, and cuts them anywhere.
    pub(super) fn send(&mut self, now: Time, rng: &mut Rng, mut bytes: &[u8]) {
        let mut at = self.flying.back().map_or(now, |(at, _)| (*at).max(now));
        while !bytes.is_empty() {
            let longest = rng.pick(&[1, 7, 40, 600, 1460, 70_000]);
            let len = 1 + usize::try_from(rng.below(longest)).unwrap_or(0);
            let (part, rest) = bytes.split_at(len.min(bytes.len()));
            at = at + Duration::from_nanos(1 + rng.below(DELAY));
            self.flying.push_back((at, part.to_vec()));
            self.in_flight += part.len();
            bytes = rest;
        }
    }

    /// The sender closes it: the receiver sees that behind all bytes.
    pub(super) fn close(&mut self, now: Time) {
        if self.closed.is_none() {
            let last = self.flying.back().map_or(now, |(at, _)| (*at).max(now));
            self.closed = Some(last + Duration::from_nanos(1));
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Nothing arrives any more.
    pub(super) fn drop_all(&mut self) {
        self.flying.clear();
        (self.in_flight, self.is_over) = (0, true);
    }

    /// When something arrives next.
    pub(super) fn next(&self) -> Option<Time> {
        let first = self.flying.front().map(|(at, _)| *at);
        first.or(self.closed).filter(|_| !self.is_over)
    }

    /// What has arrived.
    pub(super) fn receive(&mut self, now: Time) -> Option<Arrival> {
        self.next().filter(|&at| at <= now)?;
        let Some((_, mut bytes)) = self.flying.pop_front() else {
            self.is_over = true;
            return Some(Arrival::End);
        };
        self.in_flight -= bytes.len();
        if let Some(cut) = self.cut
            && self.arrived + bytes.len() >= cut.after
        {
            let left = cut.after - self.arrived;
            if left == 0 {
                self.drop_all();
                return Some(if cut.reset {
                    Arrival::Reset
                } else {
                    Arrival::End
                });
            }
            let rest = bytes.split_off(left);
            self.in_flight += rest.len();
            self.flying.push_front((now, rest));
        }
        self.arrived += bytes.len();
        Some(Arrival::Bytes(bytes))
    }
}
