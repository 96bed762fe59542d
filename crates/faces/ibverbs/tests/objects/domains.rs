//! Parent and XRC domains, shared receive queues, addresses.
use std::ffi::{c_int, c_void};
use std::os::fd::IntoRawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::rig::*;
use ibverbs::abi::*;
use ibverbs::verbs::{ah, cq, pd, port, qp, srq, xrcd};
use libc::{EAGAIN, EBUSY, EINVAL, ENOMEM, EOPNOTSUPP};

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn alloc(
    _pd: *mut ibv_pd,
    context: *mut c_void,
    size: usize,
    _: usize,
    _: u64,
) -> *mut c_void {
    match context as usize {
        0 => null_mut(),
        1 => IBV_ALLOCATOR_USE_DEFAULT,
        _ => {
            ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
            unsafe { libc::calloc(1, size) }
        }
    }
}

unsafe extern "C" fn free(_pd: *mut ibv_pd, _context: *mut c_void, memory: *mut c_void, _: u64) {
    ALLOCATIONS.fetch_sub(1, Ordering::SeqCst);
    unsafe { libc::free(memory) };
}

fn parent(open: &Open, below: *mut ibv_pd, td: *mut ibv_td, context: usize) -> *mut ibv_pd {
    let mut attr = ibv_parent_domain_init_attr {
        pd: below,
        td,
        comp_mask: IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
        alloc: Some(alloc),
        free: Some(free),
        pd_context: std::ptr::without_provenance_mut(context),
    };
    unsafe { pd::alloc_parent_domain(open.0, &raw mut attr) }
}

#[test]
fn parent_domains_use_the_programs_allocator() {
    let open = Open::new();
    let below = open.pd();
    unsafe {
        let mut td_attr = ibv_td_init_attr { comp_mask: 0 };
        let td = pd::alloc_td(open.0, &raw mut td_attr);
        let (full, default, own) = (
            parent(&open, below, td, 0),
            parent(&open, below, null_mut(), 1),
            parent(&open, below, null_mut(), 2),
        );
        refused(parent(&open, null_mut(), null_mut(), 2), EINVAL);
        assert_eq!((*own).handle, (*below).handle);
        assert_eq!(pd::dealloc_td(td), EBUSY);
        assert_eq!(pd::ibv_dealloc_pd(below), EBUSY);
        refused(srq_of(full), ENOMEM);
        let queue = srq_of(default);
        assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), 0);
        assert_eq!(srq::ibv_destroy_srq(queue), 0);
        let queue = srq_of(own);
        assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), 1);
        assert_eq!((*queue).pd, own);
        assert_eq!(pd::ibv_dealloc_pd(own), EBUSY);
        assert_eq!(srq::ibv_destroy_srq(queue), 0);
        assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), 0);
        for domain in [full, default, own, below] {
            assert_eq!(pd::ibv_dealloc_pd(domain), 0);
        }
        assert_eq!(pd::dealloc_td(td), 0);
    }
}

#[test]
fn srqs_are_changed_and_queried() {
    let open = Open::new();
    let pd = open.pd();
    unsafe {
        let mut bad = zeroed::<ibv_srq_init_attr>();
        bad.attr.max_wr = 1 << 30;
        refused(srq::ibv_create_srq(pd, &raw mut bad), EINVAL);
        let queue = srq_of(pd);
        let mut attr = zeroed::<ibv_srq_attr>();
        assert_eq!(srq::ibv_query_srq(queue, &raw mut attr), 0);
        assert!(attr.max_wr >= 10 && attr.max_sge >= 1 && attr.srq_limit == 0);
        attr.srq_limit = 5;
        assert_eq!(srq::ibv_modify_srq(queue, &raw mut attr, 4), EINVAL);
        assert_eq!(srq::ibv_modify_srq(queue, &raw mut attr, IBV_SRQ_LIMIT as c_int), 0);
        attr.srq_limit = 0;
        assert_eq!(srq::ibv_query_srq(queue, &raw mut attr), 0);
        assert_eq!(attr.srq_limit, 5);
        let mut number = 0;
        assert_eq!(srq::get_srq_num(queue, &raw mut number), 0);
        assert_ne!(number, 0);
        let mut ex = zeroed::<ibv_srq_init_attr_ex>();
        (ex.attr.max_wr, ex.pd) = (10, pd);
        ex.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
        refused(srq::create_srq_ex(open.0, &raw mut ex), EINVAL);
        ex.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        ex.srq_type = IBV_SRQT_TM;
        refused(srq::create_srq_ex(open.0, &raw mut ex), EINVAL);
        ex.srq_type = IBV_SRQT_XRC;
        refused(srq::create_srq_ex(open.0, &raw mut ex), EINVAL);
        assert_eq!(srq::ibv_destroy_srq(queue), 0);
        assert_eq!(pd::ibv_dealloc_pd(pd), 0);
    }
}

