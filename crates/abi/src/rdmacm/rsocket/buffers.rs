//! The buffers of a program's call: one, or a vector of them.

use std::marker::PhantomData;

use libc::{c_void, iovec};

/// A list of buffers, and how far it has been worked through.
#[derive(Debug)]
pub(super) struct Buffers<'a> {
    list: *const iovec,
    /// Elements from `list` on.
    count: usize,
    /// Bytes of the first element that are done.
    skip: usize,
    /// Bytes that are not done.
    left: usize,
    done: usize,
    lives: PhantomData<&'a iovec>,
}

impl<'a> Buffers<'a> {
    /// The buffers of a vector. More bytes than a call can count are left out.
    ///
    /// # Safety
    /// `list` has `count` elements, which name memory that lives, and may be used as the call uses
    /// it.
    pub(super) unsafe fn new(list: *const iovec, count: usize) -> Self {
        // SAFETY: the caller's promise.
        let lengths = (0..count).map(|i| unsafe { (*list.add(i)).iov_len });
        let total = lengths.fold(0_usize, usize::saturating_add);
        Self {
            list,
            count,
            skip: 0,
            left: total.min(isize::MAX.cast_unsigned()),
            done: 0,
            lives: PhantomData,
        }
    }

    /// One buffer, which the caller keeps as a vector of one.
    ///
    /// # Safety
    /// As [`new`](Self::new).
    pub(super) unsafe fn one(iov: &'a iovec) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::new(iov, 1) }
    }

    pub(super) fn left(&self) -> usize {
        self.left
    }

    pub(super) fn done(&self) -> usize {
        self.done
    }

    /// Hands out the next `len` bytes, piece by piece, and goes on behind them.
    pub(super) fn advance(&mut self, len: usize, mut piece: impl FnMut(*mut u8, usize)) {
        let mut wanted = len.min(self.left);
        self.left -= wanted;
        self.done += wanted;
        while self.count > 0 {
            // SAFETY: an element of the caller's vector.
            let iovec { iov_base, iov_len } = unsafe { *self.list };
            let part = wanted.min(iov_len - self.skip);
            if part > 0 {
                // SAFETY: within the element.
                piece(unsafe { iov_base.cast::<u8>().add(self.skip) }, part);
                wanted -= part;
                self.skip += part;
            }
            if self.skip < iov_len {
                return;
            }
            // SAFETY: at most one past the end.
            self.list = unsafe { self.list.add(1) };
            self.count -= 1;
            self.skip = 0;
        }
    }
}

/// A buffer as a vector of one.
pub(super) fn vector(base: *const c_void, len: usize) -> iovec {
    iovec {
        iov_base: base.cast_mut(),
        iov_len: len,
    }
}
