//! Rust mirrors of the C headers in `include/`. They use the headers' names, so that a reader can
//! find the names there, and the layout test can compare both.
#![allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    missing_docs,
    reason = "the names are the header's, explained there"
)]

mod base;
mod callbacks;
mod constants;
mod dispatch;
mod info;
mod macros;
mod objects;

pub use base::{GROUP_AFFINITY, GUID, MDL};
pub use callbacks::*;
pub use constants::*;
pub use dispatch::{
    NDK_ADAPTER_DISPATCH, NDK_CONNECTOR_DISPATCH, NDK_CQ_DISPATCH, NDK_LISTENER_DISPATCH,
    NDK_MR_DISPATCH, NDK_MW_DISPATCH, NDK_PD_DISPATCH, NDK_QP_DISPATCH,
    NDK_SHARED_ENDPOINT_DISPATCH, NDK_SRQ_DISPATCH,
};
pub use info::{ADVERB_NDK_COUNTERS, NDK_ADAPTER_INFO, NDK_VERSION};
pub use objects::{
    NDK_ADAPTER, NDK_CONNECTOR, NDK_CQ, NDK_EXTENSION_INTERFACE, NDK_LISTENER,
    NDK_LOGICAL_ADDRESS_MAPPING, NDK_MR, NDK_MW, NDK_OBJECT_HEADER,
    NDK_OBJECT_HEADER_RESERVED_BLOCK, NDK_PD, NDK_QP, NDK_RESULT, NDK_RESULT_EX, NDK_SGE,
    NDK_SHARED_ENDPOINT, NDK_SRQ,
};

/// `ULONG`: 32 bits, as on Windows.
pub type ULONG = u32;
/// `NTSTATUS` in C. [`adverb_ndk::NtStatus`] is the type with named values.
pub type NTSTATUS = i32;
/// `PVOID`.
pub type PVOID = *mut core::ffi::c_void;
/// `BOOLEAN`: zero is false.
pub type BOOLEAN = u8;
/// `SIZE_T`.
pub type SIZE_T = usize;
/// `PSOCKADDR`: the host's `struct sockaddr`.
pub type PSOCKADDR = *mut libc::sockaddr;
/// `PHYSICAL_ADDRESS`, represented by its `QuadPart`. An alias suffices because no other member of
/// the union is used.
pub type NDK_LOGICAL_ADDRESS = i64;

/// Size and field offsets of a mirror, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct TypeLayout {
    /// The type's name in C and in Rust.
    pub name: &'static str,
    /// The type's size.
    pub size: usize,
    /// The type's fields: name and offset.
    pub fields: &'static [(&'static str, usize)],
}

/// The layouts of all mirrors.
pub fn layouts() -> impl Iterator<Item = &'static TypeLayout> {
    [base::LAYOUTS, info::LAYOUTS, objects::LAYOUTS, dispatch::LAYOUTS].into_iter().flatten()
}
