//! What stands behind an `ibv_device`.
use crate::abi::*;
use adverb_device::Device;
use core::ffi::c_void;
use core::mem::offset_of;
use std::sync::Arc;

/// A device in a list, or behind a context. It stays until the process ends.
#[repr(C)]
pub struct DeviceObj {
    pub c: ibv_device,
    /// `verbs_device::ops` in rdma-core; providers' own libraries read this word of any device
    /// (facts of the ABI).
    pub ops: *const c_void,
    pub device: Arc<Device>,
}

// SAFETY: the pointers in it are null or (`_ops`) never followed; nothing in it changes after it
// was made.
unsafe impl Send for DeviceObj {}
// SAFETY: as above.
unsafe impl Sync for DeviceObj {}

// Providers' libraries read the word behind the device (facts of the ABI).
const _: () = assert!(offset_of!(DeviceObj, ops) == 664);
