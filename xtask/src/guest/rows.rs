//! Rows of the matrix: what is run on both sides, and how.

use super::harness::Run;
use super::pair::{Family, Outcome, Ready, Server, start, succeed};
use super::parallel::Turn;
use crate::system::{Check, Process};

/// What rows have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section {
    /// Heading in the document.
    pub(super) title: &'static str,
    /// First part of the names of its tests.
    pub(super) name: &'static str,
    /// What our wire link does to what we send: `FERROCE_FAULT`.
    pub(super) fault: Option<&'static str>,
    /// Most of the time its tests wait, so they run beside those of other sections.
    pub(super) waits: bool,
}

/// A line of the matrix: the words of the server and of the client.
///
/// Words in capitals stand for what depends on role, addresses and MTU, see [`Row::filled_in`].
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) section: &'static Section,
    pub(super) server: String,
    pub(super) client: String,
    pub(super) family: Family,
    pub(super) servers: &'static [Server],
    pub(super) mtus: &'static [u32],
    pub(super) body: Body,
    /// The servers with which `cargo xtask guest` and `test` run it at the smaller MTU; with others
    /// it is run by name. Rows of rxe are run with all.
    pub(super) daily: &'static [Server],
    /// What the document says when it did what was due.
    pub(super) passed: &'static str,
}

/// How a row is run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body {
    /// The client starts when the server is ready; both end with 0 and their reports hold.
    Both(Ready, Check),
    /// As before, with a server that goes on for ever.
    Lasting(Ready, Check),
    /// Something of its own.
    Own(Own),
}

/// A row that does more than run two programs to their ends.
pub(super) type Own = fn(&Run, &Row, Way) -> Outcome;

/// A column of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Way {
    pub(super) server: Server,
    pub(super) mtu: u32,
}

impl Way {
    /// Largest payload of a packet, whose headers must fit the link too.
    fn payload(self) -> &'static str {
        if self.mtu > 4200 { "4096" } else { "1024" }
    }
}

impl Row {
    /// Name of its test with this server.
    pub(super) fn name(&self, server: Server) -> String {
        let words = self.client.replace(['/', ' '], "_");
        let (section, family) = (self.section.name, self.family.name());
        format!("{section}.{words}.{family}.{}", server.name())
    }

    /// Beside which others it is run.
    pub(super) fn turn(&self) -> Turn {
        let is_uc = self.client.contains("ibv_uc_") || self.client.contains("-c UC");
        match (is_uc, self.section.waits) {
            (true, _) => Turn::Alone,
            (false, true) => Turn::Waits,
            (false, false) => Turn::Polls,
        }
    }

    /// Whether it is run there.
    pub(super) fn has(&self, way: Way) -> bool {
        self.servers.contains(&way.server) && self.mtus.contains(&way.mtu)
    }

    /// Runs it.
    pub(super) fn run(&self, run: &Run, way: Way) -> Outcome {
        let (ready, check, lasting) = match self.body {
            Body::Own(body) => return body(run, self, way),
            Body::Both(ready, check) => (ready, check, false),
            Body::Lasting(ready, check) => (ready, check, true),
        };
        let (mut here, mut there) = self.start(run, way, ready)?;
        let (serving, calling) = match way.server {
            Server::Here => (&mut here, &mut there),
            Server::There | Server::Alone => (&mut there, &mut here),
        };
        succeed(calling)?;
        if !lasting {
            succeed(serving)?;
        }
        check.holds(&serving.output(), &calling.output())
    }

    /// Starts both sides: ours, the guest's.
    pub(super) fn start(
        &self,
        run: &Run,
        way: Way,
        ready: Ready,
    ) -> Result<(Process, Process), String> {
        let [ours, theirs] = self.words(run, way);
        let fault = self.section.fault.map(|f| format!("FERROCE_FAULT={f}"));
        let mut here: Vec<&str> = Vec::new();
        if let Some(fault) = &fault {
            here.extend(["env", fault]);
        }
        here.extend(ours.iter().map(String::as_str));
        let there: Vec<&str> = theirs.iter().map(String::as_str).collect();
        start(run, way.server, &here, &there, ready)
    }

    /// The words of both sides: ours, the guest's.
    pub(super) fn words(&self, run: &Run, way: Way) -> [Vec<String>; 2] {
        let (ours, theirs) = match way.server {
            Server::Here => (&self.server, &self.client),
            Server::There | Server::Alone => (&self.client, &self.server),
        };
        let is_ours = way.server != Server::Alone;
        [(ours, is_ours), (theirs, false)].map(|(line, is_ours)| {
            let words = line.split(' ');
            words
                .map(|word| self.filled_in(run, way, is_ours, word))
                .collect()
        })
    }

    /// What stands for a word in capitals: `SERVER` and `CLIENT` for addresses of the row's family,
    /// `SERVER4` for the server's IPv4 address, `GID` for the index of the own GID, `MTU` for the
    /// largest payload of a packet. `TEST/` are this repository's programs.
    fn filled_in(&self, run: &Run, way: Way, is_ours: bool, word: &str) -> String {
        match word {
            "SERVER" => self.family.of(way.server).to_owned(),
            "CLIENT" => self.family.of(way.server.other()).to_owned(),
            "SERVER4" => Family::V4.of(way.server).to_owned(),
            "GID" if is_ours => run.guest.gid_index(self.family).to_owned(),
            "GID" => self.family.their_gid().to_owned(),
            "MTU" => way.payload().to_owned(),
            _ => match word.strip_prefix("TEST/") {
                Some(name) => run.guest.program(name)[usize::from(!is_ours)].clone(),
                None => word.to_owned(),
            },
        }
    }
}
