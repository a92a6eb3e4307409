//! Memory of processes of this host: what a peer writes by its key, another process sees in its own
//! mapping, and the other way round.
#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Instant;
use std::{env, fs, thread};

use common::bare::{Bare, contents};
use ferroce::Error;
use ferroce::mem::{Access, MemoryRegion, SharedMemory};
use ferroce::qp::Operation;
use ferroce::transport::Rc;

/// Where the other process finds the memory.
const VARIABLE: &str = "FERROCE_TEST_MEMORY";
const LENGTH: usize = 3 * 4096 + 5;

#[test]
fn a_process_that_maps_it_sees_what_a_peer_writes_and_is_read_by_it() {
    if let Some(path) = env::var_os(VARIABLE) {
        return other_process(
            fs::File::options()
                .read(true)
                .write(true)
                .open(path)
                .unwrap()
                .into(),
        );
    }
    let bare = Bare::new();
    let (a, b) = bare.pair::<Rc>();
    let memory = SharedMemory::new(LENGTH).unwrap();
    let shared = MemoryRegion::of_shared(&bare.domain, &memory, Access::Remote).unwrap();
    assert_eq!((memory.len(), shared.len()), (LENGTH, LENGTH));
    let own = bare.region(b"from the peer");
    let bytes = [own.slice(0..own.len()).unwrap()];
    let place = shared.remote().at(LENGTH as u64 - 13);
    a.post_send(1, Operation::Write(place), &bytes).unwrap();
    bare.completions.wait().unwrap().result.unwrap();
    // The same test in another process does its part, and has ended when this returns.
    let path = format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        memory.as_fd().as_raw_fd()
    );
    let this = "a_process_that_maps_it_sees_what_a_peer_writes_and_is_read_by_it";
    let mut other = Command::new(env::current_exe().unwrap());
    // Its output counts tests, and is not for the program that counts these.
    let output = other.args(["--exact", this]).env(VARIABLE, path).output();
    let output = output.unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let place = shared.remote().at(0);
    a.post_send(2, Operation::Read(place), &bytes).unwrap();
    bare.completions.wait().unwrap().result.unwrap();
    assert_eq!(&contents(&own), b"from another ");
    drop((memory, b));
    // The region holds the memory.
    assert_eq!(shared.atomic_bytes()[0].load(Ordering::Relaxed), b'f');
}

fn other_process(descriptor: OwnedFd) {
    let memory = SharedMemory::of_descriptor(descriptor).unwrap();
    assert_eq!(memory.len(), LENGTH.next_multiple_of(8));
    let bytes = memory.atomic_bytes();
    let seen: Vec<u8> = bytes[LENGTH - 13..LENGTH]
        .iter()
        .map(|b| b.load(Ordering::Acquire))
        .collect();
    assert_eq!(seen, b"from the peer");
    for (byte, said) in bytes.iter().zip(b"from another process") {
        byte.store(*said, Ordering::Release);
    }
    assert_eq!(memory.fetch_add(0, 0).unwrap(), memory.load(0).unwrap());
}

/// How often this process has mapped the memory of a file.
fn mappings(inode: u64) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let of = |line: &&str| line.split_whitespace().nth(4) == Some(&inode.to_string());
    maps.lines().filter(of).count()
}

/// Waits until the memory is mapped so often; `work` is done again and again meanwhile.
fn until_mapped(inode: u64, times: usize, mut work: impl FnMut()) {
    let start = Instant::now();
    while mappings(inode) != times {
        assert!(start.elapsed() < common::DEADLINE, "never {times} times");
        work();
    }
}

/// The software device's peers work in mappings of their own, by all operations; a mapping goes
/// with the memory.
#[test]
fn peers_of_the_software_device_map_it() {
    let bare = Bare::new();
    let (a, _b) = bare.pair::<Rc>();
    let memory = SharedMemory::new(LENGTH).unwrap();
    let file = fs::File::from(memory.as_fd().try_clone_to_owned().unwrap());
    let inode = file.metadata().unwrap().ino();
    let shared = MemoryRegion::of_shared(&bare.domain, &memory, Access::Remote).unwrap();
    let again = MemoryRegion::of_shared(&bare.domain, &memory, Access::Remote).unwrap();
    let word = again.remote().atomic(8).unwrap();
    let mut counted = 0;
    let found = bare.region(&[0; 8]);
    let result = [found.slice(0..8).unwrap()];
    let mut count_up = || {
        a.post_send(3, word.fetch_add(1), &result).unwrap();
        bare.done(3);
        assert_eq!(found.load(0).unwrap(), counted);
        counted += 1;
    };
    let is_software = env::var("FERROCE_TEST_PROVIDER").as_deref() != Ok("system");
    let times = if is_software { 2 } else { 1 };
    until_mapped(inode, times, &mut count_up);
    count_up();
    let own = bare.region(b"from the peer");
    let bytes = [own.slice(0..own.len()).unwrap()];
    let place = shared.remote().at(LENGTH as u64 - 13);
    a.post_send(1, Operation::Write(place), &bytes).unwrap();
    bare.done(1);
    let back = bare.region(&[0; 13]);
    let bytes = [back.slice(0..13).unwrap()];
    a.post_send(2, Operation::Read(place), &bytes).unwrap();
    bare.done(2);
    assert_eq!(&contents(&back), b"from the peer");
    assert_eq!(
        memory.atomic_bytes()[LENGTH - 1].load(Ordering::Relaxed),
        b'r'
    );
    assert_eq!(memory.load(8).unwrap(), counted);
    assert_eq!(memory.compare_swap(8, counted, 7).unwrap(), counted);
    memory.store(8, counted).unwrap();
    assert!(matches!(memory.load(4), Err(Error::Unaligned { start: 4 })));
    assert!(matches!(memory.load(LENGTH), Err(Error::OutOfRange { .. })));
    drop((shared, again));
    assert_eq!(mappings(inode), times, "kept while the memory is there");
    drop((memory, file));
    until_mapped(inode, 0, thread::yield_now);
}

#[test]
fn its_pages_cannot_be_taken_away() {
    let memory = SharedMemory::new(100_000).unwrap();
    let file = fs::File::from(memory.as_fd().try_clone_to_owned().unwrap());
    let refused = file.set_len(10).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
    assert!(matches!(SharedMemory::new(0), Err(Error::Misuse(_))));
    // What could shrink is not mapped. (A file on tmpfs has seals, one of /proc never.)
    let file = fs::File::open("/proc/self/status").unwrap();
    let refused = SharedMemory::of_descriptor(file.into()).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EINVAL), "{refused}");
    let unsealed = nix::sys::memfd::memfd_create(c"unsealed", nix::sys::memfd::MFdFlags::empty());
    let refused = SharedMemory::of_descriptor(unsealed.unwrap()).unwrap_err();
    assert!(matches!(refused, Error::Misuse(_)), "{refused}");
}
