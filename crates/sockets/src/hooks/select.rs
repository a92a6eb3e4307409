//! `select(2)` and `pselect(2)`.

use std::ffi::{c_int, c_void};
use std::time::Instant;

use libc::{fd_set, sigset_t, timespec, timeval};

use super::wait::{By, blocked, wait};
use crate::attempt::{self, Outcome};
use crate::look::first_of_few;
use crate::next::hooks;
use crate::timeout::{Passed, Timeout};
use crate::{errno, sys, table};

/// Words of a `fd_set`.
const WORDS: usize = libc::FD_SETSIZE / 64;

type Words = [u64; WORDS];

/// The sets of a call: readable, writable, exceptional.
#[derive(Clone, Copy, Debug)]
struct Sets {
    count: c_int,
    sets: [*mut fd_set; 3],
}

/// What the program has asked for, and whose experience counts.
struct Asked {
    sets: [Words; 3],
    by: By,
}

impl Sets {
    /// Words that the kernel reads and writes, of each set.
    fn words(self) -> usize {
        usize::try_from(self.count).map_or(0, |count| count.div_ceil(64))
    }

    /// What the call asks for, if few stand-ins are in it, it may wait for long, and no set is
    /// longer than a `fd_set` or cannot be read.
    ///
    /// # Safety
    /// The program's sets, and the signals that the call blocks.
    unsafe fn asked(self, is_long: impl FnOnce() -> bool, mask: *const sigset_t) -> Option<Asked> {
        if !table::has_stand_ins() || !(1..=WORDS).contains(&self.words()) || !is_long() {
            return None;
        }
        let mut sets = [[0; WORDS]; 3];
        for (copy, set) in sets.iter_mut().zip(self.sets) {
            if set.is_null() {
                continue;
            }
            if !errno::kept(|| sys::is_readable(set.cast(), self.words() * 8)) {
                return None;
            }
            // SAFETY: as many bytes can be read, as the kernel has just said.
            unsafe {
                let words = self.words();
                std::ptr::copy_nonoverlapping(set.cast(), copy.as_mut_ptr(), words);
            }
        }
        let number = stand_in_of(&sets, self.count)?;
        // SAFETY: as the caller says.
        let blocked = unsafe { blocked(mask) }?;
        let by = By { number, blocked };
        Some(Asked { sets, by })
    }

    /// Looks at what was asked for, and writes what is ready into the program's sets.
    ///
    /// # Safety
    /// The program's sets, of which `asked` has copies.
    unsafe fn look(self, asked: &[Words; 3]) -> Outcome {
        let mut found = *asked;
        let mut at = [std::ptr::null_mut::<c_void>(); 3];
        for ((at, set), found) in at.iter_mut().zip(self.sets).zip(&mut found) {
            if !set.is_null() {
                *at = found.as_mut_ptr().cast();
            }
        }
        // SAFETY: copies of the sets.
        let count = unsafe { attempt::select(self.count, at) }?;
        for (found, set) in found.iter().zip(self.sets) {
            if count > 0 && !set.is_null() {
                // SAFETY: the program's set has as many words; the kernel would write them.
                unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), set.cast(), self.words()) };
            }
        }
        Ok(count)
    }
}

/// The first stand-in in any of the sets, if they are few.
fn stand_in_of(sets: &[Words; 3], count: c_int) -> Option<c_int> {
    let is_asked = |fd: &c_int| {
        let at = usize::try_from(*fd).unwrap_or(0);
        sets.iter().any(|set| set[at / 64] >> (at % 64) & 1 == 1)
    };
    first_of_few((0..count).filter(|fd| is_asked(fd) && table::is_stand_in(*fd)))
}

hooks! {
    select: fn(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *mut timeval
    ) -> c_int, |next| {
        let sets = Sets { count, sets: [read, write, except] };
        // SAFETY: what the program passed. What is left of the time is written there, as the C
        // library does.
        unsafe {
            let passed = Passed::new(timeout.cast_const());
            let Some(asked) = sets.asked(|| passed.is_long(), std::ptr::null()) else {
                return next()(count, read, write, except, timeout);
            };
            let start = Instant::now();
            let mut slept = false;
            let result = wait(Some(asked.by), || sets.look(&asked.sets), |lasted| {
                slept = true;
                if !timeout.is_null() {
                    *timeout = (*timeout).less(lasted);
                }
                next()(count, read, write, except, timeout)
            });
            if !slept && !timeout.is_null() {
                *timeout = (*timeout).less(start.elapsed());
            }
            result
        }
    }

    pselect: fn(
        count: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *const timespec,
        mask: *const sigset_t
    ) -> c_int, |next| {
        let sets = Sets { count, sets: [read, write, except] };
        // SAFETY: what the program passed.
        unsafe {
            let timeout = Passed::new(timeout);
            let Some(asked) = sets.asked(|| timeout.is_long(), mask) else {
                return timeout.with_less(std::time::Duration::ZERO, |left| {
                    next()(count, read, write, except, left, mask)
                });
            };
            wait(Some(asked.by), || sets.look(&asked.sets), |lasted| {
                timeout.with_less(lasted, |left| next()(count, read, write, except, left, mask))
            })
        }
    }
}
