//! `ibv_post_send(3)` and `ibv_post_recv(3)`.

use crate::object::{Refusal, is_of_other_process};
use std::ffi::c_int;
use std::mem::MaybeUninit;

use ferroce_nic::Error;
use ferroce_proto::verbs::{QpCap, QpType, RecvWr, SendWr};

use super::{qp, wr};
use crate::errno::as_errno;
use crate::types::{ibv_qp, ibv_recv_wr, ibv_send_wr};

/// A C work request that is chained to the next, and what it becomes.
pub(super) trait Chained: Sized {
    /// The device's work request.
    type Wr;
    /// What the queue says about work requests.
    type Rules;
    /// Converts one, and gives it to `post`. It is not moved on the way: to move what was just
    /// written, word by word, makes the processor wait for it.
    ///
    /// # Safety
    /// `this` points to a work request with its list.
    unsafe fn convert<R>(
        this: *const Self,
        rules: &Self::Rules,
        post: impl FnOnce(Self::Wr) -> Result<R, Error>,
    ) -> Result<R, Error>;
    /// The next of the chain.
    ///
    /// # Safety
    /// `this` points to a work request.
    unsafe fn next(this: *const Self) -> *mut Self;
}

impl Chained for ibv_send_wr {
    type Wr = SendWr;
    type Rules = (QpCap, QpType);
    #[inline]
    unsafe fn convert<R>(
        this: *const Self,
        (cap, qp_type): &(QpCap, QpType),
        post: impl FnOnce(SendWr) -> Result<R, Error>,
    ) -> Result<R, Error> {
        // SAFETY: the caller's promise.
        unsafe { wr::send_wr(this, cap, *qp_type, post) }
    }

    unsafe fn next(this: *const Self) -> *mut Self {
        // SAFETY: the caller's promise.
        unsafe { (*this).next }
    }
}

impl Chained for ibv_recv_wr {
    type Wr = RecvWr;
    /// Most scatter/gather elements.
    type Rules = u32;
    unsafe fn convert<R>(
        this: *const Self,
        max_sge: &u32,
        post: impl FnOnce(RecvWr) -> Result<R, Error>,
    ) -> Result<R, Error> {
        // SAFETY: the caller's promise.
        unsafe { wr::recv_wr(this, *max_sge) }.and_then(post)
    }

    unsafe fn next(this: *const Self) -> *mut Self {
        // SAFETY: the caller's promise.
        unsafe { (*this).next }
    }
}

/// Converts a chain one by one, as the device takes them; ends early at one that cannot be
/// converted.
pub(super) struct Chain<C: Chained> {
    /// Given out last, or refused.
    current: *mut C,
    next: *mut C,
    rules: C::Rules,
    refused: Option<Error>,
}

impl<C: Chained> Chain<C> {
    /// A chain that starts at `first`.
    ///
    /// # Safety
    /// `first` is NULL or points to a chain that stays as it is while the iterator is used.
    unsafe fn new(first: *mut C, rules: C::Rules) -> Self {
        Self {
            current: first,
            next: first,
            rules,
            refused: None,
        }
    }

    /// Gives each to `post`, until one is refused.
    fn post_each(&mut self, post: &mut dyn FnMut(C::Wr) -> Result<(), Error>) -> Result<(), Error> {
        while !self.next.is_null() {
            self.current = self.next;
            // SAFETY: not NULL, so a work request of the chain, as `new` was promised.
            unsafe {
                self.next = C::next(self.current);
                C::convert(self.current, &self.rules, &mut *post)?;
            }
        }
        Ok(())
    }
}

impl<C: Chained> Iterator for Chain<C> {
    type Item = C::Wr;

    fn next(&mut self) -> Option<C::Wr> {
        if self.next.is_null() || self.refused.is_some() {
            return None;
        }
        self.current = self.next;
        // SAFETY: not NULL, so a work request of the chain, as `new` was promised.
        unsafe {
            self.next = C::next(self.current);
            C::convert(self.current, &self.rules, Ok)
                .map_err(|e| self.refused = Some(e))
                .ok()
        }
    }
}

/// Hands a work request that is no chain to the device, as most calls do; otherwise as [`post`].
///
/// # Safety
/// `wr` points to a work request, `bad` is NULL or room for a pointer.
#[inline]
unsafe fn post_one<C: Chained>(
    call: &'static str,
    rules: &C::Rules,
    wr: *mut C,
    bad: *mut *mut C,
    post: impl FnOnce(C::Wr) -> Result<(), Error>,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { C::convert(wr, rules, post) } {
        Ok(()) => 0,
        Err(e) => {
            if !bad.is_null() {
                // SAFETY: the caller's promise.
                unsafe { *bad = wr };
            }
            as_errno(call, &e)
        }
    }
}

