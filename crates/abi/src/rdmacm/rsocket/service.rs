//! The thread that does the connection manager's work for all rsockets of the process: connections
//! are made and accepted, and their ends are heard of, while the program computes.
//!
//! It blocks on nothing but the manager's events, so no peer can hold up another.

use std::collections::HashMap;
use std::os::fd::AsRawFd as _;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use ferroce_os::eventfd::EventFd;
use ferroce_os::{fork, thread};
use libc::{c_int, pollfd};

use super::cm_id::CmId;
use super::errno::{Errno, Result};
use super::socket::Socket;
use super::wait;
use crate::rdmacm::types::{
    RDMA_CM_EVENT_CONNECT_REQUEST, rdma_cm_event, rdma_cm_id, rdma_event_channel,
};
use crate::rdmacm::{
    lock, rdma_ack_cm_event, rdma_create_event_channel, rdma_destroy_event_channel,
    rdma_get_cm_event,
};

/// What happened to an identifier.
#[derive(Debug)]
pub(super) struct Event {
    /// `enum rdma_cm_event_type`.
    pub(super) kind: u32,
    pub(super) status: c_int,
    pub(super) private_data: Vec<u8>,
}

/// Sockets with keepalive, and when each is due.
type KeepAlives = Vec<(Instant, Weak<Socket>)>;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Service {
    channel: *mut rdma_event_channel,
    /// By [`CmId::key`].
    sockets: Mutex<HashMap<usize, Weak<Socket>>>,
    keep_alives: Mutex<KeepAlives>,
    /// Tells the thread of a new keepalive.
    nudge: EventFd,
    generation: usize,
}

// SAFETY: librdmacm's functions may be called on a channel from any thread.
unsafe impl Send for Service {}
// SAFETY: those functions lock what they use.
unsafe impl Sync for Service {}

impl Drop for Service {
    fn drop(&mut self) {
        // Only that of a service whose thread was not started: the thread owns a part.
        // SAFETY: made in `new`, destroyed only here, and no identifier was made on it.
        unsafe { rdma_destroy_event_channel(self.channel) };
    }
}

static SERVICE: Mutex<Option<Arc<Service>>> = Mutex::new(None);

impl Service {
    /// The process's, started with the first use. What a child of `fork` inherits is of no use to
    /// it, and is left alone.
    pub(super) fn get() -> Result<Arc<Self>> {
        let mut service = SERVICE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(service) = &*service
            && fork::is_current(service.generation)
        {
            return Ok(Arc::clone(service));
        }
        let new = Arc::new(Self::new()?);
        let running = Arc::clone(&new);
        thread::spawn_quiet("rsockets", move || running.run())?;
        std::mem::forget(service.replace(Arc::clone(&new)));
        Ok(new)
    }

    fn new() -> Result<Self> {
        let nudge = EventFd::counter()?;
        // SAFETY: takes nothing.
        let channel = unsafe { rdma_create_event_channel() };
        if channel.is_null() {
            return Err(Errno::last());
        }
        // SAFETY: made above.
        let fd = unsafe { (*channel).fd };
        // SAFETY: takes no pointers.
        unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_SETFL, libc::O_NONBLOCK) };
        Ok(Self {
            channel,
            sockets: Mutex::default(),
            keep_alives: Mutex::default(),
            nudge,
            generation: fork::generation(),
        })
    }

    pub(super) fn channel(&self) -> *mut rdma_event_channel {
        self.channel
    }

    /// Has events of `id` go to `socket`.
    pub(super) fn watch(&self, id: &CmId, socket: &Arc<Socket>) {
        lock(&self.sockets).insert(id.key(), Arc::downgrade(socket));
    }

    /// No event of an identifier is handed on any more.
    pub(super) fn forget(key: usize) {
        let service = SERVICE
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(service) = service {
            lock(&service.sockets).remove(&key);
        }
    }

    /// Has a keepalive sent for `socket` at `due`, and then as it says.
    pub(super) fn keep_alive(&self, socket: &Arc<Socket>, due: Instant) {
        let mut list = lock(&self.keep_alives);
        list.retain(|(_, other)| {
            other.strong_count() > 0 && !ptr::eq(other.as_ptr(), Arc::as_ptr(socket))
        });
        list.push((due, Arc::downgrade(socket)));
        drop(list);
        // It cannot fail: the count is far from its limit.
        let _ = self.nudge.add(1);
    }

    fn run(&self) {
        loop {
            let next = lock(&self.keep_alives).iter().map(|(due, _)| *due).min();
            let timeout = next.map(|due| due.saturating_duration_since(Instant::now()));
            // SAFETY: live for ever.
            let channel_fd = unsafe { (*self.channel).fd };
            let mut fds = [channel_fd, self.nudge.as_raw_fd()].map(|fd| pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            });
            if wait::poll(&mut fds, timeout).is_err() {
                continue;
            }
            if fds[1].revents != 0 {
                let _ = self.nudge.try_take();
            }
            while self.take_event() {}
            self.send_keep_alives();
        }
    }

    fn send_keep_alives(&self) {
        let now = Instant::now();
        let due: Vec<_> = {
            let mut list = lock(&self.keep_alives);
            list.extract_if(.., |(due, _)| *due <= now).collect()
        };
        for (_, socket) in due {
            let socket = socket.upgrade();
            if let Some((socket, wait)) = socket.and_then(|s| s.keep_alive().map(|wait| (s, wait)))
            {
                self.keep_alive(&socket, now + wait.max(Duration::from_millis(1)));
            }
        }
    }

    /// Takes an event and has it worked on. Returns whether there was any.
    fn take_event(&self) -> bool {
        let mut event: *mut rdma_cm_event = ptr::null_mut();
        // SAFETY: a live channel, which does not block, and room for the pointer.
        if unsafe { rdma_get_cm_event(self.channel, &raw mut event) } != 0 {
            return false;
        }
        // SAFETY: fetched and not acknowledged; the channel is for connections.
        let (id, listener, taken) = unsafe {
            let conn = (*event).param.conn;
            let data = match conn.private_data.is_null() {
                true => Vec::new(),
                false => std::slice::from_raw_parts(
                    conn.private_data.cast::<u8>(),
                    conn.private_data_len.into(),
                )
                .to_vec(),
            };
            let taken = Event {
                kind: (*event).event,
                status: (*event).status,
                private_data: data,
            };
            ((*event).id, (*event).listen_id, taken)
        };
        let is_request = taken.kind == RDMA_CM_EVENT_CONNECT_REQUEST;
        // Before the acknowledgement, which lets the identifier go and its address be used again.
        let key = if is_request { listener } else { id };
        let socket = lock(&self.sockets).get(&key.addr()).and_then(Weak::upgrade);
        // SAFETY: fetched above, and not used any more.
        unsafe { rdma_ack_cm_event(event) };
        self.hand_on(socket, id, taken, is_request);
        true
    }

    fn hand_on(
        &self,
        socket: Option<Arc<Socket>>,
        id: *mut rdma_cm_id,
        event: Event,
        is_request: bool,
    ) {
        if is_request {
            // SAFETY: a connect request hands its identifier over.
            let id = unsafe { CmId::from_request(id) };
            match socket {
                Some(listener) => listener.on_request(self, id, &event.private_data),
                None => id.reject(),
            }
        } else if let Some(socket) = socket {
            socket.on_event(id.addr(), &event);
        }
    }
}
