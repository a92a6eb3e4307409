//! The programs and the test suite of the newest rdma-core, in a system that has it.

use super::source::Origin;
use super::{Row, Run};
use crate::system::{Process, Side, pyverbs};

/// Where the ping-pongs exchange their numbers.
const PINGPONG_PORT: u16 = 18515;
/// Where programs of the connection manager listen.
const CM_PORT: u16 = 7174;
/// Where `cmtime` exchanges what it needs.
const CMTIME_PORT: u16 = 7471;

pub(super) fn rows() -> Vec<Row> {
    let row = |name, what, package, run| Row {
        name,
        program: "rdma-core, newest",
        what,
        origin: Origin::Unstable(package),
        is_one_host: false,
        run,
    };
    vec![
        row(
            "rdma-core-devinfo",
            "`ibv_devices`, `ibv_devinfo -v`: each device, its port active",
            "ibverbs-utils",
            devinfo,
        ),
        Row {
            is_one_host: true,
            ..row(
                "rdma-core-suite",
                "its suite in Python: nothing fails, and what is skipped is excepted with a reason",
                "python3-pyverbs",
                suite,
            )
        },
        row(
            "rdma-core-pingpong",
            "`ibv_{rc,uc,ud,srq}_pingpong`, polled and asleep, bytes checked, `ibv_xsrq_pingpong`",
            "ibverbs-utils",
            pingpong,
        ),
        row(
            "rdma-core-cm",
            "`rping -V`, `rdma_server`, `rdma_xserver` (XRC), `ucmatose` with 20 connections, `udaddy`, `mckey`, `cmtime` with 50",
            "rdmacm-utils",
            connections,
        ),
        row(
            "rdma-core-rsocket",
            "`riostream` with bytes checked, `rstream`",
            "rdmacm-utils",
            rsockets,
        ),
    ]
}

/// A program with its words, line by line.
fn start(run: &Run<'_>, side: Side, line: &str, more: &[&str]) -> Result<Process, String> {
    let (program, rest) = line.split_once(' ').unwrap_or((line, ""));
    let mut words = vec!["stdbuf", "-oL", program];
    words.extend(rest.split_whitespace().chain(more.iter().copied()));
    run.program(side, &words).label(program).start()
}

/// Both ends with 0; what the client printed.
fn pair(
    run: &Run<'_>,
    ready: impl Fn(&mut Process) -> Result<(), String>,
    server: (&str, &[&str]),
    client: (&str, &[&str]),
) -> Result<Process, String> {
    let at = |why: String| format!("{}: {why}", client.0);
    let mut served = start(run, Side::A, server.0, server.1)?;
    ready(&mut served).map_err(at)?;
    let mut called = start(run, Side::B, client.0, client.1)?;
    called.succeed().map_err(at)?;
    served.succeed().map_err(at)?;
    run.carried(&called).map_err(at)?;
    Ok(called)
}

fn devinfo(run: &Run<'_>) -> Result<String, String> {
    let said = |line: &str| {
        let mut process = start(run, Side::A, line, &[])?;
        process.succeed()?;
        Ok::<_, String>(process.output())
    };
    let (devices, infos) = (said("ibv_devices")?, said("ibv_devinfo -v")?);
    let device = run.device()?;
    if !devices.contains(&*device) {
        return Err(format!("ibv_devices does not list {device}"));
    }
    let count = infos.matches("hca_id:").count();
    let active = infos.matches("PORT_ACTIVE (4)").count();
    if count == 0 || active != count {
        return Err(format!("{active} of {count} ports are active"));
    }
    Ok(format!("{count} devices, {} lines", infos.lines().count()))
}

fn suite(run: &Run<'_>) -> Result<String, String> {
    let device = run.device()?;
    let logs = run.stage.folder_of_logs().to_string_lossy();
    pyverbs::of_system(&run.source, run.stage, &logs, &device, |words| {
        run.program(Side::A, words)
    })
}

