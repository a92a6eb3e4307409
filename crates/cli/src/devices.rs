//! `ferroce devices`.

use std::io::Write;
use std::process::ExitCode;

use ferroce::device::{Device, DeviceLimits, GidEntry, PortAttributes};
use serde_json::{Value, json};

/// Properties of one device that are shown.
struct Shown {
    name: String,
    limits: DeviceLimits,
    port: PortAttributes,
    gids: Vec<GidEntry>,
}

/// The only port of a device.
const PORT: u8 = 1;

/// Prints all devices.
pub(crate) fn list(as_json: bool) -> ExitCode {
    match print(as_json) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("ferroce: {e}");
            ExitCode::FAILURE
        }
    }
}

fn print(as_json: bool) -> Result<(), String> {
    let devices: Result<Vec<Shown>, ferroce::Error> = match ferroce::device::devices() {
        Ok(devices) => devices.iter().map(show).collect(),
        Err(e) => Err(e),
    };
    let devices = devices.map_err(|e| format!("{e} (FERROCE_LOG=debug tells more)"))?;
    let text = if as_json {
        let list: Vec<Value> = devices.iter().map(to_json).collect();
        format!("{:#}\n", Value::Array(list))
    } else if devices.is_empty() {
        "no devices: no network interface is up and has an address\n".to_owned()
    } else {
        devices.iter().map(to_text).collect::<Vec<_>>().join("\n")
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|e| format!("standard output: {e}"))
}

fn show(device: &Device) -> Result<Shown, ferroce::Error> {
    let context = device.open()?;
    Ok(Shown {
        name: device.name(),
        limits: context.limits()?,
        port: context.port(PORT)?,
        gids: context.gids(PORT)?,
    })
}

fn to_text(device: &Shown) -> String {
    let Shown {
        name,
        limits,
        port,
        gids,
    } = device;
    let mut text = format!("{name}\n");
    let mut line = |what: &str, value: String| text.push_str(&format!("  {what:<12} {value}\n"));
    line("GUID", format!("{:016x}", limits.node_guid));
    line("firmware", limits.firmware.clone());
    line(
        "port 1",
        format!(
            "{}, {}, MTU {} of {}",
            port.state, port.link_layer, port.active_mtu, port.max_mtu
        ),
    );
    for entry in gids {
        line(
            &format!("GID {}", entry.index),
            format!("{} ({})", entry.gid, entry.kind),
        );
    }
    line(
        "queue pairs",
        format!(
            "{}, {} work requests and {} pieces each",
            limits.max_qp, limits.max_qp_wr, limits.max_sge
        ),
    );
    line(
        "completions",
        format!("{} queues of {}", limits.max_cq, limits.max_cqe),
    );
    line(
        "memory",
        format!(
            "{} regions of {} bytes, {} domains",
            limits.max_mr, limits.max_mr_size, limits.max_pd
        ),
    );
    line(
        "READ, atomic",
        format!(
            "{} served, {} outstanding",
            limits.max_qp_rd_atom, limits.max_qp_init_rd_atom
        ),
    );
    line("message", format!("{} bytes", port.max_message));
    text
}

fn to_json(device: &Shown) -> Value {
    let Shown {
        name,
        limits,
        port,
        gids,
    } = device;
    let gids: Vec<Value> = gids
        .iter()
        .map(|entry| {
            json!({
                "index": entry.index,
                "gid": entry.gid.to_string(),
                "type": entry.kind.to_string(),
                "interface_index": entry.interface,
            })
        })
        .collect();
    json!({
        "name": name,
        "node_guid": format!("{:016x}", limits.node_guid),
        "firmware": limits.firmware,
        "limits": {
            "max_mr_size": limits.max_mr_size,
            "max_mr": limits.max_mr,
            "max_pd": limits.max_pd,
            "max_qp": limits.max_qp,
            "max_qp_wr": limits.max_qp_wr,
            "max_sge": limits.max_sge,
            "max_cq": limits.max_cq,
            "max_cqe": limits.max_cqe,
            "max_qp_rd_atom": limits.max_qp_rd_atom,
            "max_qp_init_rd_atom": limits.max_qp_init_rd_atom,
        },
        "ports": [{
            "number": PORT,
            "state": port.state.to_string(),
            "link_layer": port.link_layer.to_string(),
            "active_mtu": port.active_mtu,
            "max_mtu": port.max_mtu,
            "max_message_size": port.max_message,
            "gid_table_length": port.gid_table_length,
            "gids": gids,
        }],
    })
}
