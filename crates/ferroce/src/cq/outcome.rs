//! How the futures of work end, as one result.

use super::{Done, WorkError};
use crate::Result;
use crate::mem::Buffer;

mod sealed {
    pub trait Sealed {}
}
use sealed::Sealed;

/// What a future of work is ready with; see
/// [`Connection::complete`](crate::endpoint::Connection::complete).
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/pair_for_examples.rs"));
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use ferroce::cq::{Done, Outcome};
/// use ferroce::mem::Buffer;
/// use ferroce::qp::Operation;
/// /// Waits for work of any kind, with one result.
/// fn end<T: Outcome>(ended: T) -> ferroce::Result<T::Done> {
///     ended.outcome()
/// }
/// let pair = pair()?;
/// let mut receiving = pair.far.receive_buffer(Buffer::new(&pair.domain, 64)?)?;
/// let mut sending = pair.near.submit_inline(Operation::Send, b"hello")?;
/// let (done, message): (Done, Buffer) = loop {
///     pair.completions.poll()?;
///     if let Some(ended) = receiving.try_wait() {
///         break end(ended)?;
///     }
/// };
/// assert_eq!((done.bytes, &*message), (5, &b"hello"[..]));
/// # while sending.try_wait().is_none() { pair.completions.poll()?; }
/// # Ok(())
/// # }
/// ```
pub trait Outcome: Sealed {
    /// What is left where the work succeeded.
    type Done;

    /// The same as one result: failed work is [`Error::Work`](crate::Error::Work). A buffer of
    /// failed work is dropped.
    ///
    /// # Errors
    /// Why the work failed.
    fn outcome(self) -> Result<Self::Done>;
}

macro_rules! outcomes {
    ($($done:ty),*) => {
        $(
            impl Sealed for std::result::Result<$done, WorkError> {}

            impl Outcome for std::result::Result<$done, WorkError> {
                type Done = $done;

                fn outcome(self) -> Result<$done> {
                    Ok(self?)
                }
            }
        )*
    };
}

outcomes!(Done, u64);

impl Sealed for (std::result::Result<Done, WorkError>, Buffer) {}

impl Outcome for (std::result::Result<Done, WorkError>, Buffer) {
    type Done = (Done, Buffer);

    fn outcome(self) -> Result<(Done, Buffer)> {
        Ok((self.0?, self.1))
    }
}
