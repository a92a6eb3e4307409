//! MADs of every kind, with contents that are right, wrong, or chance.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ferroce_nic::cm::PortSpace;
use ferroce_proto::ids::{Guid, Psn, Qpn};
use ferroce_proto::mad::{
    CmMad, CommId, Drep, Dreq, IpCmHeader, Mad, Message, Mra, PathSpec, PrivateData, Rej,
    RejReason, Rep, Req, Rtu, ServiceId, SidrReq,
};
use ferroce_proto::testkit::Rng;

use super::attack::Attacker;

/// A communication id: often small, so that some hit.
fn comm_id(rng: &mut Rng) -> CommId {
    CommId(if rng.per_mille(500) {
        rng.below32(64)
    } else {
        rng.below32(u32::MAX)
    })
}

/// A request to the live service, or to another port.
fn service_id(rng: &mut Rng, port: u16, space: PortSpace) -> ServiceId {
    let port = if rng.per_mille(700) {
        port
    } else {
        rng.below32(1 << 16) as u16
    };
    ServiceId::new(space as u16, port)
}

fn ip_header(attacker: &Attacker, rng: &mut Rng) -> [u8; IpCmHeader::LEN] {
    let mut header = IpCmHeader {
        src: SocketAddr::new(attacker.address(), rng.below32(1 << 16) as u16),
        dst: IpAddr::V4(Ipv4Addr::LOCALHOST),
    }
    .emit();
    if rng.per_mille(200) {
        let at = rng.below(header.len() as u64) as usize;
        header[at] ^= rng.below32(256) as u8;
    }
    header
}

fn request(attacker: &Attacker, rng: &mut Rng, port: u16) -> Req {
    let mut private_data = PrivateData([0; Req::PRIVATE]);
    private_data.0[..IpCmHeader::LEN].copy_from_slice(&ip_header(attacker, rng));
    Req {
        local_comm_id: comm_id(rng),
        service_id: service_id(rng, port, PortSpace::Tcp),
        local_ca_guid: Guid(rng.below(4)),
        local_qpn: Qpn::new(rng.below32(1 << 24)),
        responder_resources: rng.below32(256) as u8,
        initiator_depth: rng.below32(256) as u8,
        starting_psn: Psn::new(rng.below32(1 << 24)),
        local_cm_response_timeout: rng.below32(32) as u8,
        remote_cm_response_timeout: rng.below32(32) as u8,
        retry_count: 7,
        pkey: 0xffff,
        path_mtu: rng.below32(16) as u8,
        max_cm_retries: rng.below32(16) as u8,
        transport_service: if rng.per_mille(100) {
            rng.below32(4) as u8
        } else {
            0
        },
        primary: PathSpec {
            local_gid: attacker.gid(),
            remote_gid: ferroce_proto::ids::Gid::from(Ipv4Addr::LOCALHOST),
            hop_limit: 64,
            ..PathSpec::default()
        },
        private_data,
        ..Req::default()
    }
}

fn message(attacker: &Attacker, rng: &mut Rng, port: u16) -> Message {
    let (local_comm_id, remote_comm_id) = (comm_id(rng), comm_id(rng));
    match rng.below(9) {
        0 | 1 => Message::Req(request(attacker, rng, port)),
        2 => Message::Rep(Rep {
            local_comm_id,
            remote_comm_id,
            local_qpn: Qpn::new(rng.below32(1 << 24)),
            ..Rep::default()
        }),
        3 => Message::Rej(Rej {
            local_comm_id,
            remote_comm_id,
            ..Rej::new(RejReason(rng.below32(64) as u16))
        }),
        4 => Message::Dreq(Dreq {
            local_comm_id,
            remote_comm_id,
            remote_qpn: Qpn::new(0x4321),
            ..Dreq::default()
        }),
        5 => Message::Rtu(Rtu {
            local_comm_id,
            remote_comm_id,
            ..Rtu::default()
        }),
        6 => Message::Mra(Mra {
            local_comm_id,
            remote_comm_id,
            service_timeout: rng.below32(32) as u8,
            ..Mra::default()
        }),
        7 => Message::Drep(Drep {
            local_comm_id,
            remote_comm_id,
            ..Drep::default()
        }),
        _ => {
            let mut private_data = PrivateData([0; SidrReq::PRIVATE]);
            private_data.0[..IpCmHeader::LEN].copy_from_slice(&ip_header(attacker, rng));
            Message::SidrReq(SidrReq {
                request_id: rng.below32(1 << 30),
                pkey: 0xffff,
                service_id: service_id(rng, port, PortSpace::Udp),
                ece_options: 0,
                private_data,
            })
        }
    }
}

/// Any MAD.
pub(crate) fn mad(attacker: &Attacker, rng: &mut Rng, port: u16) -> Mad {
    let mut mad = CmMad {
        tid: rng.bits(),
        message: message(attacker, rng, port),
    }
    .emit();
    if rng.per_mille(250) {
        for _ in 0..=rng.below(8) {
            let at = rng.below(mad.len() as u64) as usize;
            mad[at] = rng.below32(256) as u8;
        }
    }
    mad
}
