//! The loopback device, opened, and what a call that refuses answers.
use std::ffi::{CStr, c_char, c_int};

pub use super::common::*;
use ibverbs::abi::*;
use ibverbs::verbs::{pd, port};

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
        Open(open())
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
        close(self.0);
    }
}

pub fn text(field: &[c_char]) -> String {
    unsafe { CStr::from_ptr(field.as_ptr()) }.to_str().unwrap().to_owned()
}

/// A free-standing buffer to register.
pub fn buffer() -> Box<[u8; 8192]> {
    Box::new([0; 8192])
}
