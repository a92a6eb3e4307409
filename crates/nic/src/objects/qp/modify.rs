//! `ibv_modify_qp`: the path is chosen here, everything else is the transport's.

use std::net::IpAddr;

use ferroce_os::clock;
use ferroce_proto::ids::Gid;
use ferroce_proto::qp::{self, migration};
use ferroce_proto::rc::{Cx, LinkTraits};
use ferroce_proto::verbs::{AddressHandleAttr, AttrMask, QpAttr, QpState};

use super::Qp;
use super::locked::Locked;
use crate::Error;
use crate::link::path::{Path, neighbour};
use crate::objects::choose::{Destination, choose};
use crate::services::auth::Agreed;

/// A path that was looked for, with its traits.
pub(super) type Found = Option<(Path, LinkTraits)>;

/// What a move was found to need, before the queue pair's lock was taken.
struct FoundPaths {
    chosen: Found,
    alternate: Found,
    /// What the handshake with the peer's host gave, where a key is set.
    agreed: Option<Agreed>,
}

/// Whether a move waits for the station to which packets for the peer go first, and for the answer
/// of the peer's host where a key is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stations {
    /// The state is not known yet: the move waits.
    Unknown,
    /// The move does not wait: another process asks for the move, which has looked for the station.
    /// The thread that makes progress would have to hear the answer.
    Looked,
}

impl Qp {
    pub(crate) fn apply(
        &self,
        attr: &QpAttr,
        mask: AttrMask,
        stations: Stations,
    ) -> Result<(), Error> {
        let mask = qp::relevant(self.qp_type, mask);
        let (chosen, alternate) = self.find_paths(attr, mask)?;
        if stations == Stations::Unknown {
            let found = [&chosen, &alternate].into_iter().flatten();
            self.await_stations(found.map(|(path, _)| path.addressing.dst))?;
        }
        let agreed = self.authenticate(attr, mask, &chosen, &alternate, stations)?;
        let to = mask.contains(AttrMask::STATE).then_some(attr.qp_state);
        if matches!(to, Some(QpState::Reset | QpState::Err)) {
            // From there on the peer does not get what it is still owed for messages that the
            // program has seen.
            self.speak_up(clock::monotonic());
        }
        let paths = FoundPaths {
            chosen,
            alternate,
            agreed,
        };
        let after = self.step(|locked, cx| self.change(locked, cx, attr, mask, paths))?;
        self.follow_up(to, after, mask);
        Ok(())
    }

    /// Changes the transport, and what goes by its state, under the queue pair's lock. Returns the
    /// state afterwards.
    fn change(
        &self,
        locked: &mut Locked,
        cx: &mut Cx<'_>,
        attr: &QpAttr,
        mask: AttrMask,
        paths: FoundPaths,
    ) -> Result<QpState, Error> {
        let before = locked.transport.state();
        if mask.contains(AttrMask::STATE) && attr.qp_state == QpState::Reset {
            self.say_end(locked);
        }
        // Before the move, since it may start to transmit; taken back if the move is refused.
        if let Some((_, traits)) = &paths.chosen {
            locked.transport.set_link(*traits);
        }
        if let Err(e) = locked.transport.modify(cx, attr, mask) {
            if let Some(traits) = locked.traits {
                locked.transport.set_link(traits);
            }
            return Err(Error::invalid(e.reason));
        }
        let after = locked.transport.state();
        if paths.chosen.is_some() {
            locked.set_path(self, paths.chosen);
            self.change_account(locked);
        }
        let has_agreed = paths.agreed.is_some();
        locked.follow_state(self.services(), attr, after, paths.agreed);
        if has_agreed {
            // The handshake has shown it.
            self.meet_ferroce_peer(locked);
        }
        if after == QpState::Rts {
            self.begin_rendezvous(locked);
        }
        if paths.alternate.is_some() {
            locked.alternate = paths.alternate;
        }
        if after == QpState::Reset {
            locked.alternate = None;
            locked.set_path(self, None);
            self.change_account(locked);
            self.queues.forget(self.qpn);
        }
        tracing::debug!(target: "ferroce::qp", qpn = self.qpn.get(), ?before, ?after, ?mask, "modified");
        Ok(after)
    }

