use core::ffi::{CStr, c_char};

use super::{fork, marshal, rate, strings, sysfs};
use crate::abi::*;

fn str_of(text: *const c_char) -> &'static str {
    // SAFETY: the functions under test return static strings.
    unsafe { CStr::from_ptr(text) }.to_str().expect("ASCII")
}

#[test]
fn every_rate_code_has_a_figure_and_comes_back() {
    for code in 2..=24 {
        let mbps = rate::ibv_rate_to_mbps(code);
        assert!(mbps > 0, "code {code}");
        assert_eq!(rate::mbps_to_ibv_rate(mbps), code);
        let mult = rate::ibv_rate_to_mult(code);
        if mult > 0 {
            assert_eq!(rate::mult_to_ibv_rate(mult), code);
        }
    }
    assert_eq!(rate::ibv_rate_to_mbps(IBV_RATE_5_GBPS), 5000);
    assert_eq!(rate::ibv_rate_to_mult(IBV_RATE_1200_GBPS), 480);
    for none in [rate::ibv_rate_to_mbps(IBV_RATE_MAX), rate::ibv_rate_to_mult(IBV_RATE_14_GBPS)] {
        assert_eq!(none, -1);
    }
    assert_eq!(rate::mult_to_ibv_rate(0), IBV_RATE_MAX);
    assert_eq!(rate::mbps_to_ibv_rate(1), IBV_RATE_MAX);
}

#[test]
fn codes_have_their_texts_and_others_are_unknown() {
    assert_eq!(
        str_of(strings::ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR)),
        "transport retry counter exceeded"
    );
    assert_eq!(
        str_of(strings::ibv_wc_status_str(IBV_WC_TM_RNDV_INCOMPLETE)),
        "TM software rendezvous"
    );
    assert_eq!(str_of(strings::ibv_event_type_str(IBV_EVENT_GID_CHANGE)), "GID table change");
    assert_eq!(str_of(strings::ibv_node_type_str(IBV_NODE_CA)), "InfiniBand channel adapter");
    assert_eq!(str_of(strings::ibv_port_state_str(IBV_PORT_ACTIVE)), "active");
    assert_eq!(str_of(strings::ibv_wr_opcode_str(IBV_WR_ATOMIC_WRITE)), "atomic-write");
    for unknown in [
        strings::ibv_wc_status_str(24),
        strings::ibv_event_type_str(u32::MAX),
        strings::ibv_node_type_str(IBV_NODE_UNKNOWN),
        strings::ibv_node_type_str(i32::MIN),
        strings::ibv_port_state_str(6),
        strings::ibv_wr_opcode_str(12),
    ] {
        assert_eq!(str_of(unknown), "unknown");
    }
}

#[test]
fn a_path_record_survives_both_ways() {
    let mut bytes = [0u8; size_of::<ib_user_path_rec>()];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = i as u8 + 1;
    }
    // SAFETY: a record of integers; every bit pattern is valid.
    let mut kern: ib_user_path_rec = unsafe { core::mem::transmute_copy(&bytes) };
    kern.mtu = 5;
    let mut rec = ibv_sa_path_rec::zeroed();
    let mut back = ib_user_path_rec::zeroed();
    // SAFETY: valid structures.
    unsafe {
        marshal::ibv_copy_path_rec_from_kern(&raw mut rec, &raw const kern);
        marshal::ibv_copy_path_rec_to_kern(&raw mut back, &raw const rec);
    }
    // SAFETY: the record has no padding: 72 bytes of fields.
    let bytes = |r: &ib_user_path_rec| unsafe {
        *core::ptr::from_ref(r).cast::<[u8; size_of::<ib_user_path_rec>()]>()
    };
    assert_eq!(bytes(&back), bytes(&kern));
    assert_eq!(rec.preference, kern.preference);
}

#[test]
fn qp_attributes_come_from_the_kernel_but_the_state_is_the_callers() {
    let mut kern = ib_uverbs_qp_attr::zeroed();
    kern.qp_state = IBV_QPS_RTR;
    kern.rq_psn = 7;
    kern.max_inline_data = 9;
    kern.alt_timeout = 14;
    kern.ah_attr.grh.dgid = [3; 16];
    kern.ah_attr.port_num = 1;
    let mut attr = ibv_qp_attr::zeroed();
    attr.qp_state = IBV_QPS_INIT;
    attr.rate_limit = 11;
    // SAFETY: valid structures.
    unsafe { marshal::ibv_copy_qp_attr_from_kern(&raw mut attr, &raw const kern) };
    assert_eq!((attr.qp_state, attr.rate_limit), (IBV_QPS_INIT, 11));
    assert_eq!((attr.rq_psn, attr.cap.max_inline_data, attr.alt_timeout), (7, 9, 14));
    // SAFETY: the raw view is always valid.
    assert_eq!(unsafe { attr.ah_attr.grh.dgid.raw }, [3; 16]);
    assert_eq!(attr.ah_attr.port_num, 1);
}

#[test]
fn fork_needs_no_protection() {
    assert_eq!(fork::ibv_fork_init(), 0);
    assert_eq!(fork::ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
}

#[test]
fn a_sysfs_file_is_read_without_its_newline_and_never_cut() {
    let dir = std::env::temp_dir().join(format!("adverb-sysfs-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary directory");
    std::fs::write(dir.join("line"), "RoCE v2\n").expect("writable");
    std::fs::write(dir.join("bare"), "12345678").expect("writable");
    let c_dir = std::ffi::CString::new(dir.to_str().expect("UTF-8")).expect("no zero");
    let read = |file: &CStr, size: usize| {
        let mut buf = [0x55u8; 32];
        // SAFETY: two strings and a buffer of at least `size` bytes.
        let len = unsafe {
            sysfs::ibv_read_sysfs_file(c_dir.as_ptr(), file.as_ptr(), buf.as_mut_ptr().cast(), size)
        };
        (len, buf)
    };
    let (len, buf) = read(c"line", 32);
    assert_eq!((len, &buf[..8]), (7, b"RoCE v2\0".as_slice()));
    let (len, buf) = read(c"/bare", 9);
    assert_eq!((len, &buf[..9]), (8, b"12345678\0".as_slice()));
    assert_eq!(read(c"bare", 8).0, -1);
    assert_eq!(read(c"absent", 32).0, -1);
    std::fs::remove_dir_all(&dir).expect("removable");
}
