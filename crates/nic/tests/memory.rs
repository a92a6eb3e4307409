//! Kinds of memory, and windows on it, on the same-host path and over the wire.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use common::{ALL, Buffer, End, pair, pattern, run_over_the_wire};
use ferroce_nic::objects::mr::{Advice, IMPLICIT, WindowRange};
use ferroce_nic::{Mr, Pd, Window};
use ferroce_os::memory::Mapping;
use ferroce_proto::ids::Key;
use ferroce_proto::mr::{Access, WindowType};
use ferroce_proto::verbs::{
    AttrMask, Mtu, QpAttr, QpState, RemoteAddr, SendOp, Sge, WcImm, WcOpcode, WcStatus,
};

#[test]
fn everything_works_over_the_wire_too() {
    for test in [
        "a_window_opens_to_the_peer_until_it_is_taken_back",
        "the_peer_takes_a_window_back",
        "unmapped_memory_fails_work_and_nothing_else",
        "an_implicit_region_covers_what_is_mapped_at_the_time",
    ] {
        run_over_the_wire(test);
    }
}

/// Memory that windows can be bound to.
fn bindable(end: &End, bytes: &[u8]) -> Arc<Mr> {
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    let addr = bytes.as_ptr() as u64;
    Mr::register(&end.pd, addr, bytes.len() as u64, addr, access).unwrap()
}

fn range(mr: &Mr, bytes: &[u8]) -> WindowRange {
    WindowRange {
        region: Some(mr.key()),
        addr: bytes.as_ptr() as u64,
        length: bytes.len() as u64,
        access: ALL,
    }
}

/// Binds a window and waits for the completion.
fn bind(end: &End, window: &Window, key: u32, to: WindowRange) -> Key {
    let request = window.bind_request(Key(key), to);
    end.send(77, SendOp::BindWindow(request), vec![]);
    assert_eq!(end.done(77).opcode, WcOpcode::BindMw);
    request.key
}

#[test]
fn a_window_opens_to_the_peer_until_it_is_taken_back() {
    for kind in [WindowType::One, WindowType::Two] {
        let (a, b) = pair(Mtu::B1024);
        let bytes = vec![0_u8; 4096];
        let mr = bindable(&b, &bytes);
        let window = Window::alloc(&b.pd, kind).unwrap();
        let to = range(&mr, &bytes);
        let key = bind(&b, &window, 5, to);
        let here = Buffer::new(&a.pd, pattern(4096, 3));
        let there = RemoteAddr {
            addr: to.addr,
            rkey: key,
        };
        a.send(1, SendOp::Write(there), vec![here.sge(0, 4096)]);
        a.done(1);
        assert_eq!(std::hint::black_box(&bytes), &pattern(4096, 3));
        assert_eq!(mr.deregister().unwrap_err().errno, libc::EBUSY);
        let moved = mr.reregister(None, None, Some(Access::LOCAL_WRITE));
        assert_eq!(moved.unwrap_err().errno, libc::EBUSY);
        match kind {
            WindowType::One => {
                bind(&b, &window, 6, WindowRange { length: 0, ..to });
            }
            WindowType::Two => {
                b.send(2, SendOp::LocalInvalidate(key), vec![]);
                assert_eq!(b.done(2).opcode, WcOpcode::LocalInv);
            }
        }
        a.send(3, SendOp::Write(there), vec![here.sge(0, 8)]);
        assert_eq!(a.completion().status, WcStatus::RemAccessErr);
        mr.deregister().unwrap();
    }
}

#[test]
fn the_peer_takes_a_window_back() {
    let (a, b) = pair(Mtu::B1024);
    let bytes = vec![0_u8; 64];
    let mr = bindable(&b, &bytes);
    let window = Window::alloc(&b.pd, WindowType::Two).unwrap();
    let to = range(&mr, &bytes);
    let here = Buffer::new(&a.pd, vec![1; 64]);
    for low in 0..300 {
        let rkey = bind(&b, &window, low, to);
        assert_eq!(rkey.0 & 0xff, low & 0xff, "the program chooses");
        b.recv(1, vec![]);
        a.send(2, SendOp::SendInvalidate(rkey), vec![]);
        assert_eq!(b.done(1).imm, Some(WcImm::Invalidated(rkey)));
        a.done(2);
    }
    let rkey = bind(&b, &window, 1, to);
    drop(window);
    mr.deregister().unwrap();
    let gone = RemoteAddr {
        addr: to.addr,
        rkey,
    };
    a.send(3, SendOp::Write(gone), vec![here.sge(0, 8)]);
    assert_eq!(a.completion().status, WcStatus::RemAccessErr);
}