fn pingpong(run: &Run<'_>) -> Result<String, String> {
    let (device, host) = (run.device()?, run.stage.ipv4());
    let mut figures: Vec<f64> = Vec::new();
    for program in [
        "ibv_rc_pingpong -c",
        "ibv_rc_pingpong -c -e",
        "ibv_uc_pingpong -c",
        "ibv_uc_pingpong -c -e",
        "ibv_ud_pingpong -c",
        "ibv_ud_pingpong -c -e",
        "ibv_srq_pingpong -c",
        "ibv_srq_pingpong -c -e",
        "ibv_xsrq_pingpong",
    ] {
        let server = ["-g", "0", "-d", &device];
        let client = ["-g", "0", "-d", &device, host];
        let ready = |server: &mut Process| server.listens_on_tcp(PINGPONG_PORT);
        let called = pair(run, ready, (program, &server), (program, &client))?;
        let output = called.output();
        let line = output.lines().find(|line| line.contains("usec/iter"));
        figures.extend(
            line.and_then(|line| line.split_whitespace().rev().nth(1)?.parse::<f64>().ok()),
        );
    }
    let figure = |at: usize| figures.get(at).copied().unwrap_or(f64::NAN) / 2.0;
    Ok(format!(
        "RC 4 KiB {:.1} µs polled, {:.1} µs asleep",
        figure(0),
        figure(1)
    ))
}

fn connections(run: &Run<'_>) -> Result<String, String> {
    let (host, own) = (run.stage.ipv4(), run.stage.client_ipv4());
    let on_cm = |port| move |server: &mut Process| server.listens_on_cm(port);
    let rping = ("rping -s -C 100 -V", &["-a", host][..]);
    pair(
        run,
        on_cm(CM_PORT),
        rping,
        ("rping -c -C 100 -V", &["-a", host]),
    )?;
    for (server, client) in [
        ("rdma_server -p 7174", "rdma_client -p 7174"),
        ("rdma_xserver -p 7174", "rdma_xclient -p 7174"),
        ("ucmatose -p 7174 -c 20", "ucmatose -p 7174 -c 20"),
    ] {
        pair(run, on_cm(CM_PORT), (server, &[]), (client, &["-s", host]))?;
    }
    pair(
        run,
        on_cm(CM_PORT),
        ("udaddy", &["-b", host]),
        ("udaddy", &["-s", host]),
    )?;
    let joined = |server: &mut Process| server.says("joined dgid");
    let group = ["-m", "239.1.1.1", "-b"];
    let (receiver, sender) = (
        [&group[..], &[host]].concat(),
        [&group[..], &[own, "-s"]].concat(),
    );
    pair(run, joined, ("mckey", &receiver), ("mckey", &sender))?;
    let server = ["-b", host, "-C", host];
    let client = ["-b", own, "-C", host];
    let listens = |server: &mut Process| server.listens_on_tcp(CMTIME_PORT);
    // Its connections carry nothing.
    let mut served = start(run, Side::A, "cmtime -L -c 50", &server)?;
    listens(&mut served)?;
    let mut called = start(run, Side::B, "cmtime -c 50", &client)?;
    called.succeed()?;
    served.succeed()?;
    let output = called.output();
    let line = output
        .lines()
        .rfind(|line| line.starts_with("full connect"));
    let time = line.and_then(|line| line.split_whitespace().nth(2));
    Ok(format!(
        "50 connections, {} µs each",
        time.unwrap_or("unknown")
    ))
}

fn rsockets(run: &Run<'_>) -> Result<String, String> {
    let client = ["-s", run.stage.ipv4()];
    let mut last = String::new();
    for line in [
        "riostream -C 10 -I 10 -S 5000 -T v",
        "rstream -C 100 -I 100 -S 64",
    ] {
        let mut served = start(run, Side::A, line, &[])?;
        served.listens_on_cm(CMTIME_PORT)?;
        let mut called = start(run, Side::B, line, &client)?;
        called.succeed()?;
        served.succeed()?;
        run.carried(&called)?;
        last = called.output();
    }
    let line = last.lines().rfind(|line| line.starts_with("custom"));
    let time = line.and_then(|line| line.split_whitespace().last());
    Ok(format!("64 B {} µs", time.unwrap_or("unknown")))
}
