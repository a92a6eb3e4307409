//! Which connections may become streams: `FERROCE_SOCKETS`.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_os::environment::variable;

use crate::address::End;
use crate::{exec, filter, lock, look, patience, short, table};

/// The variable: `off`, or a file of rules.
const VARIABLE: &str = "FERROCE_SOCKETS";
/// Port of name servers, which close a connection after one question.
const NAMES: u16 = 53;

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Stream,
    Tcp,
}

/// A line `stream|tcp PROGRAM ADDRESS[/PREFIX] PORT[-PORT]`, each of the last three `*` for all.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    way: Way,
    program: Option<String>,
    network: Option<(u128, u32)>,
    ports: RangeInclusive<u16>,
}

fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn network(text: &str) -> Option<(u128, u32)> {
    let (address, prefix) = text
        .split_once('/')
        .map_or((text, None), |(a, p)| (a, Some(p)));
    let ip: IpAddr = address.parse().ok()?;
    let whole = if ip.is_ipv4() { 32 } else { 128 };
    let prefix: u32 = prefix.map_or(Some(whole), |p| p.parse().ok())?;
    (prefix <= whole).then(|| (mapped(ip).to_bits(), 128 - (whole - prefix)))
}

fn ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = first.parse().ok()?..=last.parse().ok()?;
    (!range.is_empty()).then_some(range)
}

impl Rule {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let way = match words.next()? {
            "stream" => Way::Stream,
            "tcp" => Way::Tcp,
            _ => return None,
        };
        let program = Some(words.next()?).filter(|w| *w != "*").map(str::to_owned);
        let network = match words.next()? {
            "*" => None,
            text => Some(network(text)?),
        };
        let ports = match words.next()? {
            "*" => 0..=u16::MAX,
            text => ports(text)?,
        };
        words.next().is_none().then_some(Self {
            way,
            program,
            network,
            ports,
        })
    }

    fn is_about(&self, program: &str, server: End) -> bool {
        let in_network = |(address, prefix): (u128, u32)| {
            let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
            (address ^ server.ip.to_bits()) & mask == 0
        };
        self.program.as_deref().is_none_or(|name| name == program)
            && self.network.is_none_or(in_network)
            && self.ports.contains(&server.port)
    }
}

/// The rules of a file; an error is the first line that makes no sense, counted from 1.
fn parse(text: &str) -> Result<Vec<Rule>, usize> {
    let code = |line: &'_ str| line.split('#').next().unwrap_or_default().trim().to_owned();
    let lines = text.lines().map(code).enumerate();
    let rules = lines.filter(|(_, line)| !line.is_empty());
    rules
        .map(|(at, line)| Rule::parse(&line).ok_or(at + 1))
        .collect()
}

/// The first rule that is about a connection decides; without one it may become a stream.
fn decide(rules: &[Rule], program: &str, server: End) -> bool {
    let first = rules.iter().find(|rule| rule.is_about(program, server));
    server.port != NAMES && first.is_none_or(|rule| rule.way == Way::Stream)
}

/// What the variable says; none for `off`, and for a file that makes no sense.
fn configured() -> Option<&'static [Rule]> {
    static RULES: OnceLock<Option<Vec<Rule>>> = OnceLock::new();
    let rules = RULES.get_or_init(|| {
        let Some(value) = variable(VARIABLE) else {
            return Some(Vec::new());
        };
        if value == "off" {
            return None;
        }
        let wrong = match std::fs::read_to_string(&value).map(|text| parse(&text)) {
            Ok(Ok(rules)) => return Some(rules),
            Ok(Err(line)) => format!("line {line} is no rule (stream|tcp PROGRAM ADDRESS PORTS)"),
            Err(e) => e.to_string(),
        };
        eprintln!(
            "ferroce: {VARIABLE}={}: {wrong}; sockets stay on TCP",
            value.display()
        );
        None
    });
    rules.as_deref()
}

fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let file = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        let name = file.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    })
}

/// Whether any connection of this process may become a stream. All that makes one asks first. None
/// of a child of `vfork` or `_Fork` may: it cannot note in the table what it would hide.
pub(crate) fn is_on() -> bool {
    if filter::is_installed() || !table::is_own() {
        return false;
    }
    find_out();
    configured().is_some() && !filter::came_with_start()
}

/// Finds out under the process's lock, at the first call, what is found out once. A child of `fork`
/// would wait for ever for a parent's thread that was at it, and so would a signal handler.
fn find_out() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.load(Ordering::Acquire) {
        return;
    }
    let _held = lock::hold();
    if configured().is_some() && !filter::came_with_start() {
        program();
        patience::longest();
        short::rest();
        look::find_out();
        exec::has_inherited();
    }
    DONE.store(true, Ordering::Release);
}

/// Whether connections to this server may become streams.
pub(crate) fn allows(server: End) -> bool {
    configured().is_some_and(|rules| decide(rules, program(), server))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &str) -> End {
        End::new(text.parse().expect("an address")).expect("an end")
    }

    #[test]
    fn the_first_rule_that_is_about_a_connection_decides() {
        let text = "# comment\n\nstream redis-cli 127.0.0.1 6379\ntcp * 127.0.0.0/8 6000-6999\n\
                    tcp curl * *\nstream * ::1/128 * # all\n";
        let rules = parse(text).expect("rules");
        let decided = |program, at| decide(&rules, program, end(at));
        assert!(decided("redis-cli", "127.0.0.1:6379"));
        assert!(!decided("redis-cli", "127.0.0.1:6380"));
        assert!(!decided("redis-server", "127.0.0.9:6379"));
        assert!(decided("redis-server", "127.0.0.9:7000"));
        assert!(!decided("curl", "[::1]:80"));
        assert!(decided("wget", "[::1]:80") && decided("wget", "10.0.0.1:80"));
        assert!(!decided("wget", "10.0.0.1:53"));
    }

    #[test]
    fn a_line_that_is_no_rule_is_named() {
        for wrong in [
            "stream a",
            "fast * * *",
            "tcp * 1.2.3.4/33 *",
            "tcp * * 9-8",
            "tcp * * 1 2",
            "tcp * x *",
        ] {
            assert_eq!(parse(&format!("tcp * * *\n{wrong}")), Err(2), "{wrong}");
        }
    }
}
