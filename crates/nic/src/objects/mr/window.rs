//! Memory windows.

use std::sync::{Arc, Mutex};

use ferroce_proto::ids::Key;
use ferroce_proto::mr::{Access, WINDOW_KEY_BITS, WindowBind, WindowType};

use super::Pd;
use crate::Error;
use crate::base::sync::lock;
use crate::objects::device::{Limit, Permit};
use crate::services::revoke::revoke_window;

/// Keys that are tried before the process counts as out of them; half of what there is would be
/// found within a few.
const TRIES: u32 = 1 << 16;

/// A memory window. Dropping it takes it back: when the drop returns, no peer uses it any more.
#[derive(Debug)]
pub struct Window {
    pd: Arc<Pd>,
    kind: WindowType,
    first_key: Key,
    /// Type 1: the key of the last bind that was asked for.
    key: Mutex<Key>,
    _permit: Permit,
}

impl Window {
    /// Allocates a window that is not bound.
    ///
    /// # Errors
    /// ENOMEM at the device's limit, or when the process has no keys for windows left.
    pub fn alloc(pd: &Arc<Pd>, kind: WindowType) -> Result<Self, Error> {
        let permit = pd.context().device().permit(Limit::Mw)?;
        let services = pd.context().services();
        let key = (0..TRIES)
            .map(|_| services.numbers.random_window_key())
            .find(|&key| services.rights.write().insert_window(key, kind, pd.id()))
            .ok_or_else(|| Error::no_memory("this process has no keys for memory windows left"))?;
        pd.attach();
        Ok(Self {
            pd: Arc::clone(pd),
            kind,
            first_key: key,
            key: Mutex::new(key),
            _permit: permit,
        })
    }

    /// Returns the window's type.
    #[must_use]
    pub fn kind(&self) -> WindowType {
        self.kind
    }

    /// The key before any bind, which opens nothing.
    #[must_use]
    pub fn first_key(&self) -> Key {
        self.first_key
    }

    /// The protection domain.
    #[must_use]
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Asks for a bind of a type 1 window under its next key. `post` gets the request; the key
    /// changes if it was posted.
    ///
    /// # Errors
    /// Those of `post`.
    pub fn bind_next(
        &self,
        to: WindowRange,
        post: impl FnOnce(WindowBind) -> Result<(), Error>,
    ) -> Result<Key, Error> {
        let mut current = lock(&self.key);
        let request = self.bind_request(Key(current.0.wrapping_add(1)), to);
        post(request)?;
        *current = request.key;
        Ok(request.key)
    }

    /// A request to bind the window, to be posted. Of `key` the low 8 bits count: those above are
    /// the window's.
    #[must_use]
    pub fn bind_request(&self, key: Key, to: WindowRange) -> WindowBind {
        const LOW: u32 = (1 << WINDOW_KEY_BITS) - 1;
        WindowBind {
            window: self.first_key,
            key: Key(self.first_key.0 & !LOW | key.0 & LOW),
            kind: self.kind,
            region: to.region,
            addr: to.addr,
            length: to.length,
            access: to.access,
        }
    }
}

/// What a window is to be bound to (`struct ibv_mw_bind_info`).
#[derive(Clone, Copy, Debug)]
pub struct WindowRange {
    /// The region's key; `None` for nothing.
    pub region: Option<Key>,
    /// First byte, in the region's `iova` range.
    pub addr: u64,
    /// Bytes.
    pub length: u64,
    /// Operations that peers may do.
    pub access: Access,
}

impl Drop for Window {
    fn drop(&mut self) {
        let services = self.pd.context().services();
        revoke_window(&services.rights, &services.boards, self.first_key);
        self.pd.detach();
    }
}
