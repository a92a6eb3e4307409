//! Words of memory that threads share, as a protocol on them sees them: the standard library's
//! atomics, or in tests those of a model checker, which tries every order of its threads' steps.

use std::fmt::Debug;
use std::sync::atomic::{self, Ordering};

/// A word that holds a `T`.
pub(crate) trait Atomic<T>: Debug + Default {
    fn load(&self, order: Ordering) -> T;
    fn store(&self, value: T, order: Ordering);
    fn swap(&self, value: T, order: Ordering) -> T;
}

/// A word that holds a number.
pub(crate) trait AtomicNumber: Atomic<usize> {
    /// Returns the old number, in any case: `Ok` if that was `current`, and `new` is there now.
    fn compare_exchange(&self, current: usize, new: usize) -> Result<usize, usize>;
    fn fetch_add(&self, more: usize) -> usize;
    fn fetch_sub(&self, less: usize) -> usize;
}

/// Whose words they are.
pub(crate) trait Atomics: Debug + Default {
    type Flag: Atomic<bool>;
    type Byte: Atomic<u8>;
    type Number: AtomicNumber;
    type Long: Atomic<u64>;

    /// A sequentially consistent fence.
    fn fence();
}

/// The machine's memory.
#[derive(Debug, Default)]
pub(crate) struct Machine;

/// The memory of a model checker.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Modelled;

macro_rules! atomics {
    ($memory:ident: $($atomics:ident)::+) => {
        atomics!(word $($atomics)::+, AtomicBool, bool);
        atomics!(word $($atomics)::+, AtomicU8, u8);
        atomics!(word $($atomics)::+, AtomicUsize, usize);
        atomics!(word $($atomics)::+, AtomicU64, u64);

        impl AtomicNumber for $($atomics)::+::AtomicUsize {
            #[inline]
            fn compare_exchange(&self, current: usize, new: usize) -> Result<usize, usize> {
                Self::compare_exchange(self, current, new, Ordering::Acquire, Ordering::Relaxed)
            }

            #[inline]
            fn fetch_add(&self, more: usize) -> usize {
                Self::fetch_add(self, more, Ordering::Relaxed)
            }

            #[inline]
            fn fetch_sub(&self, less: usize) -> usize {
                Self::fetch_sub(self, less, Ordering::Relaxed)
            }
        }

        impl Atomics for $memory {
            type Flag = $($atomics)::+::AtomicBool;
            type Byte = $($atomics)::+::AtomicU8;
            type Number = $($atomics)::+::AtomicUsize;
            type Long = $($atomics)::+::AtomicU64;

            #[inline]
            fn fence() {
                $($atomics)::+::fence(Ordering::SeqCst);
            }
        }
    };
    (word $($atomics:ident)::+, $word:ident, $held:ty) => {
        impl Atomic<$held> for $($atomics)::+::$word {
            #[inline]
            fn load(&self, order: Ordering) -> $held {
                Self::load(self, order)
            }

            #[inline]
            fn store(&self, value: $held, order: Ordering) {
                Self::store(self, value, order);
            }

            #[inline]
            fn swap(&self, value: $held, order: Ordering) -> $held {
                Self::swap(self, value, order)
            }
        }
    };
}

atomics!(Machine: atomic);
#[cfg(test)]
atomics!(Modelled: loom::sync::atomic);