/// Whether this is one work request and no more.
///
/// # Safety
/// `wr` is NULL or a chain.
#[inline]
unsafe fn is_single<C: Chained>(wr: *mut C) -> bool {
    // SAFETY: the caller's promise.
    !wr.is_null() && unsafe { C::next(wr) }.is_null()
}

/// Hands a chain to the device; the errno, and the refused work request in `bad`, if one is
/// refused. The device takes them one by one, so the refused one is the last that it took.
///
/// # Safety
/// `first` is NULL or a chain, `bad` NULL or room for a pointer.
pub(super) unsafe fn post<C: Chained>(
    call: &'static str,
    rules: C::Rules,
    first: *mut C,
    bad: *mut *mut C,
    post: impl FnOnce(&mut Chain<C>) -> Result<(), Error>,
) -> c_int {
    // SAFETY: the caller's promise.
    let mut chain = unsafe { Chain::new(first, rules) };
    let posted = post(&mut chain);
    match posted.and_then(|()| chain.refused.take().map_or(Ok(()), Err)) {
        Ok(()) => 0,
        Err(e) => {
            if !bad.is_null() {
                // SAFETY: the caller's promise.
                unsafe { *bad = chain.current };
            }
            as_errno(call, &e)
        }
    }
}

/// Refuses a work request of a child that has inherited the queue.
///
/// # Safety
/// `bad` is NULL or room for a pointer.
#[cold]
pub(super) unsafe fn refuse_inherited<C>(wr: *mut C, bad: *mut *mut C) -> c_int {
    if !bad.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *bad = wr };
    }
    Refusal::inherited()
}

/// `ibv_post_send(3)`.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: a live queue pair.
    if unsafe { is_of_other_process(qp) } {
        // SAFETY: room for the refused work request.
        return unsafe { refuse_inherited(wr, bad_wr) };
    }
    // SAFETY: a live queue pair.
    let private = unsafe { qp::private(qp) };
    // SAFETY: a work request, if it is not NULL.
    let is_single = unsafe { is_single(wr) };
    let room = &mut [MaybeUninit::uninit(); wr::SHORT];
    // SAFETY: a work request: `is_single` has looked.
    let plain = is_single.then(|| unsafe { wr::plain_send(wr, room) });
    if plain
        .flatten()
        .is_some_and(|send| private.nic().post_plain_send(&send))
    {
        return 0;
    }
    // SAFETY: a chain of work requests, and room for the refused one.
    unsafe { post_generally(private, (wr, is_single), bad_wr) }
}

/// Posts what is not sent at once.
///
/// # Safety
/// As [`post_send`]; `is_single`: the chain is one work request.
unsafe fn post_generally(
    private: &qp::QpPrivate,
    (wr, is_single): (*mut ibv_send_wr, bool),
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    let rules = (*private.cap(), private.nic().qp_type());
    // SAFETY: the caller's promise.
    unsafe {
        if is_single {
            let post = |wr| private.nic().post_one_send(wr);
            return post_one("ibv_post_send", &rules, wr, bad_wr, post);
        }
        post("ibv_post_send", rules, wr, bad_wr, |chain| {
            private.nic().post_sends(|post| chain.post_each(post))
        })
    }
}

/// `ibv_post_recv(3)`.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: a live queue pair.
    if unsafe { is_of_other_process(qp) } {
        // SAFETY: room for the refused work request.
        return unsafe { refuse_inherited(wr, bad_wr) };
    }
    // SAFETY: a live queue pair.
    let private = unsafe { qp::private(qp) };
    // SAFETY: a work request, if it is not NULL.
    let is_single = unsafe { is_single(wr) };
    // SAFETY: a work request: `is_single` has looked.
    let plain = is_single.then(|| unsafe { wr::plain_recv(wr) }).flatten();
    if plain.is_some_and(|(wr_id, sge)| private.nic().post_plain_recv(wr_id, sge)) {
        return 0;
    }
    let max_sge = private.cap().max_recv_sge;
    // SAFETY: a chain of work requests, and room for the refused one.
    unsafe {
        if is_single {
            let post = |wr| private.nic().post_one_recv(wr);
            return post_one("ibv_post_recv", &max_sge, wr, bad_wr, post);
        }
        post("ibv_post_recv", max_sge, wr, bad_wr, |chain| {
            private.nic().post_recv(chain).map_err(|(_, e)| e)
        })
    }
}
