//! Regions and windows that come, change and go.

use ferroce_conformance::door::Change;
use ferroce_proto::ids::Key;

use super::super::input::Input;
use super::{MEMORY, World, rights};

/// Regions that an end has at once, besides the one over everything.
const MAX_REGIONS: usize = 6;
/// Memory windows that an end has at once.
const MAX_WINDOWS: usize = 4;

impl World {
    pub(super) fn register(&mut self, input: &mut Input<'_>, who: usize) {
        let player = &mut self.players[who];
        if player.live.len() == MAX_REGIONS {
            return;
        }
        let offset = usize::from(input.u16()) % MEMORY;
        let len = usize::from(input.u16()) % (MEMORY - offset + 1);
        let access = rights(input);
        let side = player.end.side_mut();
        let key = if input.below(4) == 0 {
            side.register_elsewhere(offset, len, access)
        } else {
            side.register(offset, len, access)
        };
        player.live.extend(key);
    }

    pub(super) fn deregister(&mut self, input: &mut Input<'_>, who: usize) {
        let player = &mut self.players[who];
        let free = |key: &Key| !player.bound.contains(key);
        if let Some(key) = input.pick(&player.live).filter(free) {
            player.live.retain(|k| *k != key);
            player.end.side_mut().deregister(key);
            player.dead.push(key);
        }
    }

    /// Changes a region. A refusal leaves it as it was.
    pub(super) fn reregister(&mut self, input: &mut Input<'_>, who: usize) {
        let player = &mut self.players[who];
        let offset = usize::from(input.u16()) % MEMORY;
        let len = usize::from(input.u16()) % (MEMORY - offset + 1);
        let access = rights(input);
        let change = Change {
            range: input.flag().then_some((offset, len)),
            elsewhere: input.flag(),
            access: input.flag().then_some(access),
        };
        if let Some(key) = input.pick(&player.live) {
            let _ = player.end.side_mut().reregister(key, &change);
        }
    }

    pub(super) fn window(&mut self, who: usize) {
        let player = &mut self.players[who];
        if player.windows.len() < MAX_WINDOWS {
            player.windows.extend(player.end.side_mut().window());
        }
    }
}
