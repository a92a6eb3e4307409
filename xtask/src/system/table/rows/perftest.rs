//! perftest.

use super::{Check, Due, Options, Row, Sides, pair};
use crate::system::table::check::{Iterations, Sizes};

/// A program's own limits.
struct Program {
    name: &'static str,
    transports: &'static [&'static str],
    /// Bytes of a message without `-s`.
    size: u64,
    bandwidth: bool,
    /// Options that only some of the programs have.
    own: &'static [&'static str],
}

const PROGRAMS: [Program; 8] = [
    Program {
        name: "ib_send_bw",
        transports: &["RC", "UC", "UD", "XRC"],
        size: 65536,
        bandwidth: true,
        own: &[
            EVERY_SIZE,
            SIZES,
            INLINE,
            EVENTS,
            SRQ,
            DEEP,
            BOTH_WAYS,
            LIMITED,
            SHARED_RQ_QPS,
        ],
    },
    Program {
        name: "ib_send_lat",
        transports: &["RC", "UC", "UD", "XRC"],
        size: 2,
        bandwidth: false,
        own: &[EVERY_SIZE, SIZES, INLINE, EVENTS, SRQ, DEEP],
    },
    Program {
        name: "ib_write_bw",
        transports: &["RC", "UC", "XRC"],
        size: 65536,
        bandwidth: true,
        own: &[EVERY_SIZE, SIZES, INLINE, BOTH_WAYS],
    },
    Program {
        name: "ib_write_lat",
        transports: &["RC", "UC", "XRC"],
        size: 2,
        bandwidth: false,
        own: &[SIZES, INLINE],
    },
    Program {
        name: "ib_read_bw",
        transports: &["RC", "XRC"],
        size: 65536,
        bandwidth: true,
        own: &[EVERY_SIZE, SIZES, EVENTS, OUTSTANDING],
    },
    Program {
        name: "ib_read_lat",
        transports: &["RC", "XRC"],
        size: 2,
        bandwidth: false,
        own: &[SIZES, EVENTS, OUTSTANDING],
    },
    Program {
        name: "ib_atomic_bw",
        transports: &["RC", "XRC"],
        size: 8,
        bandwidth: true,
        own: &[EVENTS, OUTSTANDING, SWAP],
    },
    Program {
        name: "ib_atomic_lat",
        transports: &["RC", "XRC"],
        size: 8,
        bandwidth: false,
        own: &[EVENTS, OUTSTANDING, SWAP],
    },
];

/// Stands for several rows.
const SIZES: &str = "sizes";
/// The programs of latency measure the processor's clock for a second before each size: one of them
/// has it.
const EVERY_SIZE: &str = "-a -n 5";
const INLINE: &str = "-I 64 -s 64 -n 100";
const EVENTS: &str = "-e -n 100";
const SRQ: &str = "--use-srq -n 100";
const DEEP: &str = "-r 200 -n 100";
const BOTH_WAYS: &str = "-b --report-both -n 100";
const LIMITED: &str = "-w 0.001 -y 0.000001 -n 100";
const SHARED_RQ_QPS: &str = "--use-srq -q 8 -n 100";
const OUTSTANDING: &str = "-o 4 -n 100";
const SWAP: &str = "-A CMP_AND_SWAP -n 100";

/// What all programs have.
const COMMON: [&str; 14] = [
    "-n 100",
    "-D 1 -f 0",
    "-R -n 100",
    "-z -n 100",
    "-R -T 32 -n 100",
    "-x 1 -n 100",
    "-m 256 -n 100",
    "-p 20000 -n 100",
    "-u 16 -S 3 -n 100",
    "-d DEVICE -i 1 -n 100",
    "--tclass=96 -n 100",
    "--pkey_index=0 -n 100",
    "--use_old_post_send -n 100",
    "--odp -n 100",
];
/// What those have that measure bandwidth.
const BANDWIDTH: [&str; 9] = [
    "-b -n 100",
    "-q 8 -n 100",
    "-q 8 -R -n 100",
    "-l 8 -n 104",
    "-Q 10 -n 100",
    "-N -n 100",
    "-t 16 -n 100",
    "--mr_per_qp -q 2 -n 100",
    "--report_gbits -n 100",
];
/// What those have that measure latency.
const LATENCY: [&str; 3] = ["-C -n 100", "-H -n 100", "-U -n 100"];
/// Options that concern the program or the path and not the transport: only RC's rows have them.
const OF_PROGRAM: [&str; 10] = [
    "-a ",
    "-D ",
    "-p ",
    "-u ",
    "-d ",
    "-N ",
    "-H ",
    "-U ",
    "--report_gbits ",
    "--use_old_post_send ",
];
/// For [`SIZES`].
const SEVERAL_SIZES: [&str; 4] = [
    "-s 1 -n 100",
    "-s 1024 -n 100",
    "-s 1025 -n 100",
    "-s 1000000 -n 20",
];

