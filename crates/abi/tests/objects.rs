//! Making, asking and destroying objects through the C functions: results, errnos and what must not
//! be freed.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

use common::{Side, block, errno, init_attr, loopback, plain_qp};
use ferroce_abi::types::*;
use ferroce_abi::verbs::*;

#[test]
fn list_of_devices_is_one_block_and_devices_stay() {
    let mut count = -1;
    // SAFETY: lists are used within their length and freed once.
    unsafe {
        let first = ibv_get_device_list(&raw mut count);
        assert!(count >= 1);
        let last = usize::try_from(count).unwrap();
        assert!((*first.add(last)).is_null());
        let device = *first;
        // Some programs free the list themselves.
        libc::free(first.cast());
        let second = ibv_get_device_list(ptr::null_mut());
        assert_eq!(*second, device);
        ibv_free_device_list(second);
        // A provider's library that looks behind the structure finds nobody's table there.
        assert_eq!(*device.add(1).cast::<usize>(), 0);
    }
}

#[test]
fn port_attributes_fill_what_the_program_has_room_for() {
    let side = Side::new(plain_qp);
    // SAFETY: a live context; each call writes at most the length it is told, or 48 bytes.
    unsafe {
        let query = (*block(side.context)).query_port.unwrap();
        for (room, filled) in [(48, 48), (52, 52), (56, 52)] {
            let mut bytes = [0xaa_u8; 64];
            assert_eq!(query(side.context, 1, bytes.as_mut_ptr().cast(), room), 0);
            assert_eq!(
                u32::from_ne_bytes(bytes[0..4].try_into().unwrap()),
                IBV_PORT_ACTIVE
            );
            assert!(bytes[filled..room].iter().all(|&b| b == 0), "{room}");
            assert!(bytes[room..].iter().all(|&b| b == 0xaa), "{room}");
        }
        let mut bytes = [0xaa_u8; 64];
        assert_eq!(
            ibv_query_port(side.context, 1, bytes.as_mut_ptr().cast()),
            0
        );
        assert!(bytes[48..].iter().all(|&b| b == 0xaa));
        assert_eq!(
            ibv_query_port(side.context, 2, bytes.as_mut_ptr().cast()),
            libc::EINVAL
        );
    }
}

#[test]
fn device_attributes_need_room_for_the_basic_ones() {
    let side = Side::new(plain_qp);
    let mut attr = MaybeUninit::<ibv_device_attr_ex>::zeroed();
    // SAFETY: a live context, room as said.
    unsafe {
        let query = (*block(side.context)).query_device_ex.unwrap();
        let basic = size_of::<ibv_device_attr>();
        assert_eq!(
            query(side.context, ptr::null(), attr.as_mut_ptr(), basic - 1),
            libc::EINVAL
        );
        assert_eq!(
            query(side.context, ptr::null(), attr.as_mut_ptr(), basic),
            0
        );
        assert_eq!(attr.assume_init_ref().phys_port_cnt_ex, 0);
        assert_eq!(
            query(
                side.context,
                ptr::null(),
                attr.as_mut_ptr(),
                size_of::<ibv_device_attr_ex>()
            ),
            0
        );
        let attr = attr.assume_init_ref();
        assert_eq!(
            (attr.phys_port_cnt_ex, attr.orig_attr.phys_port_cnt),
            (1, 1)
        );
        assert_eq!(attr.orig_attr.node_guid, ibv_get_device_guid(loopback()));
        let input = ibv_query_device_ex_input { comp_mask: 1 };
        assert_eq!(
            query(side.context, &raw const input, ptr::null_mut(), 1000),
            libc::EINVAL
        );
    }
}

