//! Registration of buffers by descriptor. A memory file stands for a dma-buf that can be mapped.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{errno, pair, plain_qp, send_wr};
use ferroce_abi::types::*;
use ferroce_abi::verbs::*;

#[test]
fn a_buffer_is_registered_by_its_descriptor() {
    let (mut a, b) = pair(plain_qp);
    // SAFETY: a new memory file.
    let fd = unsafe { libc::memfd_create(c"buffer".as_ptr(), 0) };
    // SAFETY: a descriptor of ours.
    assert_eq!(unsafe { libc::ftruncate(fd, 8192) }, 0);
    let access = (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE).cast_signed();
    let register = |offset, length, iova, fd, access| {
        // SAFETY: a live protection domain.
        let mr = unsafe { ibv_reg_dmabuf_mr(b.pd, offset, length, iova, fd, access) };
        if mr.is_null() { Err(errno()) } else { Ok(mr) }
    };
    assert_eq!(register(4000, 4193, 4000, fd, access), Err(libc::EINVAL));
    assert_eq!(register(4000, 100, 0, fd, access), Err(libc::EINVAL));
    assert_eq!(register(0, 100, 0, -1, access), Err(libc::EBADF));
    let wrong = IBV_ACCESS_MW_BIND.cast_signed();
    assert_eq!(register(0, 100, 0, fd, wrong), Err(libc::EOPNOTSUPP));
    let mr = register(4000, 200, 4000, fd, access).unwrap();
    a.buffer[..8].copy_from_slice(b"dma-buf!");
    let mut sge = a.sge(0, 8);
    let mut wr = send_wr(9, IBV_WR_RDMA_WRITE, &mut sge);
    // SAFETY: a live region.
    let rkey = unsafe { (*mr).rkey };
    wr.wr.rdma = ibv_send_wr_rdma {
        remote_addr: 4100,
        rkey,
    };
    assert_eq!(a.post_send(&mut wr), 0);
    assert_eq!(a.completion().status, IBV_WC_SUCCESS);
    let mut seen = [0_u8; 8];
    // SAFETY: room for eight bytes; objects of ours, used no more.
    unsafe {
        assert_eq!(libc::pread(fd, seen.as_mut_ptr().cast(), 8, 4100), 8);
        assert_eq!(ibv_dereg_mr(mr), 0);
        libc::close(fd);
    }
    assert_eq!(&seen, b"dma-buf!");
}

/// How often this process has mapped the memory of a file.
fn mappings(fd: i32) -> usize {
    let file = std::fs::metadata(format!("/proc/self/fd/{fd}")).unwrap();
    let inode = std::os::unix::fs::MetadataExt::ino(&file).to_string();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let of = |line: &&str| line.split_whitespace().nth(4) == Some(&inode);
    maps.lines().filter(of).count()
}

/// A memory file that nobody can cut short is mapped by peers, and atomics are done there; one that
/// could be is not.
#[test]
fn peers_map_a_file_that_is_sealed() {
    for (seal, times) in [(libc::F_SEAL_GROW, 1), (libc::F_SEAL_SHRINK, 2)] {
        let (a, b) = pair(plain_qp);
        // SAFETY: a new memory file of ours.
        let fd = unsafe {
            let fd = libc::memfd_create(c"buffer".as_ptr(), libc::MFD_ALLOW_SEALING);
            assert_eq!(libc::ftruncate(fd, 8192), 0);
            assert_eq!(libc::fcntl(fd, libc::F_ADD_SEALS, seal), 0);
            fd
        };
        let flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
        // SAFETY: a live protection domain.
        let mr = unsafe { ibv_reg_dmabuf_mr(b.pd, 4096, 4096, 0, fd, flags.cast_signed()) };
        // SAFETY: a live region.
        let rkey = unsafe { (*mr).rkey };
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let mut added = 0;
        // Boards are exchanged with the first packets: those of a queue pair that was connected
        // just now may be under way.
        while added < 50 || times == 2 && mappings(fd) != times {
            assert!(std::time::Instant::now() < until, "never mapped");
            let mut sge = a.sge(0, 8);
            let mut wr = send_wr(9, IBV_WR_ATOMIC_FETCH_AND_ADD, &mut sge);
            wr.wr.atomic = ibv_send_wr_atomic {
                remote_addr: 80,
                compare_add: 3,
                swap: 0,
                rkey,
            };
            assert_eq!(a.post_send(&mut wr), 0);
            assert_eq!(a.completion().status, IBV_WC_SUCCESS);
            let found = u64::from_ne_bytes(a.buffer[..8].try_into().unwrap());
            assert_eq!(found, added * 3);
            added += 1;
        }
        assert_eq!(mappings(fd), times);
        let mut seen = [0_u8; 8];
        // SAFETY: room for eight bytes; objects of ours, used no more.
        unsafe {
            assert_eq!(libc::pread(fd, seen.as_mut_ptr().cast(), 8, 4096 + 80), 8);
            assert_eq!(ibv_dereg_mr(mr), 0);
        }
        assert_eq!(u64::from_ne_bytes(seen), added * 3);
        while mappings(fd) != 0 {
            assert!(std::time::Instant::now() < until, "never unmapped");
            std::thread::yield_now();
        }
        // SAFETY: ours, not used after.
        unsafe { libc::close(fd) };
    }
}