/// Payload of a datagram where the interface's MTU is 1500.
const DATAGRAM: u64 = 1024;

/// Which rows an exception is about.
#[derive(Clone, Copy)]
struct Rows {
    program: &'static str,
    transport: &'static str,
    option: &'static str,
}

/// All rows.
const ANY: Rows = Rows {
    program: "",
    transport: "",
    option: "",
};

impl Rows {
    /// Those of programs whose names begin so.
    const fn of(self, program: &'static str) -> Self {
        Self { program, ..self }
    }

    /// Those over a transport.
    const fn over(self, transport: &'static str) -> Self {
        Self { transport, ..self }
    }

    /// Those whose options have this in them.
    const fn with(self, option: &'static str) -> Self {
        Self { option, ..self }
    }

    fn has(self, program: &str, transport: &str, options: &str) -> bool {
        program.starts_with(self.program)
            && (self.transport.is_empty() || self.transport == transport)
            && options.contains(self.option)
    }
}

/// Rows that cannot pass, whatever the device.
struct Exception {
    rows: Rows,
    due: Due,
}

const fn refused(rows: Rows, says: &'static str, reason: &'static str) -> Exception {
    let due = Due::Refuse { says, reason };
    Exception { rows, due }
}

const fn left_out(rows: Rows, reason: &'static str) -> Exception {
    let due = Due::LeftOut { reason };
    Exception { rows, due }
}

const STARVES: &str = "the program sends more messages than its queue has receives, and waits for ever for one that found none";

const STAYS_INSIDE: &str = "the program's own group is of interface-local scope (ff01::/16), which IPv6 keeps inside the host";

const TOO_LONG: &str = "a datagram is one packet, and the program says so when both sides have met";

const EXCEPTIONS: [Exception; 10] = [
    refused(
        ANY.of("ib_send_bw").over("RC").with("-L 32"),
        "Hop limit only valid for RawEth QP",
        "the option is for raw Ethernet",
    ),
    refused(
        ANY.over("UC").with("-R"),
        "UC is not supported in librdmacm",
        "the program has no UC over RDMA CM",
    ),
    refused(
        ANY.over("XRC").with("-R"),
        "XRC does not support RDMA_CM",
        "the program has no XRC over RDMA CM",
    ),
    refused(
        ANY.of("ib_atomic").with("--odp"),
        "ODP does not support ATOMICS for now",
        "the program has no atomics on on-demand memory",
    ),
    refused(
        ANY.over("UC").with("--odp"),
        "ODP does not support UC",
        "the program has no UC on on-demand memory",
    ),
    left_out(
        ANY.over("XRC").with("-z"),
        "the program's own connection for the exchange is made without room for receives",
    ),
    left_out(ANY.of("ib_send").over("UD").with("-s 1025"), TOO_LONG),
    left_out(ANY.of("ib_send").over("UD").with("-s 1000000"), TOO_LONG),
    left_out(ANY.of("ib_send").over("UC").with("--use-srq -q 8"), STARVES),
    left_out(ANY.of("ib_send").over("UD").with("--use-srq -q 8"), STARVES),
];

pub(super) fn all() -> Vec<Row> {
    let mut all = Vec::new();
    for program in &PROGRAMS {
        for &transport in program.transports {
            all.extend(
                options(program)
                    .into_iter()
                    .filter(|o| transport == "RC" || !OF_PROGRAM.iter().any(|p| o.starts_with(p)))
                    .map(|options| row(program, transport, options)),
            );
        }
    }
    all.push(row(&PROGRAMS[0], "RC", "-L 32 -n 100"));
    for program in &PROGRAMS[..2] {
        all.push(own_group(program));
        all.extend(GROUPS.map(|options| group(program, options)));
    }
    all
}

