//! Tests of `rdma_getaddrinfo`.

use super::*;

/// Asks for a numeric address and gives the parts of the answer that programs look at.
fn ask(node: Option<&CStr>, service: &CStr, hints: &rdma_addrinfo) -> Result<Answer, c_int> {
    let mut res = ptr::null_mut();
    let node = node.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: C strings and a place for the result.
    match unsafe { rdma_getaddrinfo(node, service.as_ptr(), &raw const *hints, &raw mut res) } {
        0 => {}
        code => return Err(code),
    }
    // SAFETY: a whole answer.
    let rai = unsafe { res.read() };
    // SAFETY: its addresses are NULL or whole.
    let (src, dst) = unsafe { (read(rai.ai_src_addr).ok(), read(rai.ai_dst_addr).ok()) };
    // SAFETY: not used any more.
    unsafe { rdma_freeaddrinfo(res) };
    Ok(Answer {
        src,
        dst,
        qp_type: rai.ai_qp_type,
        ps: rai.ai_port_space,
    })
}

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    src: Option<std::net::SocketAddr>,
    dst: Option<std::net::SocketAddr>,
    qp_type: c_int,
    ps: c_int,
}

#[test]
fn active_answers_carry_a_destination_only() {
    let answer = ask(Some(c"127.0.0.1"), c"7471", &rdma_addrinfo::zeroed()).expect("numeric");
    let dst = Some("127.0.0.1:7471".parse().expect("a literal"));
    assert_eq!(
        answer,
        Answer {
            src: None,
            dst,
            qp_type: IBV_QPT_RC.cast_signed(),
            ps: RDMA_PS_TCP.cast_signed()
        }
    );
}

#[test]
fn passive_answers_carry_a_source_only() {
    let hints = rdma_addrinfo {
        ai_flags: RAI_PASSIVE | RAI_FAMILY,
        ai_family: libc::AF_INET6,
        ai_port_space: RDMA_PS_UDP.cast_signed(),
        ..rdma_addrinfo::zeroed()
    };
    let answer = ask(None, c"7471", &hints).expect("numeric");
    let src = Some("[::]:7471".parse().expect("a literal"));
    assert_eq!(
        answer,
        Answer {
            src,
            dst: None,
            qp_type: IBV_QPT_UD.cast_signed(),
            ps: RDMA_PS_UDP.cast_signed()
        }
    );
}

#[test]
fn gids_are_addresses() {
    let hints = rdma_addrinfo {
        ai_flags: RAI_NUMERICHOST | RAI_FAMILY,
        ai_family: AF_IB,
        ..rdma_addrinfo::zeroed()
    };
    for (gid, addr) in [
        (c"::ffff:10.0.0.1", "10.0.0.1:7471"),
        (c"fd00::1", "[fd00::1]:7471"),
    ] {
        let answer = ask(Some(gid), c"7471", &hints).expect("numeric");
        assert_eq!(answer.dst, Some(addr.parse().expect("a literal")));
    }
}

#[test]
fn resolver_codes_come_back_unchanged() {
    let hints = rdma_addrinfo {
        ai_flags: RAI_NUMERICHOST,
        ..rdma_addrinfo::zeroed()
    };
    assert_eq!(
        ask(Some(c"not a number"), c"7471", &hints),
        Err(libc::EAI_NONAME)
    );
}
