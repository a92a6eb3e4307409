//! Work that the program posts.

use ferroce_proto::verbs::{PlainSend, PostError, RecvWr, SendWr, Sge, Sges};

use super::Qp;
use super::guard::Fast;
use crate::Error;

impl Qp {
    /// Queues send work and transmits what can go at once. Stops at the first that is refused: the
    /// error tells its index.
    ///
    /// # Errors
    /// Index of the refused request, errno and reason; those before it are queued.
    pub fn post_send(&self, wrs: &mut dyn Iterator<Item = SendWr>) -> Result<(), (usize, Error)> {
        self.post_sends(|post| {
            for (index, wr) in wrs.enumerate() {
                post(wr).map_err(|e| (index, e))?;
            }
            Ok(())
        })
    }

    /// As [`post_send`](Self::post_send), for a caller that makes work requests one by one: `all`
    /// gives each to what it is given. To move them through an iterator costs more than their
    /// checks.
    pub fn post_sends<R>(
        &self,
        all: impl FnOnce(&mut dyn FnMut(SendWr) -> Result<(), Error>) -> R,
    ) -> R {
        self.step_sending(|locked, cx| {
            let mut post = |wr| locked.transport.post_send(cx, wr);
            all(&mut |wr| post(wr).map_err(|e| post_error(&e)))
        })
    }

    /// As [`post_send`](Self::post_send), for one work request.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send), without an index.
    #[inline]
    pub fn post_one_send(&self, wr: SendWr) -> Result<(), Error> {
        let mut fast = self.lock_fast();
        if let Some(send) = wr.as_plain()
            && let Some(put) = fast.put_out_of_line(&send)
        {
            fast.commit(wr, put);
            return Ok(());
        }
        self.post_generally(fast, wr)
    }

    /// Sends a plain SEND at once, if nothing else is to be done before or with it. Returns whether
    /// it did; if not, nothing has happened, and [`post_one_send`](Self::post_one_send) is to be
    /// called.
    #[inline]
    pub fn post_plain_send(&self, send: &PlainSend<'_>) -> bool {
        let mut fast = self.lock_fast();
        let put = fast.put(send);
        if let Some(put) = put {
            fast.commit(*send, put);
        }
        put.is_some()
    }

    #[cold]
    fn post_generally(&self, fast: Fast<'_>, wr: SendWr) -> Result<(), Error> {
        self.step_sending_in(fast.into_general(), |locked, cx| {
            locked.transport.post_send(cx, wr)
        })
        .map_err(|e| post_error(&e))
    }

    /// Queues all of this send work, or none of it if one is refused (`ibv_wr_complete`). The list
    /// is empty afterwards if it was queued.
    ///
    /// # Errors
    /// The error of the first request that is refused.
    pub fn post_send_all(&self, wrs: &mut Vec<SendWr>) -> Result<(), Error> {
        if wrs.len() == 1
            && let Some(wr) = wrs.pop()
        {
            return self.post_one_send(wr);
        }
        self.step_sending(|locked, cx| {
            locked
                .transport
                .check_sends(wrs)
                .map_err(|e| post_error(&e))?;
            post_each(&mut wrs.drain(..), |wr| locked.transport.post_send(cx, wr))
                .map_err(|(_, e)| e)
        })
    }

    /// Queues a receive with one element, if nobody waits for it. Returns whether it did; if not,
    /// nothing has happened, and [`post_one_recv`](Self::post_one_recv) is to be called.
    #[inline]
    pub fn post_plain_recv(&self, wr_id: u64, sge: Sge) -> bool {
        let mut fast = self.lock_fast();
        let Some(queue) = fast.recv_queue(1) else {
            return false;
        };
        queue.push(RecvWr {
            wr_id,
            sges: Sges::from_buf([sge]),
        });
        true
    }

    /// As [`post_recv`](Self::post_recv), for one work request.
    ///
    /// # Errors
    /// As [`post_one_send`](Self::post_one_send).
    #[inline]
    pub fn post_one_recv(&self, wr: RecvWr) -> Result<(), Error> {
        let mut fast = self.lock_fast();
        if let Some(queue) = fast.recv_queue(wr.sges.len()) {
            queue.push(wr);
            return Ok(());
        }
        drop(fast);
        self.step_receiving(|locked, cx| locked.transport.post_recv(cx, wr))
            .map_err(|e| post_error(&e))
    }

    /// Queues receive work.
    ///
    /// # Errors
    /// As [`post_send`](Self::post_send).
    pub fn post_recv(&self, wrs: &mut dyn Iterator<Item = RecvWr>) -> Result<(), (usize, Error)> {
        let Some((posted, other)) = self.post_recvs_quietly(wrs) else {
            return Ok(());
        };
        let mut rest = std::iter::once(other).chain(wrs);
        self.step_receiving(|locked, cx| {
            post_each(&mut rest, |wr| locked.transport.post_recv(cx, wr))
        })
        .map_err(|(index, error)| (posted + index, error))
    }
}

/// Posts one after the other until one is refused.
fn post_each<W>(
    wrs: &mut dyn Iterator<Item = W>,
    mut post: impl FnMut(W) -> Result<(), PostError>,
) -> Result<(), (usize, Error)> {
    for (index, wr) in wrs.enumerate() {
        post(wr).map_err(|e| (index, post_error(&e)))?;
    }
    Ok(())
}

fn post_error(error: &PostError) -> Error {
    let errno = match error {
        PostError::QueueFull(_) => libc::ENOMEM,
        PostError::NotConnected => libc::ENOTCONN,
        _ => libc::EINVAL,
    };
    Error::new(errno, error.to_string())
}
