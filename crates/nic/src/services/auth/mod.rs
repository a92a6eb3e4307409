//! Authentication of what goes over the wire, with a key that both hosts have (`FERROCE_KEY_FILE`).
//!
//! The formats and the handshake are `ferroce_proto::auth`; `docs/design/packet-authentication.md`
//! says what they are for. Here is the process's part: the key file, the handshake before a queue
//! pair's move to RTR, and the tags of what devices say to each other. A queue pair's own packets
//! are tagged and checked in `qp/tags.rs`.

mod handshake;
mod key_file;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::SystemTime;

use ferroce_proto::auth::handshake::Asking;
use ferroce_proto::auth::{self, Secret};
use ferroce_proto::ids::Qpn;
use ferroce_proto::time::Time;
use ferroce_proto::wire::{Drain, Packet};

use crate::Error;
use crate::base::addressing::Addressing;
use crate::base::sync::lock;

pub(crate) use handshake::{Agreed, draw};

/// The environment variable that names the key file.
const VARIABLE: &str = "FERROCE_KEY_FILE";

/// Key of a process, and its handshakes.
#[derive(Debug)]
pub(crate) struct Auth {
    secret: Secret,
    /// Handshakes under way, each of a thread that waits for it.
    asking: Mutex<Vec<(u64, Asking)>>,
    answered: Condvar,
    /// Number of the next handshake.
    next: AtomicU64,
    /// Counter of the next message of this device to another one.
    counter: AtomicU64,
    rejections: Mutex<handshake::Allowance>,
}

impl Auth {
    /// With the key that the environment names; `None`: nothing is authenticated.
    ///
    /// # Errors
    /// The key cannot be used, so nothing may start.
    pub(crate) fn from_env() -> Result<Option<Self>, Error> {
        let Some(path) = ferroce_os::environment::variable(VARIABLE) else {
            return Ok(None);
        };
        let key = key_file::read(Path::new(&path))?;
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        Ok(Some(Self {
            secret: Secret::new(&key),
            asking: Mutex::default(),
            answered: Condvar::new(),
            next: AtomicU64::new(0),
            counter: AtomicU64::new(u64::try_from(since.as_nanos()).unwrap_or(0)),
            rejections: Mutex::default(),
        }))
    }

    /// Whether another rejection may be sent in this second.
    pub(crate) fn may_reject(&self, now: Time) -> bool {
        lock(&self.rejections).take(now)
    }

    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Tags a packet by itself that this device sends to another one.
    pub(crate) fn add_tag(&self, addressing: &Addressing, packet: &mut Vec<u8>) {
        let counter = self.counter.fetch_add(1, Ordering::Relaxed);
        let addresses = addresses(addressing);
        let key = self.secret.host();
        key.add_counted_tag(counter, &addresses, packet, 0);
    }

    /// The packet of another device without its tag, if that is right.
    pub(crate) fn take_tag<'a>(
        &self,
        addressing: &Addressing,
        packet: &'a [u8],
    ) -> Option<&'a [u8]> {
        let addresses = addresses(addressing);
        let opened = self.secret.host().take_counted_tag(&addresses, packet);
        opened.map(|(packet, _)| packet)
    }
}

/// Whether a packet is what a device says to another, and no queue pair's.
pub(crate) fn is_of_device(packet: &[u8]) -> bool {
    Drain::is_one(packet) || Packet::dest_qp(packet) == Some(Qpn::GSI)
}

/// What a tag covers of the addresses.
pub(crate) fn addresses(addressing: &Addressing) -> auth::TagAddresses {
    auth::TagAddresses {
        src: addressing.src,
        dst: addressing.dst,
    }
}
