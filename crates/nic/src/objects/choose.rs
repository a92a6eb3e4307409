//! Which way a queue pair's packets go: over a local link, over the wire, or nowhere.

use std::sync::Arc;

use ferroce_proto::auth;
use ferroce_proto::ids::Qpn;
use ferroce_proto::rc::LinkTraits;
use ferroce_proto::verbs::{AddressHandleAttr, Mtu};

use crate::base::addressing::Addressing;
use crate::base::numbers::slot_of;
use crate::link::Origin;
use crate::link::local::ConnectError;
use crate::link::path::{Egress, Path, Policy, Reach, traits};
use crate::objects::device::fitting_mtu;
use crate::objects::services::Services;
use crate::{Device, Error};

/// The bits of a flow label.
const FLOW_LABEL: u32 = 0x000f_ffff;

/// Where a queue pair wants to get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destination {
    pub(crate) ah: AddressHandleAttr,
    pub(crate) qpn: Qpn,
    pub(crate) mtu: Mtu,
}

/// Chooses the path.
///
/// # Errors
/// EINVAL for an address that the device cannot use, with the reason; ENETUNREACH for another host
/// without UDP 4791; EMFILE, EAGAIN … when a link to a process of this host cannot be made now.
pub(crate) fn choose(
    services: &Services,
    device: &Device,
    to: &Destination,
) -> Result<(Path, LinkTraits), Error> {
    let addressing = addressing(device, &to.ah)?;
    if addressing.dst.is_multicast() {
        return Err(Error::invalid(format!(
            "ah_attr.grh.dgid {} is a group, a connected queue pair has one peer",
            addressing.dst.ip()
        )));
    }
    let local = services.is_local(addressing.dst.ip());
    let (reach, traits, together) = match services.policy {
        Policy::Auto | Policy::Local if local => {
            let (reach, traits) = local_link(services, to.qpn)?;
            (reach, traits, None)
        }
        Policy::Local => {
            return Err(Error::new(
                libc::ENETUNREACH,
                format!(
                    "{} is not an address of this host and FERROCE_PATH=local",
                    addressing.dst.ip()
                ),
            ));
        }
        Policy::Auto | Policy::Wire => wire(services, device, &addressing, to)?,
    };
    tracing::debug!(target: "ferroce::path", from = %addressing.src.ip(), to = %addressing.dst.ip(),
        dest_qp = to.qpn.get(), lossless = traits.lossless, "path chosen");
    let path = Path {
        addressing,
        origin: reach.origin(to.qpn),
        reach,
        together,
    };
    Ok((path, traits))
}

/// Chooses the path of a datagram to the queue pair `dest`. A group is always reached over the
/// wire: only the kernel knows its members.
///
/// # Errors
/// As [`choose`].
pub(crate) fn choose_datagram(
    services: &Services,
    device: &Device,
    ah: &AddressHandleAttr,
    dest: Qpn,
) -> Result<Path, Error> {
    if ah.grh.dgid.is_multicast() {
        let addressing = addressing(device, ah)?;
        check_covered(services, &addressing)?;
        let (egress, _) = services.wire_to(addressing.dst)?;
        let reach = Reach::Link(egress);
        return Ok(Path {
            addressing,
            reach,
            origin: Origin::WIRE,
            together: None,
        });
    }
    let to = Destination {
        ah: *ah,
        qpn: dest,
        mtu: device.port().fitting_mtu,
    };
    choose(services, device, &to).map(|(path, _)| path)
}

/// Whether an address handle may lead there.
///
/// # Errors
/// EINVAL with the reason; EOPNOTSUPP for a group where a key is set.
pub(crate) fn check_datagram(
    services: &Services,
    device: &Device,
    ah: &AddressHandleAttr,
) -> Result<(), Error> {
    let addressing = addressing(device, ah)?;
    check_covered(services, &addressing)
}

