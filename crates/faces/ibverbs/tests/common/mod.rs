//! The loopback device, opened through the C entry points.
use std::ffi::{CStr, c_int};

use ibverbs::abi::*;
use ibverbs::verbs::{device, srq};

pub const PORT: u8 = 1;
pub const RW: c_int =
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE) as c_int;

pub fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// The loopback device, opened.
pub fn open() -> *mut ibv_context {
    unsafe {
        adverb_device::selection::select("lo".parse().unwrap());
        let mut n = -1;
        let list = device::ibv_get_device_list(&raw mut n);
        assert!(!list.is_null() && n > 0, "no device");
        let devices = std::slice::from_raw_parts(list, n as usize);
        let name =
            |d: &&*mut ibv_device| CStr::from_ptr(device::ibv_get_device_name(**d)) == c"adverb_lo";
        let lo = devices.iter().find(name).expect("the loopback device");
        let context = device::ibv_open_device(*lo);
        assert!(!context.is_null());
        assert!((*list.add(n as usize)).is_null(), "the list ends with null");
        device::ibv_free_device_list(list);
        context
    }
}

pub fn close(context: *mut ibv_context) {
    assert_eq!(unsafe { device::ibv_close_device(context) }, 0);
}

pub fn srq_of(pd: *mut ibv_pd) -> *mut ibv_srq {
    let mut attr = ibv_srq_init_attr::zeroed();
    (attr.attr.max_wr, attr.attr.max_sge) = (10, 1);
    unsafe { srq::ibv_create_srq(pd, &raw mut attr) }
}