#[test]
fn gid_and_pkey_tables_end_where_the_port_says() {
    let side = Side::new(plain_qp);
    let mut port = ibv_port_attr::zeroed();
    let mut gid = ibv_gid { raw: [0xaa; 16] };
    let mut entry = ibv_gid_entry::zeroed();
    let (mut kind, mut pkey) = (7, 0);
    // SAFETY: a live context, room for each answer.
    unsafe {
        assert_eq!(
            (*block(side.context)).query_port.unwrap()(
                side.context,
                1,
                &raw mut port,
                size_of::<ibv_port_attr>()
            ),
            0
        );
        assert_eq!(ibv_query_gid(side.context, 1, 0, &raw mut gid), 0);
        assert_eq!(
            gid.raw,
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1]
        );
        // Empty, but inside.
        let last = port.gid_tbl_len - 1;
        assert_eq!(ibv_query_gid(side.context, 1, last, &raw mut gid), 0);
        assert_eq!(gid.raw, [0; 16]);
        for bad in [-1, port.gid_tbl_len] {
            assert_eq!(
                (ibv_query_gid(side.context, 1, bad, &raw mut gid), errno()),
                (-1, libc::EINVAL)
            );
        }
        let size = size_of::<ibv_gid_entry>();
        let ask = |index: c_int, flags, to| {
            _ibv_query_gid_ex(side.context, 1, index.cast_unsigned(), to, flags, size)
        };
        assert_eq!(ask(0, 0, &raw mut entry), 0);
        assert_eq!(
            (entry.gid_type, entry.port_num, entry.gid_index),
            (IBV_GID_TYPE_ROCE_V2, 1, 0)
        );
        assert_eq!(ask(last, 0, &raw mut entry), libc::ENODATA);
        assert_eq!(ask(port.gid_tbl_len, 0, &raw mut entry), libc::EINVAL);
        assert_eq!(ask(0, 1, &raw mut entry), libc::EOPNOTSUPP);
        assert_eq!(
            _ibv_query_gid_table(side.context, &raw mut entry, 0, 0, size),
            -(libc::EINVAL as isize)
        );
        let mut table = [ibv_gid_entry::zeroed(); 64];
        let n = _ibv_query_gid_table(side.context, table.as_mut_ptr(), 64, 0, size);
        assert!(n >= 1);
        assert_eq!(ibv_query_gid_type(side.context, 1, 0, &raw mut kind), 0);
        assert_eq!(kind, 1);
        assert_eq!(
            ibv_query_gid_type(side.context, 1, last.cast_unsigned(), &raw mut kind),
            0
        );
        assert_eq!(kind, 0);
        assert_eq!(ibv_query_pkey(side.context, 1, 0, &raw mut pkey), 0);
        assert_eq!(
            (pkey, ibv_query_pkey(side.context, 1, 1, &raw mut pkey)),
            (0xffff, -1)
        );
        assert_eq!(ibv_get_pkey_index(side.context, 1, 0xffff), 0);
        assert_eq!(ibv_get_pkey_index(side.context, 1, 0x7fff), -1);
    }
}

#[test]
fn registration_checks_flags_and_memory() {
    let side = Side::new(plain_qp);
    let mut memory = [0_u8; 64];
    let addr = memory.as_mut_ptr().cast();
    let register = |addr, iova, access: u32| {
        // SAFETY: a live protection domain; what is no memory is refused.
        let mr = unsafe { ibv_reg_mr_iova2(side.pd, addr, 64, iova, access) };
        if mr.is_null() {
            return Err(errno());
        }
        // SAFETY: just registered.
        unsafe {
            let copy = *mr;
            assert_eq!(ibv_dereg_mr(mr), 0);
            Ok(copy)
        }
    };
    let at = memory.as_ptr() as u64;
    let mr = register(addr, at, 0)
        .map_err(|e| format!("errno {e}"))
        .unwrap();
    assert_eq!(
        (mr.addr, mr.length, mr.pd, mr.lkey),
        (addr, 64, side.pd, mr.rkey)
    );
    // Unknown optional flags (bits 20 to 29) are dropped, unknown others refused.
    assert!(register(addr, at, IBV_ACCESS_RELAXED_ORDERING | 1 << 29).is_ok());
    assert_eq!(register(addr, at, 1 << 19).err(), Some(libc::EINVAL));
    assert_eq!(
        register(addr, at, IBV_ACCESS_REMOTE_WRITE).err(),
        Some(libc::EINVAL)
    );
    assert!(register(addr, at, IBV_ACCESS_ON_DEMAND).is_ok());
    assert!(register(addr, at, IBV_ACCESS_ZERO_BASED).is_ok());
    assert!(register(addr, 0x1000, IBV_ACCESS_LOCAL_WRITE).is_ok());
    assert_eq!(
        register(ptr::without_provenance_mut(16), 16, 0).err(),
        Some(libc::EFAULT)
    );
    // SAFETY: NULL is refused.
    assert_eq!(unsafe { ibv_dereg_mr(ptr::null_mut()) }, libc::EINVAL);
}

