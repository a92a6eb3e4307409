//! Tests of addresses that come as events, and of events that the program writes.

use std::ptr;

use super::super::event::{rdma_ack_cm_event, rdma_get_cm_event};
use super::super::types::{RAI_DNS, RDMA_PS_TCP, rdma_event_channel};
use super::super::{
    rdma_create_event_channel, rdma_create_id, rdma_destroy_event_channel, rdma_destroy_id,
};
use super::*;
use crate::errno::errno;
use crate::sockaddr::read;

/// An identifier with a channel.
struct Fixture {
    channel: *mut rdma_event_channel,
    id: *mut rdma_cm_id,
}

impl Fixture {
    fn new() -> Self {
        // SAFETY: plain calls; the place for the identifier is live.
        unsafe {
            let channel = rdma_create_event_channel();
            assert!(!channel.is_null());
            let mut id = ptr::null_mut();
            let made = rdma_create_id(channel, &raw mut id, ptr::null_mut(), RDMA_PS_TCP);
            assert_eq!(made, 0);
            Self { channel, id }
        }
    }

    fn ask(&self, flags: c_int) -> c_int {
        let hints = rdma_addrinfo {
            ai_flags: flags,
            ..rdma_addrinfo::zeroed()
        };
        let (node, service) = (c"127.0.0.1", c"7471");
        // SAFETY: live pointers and C strings.
        unsafe { rdma_resolve_addrinfo(self.id, node.as_ptr(), service.as_ptr(), &raw const hints) }
    }

    /// Kind, status and argument of the next event.
    fn next(&self) -> (u32, c_int, u64) {
        let mut event = ptr::null_mut();
        // SAFETY: a live channel; the event is whole, and of a kind that has an argument or zeros.
        unsafe {
            assert_eq!(rdma_get_cm_event(self.channel, &raw mut event), 0);
            let seen = ((*event).event, (*event).status, (*event).param.arg);
            assert_eq!(rdma_ack_cm_event(event), 0);
            seen
        }
    }

    /// What `rdma_query_addrinfo` gives.
    fn fetch(&self) -> Result<Addresses, c_int> {
        let mut list = ptr::null_mut();
        // SAFETY: live pointers.
        match unsafe { rdma_query_addrinfo(self.id, &raw mut list) } {
            0 => Ok(Addresses(list)),
            _ => Err(errno()),
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // SAFETY: made in `new`, and not used any more.
        unsafe {
            rdma_destroy_id(self.id);
            rdma_destroy_event_channel(self.channel);
        }
    }
}

#[test]
fn addresses_come_with_an_event_and_are_fetched_once() {
    let f = Fixture::new();
    assert_eq!(f.fetch().err(), Some(libc::ENOENT));
    assert_eq!(f.ask(RAI_DNS), 0);
    assert_eq!((f.ask(0), errno()), (-1, libc::EBUSY));
    assert_eq!(f.next(), (EventKind::AddrinfoResolved as u32, 0, 0));
    let found = f.fetch().expect("resolved");
    // SAFETY: a whole answer.
    let address = unsafe { read((*found.0).ai_dst_addr) };
    assert_eq!(address.ok(), "127.0.0.1:7471".parse().ok());
    assert_eq!(f.fetch().err(), Some(libc::ENOENT));
    // What is not fetched goes with the identifier.
    assert_eq!(f.ask(0), 0);
}

#[test]
fn services_of_infiniband_are_refused_and_leave_nothing_under_way() {
    let f = Fixture::new();
    assert_eq!((f.ask(RAI_SA), errno()), (-1, libc::EOPNOTSUPP));
    assert_eq!(f.ask(0), 0);
}

#[test]
fn a_program_writes_events_of_its_own_and_no_others() {
    let f = Fixture::new();
    // SAFETY: a live identifier.
    let write = |event| unsafe { rdma_write_cm_event(f.id, event, -5, 1 << 40) };
    assert_eq!(write(RDMA_CM_EVENT_USER), 0);
    assert_eq!(f.next(), (RDMA_CM_EVENT_USER, -5, 1 << 40));
    let established = EventKind::Established as u32;
    assert_eq!((write(established), errno()), (-1, libc::EINVAL));
}
