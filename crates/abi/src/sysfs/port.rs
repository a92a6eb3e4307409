//! A port's folder.

use std::ffi::c_int;
use std::fmt::Write as _;
use std::sync::Arc;

use ferroce_nic::{Device, Protocol};
use ferroce_proto::ids::DEFAULT_PKEY;

use super::counters;
use super::tree::Tree;
use crate::types::{IBV_LINK_LAYER_ETHERNET, ibv_port_attr};
use crate::verbs::port::{partitions, port_attr};

/// Texts of `enum ibv_port_state`.
const STATES: [&str; 6] = ["NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"];
/// Texts of the physical states of PortInfo (IBTA 14.2.5.6).
const PHYSICAL: [&str; 8] = [
    "",
    "Sleep",
    "Polling",
    "Disabled",
    "PortConfigurationTraining",
    "LinkUp",
    "LinkErrorRecovery",
    "Phy Test",
];

/// Adds all about port 1.
pub(super) fn add(tree: &mut Tree, device: &Arc<Device>, folder: &str) {
    for (name, show) in ATTRIBUTES {
        let device = Arc::clone(device);
        tree.file(format!("{folder}/{name}"), move || {
            Ok(format!("{}\n", show(&port_attr(&device))))
        });
    }
    if partitions(device) > 0 {
        tree.text(
            format!("{folder}/pkeys/0"),
            format!("{DEFAULT_PKEY:#06x}\n"),
        );
    }
    let gid_type = match device.protocol() {
        Protocol::RoceV2 => "RoCE v2\n",
        Protocol::Iwarp => "IB/RoCE v1\n",
    };
    let ndevs = format!("{folder}/gid_attrs/ndevs");
    let types = format!("{folder}/gid_attrs/types");
    for index in 0..device.port().gid_tbl_len {
        let of = Arc::clone(device);
        tree.file(format!("{folder}/gids/{index}"), move || {
            let gid = of.gid(index).map_or([0; 16], |gid| gid.0);
            Ok(groups(&gid))
        });
        let of = Arc::clone(device);
        tree.file(format!("{types}/{index}"), move || {
            // An empty entry has no type, and the kernel refuses to read it.
            of.gid(index)
                .map(|_| gid_type.to_owned())
                .ok_or(libc::EINVAL)
        });
        let of = Arc::clone(device);
        tree.file(format!("{ndevs}/{index}"), move || netdev(&of, index));
    }
    counters::add(tree, device, folder);
}

/// The interface of a GID.
fn netdev(device: &Device, index: u32) -> Result<String, c_int> {
    device
        .gid(index)
        .map(|_| format!("{}\n", device.netdev()))
        .ok_or(libc::EINVAL)
}

/// Shows a part of a port's attributes.
type Show = fn(&ibv_port_attr) -> String;

/// The files that show what `ibv_query_port` says.
const ATTRIBUTES: [(&str, Show); 9] = [
    ("state", |a| numbered(a.state, &STATES)),
    ("phys_state", |a| numbered(a.phys_state.into(), &PHYSICAL)),
    ("rate", |a| rate(a.active_speed, a.active_width)),
    ("lid", |a| format!("{:#x}", a.lid)),
    ("lid_mask_count", |a| a.lmc.to_string()),
    ("sm_lid", |a| format!("{:#x}", a.sm_lid)),
    ("sm_sl", |a| a.sm_sl.to_string()),
    ("cap_mask", |a| format!("{:#010x}", a.port_cap_flags)),
    ("link_layer", |a| {
        if a.link_layer == IBV_LINK_LAYER_ETHERNET {
            "Ethernet".to_owned()
        } else {
            "InfiniBand".to_owned()
        }
    }),
];

/// A number with its text.
fn numbered(number: u32, texts: &[&str]) -> String {
    let text = texts.get(number as usize).copied().unwrap_or_default();
    format!("{number}: {text}")
}

/// Lanes times speed of a lane, by the codes of `active_speed` and `active_width`.
fn rate(speed: u8, width: u8) -> String {
    // Tenths of Gbit/s per lane, and the generation's name.
    let (lane, generation) = match speed {
        1 => (25, " SDR"),
        2 => (50, " DDR"),
        4 => (100, " QDR"),
        8 => (100, " FDR10"),
        16 => (140, " FDR"),
        32 => (250, " EDR"),
        64 => (500, " HDR"),
        128 => (1000, " NDR"),
        _ => (25, ""),
    };
    let lanes = match width {
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 1,
    };
    let total = lane * lanes;
    let tenth = match total % 10 {
        0 => String::new(),
        tenth => format!(".{tenth}"),
    };
    format!("{}{tenth} Gb/sec ({lanes}X{generation})", total / 10)
}

/// Bytes in groups of two, and a line end.
pub(super) fn groups(bytes: &[u8]) -> String {
    let mut text = String::new();
    for pair in bytes.chunks(2) {
        let separator = if text.is_empty() { "" } else { ":" };
        let value = pair
            .iter()
            .fold(0_u16, |value, byte| (value << 8) | u16::from(*byte));
        write!(text, "{separator}{value:04x}").expect("writing to a string");
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_lanes_times_speed() {
        assert_eq!(rate(32, 1), "25 Gb/sec (1X EDR)");
        assert_eq!(rate(1, 1), "2.5 Gb/sec (1X SDR)");
        assert_eq!(rate(64, 2), "200 Gb/sec (4X HDR)");
    }

    #[test]
    fn every_state_has_its_text() {
        assert_eq!(numbered(4, &STATES), "4: ACTIVE");
        assert_eq!(numbered(5, &PHYSICAL), "5: LinkUp");
        assert_eq!(numbered(3, &PHYSICAL), "3: Disabled");
    }
}