/// Groups of one family.
#[derive(Clone, Copy)]
struct Groups {
    /// GID index of an address of the family.
    index: u8,
    server: &'static str,
    client: &'static str,
}

/// Groups that packets can leave the host for.
const GROUPS: [Groups; 2] = [
    Groups {
        index: 0,
        server: "0:0:0:0:0:0:0:0:0:0:255:255:239:77:1:3",
        client: "0:0:0:0:0:0:0:0:0:0:255:255:239:77:1:4",
    },
    Groups {
        index: 1,
        server: "255:14:0:0:0:2:201:133:0:0:0:0:0:0:0:1",
        client: "255:14:0:0:0:2:201:133:0:0:0:0:0:0:0:2",
    },
];

/// Multicast with the group that the program makes up, an IPv6 one.
fn own_group(program: &Program) -> Row {
    let mut row = row(program, "UD", "-g -x 1 -n 100");
    if let Due::Pass(check) = row.due {
        let reason = STAYS_INSIDE;
        row.due = Due::PassNear { check, reason };
    }
    row
}

/// Multicast with a group for each side: a datagram comes back to its sender if that is a member.
fn group(program: &Program, groups: Groups) -> Row {
    let index = groups.index;
    let options = |group: &str| format!("-F -c UD -g -x {index} -M {group} -n 100");
    let options = Options {
        server: &options(groups.server),
        client: &format!("{} SERVER", options(groups.client)),
    };
    let check = check(program, "UD", &["-n", "100"]);
    pair(program.name, options, Sides::Tcp(18515), check).over("UD")
}

fn options(program: &Program) -> Vec<&'static str> {
    let mut all = COMMON.to_vec();
    if program.bandwidth {
        all.extend(BANDWIDTH.iter().filter(|o| {
            // Atomics have one size.
            program.size != 8 || !o.starts_with("-a")
        }));
    } else {
        all.extend(LATENCY);
    }
    for &own in program.own {
        match own {
            SIZES => all.extend(SEVERAL_SIZES),
            _ => all.push(own),
        }
    }
    all
}

fn row(program: &Program, transport: &'static str, options: &str) -> Row {
    let connection = match transport {
        "RC" => String::new(),
        other => format!("-c {other} "),
    };
    let server = format!("-F {connection}{options}");
    let client = format!("{server} SERVER");
    let words: Vec<&str> = options.split_whitespace().collect();
    let port = value(&words, "-p").unwrap_or(18515);
    let port = u16::try_from(port).unwrap_or_default();
    let sides = if words.contains(&"-R") || words.contains(&"-z") {
        Sides::Cm(port)
    } else {
        Sides::Tcp(port)
    };
    let check = check(program, transport, &words);
    let both = Options {
        server: &server,
        client: &client,
    };
    let mut row = pair(program.name, both, sides, check).over(transport);
    let exception = EXCEPTIONS
        .iter()
        .find(|exception| exception.rows.has(program.name, transport, options));
    if let Some(exception) = exception {
        row.due = exception.due;
    }
    row
}

/// What the options make the program report.
fn check(program: &Program, transport: &str, words: &[&str]) -> Check {
    let size = value(words, "-s").unwrap_or(program.size);
    let mtu = value(words, "-m").unwrap_or(DATAGRAM);
    let largest = if transport == "UD" { mtu } else { 1 << 23 };
    let sizes = if words.contains(&"-a") {
        Sizes::UpTo(largest)
    } else if words.contains(&"--report-both") {
        Sizes::Same(size.min(largest), 3)
    } else {
        Sizes::Same(size.min(largest), 1)
    };
    let pairs = value(words, "-q").unwrap_or(1);
    let iterations =
        value(words, "-n").map_or(Iterations::Some, |n| Iterations::Exactly(n * pairs));
    let unit = match (program.bandwidth, words) {
        (true, words) if words.contains(&"--report_gbits") => "BW average[Gb/sec]",
        (true, _) => "BW average[MB/sec]",
        // With -C the numbers are cycles, the heading stays.
        (false, _) => "t_avg[usec]",
    };
    Check::Measured {
        sizes,
        iterations,
        unit,
    }
}

/// The number behind an option.
fn value(words: &[&str], option: &str) -> Option<u64> {
    let at = words.iter().position(|&word| word == option)?;
    words.get(at + 1)?.parse().ok()
}
