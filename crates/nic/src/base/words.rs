//! Words of memory that threads share, as a protocol on them sees them: the standard library's
//! atomics, or in tests those of a model checker, which tries every order of its threads' steps.

use std::fmt::Debug;
use std::sync::atomic::{self, Ordering};

/// A word that holds a `T`.
pub(crate) trait Word<T>: Debug + Default {
    fn load(&self, order: Ordering) -> T;
    fn store(&self, value: T, order: Ordering);
    fn swap(&self, value: T, order: Ordering) -> T;
}

/// A word that holds a number.
pub(crate) trait Number: Word<usize> {
    /// Returns the old number, in any case: `Ok` if that was `current`, and `new` is there now.
    fn compare_exchange(&self, current: usize, new: usize) -> Result<usize, usize>;
    fn fetch_add(&self, more: usize) -> usize;
    fn fetch_sub(&self, less: usize) -> usize;
}

/// Whose words they are.
pub(crate) trait Memory: Debug + Default {
    type Flag: Word<bool>;
    type Byte: Word<u8>;
    type Number: Number;
    type Long: Word<u64>;

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

macro_rules! words {
    ($memory:ident: $($atomics:ident)::+) => {
        words!(word $($atomics)::+, AtomicBool, bool);
        words!(word $($atomics)::+, AtomicU8, u8);
        words!(word $($atomics)::+, AtomicUsize, usize);
        words!(word $($atomics)::+, AtomicU64, u64);

        impl Number for $($atomics)::+::AtomicUsize {
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

        impl Memory for $memory {
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
        impl Word<$held> for $($atomics)::+::$word {
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

words!(Machine: atomic);
#[cfg(test)]
words!(Modelled: loom::sync::atomic);
