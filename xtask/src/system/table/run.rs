//! Running rows.

use std::time::Duration;

use super::{Due, Path, Record, Row, Sides};
use crate::system::{Outcome, Process, Side, Stage, xrc_file};

/// Time for one process of a row. ib_send_lat measures the processor's clock for more than a second
/// before each size of `-a`, and for several beside other tests.
const PATIENCE: Duration = Duration::from_secs(150);

/// Files that perftest leaves behind: those of another user, say root, it cannot open the next
/// time. Each of its processes makes a domain of its own by them.
const XRC_FILES: [&str; 2] = ["/tmp/xrc_domain_server", "/tmp/xrc_domain_client"];

/// Result of a row that did what was due.
pub(super) const PASSED: &str = "passes";

/// Runs rows one after the other; an error that names those which failed.
pub(super) fn group(stage: &Stage, rows: &[Row], path: Path, record: &Record) -> Outcome {
    for file in XRC_FILES {
        let _ = std::fs::remove_file(file);
    }
    let _file = xrc_file::anew_for(rows.iter().map(|row| row.program));
    let mut failures = Vec::new();
    for row in rows {
        let due = row.due.on(path);
        let outcome = one(stage, row, due);
        let result = match (&outcome, due) {
            (Ok(()), Due::Pass(_) | Due::PassNear { .. }) => PASSED.to_owned(),
            (Ok(()), Due::Refuse { reason, .. }) => format!("refused: {reason}"),
            (Ok(()), Due::LeftOut { reason }) => format!("left out: {reason}"),
            (Err(_), _) => "FAILS".to_owned(),
        };
        record.keep(row.key(), path, result);
        if let Err(reason) = outcome {
            let (server, client) = (&row.server, &row.client);
            let program = row.program;
            failures.push(format!("{program} {server} | {client}: {reason}"));
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    let (count, all) = (failures.len(), rows.len());
    Err(format!(
        "{count} of {all} rows failed\n{}",
        failures.join("\n")
    ))
}

fn one(stage: &Stage, row: &Row, due: Due) -> Outcome {
    if let Sides::Own(body) = row.sides {
        return body(stage, row);
    }
    match due {
        Due::Refuse { says, .. } => {
            let mut process = start(stage, Side::A, row.program, &row.server)?;
            process.refuse()?;
            wants(&process, says)
        }
        Due::LeftOut { .. } => Ok(()),
        Due::Pass(check) | Due::PassNear { check, .. } => {
            let (server, client) = both(stage, row)?;
            check.holds(&server, &client)
        }
    }
}

/// Runs both sides to their end, the client's first; what they printed.
fn both(stage: &Stage, row: &Row) -> Result<(String, String), String> {
    let mut server = start(stage, Side::A, row.program, &row.server)?;
    match row.sides {
        Sides::Alone | Sides::Own(_) => {
            server.succeed()?;
            return Ok((server.output(), String::new()));
        }
        Sides::Tcp(port) | Sides::Clients(port, _) => server.listens_on_tcp(port)?,
        Sides::Cm(port) | Sides::Lasting(port) => server.listens_on_cm(port)?,
        Sides::Udp(port) => server.has_udp(port)?,
        Sides::Says(text) => server.says(text)?,
    }
    // Servers and clients of some pairs have different names.
    let program = match row.program {
        "rdma_server" => "rdma_client",
        "rdma_xserver" => "rdma_xclient",
        same => same,
    };
    let count = match row.sides {
        Sides::Clients(_, count) => count,
        _ => 1,
    };
    let clients = (0..count).map(|_| start(stage, Side::B, program, &row.client));
    let mut printed = String::new();
    for mut client in clients.collect::<Result<Vec<_>, _>>()? {
        client.succeed_beside(&mut server)?;
        printed += &client.output();
    }
    if !matches!(row.sides, Sides::Lasting(_) | Sides::Udp(_)) {
        server.succeed()?;
    }
    Ok((server.output(), printed))
}

/// Starts a side of a row. Its lines come out one by one, so that one can wait for them.
pub(super) fn start(
    stage: &Stage,
    side: Side,
    program: &str,
    options: &str,
) -> Result<Process, String> {
    let options = options
        .split_whitespace()
        .map(|word| filled_in(stage, word));
    let options: Vec<String> = options.collect();
    let mut words = vec!["stdbuf", "-oL", program];
    words.extend(options.iter().map(String::as_str));
    let mut launch = stage.program(side, &words);
    launch.label(program);
    if !stage.is_elsewhere() {
        launch.within(PATIENCE);
    }
    launch.start()
}

/// Addresses for the words in capitals.
fn filled_in(stage: &Stage, word: &str) -> String {
    match word {
        "SERVER" => stage.ipv4().to_owned(),
        "SERVER6" => stage.ipv6().to_owned(),
        "CLIENT" => stage.client_ipv4().to_owned(),
        "CLIENT6" => stage.client_ipv6().to_owned(),
        "DEVICE" => "ferroce_eth0".to_owned(),
        "GID" => format!("::ffff:{}", stage.ipv4()),
        _ => word.to_owned(),
    }
}

/// Wants a text in what a process printed.
pub(super) fn wants(process: &Process, text: &str) -> Outcome {
    if process.output().contains(text) {
        Ok(())
    } else {
        Err(format!("{} does not say {text:?}", process.label))
    }
}