#[test]
fn xrc_domains_of_a_file_follow_the_flags() {
    let open = Open::new();
    let path = std::env::temp_dir().join(format!("adverb-xrcd-{}", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let fd = file.into_raw_fd();
    let try_open = |fd, oflags, comp_mask| {
        let mut attr = ibv_xrcd_init_attr { comp_mask, fd, oflags };
        unsafe { xrcd::open_xrcd(open.0, &raw mut attr) }
    };
    const BOTH: u32 = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    refused(try_open(-1, libc::O_CREAT, IBV_XRCD_INIT_ATTR_FD), EINVAL);
    refused(try_open(-1, libc::O_CREAT, BOTH | 4), EOPNOTSUPP);
    refused(try_open(-1, libc::O_APPEND, BOTH), EINVAL);
    refused(try_open(fd, 0, BOTH), EAGAIN);
    refused(try_open(1 << 20, libc::O_CREAT, BOTH), libc::EBADF);
    let first = try_open(fd, libc::O_CREAT | libc::O_EXCL, BOTH);
    assert!(!first.is_null());
    refused(try_open(fd, libc::O_CREAT | libc::O_EXCL, BOTH), EINVAL);
    let second = try_open(fd, 0, BOTH);
    let anonymous = try_open(-1, libc::O_CREAT, BOTH);
    assert!(!second.is_null() && !anonymous.is_null());
    unsafe {
        for domain in [first, second, anonymous] {
            assert_eq!(xrcd::close_xrcd(domain), 0);
        }
        refused(try_open(fd, 0, BOTH), EAGAIN);
        libc::close(fd);
    }
}

/// What providers refuse, and with which number.
#[test]
fn attributes_that_mean_nothing_are_refused() {
    let open = Open::new();
    let pd = open.pd();
    unsafe {
        let make = |comp_mask, flags, domain| {
            let mut attr = zeroed::<ibv_cq_init_attr_ex>();
            (attr.cqe, attr.comp_mask, attr.flags, attr.parent_domain) =
                (4, comp_mask, flags, domain);
            cq::create_cq_ex(open.0, &raw mut attr)
        };
        refused(make(1 << 5, 0, null_mut()), EINVAL);
        refused(make(IBV_CQ_INIT_ATTR_MASK_FLAGS, 1 << 5, null_mut()), EINVAL);
        refused(make(IBV_CQ_INIT_ATTR_MASK_PD, 0, pd), EINVAL);
        let queue = make(0, 1 << 5, pd).cast::<ibv_cq>();
        assert!(!queue.is_null(), "what the mask does not name is not looked at");
        let mut attr = zeroed::<ibv_modify_cq_attr>();
        attr.attr_mask = 1 << 5;
        assert_eq!((cq::modify_cq(queue, &raw mut attr), errno()), (EOPNOTSUPP, EOPNOTSUPP));
        let mut init = zeroed::<ibv_qp_init_attr>();
        (init.send_cq, init.recv_cq, init.qp_type) = (queue, queue, IBV_QPT_RC);
        (init.cap.max_send_wr, init.cap.max_send_sge) = (1, 1);
        let pair = qp::ibv_create_qp(pd, &raw mut init);
        let post = (*open.0).ops.post_send.unwrap();
        for (opcode, code) in [(99, EINVAL), (IBV_WR_TSO, EOPNOTSUPP)] {
            let (mut wr, mut bad) = (zeroed::<ibv_send_wr>(), null_mut());
            wr.opcode = opcode;
            assert_eq!((post(pair, &raw mut wr, &raw mut bad), errno()), (code, code));
            assert_eq!(bad, &raw mut wr);
        }
        assert_eq!((qp::ibv_destroy_qp(pair), cq::ibv_destroy_cq(queue)), (0, 0));
        assert_eq!(pd::ibv_dealloc_pd(pd), 0);
    }
}

#[test]
fn addresses_come_from_attributes_and_from_datagrams() {
    let open = Open::new();
    let pd = open.pd();
    let gid = open.ipv4_gid();
    unsafe {
        let mut attr = zeroed::<ibv_ah_attr>();
        (attr.port_num, attr.grh.sgid_index) = (PORT, gid);
        attr.grh.dgid.raw = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 9];
        refused(ah::ibv_create_ah(pd, &raw mut attr), EINVAL);
        attr.is_global = 1;
        let handle = ah::ibv_create_ah(pd, &raw mut attr);
        assert!(!handle.is_null());
        assert_eq!(pd::ibv_dealloc_pd(pd), EBUSY);
        assert_eq!(ah::ibv_destroy_ah(handle), 0);
        let mut mac = [1_u8; 6];
        let mut vid = 0_u16;
        attr.grh.dgid.raw[15] = 1;
        assert_eq!(
            ah::ibv_resolve_eth_l2_from_gid(open.0, &raw mut attr, mac.as_mut_ptr(), &raw mut vid),
            0
        );
        assert_eq!((mac, vid), ([0; 6], 0xffff), "the loopback interface has no address");

        // IPv4: from 127.0.0.7 to 127.0.0.1, TTL 64, TOS 0xb8.
        let mut area = [0_u8; 40];
        area[20..].copy_from_slice(&[
            0x45, 0xb8, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0, 127, 0, 0, 7, 127, 0, 0, 1,
        ]);
        let mut wc = zeroed::<ibv_wc>();
        wc.wc_flags = IBV_WC_GRH;
        let from = |area: &mut [u8; 40], wc: &mut ibv_wc, attr: &mut ibv_ah_attr| {
            ah::ibv_init_ah_from_wc(
                open.0,
                PORT,
                &raw mut *wc,
                area.as_mut_ptr().cast(),
                &raw mut *attr,
            )
        };
        assert_eq!(from(&mut area, &mut wc, &mut attr), 0);
        assert_eq!(attr.grh.dgid.raw[12..], [127, 0, 0, 7]);
        let grh = &attr.grh;
        assert_eq!(
            (grh.sgid_index, grh.hop_limit, grh.traffic_class, attr.is_global),
            (gid, 64, 0xb8, 1)
        );
        let handle = ah::ibv_create_ah_from_wc(pd, &raw mut wc, area.as_mut_ptr().cast(), PORT);
        assert!(!handle.is_null());
        assert_eq!(ah::ibv_destroy_ah(handle), 0);
        area[39] = 77;
        assert_eq!(
            (from(&mut area, &mut wc, &mut attr), errno()),
            (-1, EINVAL),
            "sent to somebody else"
        );
        area[20] = 0;
        assert_eq!((from(&mut area, &mut wc, &mut attr), errno()), (-1, libc::EPROTONOSUPPORT));
        // IPv6: from ::2 to ::1.
        let mut area = [0_u8; 40];
        area[..8].copy_from_slice(&[0x6b, 0x81, 0x23, 0x45, 0, 40, 17, 9]);
        (area[23], area[39]) = (2, 1);
        if from(&mut area, &mut wc, &mut attr) == 0 {
            assert_eq!(attr.grh.dgid.raw[15], 2);
            let grh = &attr.grh;
            assert_eq!((grh.hop_limit, grh.traffic_class, grh.flow_label), (9, 0xb8, 0x12345));
        } else {
            let mut gid = ibv_gid { raw: [0; 16] };
            let own = |i| {
                port::ibv_query_gid(open.0, PORT, i, &raw mut gid) == 0
                    && gid.raw[15] == 1
                    && gid.raw[..15] == [0; 15]
            };
            assert!(!(0..16).any(own), "::1 is a GID of the port");
        }
        assert_eq!(pd::ibv_dealloc_pd(pd), 0);
    }
}