#[test]
fn an_ordinary_region_cannot_be_invalidated() {
    let (a, b) = pair(Mtu::B1024);
    let there = Buffer::new(&b.pd, vec![0; 64]);
    b.recv(1, vec![]);
    a.send(2, SendOp::SendInvalidate(there.key()), vec![]);
    assert_eq!(a.completion().status, WcStatus::RemAccessErr);
    assert_eq!(b.completion().status, WcStatus::RemInvReqErr);
    let (a, c) = pair(Mtu::B1024);
    let here = Buffer::new(&a.pd, vec![1; 64]);
    let open = Buffer::new(&c.pd, vec![0; 64]);
    a.send(3, SendOp::Write(open.remote(0)), vec![here.sge(0, 64)]);
    a.done(3);
    c.send(4, SendOp::LocalInvalidate(open.key()), vec![]);
    assert_eq!(c.completion().status, WcStatus::MwBindErr);
}

#[test]
fn a_window_goes_with_the_queue_pair_that_bound_it() {
    let (a, b) = pair(Mtu::B1024);
    let bytes = vec![0_u8; 64];
    let mr = bindable(&b, &bytes);
    let one = Window::alloc(&b.pd, WindowType::One).unwrap();
    let two = Window::alloc(&b.pd, WindowType::Two).unwrap();
    let to = range(&mr, &bytes);
    bind(&b, &two, 1, to);
    b.qp.destroy();
    mr.deregister().unwrap();
    drop((one, two, mr));
    assert_eq!(b.pd.users(), 0);
    drop(a);
}

#[test]
fn a_window_of_type_2_does_not_outlive_the_connection_of_its_queue_pair() {
    let (a, b) = pair(Mtu::B1024);
    let bytes = vec![0_u8; 64];
    let mr = bindable(&b, &bytes);
    let one = Window::alloc(&b.pd, WindowType::One).unwrap();
    let two = Window::alloc(&b.pd, WindowType::Two).unwrap();
    let to = range(&mr, &bytes);
    let (open, closed) = (bind(&b, &one, 1, to), bind(&b, &two, 1, to));
    for end in [&a, &b] {
        let attr = QpAttr {
            qp_state: QpState::Reset,
            ..QpAttr::default()
        };
        end.qp.modify(&attr, AttrMask::STATE).unwrap();
    }
    a.connect(b.qp.qpn(), b.gid(), Mtu::B1024);
    b.connect(a.qp.qpn(), a.gid(), Mtu::B1024);
    let here = Buffer::new(&a.pd, vec![1; 64]);
    for (rkey, status) in [(open, WcStatus::Success), (closed, WcStatus::RemAccessErr)] {
        let there = RemoteAddr {
            addr: to.addr,
            rkey,
        };
        a.send(3, SendOp::Write(there), vec![here.sge(0, 8)]);
        assert_eq!(a.completion().status, status);
    }
    assert_eq!(mr.deregister().unwrap_err().errno, libc::EBUSY);
    drop(one);
    mr.deregister().unwrap();
}

const PAGE: usize = 4096;

fn mapped(end: &End, access: Access) -> (Mapping, Arc<Mr>, RemoteAddr, Sge) {
    let memory = Mapping::aside(PAGE).unwrap();
    let addr = memory.addr();
    let mr = Mr::register(&end.pd, addr, PAGE as u64, addr, ALL | access).unwrap();
    let rkey = mr.key();
    let sge = Sge {
        addr,
        length: 64,
        lkey: rkey,
    };
    (memory, mr, RemoteAddr { addr, rkey }, sge)
}

#[test]
fn unmapped_memory_fails_work_and_nothing_else() {
    for access in [Access::empty(), Access::ON_DEMAND] {
        for case in 0..5 {
            let (a, b) = pair(Mtu::B1024);
            let here = Buffer::new(&a.pd, vec![1; 64]);
            let (memory, _mr, there, sge) = mapped(&b, access);
            a.send(1, SendOp::Write(there), vec![here.sge(0, 64)]);
            a.done(1);
            drop(memory);
            let word = vec![here.sge(0, 8)];
            let (op, list) = match case {
                0 => (SendOp::Write(there), vec![here.sge(0, 64)]),
                1 => (SendOp::Read(there), vec![here.sge(0, 64)]),
                2 => (
                    SendOp::FetchAdd {
                        remote: there,
                        add: 1,
                    },
                    word,
                ),
                3 => {
                    b.recv(7, vec![sge]);
                    (SendOp::Send, vec![here.sge(0, 64)])
                }
                _ => {
                    b.send(8, SendOp::Write(here.remote(0)), vec![sge]);
                    assert_eq!(b.completion().status, WcStatus::LocProtErr);
                    continue;
                }
            };
            a.send(2, op, list);
            assert_eq!(a.completion().status, WcStatus::RemOpErr, "case {case}");
            if case == 3 {
                assert_eq!(b.completion().status, WcStatus::LocProtErr);
            }
        }
    }
}