    /// What a change has as a consequence that takes other locks than the queue pair's. `to` is the
    /// state that was asked for, `after` the one that it has.
    fn follow_up(&self, to: Option<QpState>, after: QpState, mask: AttrMask) {
        if to == Some(QpState::Rtr) {
            self.ask_for_ferroce_peer(clock::monotonic());
        }
        if after == QpState::Reset {
            self.forget_ferroce_peer();
            // What it bound was for the peer that it has no more.
            self.unbind_windows();
        }
        if matches!(after, QpState::Reset | QpState::Err) {
            self.services().forget_borrower(self.qpn);
        }
        let regrants = mask.contains(AttrMask::ACCESS_FLAGS) && after != QpState::Init;
        if regrants || matches!(after, QpState::Reset | QpState::Err) {
            self.renew_grant();
        }
    }

    /// Waits until the next stations on the way to other hosts have answered. Own addresses have
    /// none. No lock is held meanwhile.
    ///
    /// # Errors
    /// As [`neighbour::KnownStations::resolve`].
    pub(crate) fn await_stations(&self, to: impl Iterator<Item = Gid>) -> Result<(), Error> {
        let device = self.pd.context().device();
        // Nobody answers there, and no adapter has such an interface.
        if device.is_loopback() {
            return Ok(());
        }
        let until = clock::monotonic() + neighbour::PATIENCE;
        for ip in to.map(|gid| gid.ip()) {
            if !(ip.is_multicast() || self.services().is_local(ip)) {
                let scope = scope_of(ip, device.ifindex());
                self.services().stations.resolve(ip, scope, until)?;
            }
        }
        Ok(())
    }

    /// The path and the alternate path that the attributes lead to, if they change them. What the
    /// state table or the values forbid is refused here, before anything else can be wrong with an
    /// address.
    fn find_paths(&self, attr: &QpAttr, mask: AttrMask) -> Result<(Found, Found), Error> {
        let now = self.lock().transport.query();
        let next =
            qp::next_state(now.qp_state, attr, mask).map_err(|e| Error::invalid(e.to_string()))?;
        qp::check(self.qp_type, now.qp_state, next, mask)
            .map_err(|e| Error::invalid(e.to_string()))?;
        let pick = |flag, new: &QpAttr| if mask.contains(flag) { *new } else { now };
        let find = |ah| {
            let to = Destination {
                ah,
                qpn: pick(AttrMask::DEST_QPN, attr).dest_qp_num,
                mtu: pick(AttrMask::PATH_MTU, attr).path_mtu,
            };
            choose(self.services(), self.pd.context().device(), &to)
        };
        // It is not used yet, but must be usable.
        let alternate = mask.contains(AttrMask::ALT_PATH).then(|| {
            find(AddressHandleAttr {
                port_num: attr.alt_port_num,
                ..attr.alt_ah_attr
            })
            .map_err(|e| Error::new(e.errno, format!("alternate path: {}", e.reason)))
        });
        let asked = pick(AttrMask::PATH_MIG_STATE, attr).path_mig_state;
        let primary = if mask.contains(AttrMask::AV) {
            Some(attr.ah_attr)
        } else {
            migration::destination(&now, asked).map(|alternate| AddressHandleAttr {
                port_num: now.alt_port_num,
                ..alternate
            })
        };
        Ok((primary.map(find).transpose()?, alternate.transpose()?))
    }
}

/// The interface of a link-local address, else 0.
fn scope_of(ip: IpAddr, ifindex: u32) -> u32 {
    match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => ifindex,
        _ => 0,
    }
}