/// A group has no receiver that could be asked for a nonce.
fn check_covered(services: &Services, addressing: &Addressing) -> Result<(), Error> {
    if services.auth().is_none() || !addressing.dst.is_multicast() {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "FERROCE_KEY_FILE is set, and it does not cover multicast, as to {}",
        addressing.dst.ip()
    )))
}

fn local_link(services: &Services, dest: Qpn) -> Result<(Reach, LinkTraits), Error> {
    match services.egress_to(slot_of(dest)) {
        Ok(egress) => Ok((Reach::Link(egress), traits::local())),
        Err(e @ ConnectError::NoSuchProcess(_)) => {
            tracing::debug!(target: "ferroce::path", dest_qp = dest.get(), "packets vanish: {e}");
            let traits = LinkTraits {
                lossless: false,
                ..traits::local()
            };
            Ok((Reach::Nowhere, traits))
        }
        Err(ConnectError::NotNow { error, .. }) => Err(Error::system(
            "no link to the process of the destination queue pair",
            &error,
        )),
    }
}

/// The path to a queue pair of the process to which a link leads.
pub(crate) fn to_process(
    egress: Arc<Egress>,
    dest: Qpn,
    addressing: Addressing,
) -> (Path, LinkTraits) {
    let reach = Reach::Link(egress);
    let path = Path {
        addressing,
        origin: reach.origin(dest),
        reach,
        together: None,
    };
    (path, traits::local())
}

fn wire(
    services: &Services,
    device: &Device,
    addressing: &Addressing,
    to: &Destination,
) -> Result<(Reach, LinkTraits, Option<u32>), Error> {
    let port = device.port();
    if to.mtu > port.fitting_mtu {
        return Err(Error::invalid(format!(
            "path_mtu {} is above {}, the most that fits MTU {} of {}",
            to.mtu.bytes(),
            port.fitting_mtu.bytes(),
            port.netdev_mtu,
            device.netdev()
        )));
    }
    let room = u32::try_from(auth::MOST).unwrap_or(0);
    if services.auth().is_some() && to.mtu > fitting_mtu(port.netdev_mtu.saturating_sub(room)) {
        return Err(Error::invalid(format!(
            "path_mtu {} with the tags of FERROCE_KEY_FILE does not fit MTU {} of {}",
            to.mtu.bytes(),
            port.netdev_mtu,
            device.netdev()
        )));
    }
    let (egress, receive_buffer) = services.wire_to_qp(addressing.dst, to.qpn)?;
    services.expect_from_qp(addressing, to.qpn);
    Ok((
        Reach::Link(egress),
        traits::wire(to.mtu, receive_buffer),
        Some(traits::wire_together(to.mtu, receive_buffer)),
    ))
}

fn addressing(device: &Device, ah: &AddressHandleAttr) -> Result<Addressing, Error> {
    if ah.port_num != 1 {
        return Err(Error::invalid(format!(
            "ah_attr.port_num is {}, the device has port 1 only",
            ah.port_num
        )));
    }
    if !ah.is_global {
        return Err(Error::invalid(
            "ah_attr.is_global must be set: on Ethernet only the GID tells where to send",
        ));
    }
    let index = u32::from(ah.grh.sgid_index);
    let Some(src) = device.gid(index) else {
        return Err(Error::invalid(format!(
            "ah_attr.grh.sgid_index {index} is an empty entry of {}",
            device.name()
        )));
    };
    let dst = ah.grh.dgid;
    if dst.is_zero() {
        return Err(Error::invalid(format!(
            "ah_attr.grh.dgid {} is not the address of a port",
            dst.ip()
        )));
    }
    if dst.ip().is_ipv4() != src.ip().is_ipv4() {
        return Err(Error::invalid(format!(
            "{} cannot be reached from {}: IPv4 and IPv6",
            dst.ip(),
            src.ip()
        )));
    }
    Ok(Addressing {
        src,
        dst,
        hop_limit: ah.grh.hop_limit,
        traffic_class: ah.grh.traffic_class,
        flow_label: ah.grh.flow_label & FLOW_LABEL,
        ifindex: device.ifindex(),
    })
}
