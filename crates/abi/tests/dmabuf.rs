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
