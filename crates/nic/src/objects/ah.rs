//! Address handles: where datagrams go. Work requests name them by number, so that one that is gone
//! leads nowhere.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, RwLock};

use ferroce_proto::verbs::AddressHandleAttr;

use crate::base::sync::{read, write};
use crate::objects::choose::check_datagram;
use crate::objects::device::{Limit, Permit, Protocol};
use crate::{Error, Pd};

/// An address handle (`ibv_create_ah`).
#[derive(Debug)]
pub struct Ah {
    pd: Arc<Pd>,
    number: u32,
    attr: AddressHandleAttr,
    _permit: Permit,
}

impl Ah {
    /// Makes an address handle. It may name a group.
    ///
    /// # Errors
    /// EOPNOTSUPP on iWARP; EINVAL for a port, a source GID or a form of address that the device
    /// does not have; ENOMEM above the device's limit.
    pub fn create(pd: &Arc<Pd>, attr: AddressHandleAttr) -> Result<Arc<Self>, Error> {
        let device = pd.context().device();
        if device.protocol() == Protocol::Iwarp {
            return Err(Error::unsupported("iWARP has no address handles"));
        }
        check_datagram(pd.context().services(), device, &attr)?;
        let permit = device.permit(Limit::Ah)?;
        let ah = pd.context().services().ahs.insert(|number| Self {
            pd: Arc::clone(pd),
            number,
            attr,
            _permit: permit,
        });
        pd.attach();
        Ok(ah)
    }

    /// Its number, which work requests carry; never given again in this process.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the attributes that the handle was made with.
    pub(crate) fn attr(&self) -> &AddressHandleAttr {
        &self.attr
    }

    /// Removes it. Datagrams that wait for a link and name it are lost. A second call does nothing.
    pub fn destroy(&self) {
        if self.pd.context().services().ahs.remove(self.number) {
            self.pd.detach();
        }
    }
}

/// The process's address handles.
#[derive(Debug, Default)]
pub(crate) struct AhTable {
    handles: RwLock<HashMap<u32, Arc<Ah>>>,
    next: AtomicU32,
}

impl AhTable {
    fn insert(&self, make: impl FnOnce(u32) -> Ah) -> Arc<Ah> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let ah = Arc::new(make(number));
        write(&self.handles).insert(number, Arc::clone(&ah));
        ah
    }

    fn remove(&self, number: u32) -> bool {
        write(&self.handles).remove(&number).is_some()
    }

    pub(crate) fn find(&self, number: u32) -> Option<Arc<Ah>> {
        read(&self.handles).get(&number).cloned()
    }
}
