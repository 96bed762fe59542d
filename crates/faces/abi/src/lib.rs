//! Mirrors of the public types and constants of `infiniband/verbs.h`, as of rdma-core 65.
//!
//! Names are the names of the header, so that a reader can look them up and the layout test can
//! compare them.
//!
//! **Size rules.** A program may have been compiled with any header since version 17. The types
//! only ever grew. [`verbs_context`] grew at its front: programs find a slot by its distance from
//! the embedded [`ibv_context`]. The other types grew at their end. A structure that the library
//! allocates has the newest size. The library writes to a structure of the program only as far as
//! the size that the program passes, or its `comp_mask`, says. `ibv_query_port@IBVERBS_1.1` passes
//! neither and gets [`COMPAT_PORT_ATTR_SIZE`] bytes.
#![allow(unsafe_code, reason = "the macro promises of C types that zeros are a value")]
#![allow(non_camel_case_types, reason = "the names are the header's")]

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!(
    "Adverb runs on Linux on x86-64 and aarch64 alone: it makes system calls and has calling conventions of these"
);

pub mod constants;
mod context;
mod cq;
mod device;
mod flow;
mod kernel;
mod macros;
mod memory;
mod qp;
pub mod rdma_user_cm;
mod srq;
mod wq;
mod wr;

pub use constants::*;
pub use context::{
    ABI_IS_EXTENDED, ibv_context, ibv_context_ops, ibv_values_ex, unused_fn, verbs_context,
};
pub use cq::*;
pub use device::*;
pub use flow::*;
pub use kernel::*;
pub use memory::*;
pub use qp::*;
pub use srq::*;
pub use wq::*;
pub use wr::*;

/// A type for which all zero bytes is a valid value.
///
/// # Safety
/// Only the macro that defines the C mirrors implements this trait.
pub unsafe trait Plain: Sized {
    /// The value with all bytes zero.
    fn zeroed() -> Self {
        // SAFETY: the trait guarantees that zero bytes are a valid value.
        unsafe { core::mem::zeroed() }
    }
}

/// The place of a field, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct FieldLayout {
    /// The field's C name.
    pub name: &'static str,
    /// The distance from the start of the type.
    pub offset: usize,
    /// Size of the field.
    pub size: usize,
}

/// Size, alignment and fields of a mirrored type.
#[derive(Clone, Copy, Debug)]
pub struct TypeLayout {
    /// The Rust name.
    pub name: &'static str,
    /// The type as C spells it.
    pub c_name: &'static str,
    /// Size in bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
    /// The fields, in order.
    pub fields: &'static [FieldLayout],
}

/// A constant of the header.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: i64,
}

/// Every mirrored type of the public header, file by file.
pub const LAYOUTS: &[&[TypeLayout]] = &[
    context::LAYOUTS,
    cq::LAYOUTS,
    device::LAYOUTS,
    flow::LAYOUTS,
    memory::LAYOUTS,
    qp::LAYOUTS,
    srq::LAYOUTS,
    wq::LAYOUTS,
    wr::LAYOUTS,
];

/// The kernel's types and the types of `infiniband/sa.h`, which are not in `verbs.h`.
pub const KERNEL_LAYOUTS: &[TypeLayout] = kernel::LAYOUTS;