#[test]
fn reregistration_changes_what_is_named_or_nothing() {
    let side = Side::new(plain_qp);
    let mut memory = [0_u8; 64];
    let addr = memory.as_mut_ptr().cast();
    let none = ptr::null_mut();
    // SAFETY: a live region; bad arguments are refused.
    unsafe {
        let rereg = |flags: u32, pd, addr, length, access: u32| {
            ibv_rereg_mr(
                side.mr,
                flags.cast_signed(),
                pd,
                addr,
                length,
                access.cast_signed(),
            )
        };
        assert_eq!(
            rereg(0, ptr::null_mut(), none, 0, 0),
            IBV_REREG_MR_ERR_INPUT
        );
        assert_eq!(
            rereg(8, ptr::null_mut(), none, 0, 0),
            IBV_REREG_MR_ERR_INPUT
        );
        assert_eq!(
            rereg(IBV_REREG_MR_CHANGE_PD, ptr::null_mut(), none, 0, 0),
            IBV_REREG_MR_ERR_INPUT
        );
        assert_eq!(
            rereg(
                IBV_REREG_MR_CHANGE_TRANSLATION,
                ptr::null_mut(),
                none,
                64,
                0
            ),
            IBV_REREG_MR_ERR_INPUT
        );
        let nowhere = ptr::without_provenance_mut(16);
        assert_eq!(
            rereg(
                IBV_REREG_MR_CHANGE_TRANSLATION,
                ptr::null_mut(),
                nowhere,
                64,
                0
            ),
            IBV_REREG_MR_ERR_CMD
        );
        assert_eq!((errno(), (*side.mr).length), (libc::EFAULT, common::BUFFER));
        let key = (*side.mr).lkey;
        let pd = ibv_alloc_pd(side.context);
        let both = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD;
        assert_eq!(rereg(both, pd, addr, 64, 0), 0);
        assert_eq!(
            (
                (*side.mr).addr,
                (*side.mr).length,
                (*side.mr).pd,
                (*side.mr).lkey
            ),
            (addr, 64, pd, key)
        );
        assert_eq!(ibv_dealloc_pd(pd), libc::EBUSY);
        assert_eq!(rereg(both, side.pd, addr, 64, 0), 0);
        assert_eq!(ibv_dealloc_pd(pd), 0);
    }
}

#[test]
fn parents_stay_while_they_have_children() {
    let side = Side::new(plain_qp);
    // SAFETY: refusals leave the objects as they are.
    unsafe {
        assert_eq!(ibv_destroy_cq(side.cq), libc::EBUSY);
        assert_eq!(ibv_destroy_comp_channel(side.channel), libc::EBUSY);
        assert_eq!(ibv_dealloc_pd(side.pd), libc::EBUSY);
    }
    assert!(side.poll().is_none());
}

#[test]
fn completion_queue_arguments_are_checked() {
    let side = Side::new(plain_qp);
    // SAFETY: a live context; bad numbers are refused.
    unsafe {
        for (cqe, vector) in [(0, 0), (-1, 0), (c_int::MAX, 0), (1, c_int::MAX), (1, -1)] {
            let cq = ibv_create_cq(side.context, cqe, ptr::null_mut(), ptr::null_mut(), vector);
            assert_eq!(
                (cq.is_null(), errno()),
                (true, libc::EINVAL),
                "{cqe} {vector}"
            );
        }
        assert_eq!(ibv_resize_cq(side.cq, 0), libc::EINVAL);
        assert_eq!(ibv_resize_cq(side.cq, 100), 0);
        assert!((*side.cq).cqe >= 100);
    }
}

