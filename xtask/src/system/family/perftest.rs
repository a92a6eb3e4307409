//! perftest.

use super::{Ready, pair};
use crate::system::table::check::is_timed;
use crate::system::{Catalogue, Outcome, Place, Side, Stage, User};

pub(super) fn add(all: &mut Catalogue) {
    for program in ["ib_send_lat", "ib_write_bw", "ib_read_lat", "ib_atomic_bw"] {
        all.everywhere(program, 60, move |stage| perftest(stage, program, &[]));
        all.everywhere(&format!("{program}.cm"), 60, move |stage| {
            perftest(stage, program, &["-R"])
        });
    }
    for program in ["ib_send_bw", "ib_write_lat", "ib_read_bw", "ib_atomic_lat"] {
        all.everywhere(program, 60, move |stage| {
            perftest(stage, program, &["-n", "1000"])
        });
    }
    all.everywhere("ib_write_bw.crowd", 60, crowd);
    all.everywhere("ib_send_bw.events", 60, |stage| {
        perftest(stage, "ib_send_bw", &["-e", "-n", "1000"])
    });
    // An event for each completion, and none without: it posts a SEND for each event.
    for place in [Place::OneSpace, Place::Wire(1500)] {
        all.at("ib_send_lat.events", place, User::Ordinary, 60, |stage| {
            perftest(stage, "ib_send_lat", &["-e", "-n", "1000"])
        });
    }
    all.everywhere("ib_write_bw.both-ways", 60, |stage| {
        perftest(stage, "ib_write_bw", &["-b", "-n", "1000"])
    });
}

fn perftest(stage: &Stage, program: &str, options: &[&str]) -> Outcome {
    let with_cm = options.contains(&"-R");
    // With -R the addresses of the queue pairs travel through the connection manager, on the port
    // that is TCP's otherwise.
    let ready = if with_cm {
        Ready::Cm(18515)
    } else {
        Ready::Tcp(18515)
    };
    let server = [&[program, "-F"], options].concat();
    let client = [&server, &[stage.ipv4()][..]].concat();
    let (_, client) = pair(stage, ready, &server, &client)?;
    measured(&client)
}

/// Several pairs at once.
fn crowd(stage: &Stage) -> Outcome {
    let ports: Vec<String> = (19001..19005).map(|port: u16| port.to_string()).collect();
    let command = |port| ["ib_write_bw", "-F", "-n", "500", "-p", port];
    let servers: Result<Vec<_>, String> = ports
        .iter()
        .map(|port| stage.start(Side::A, &command(port)))
        .collect();
    let mut servers = servers?;
    for (server, port) in servers.iter_mut().zip(19001..) {
        server.listens_on_tcp(port)?;
    }
    let clients: Result<Vec<_>, String> = ports
        .iter()
        .map(|port| stage.start(Side::B, &[&command(port)[..], &[stage.ipv4()]].concat()))
        .collect();
    for process in clients?.iter_mut().chain(&mut servers) {
        process.succeed()?;
    }
    Ok(())
}

/// Whether the last table has a row of numbers: bytes, iterations and results, above zero if
/// perftest had a clock.
pub(super) fn measured(output: &str) -> Outcome {
    let is_timed = is_timed(output);
    let row = |line: &str| {
        let numbers: Vec<f64> = line
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        numbers.len() >= 4 && (numbers[3] > 0.0 || !is_timed)
    };
    if output.lines().any(row) {
        Ok(())
    } else {
        Err("no measured values in the client's output".into())
    }
}
