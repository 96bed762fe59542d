//! The object behind an `ibv_device`.
use crate::abi::*;
use adverb_device::Device;
use core::ffi::c_void;
use core::mem::offset_of;
use std::sync::Arc;

/// A device in a list, or behind a context. The object stays until the process ends.
#[repr(C)]
pub struct DeviceObj {
    pub c: ibv_device,
    /// `verbs_device::ops` in rdma-core. `libmlx5` and `libefa` compare this word with their own
    /// tables to recognise their devices. Null, so both take the device for another provider's.
    pub ops: *const c_void,
    pub device: Arc<Device>,
}

// SAFETY: the pointers are null or (`ops`) never followed, and no field changes after the object
// was made.
unsafe impl Send for DeviceObj {}
// SAFETY: as above.
unsafe impl Sync for DeviceObj {}

// Provider libraries read this word of any device (a fact of the ABI).
const _: () = assert!(offset_of!(DeviceObj, ops) == 664);
