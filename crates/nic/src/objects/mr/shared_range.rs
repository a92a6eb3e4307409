//! Memory of this process that peers map (see `services/direct/shares.rs`).

use std::sync::Arc;

use ferroce_os::memory::SharedFile;
use ferroce_proto::mr::AddrRange;

use crate::link::local::Frame;
use crate::objects::services::Services;
use crate::services::direct::{Share, SharedPart};

/// Memory of this process that peers can map: regions that are registered there while this lives
/// say so. It goes when the last of them has gone, and peers are told, so that they do not keep its
/// pages.
#[derive(Debug)]
#[must_use]
pub struct SharedRange {
    services: Arc<Services>,
    /// Peers open its descriptor.
    file: SharedFile,
    share: Share,
}

impl SharedRange {
    /// Peers may map the part of a file, from `offset` on, that is mapped there.
    /// None: there is no board, or there are as many as it has places for.
    pub(crate) fn new(
        services: &Arc<Services>,
        file: SharedFile,
        offset: u64,
        AddrRange { addr, len }: AddrRange,
    ) -> Option<Self> {
        let part = SharedPart {
            descriptor: file.number(),
            id: file.id(),
            offset,
            addr,
            len,
        };
        let share = services.boards.own()?.share(&part)?;
        let services = Arc::clone(services);
        Some(Self {
            services,
            file,
            share,
        })
    }

    /// Gives the pages back, also those that peers have mapped: nobody needs what is there.
    pub(crate) fn discard(&self) {
        self.file.discard();
    }
}

impl Drop for SharedRange {
    fn drop(&mut self) {
        let boards = &self.services.boards;
        if !boards.own().is_some_and(|own| own.unshare(&self.share)) {
            return;
        }
        for slot in boards.mappers() {
            if let Some(egress) = self.services.egress_to_own_user(slot) {
                egress.send_frame(&Frame::Unshared(self.share.number));
            }
        }
    }
}