#[test]
fn an_implicit_region_covers_what_is_mapped_at_the_time() {
    let (a, b) = pair(Mtu::B1024);
    let implicit = Mr::register(&b.pd, 0, IMPLICIT, 0, ALL | Access::ON_DEMAND).unwrap();
    let bytes = vec![0_u8; 10_000];
    let here = Buffer::new(&a.pd, pattern(10_000, 4));
    let there = |addr| RemoteAddr {
        addr,
        rkey: implicit.key(),
    };
    a.send(
        1,
        SendOp::Write(there(bytes.as_ptr() as u64)),
        vec![here.sge(0, 10_000)],
    );
    a.done(1);
    assert_eq!(std::hint::black_box(&bytes), &pattern(10_000, 4));
    a.send(2, SendOp::Read(there(16)), vec![here.sge(0, 8)]);
    assert_eq!(
        a.completion().status,
        WcStatus::RemOpErr,
        "nothing is mapped at address 16"
    );
    let wrong = Mr::register(&b.pd, 4096, IMPLICIT, 4096, Access::ON_DEMAND);
    assert_eq!(wrong.unwrap_err().errno, libc::EINVAL);
}

#[test]
fn a_null_region_sends_zeros_and_swallows_what_comes() {
    let (a, b) = pair(Mtu::B1024);
    let (null, sink) = (Mr::null(&a.pd).unwrap(), Mr::null(&b.pd).unwrap());
    let there = Buffer::new(&b.pd, vec![7; 3000]);
    let anywhere = |mr: &Mr| Sge {
        addr: 12_345,
        length: 3000,
        lkey: mr.key(),
    };
    a.send(1, SendOp::Write(there.remote(0)), vec![anywhere(&null)]);
    a.done(1);
    assert_eq!(there.snapshot(), vec![0; 3000]);
    b.recv(2, vec![anywhere(&sink)]);
    a.send(3, SendOp::Send, vec![anywhere(&null)]);
    assert_eq!(b.done(2).byte_len, 3000);
    a.done(3);
    assert_eq!(
        null.reregister(None, None, Some(ALL)).unwrap_err().errno,
        libc::EINVAL
    );
    let closed = RemoteAddr {
        addr: 0,
        rkey: sink.key(),
    };
    a.send(4, SendOp::Write(closed), vec![anywhere(&null)]);
    assert_eq!(a.completion().status, WcStatus::RemAccessErr);
}

/// As mlx5 has it: without waiting, advice is taken for ordinary regions, whose pages are there.
#[test]
fn advice_about_ordinary_regions_is_taken_unless_it_waits() {
    let (end, other) = pair(Mtu::B1024);
    let bytes = vec![0_u8; 4096];
    let (addr, length) = (bytes.as_ptr() as u64, bytes.len() as u64);
    let mr = Mr::register(&end.pd, addr, length, addr, Access::empty()).unwrap();
    let part = |length, lkey| [Sge { addr, length, lkey }];
    let whole = part(4096, mr.key());
    let refused = |pd: &Arc<Pd>, advice, wait, ranges: &[Sge]| {
        pd.advise(advice, wait, ranges).unwrap_err().errno
    };
    for advice in [Advice::Prefetch, Advice::PrefetchNoFault] {
        end.pd.advise(advice, false, &whole).unwrap();
        assert_eq!(refused(&end.pd, advice, true, &whole), libc::EINVAL);
        assert_eq!(refused(&other.pd, advice, false, &whole), libc::EPERM);
        let long = part(4097, mr.key());
        assert_eq!(refused(&end.pd, advice, false, &long), libc::EFAULT);
        let unknown = part(1, Key(mr.key().0 ^ 1));
        assert_eq!(refused(&end.pd, advice, false, &unknown), libc::ENOENT);
    }
    // The region may not be written.
    let advice = Advice::PrefetchWrite;
    assert_eq!(refused(&end.pd, advice, false, &whole), libc::EPERM);
}
