//! RDMA through an encrypted tunnel: what protects a path where hosts between the two may read and
//! forge (see `SECURITY.md`).

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use super::{Ready, pair, programs};
use crate::sh;
use crate::system::{Catalogue, Outcome, Place, Process, Side, Stage, User};

/// The server's and the client's address in the tunnel.
const TUNNEL: [&str; 2] = ["10.98.0.1", "10.98.0.2"];
/// UDP port of the tunnel's ends.
const PORT: &str = "51820";

pub(super) fn add(all: &mut Catalogue) {
    let user = User::Ordinary;
    all.at("private.wireguard", Place::Wire(1500), user, 90, wireguard);
}

/// One end of the tunnel.
struct End {
    side: Side,
    interface: String,
    key: String,
    /// Where the kernel has no WireGuard, a program does its work.
    program: Option<Process>,
}

/// Addresses that an end is told of.
struct Addresses<'a> {
    /// Its own one in the tunnel.
    own: &'a str,
    /// The other end's one in the tunnel.
    peer: &'a str,
    /// That of the host with the other end.
    peer_host: &'a str,
}

/// Programs work over the tunnel, with the RoCEv2 port of the cable closed.
fn wireguard(stage: &Stage) -> Outcome {
    let ends = [End::open(stage, Side::A)?, End::open(stage, Side::B)?];
    let (a, b) = (&ends[0], &ends[1]);
    let addresses = Addresses {
        own: TUNNEL[0],
        peer: TUNNEL[1],
        peer_host: stage.client_ipv4(),
    };
    a.join(stage, b, addresses)?;
    let addresses = Addresses {
        own: TUNNEL[1],
        peer: TUNNEL[0],
        peer_host: stage.ipv4(),
    };
    b.join(stage, a, addresses)?;
    for end in &ends {
        let closed = "nft add table inet closed; \
             nft add chain inet closed in '{ type filter hook input priority 0; }'; \
             nft add rule inet closed in iifname eth0 udp dport 4791 drop";
        stage.net.shell(end.side, closed)?;
    }
    let rping = |role| {
        [
            "rping", role, "-a", TUNNEL[0], "-C", "50", "-V", "-S", "20000",
        ]
    };
    pair(stage, Ready::Cm(7174), &rping("-s"), &rping("-c"))?;
    let program = stage.built("victim");
    let mut server = stage.start(Side::A, &[&program, "server"])?;
    let port = programs::port_of(&mut server)?;
    stage.run(Side::B, &[&program, "client", TUNNEL[0], &port, "200"])?;
    server.signal(nix::sys::signal::Signal::SIGTERM)?;
    server.succeed()?;
    let device = |end: &End| format!("ferroce_{}", end.interface);
    let (server, client) = (device(a), device(b));
    let write = ["ib_write_bw", "-F", "-n", "500", "-d"];
    let server = [&write[..], &[&server]].concat();
    let client = [&write[..], &[&client, TUNNEL[0]]].concat();
    pair(stage, Ready::Tcp(18515), &server, &client)?;
    drop(ends);
    Ok(())
}

impl End {
    /// Makes the interface and a key.
    fn open(stage: &Stage, side: Side) -> Result<Self, String> {
        // The name is also that of a socket outside the namespace.
        let number: String = stage.net.namespace(side).chars().skip(8).collect();
        let interface = format!("w{number}");
        let add = format!("ip link add {interface} type wireguard");
        let mut program = None;
        if stage.net.shell(side, &add).is_err() {
            let words = ["wireguard-go", "--foreground", &interface];
            let mut process = stage.bare(side, &words).user(User::Root).start()?;
            let socket = format!("/var/run/wireguard/{interface}.sock");
            process.until("opened its socket", |_| {
                fs::exists(&socket).unwrap_or(false)
            })?;
            program = Some(process);
        }
        Ok(Self {
            side,
            interface,
            key: sh::output("wg", &["genkey"])?.trim().to_owned(),
            program,
        })
    }

    /// Names the other end, and gives this one its address.
    fn join(&self, stage: &Stage, other: &Self, addresses: Addresses<'_>) -> Outcome {
        let Addresses {
            own,
            peer,
            peer_host,
        } = addresses;
        let (name, file) = (
            &self.interface,
            stage.file(&format!("{}.key", self.interface)),
        );
        fs::write(&file, &self.key).map_err(|e| e.to_string())?;
        fs::set_permissions(&file, Permissions::from_mode(0o600)).map_err(|e| e.to_string())?;
        let script = format!(
            "public=$(echo {} | wg pubkey); wg set {name} listen-port {PORT} private-key {} \
             peer $public allowed-ips {peer}/32 endpoint {peer_host}:{PORT}; \
             ip addr add {own}/24 dev {name}; ip link set {name} up",
            other.key,
            file.display(),
        );
        stage.net.shell(self.side, &script).map(drop)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // The program goes with its interface, and takes its socket away.
        if let Some(process) = &mut self.program {
            let _ = process.signal(nix::sys::signal::Signal::SIGTERM);
            let _ = process.end();
        }
    }
}