#[test]
fn queue_pair_tells_its_attributes() {
    let side = Side::new(plain_qp);
    let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
    // SAFETY: live objects; bad arguments are refused.
    unsafe {
        assert_eq!(
            ibv_query_qp(
                side.qp,
                &raw mut attr,
                IBV_QP_STATE.cast_signed(),
                &raw mut init
            ),
            0
        );
        assert_eq!(
            (attr.qp_state, (*side.qp).state),
            (IBV_QPS_RESET, IBV_QPS_RESET)
        );
        assert!(attr.cap.max_inline_data >= 64 && init.cap.max_inline_data >= 64);
        assert_eq!(
            (init.send_cq, init.recv_cq, init.qp_type),
            (side.cq, side.cq, IBV_QPT_RC)
        );
        assert!(ibv_qp_to_qp_ex(side.qp).is_null());
        attr.qp_state = 99;
        assert_eq!(
            ibv_modify_qp(side.qp, &raw mut attr, IBV_QP_STATE.cast_signed()),
            libc::EINVAL
        );
        assert_eq!(ibv_modify_qp(side.qp, &raw mut attr, 1 << 30), libc::EINVAL);
        attr.qp_state = IBV_QPS_RTS;
        assert_eq!(
            ibv_modify_qp(side.qp, &raw mut attr, IBV_QP_STATE.cast_signed()),
            libc::EINVAL
        );
        assert_eq!((*side.qp).state, IBV_QPS_RESET);
        for (qp_type, expected) in [(77, libc::EINVAL), (IBV_QPT_RAW_PACKET, libc::EOPNOTSUPP)] {
            let mut init = init_attr(side.cq);
            init.qp_type = qp_type;
            assert_eq!(
                (ibv_create_qp(side.pd, &raw mut init).is_null(), errno()),
                (true, expected)
            );
        }
        let mut init = init_attr(ptr::null_mut());
        assert_eq!(
            (ibv_create_qp(side.pd, &raw mut init).is_null(), errno()),
            (true, libc::EINVAL)
        );
        let mut init = init_attr(side.cq);
        init.cap.max_send_wr = u32::MAX;
        assert_eq!(
            (ibv_create_qp(side.pd, &raw mut init).is_null(), errno()),
            (true, libc::EINVAL)
        );
    }
}

#[test]
fn address_handles_need_a_route() {
    let side = Side::new(plain_qp);
    let mut attr = ibv_ah_attr::zeroed();
    attr.port_num = 1;
    // SAFETY: live objects; bad addresses are refused.
    unsafe {
        assert_eq!(
            (ibv_create_ah(side.pd, &raw mut attr).is_null(), errno()),
            (true, libc::EINVAL)
        );
        attr.is_global = 1;
        assert_eq!(
            (ibv_create_ah(side.pd, &raw mut attr).is_null(), errno()),
            (true, libc::EINVAL),
            "no destination"
        );
        attr.grh.dgid.raw = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1];
        let ah = ibv_create_ah(side.pd, &raw mut attr);
        assert_eq!((*ah).pd, side.pd);
        assert_eq!(ibv_destroy_ah(ah), 0);
        attr.grh.sgid_index = 200;
        assert_eq!(
            (ibv_create_ah(side.pd, &raw mut attr).is_null(), errno()),
            (true, libc::EINVAL)
        );
    }
}

#[test]
fn closing_a_device_ends_what_is_left_on_it() {
    let (a, b) = common::pair(plain_qp);
    // SAFETY: the sides are forgotten, their objects not used again.
    unsafe {
        assert_eq!(ibv_close_device(b.context), 0);
        let mut sge = a.sge(0, 8);
        let mut wr = common::send_wr(1, IBV_WR_RDMA_READ, &mut sge);
        wr.wr.rdma = ibv_send_wr_rdma {
            remote_addr: b.buffer.as_ptr() as u64,
            rkey: (*b.mr).rkey,
        };
        assert_eq!(a.post_send(&mut wr), 0);
        assert_ne!(a.completion().status, IBV_WC_SUCCESS);
    }
    std::mem::forget(b);
}

/// mlx5 takes advice about an ordinary region, as long as nobody waits for it.
#[test]
fn advice_about_an_ordinary_region_is_taken() {
    let side = Side::new(plain_qp);
    let mut memory = [0_u8; 64];
    let addr = memory.as_mut_ptr();
    let access = IBV_ACCESS_LOCAL_WRITE.cast_signed();
    // SAFETY: a live domain and region; the advice has one element.
    unsafe {
        let mr = ibv_reg_mr(side.pd, addr.cast(), 64, access);
        assert!(!mr.is_null());
        let advise = |offset: u64, length, lkey, flags| {
            let mut sge = ibv_sge {
                addr: addr.addr() as u64 + offset,
                length,
                lkey,
            };
            let advise = (*block(side.context)).advise_mr.unwrap();
            let advice = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
            advise(side.pd, advice, flags, &raw mut sge, 1)
        };
        let lkey = (*mr).lkey;
        assert_eq!(advise(8, 40, lkey, 0), 0);
        assert_eq!(advise(0, 64, lkey, IBV_ADVISE_MR_FLAG_FLUSH), libc::EINVAL);
        assert_eq!(advise(8, 64, lkey, 0), libc::EFAULT);
        assert_eq!(advise(0, 8, lkey ^ 0x100, 0), libc::ENOENT);
        assert_eq!(ibv_dereg_mr(mr), 0);
    }
}
