//! The loopback device, opened, and what a call that refuses answers.
use std::ffi::{CStr, c_char, c_int};

use ibverbs::abi::*;
use ibverbs::verbs::{device, pd, port, srq};

pub const PORT: u8 = 1;
pub const RW: c_int =
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE) as c_int;

pub fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

#[track_caller]
pub fn refused<T>(pointer: *mut T, code: c_int) {
    let now = errno();
    assert!(pointer.is_null(), "it was not refused");
    assert_eq!(now, code);
}

pub fn zeroed<T: Plain>() -> T {
    T::zeroed()
}

/// The loopback device, opened.
pub struct Open(pub *mut ibv_context);

impl Open {
    pub fn new() -> Self {
        let mut n = -1;
        adverb_device::selection::select("lo".parse().unwrap());
        unsafe {
            let list = device::ibv_get_device_list(&raw mut n);
            assert!(!list.is_null() && n > 0, "no device");
            let devices = std::slice::from_raw_parts(list, n as usize);
            let name = |d: &&*mut ibv_device| {
                CStr::from_ptr(device::ibv_get_device_name(**d)) == c"adverb_lo"
            };
            let lo = devices.iter().find(name).expect("the loopback device");
            let context = device::ibv_open_device(*lo);
            assert!(!context.is_null());
            assert!((*list.add(n as usize)).is_null(), "the list ends with null");
            device::ibv_free_device_list(list);
            Open(context)
        }
    }
    pub fn pd(&self) -> *mut ibv_pd {
        let pd = unsafe { pd::ibv_alloc_pd(self.0) };
        assert!(!pd.is_null());
        pd
    }
    pub fn table(&self) -> &verbs_context {
        unsafe { &*self.0.byte_sub(std::mem::offset_of!(verbs_context, context)).cast() }
    }
    /// Index of the GID of 127.0.0.1.
    pub fn ipv4_gid(&self) -> u8 {
        let wanted = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1];
        (0..16)
            .find(|&i| {
                let mut gid = ibv_gid { raw: [1; 16] };
                assert_eq!(unsafe { port::ibv_query_gid(self.0, PORT, i, &raw mut gid) }, 0);
                unsafe { gid.raw == wanted }
            })
            .expect("127.0.0.1 has a GID") as u8
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        assert_eq!(unsafe { device::ibv_close_device(self.0) }, 0);
    }
}

pub fn text(field: &[c_char]) -> String {
    unsafe { CStr::from_ptr(field.as_ptr()) }.to_str().unwrap().to_owned()
}

pub fn srq_of(pd: *mut ibv_pd) -> *mut ibv_srq {
    let mut attr = zeroed::<ibv_srq_init_attr>();
    (attr.attr.max_wr, attr.attr.max_sge) = (10, 1);
    unsafe { srq::ibv_create_srq(pd, &raw mut attr) }
}

/// A free-standing buffer to register.
pub fn buffer() -> Box<[u8; 8192]> {
    Box::new([0; 8192])
}
