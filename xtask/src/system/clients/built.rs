//! Programs that are built from their source.

use super::source::{Origin, Source};
use super::{Row, Run};
use crate::packages::Package;
use crate::system::Side;

const TOOLS: &[Package] = &[
    Package::new("autoconf", "autoconf"),
    Package::new("automake", "automake"),
    Package::new("libtool", "libtoolize"),
    Package::new("make", "make"),
    Package::new("git", "git"),
    Package::new("libpci-dev", "/usr/include/pci/pci.h"),
    Package::new("libibumad-dev", "/usr/include/infiniband/umad.h"),
];
const FABRIC: &[Package] = &[
    Package::new("autoconf", "autoconf"),
    Package::new("automake", "automake"),
    Package::new("libtool", "libtoolize"),
    Package::new("make", "make"),
    Package::new("git", "git"),
    Package::new("libfabric-dev", "/usr/include/rdma/fabric.h"),
];

const PERFTEST: Source = Source {
    folder: "perftest",
    project: "github.com/linux-rdma/perftest",
    tag: "master",
    build: "git clone https://github.com/linux-rdma/perftest && cd perftest && ./autogen.sh && ./configure && make",
    witness: "ib_write_bw",
    packages: TOOLS,
};
const FABTESTS: Source = Source {
    folder: "libfabric",
    project: "github.com/ofiwg/libfabric",
    tag: "v1.17.0",
    build: "git clone -b v1.17.0 https://github.com/ofiwg/libfabric && cd libfabric/fabtests && ./autogen.sh && ./configure && make",
    witness: "fabtests/functional/fi_rdm",
    packages: FABRIC,
};
/// Programs of fabtests with the options of their test lists, for endpoints of messages and of
/// datagrams that are reliable.
const FABTESTS_PROGRAMS: [&str; 10] = [
    "benchmarks/fi_msg_pingpong -I 200 -v",
    "benchmarks/fi_msg_bw -I 200 -v",
    "benchmarks/fi_rma_bw -e msg -o write -I 200 -v",
    "benchmarks/fi_rma_bw -e msg -o read -I 200 -v",
    "benchmarks/fi_rdm_pingpong -I 200 -v",
    "benchmarks/fi_rdm_tagged_pingpong -I 200 -v",
    "benchmarks/fi_rdm_tagged_bw -I 200 -v",
    "functional/fi_msg",
    "functional/fi_rdm",
    "functional/fi_rdm_tagged_peek",
];
const PERFTEST_PROGRAMS: [&str; 6] = [
    "ib_send_lat",
    "ib_send_bw",
    "ib_write_lat",
    "ib_write_bw",
    "ib_read_bw",
    "ib_atomic_bw",
];

pub(super) fn rows() -> Vec<Row> {
    let row = |name, program, what, source, run| Row {
        name,
        program,
        what,
        origin: Origin::Source(source),
        is_one_host: false,
        run,
    };
    vec![
        row(
            "perftest-newest",
            "perftest, newest",
            "six programs, each with its defaults",
            PERFTEST,
            perftest,
        ),
        row(
            "fabtests",
            "fabtests",
            "ten programs over the provider `verbs`",
            FABTESTS,
            fabtests,
        ),
    ]
}

fn perftest(run: &Run<'_>) -> Result<String, String> {
    let device = run.device()?;
    let mut figures = Vec::new();
    for program in PERFTEST_PROGRAMS {
        let path = run.source.join(program).to_string_lossy().into_owned();
        let server = [&*path, "-F", "-d", &device, "-n", "500"];
        let client = [&server[..], &[run.stage.ipv4()]].concat();
        let output = run.pair(|server| server.listens_on_tcp(18515), &server, &client)?;
        // The program ends its line after the summary is printed.
        let output = output.replace("ferroce summary:", "\n");
        let line = output.lines().rfind(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.len() > 3 && fields.iter().all(|field| field.parse::<f64>().is_ok())
        });
        let line = line.ok_or_else(|| format!("{program} reports nothing"))?;
        // The typical time behind the least and the largest, or the average behind the peak.
        let column = if program.ends_with("_lat") { 4 } else { 3 };
        let figure = line.split_whitespace().nth(column);
        figures.push(figure.unwrap_or_default().to_owned());
    }
    Ok(format!(
        "SEND 2 B {} µs, WRITE 64 KiB {} MB/s",
        figures[0], figures[3]
    ))
}

fn fabtests(run: &Run<'_>) -> Result<String, String> {
    let mut figure = String::new();
    for (at, program) in FABTESTS_PROGRAMS.into_iter().enumerate() {
        let mut words: Vec<&str> = program.split(' ').collect();
        let path = run.source.join("fabtests").join(words[0]);
        let path = path.to_string_lossy().into_owned();
        words[0] = &path;
        let provider = if program.contains("rdm") {
            "verbs;ofi_rxm"
        } else {
            "verbs"
        };
        words.extend(["-p", provider, "-s", run.stage.ipv4()]);
        let mut server = run.program(Side::A, &words).start()?;
        // By their own exchange (`-E`) or by the connection manager's port.
        server.listens_on_cm(9228)?;
        words.truncate(words.len() - 2);
        words.extend(["-p", provider, run.stage.ipv4()]);
        let mut client = run.program(Side::B, &words).start()?;
        client.succeed().map_err(|e| format!("{program}: {e}"))?;
        server.succeed().map_err(|e| format!("{program}: {e}"))?;
        run.carried(&client)
            .map_err(|e| format!("{program}: {e}"))?;
        if at == 0 {
            let output = client.output();
            let line = output.lines().find(|line| line.starts_with("64 "));
            let time = line.and_then(|line| line.split_whitespace().nth(5));
            figure = format!("64 B {} µs", time.unwrap_or("unknown"));
        }
    }
    Ok(figure)
}
