//! The C objects behind the handles of [`crate::handles`].
//!
//! The visible part of an object is the type of the header. The program may read the visible part
//! (and write some fields) at any time, so the library accesses it only through raw pointers. The
//! library's part is a type of this module, or the device's object alone.
use crate::abi::*;
use crate::handles::{FileId, kinds};
use crate::verbs::builder::Builder;
use crate::verbs::files::{Inode, close_file};
use adverb_device::engine::{AddressVector, Completion};
use adverb_device::raw::{Flow, IndTable, Wq};
use adverb_device::{CompChannel, CompCounter, Context, Cq, Dm, Mr, Mw, Pd, Qp, Srq, Xrcd};
use adverb_os::OwnFd;
use adverb_sync::RawMutex;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::offset_of;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// A context. Its visible part contains both tables, and the handle points to the second.
pub struct ContextObj {
    pub context: Arc<Context>,
    /// The file that numbers the context's objects.
    pub file: FileId,
    /// The descriptor `cmd_fd`, closed with the context.
    pub cmd_fd: OwnFd,
}

impl Drop for ContextObj {
    fn drop(&mut self) {
        close_file(self.file);
    }
}

/// A protection domain or a parent domain.
pub struct PdObj {
    pub pd: Arc<Pd>,
    pub parent: Option<ParentDomain>,
    /// Number of objects with memory of the parent domain's allocator.
    pub custom_users: AtomicUsize,
}

/// A thread domain: the program's promise that one thread at a time uses its objects. The library
/// does not rely on this promise.
pub struct TdObj {
    /// Number of parent domains with this thread domain.
    pub users: AtomicUsize,
}

/// The additional data of a parent domain.
#[derive(Clone, Copy)]
pub struct ParentDomain {
    /// The thread domain, if any.
    pub td: *mut ibv_td,
    pub alloc: Option<
        unsafe extern "C" fn(
            *mut ibv_pd,
            *mut c_void,
            libc::size_t,
            libc::size_t,
            u64,
        ) -> *mut c_void,
    >,
    pub free: Option<unsafe extern "C" fn(*mut ibv_pd, *mut c_void, *mut c_void, u64)>,
    pub pd_context: *mut c_void,
}

// SAFETY: the pointers belong to the program. The code that calls the program's functions or looks
// up the handle is responsible for their validity.
unsafe impl Send for ParentDomain {}
// SAFETY: as above.
unsafe impl Sync for ParentDomain {}

/// The memory of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MrKind {
    /// The program's memory.
    Plain,
    /// Device memory.
    Dm,
    /// No memory.
    Null,
    /// A descriptor's memory.
    Fd,
    /// A region imported by its handle.
    Imported,
}

/// A memory region.
pub struct MrObj {
    pub mr: Arc<Mr>,
    pub kind: MrKind,
    /// The DMA handle of the registration.
    pub _dmah: Option<InUse>,
}

/// A DMA handle.
pub struct DmahObj {
    /// Number of regions with this handle.
    pub users: Arc<AtomicUsize>,
}

/// An XRC domain.
pub struct XrcdObj {
    pub xrcd: Arc<Xrcd>,
    /// The domain's file.
    pub opened_on: Option<Inode>,
}

/// An address handle.
pub struct AhObj {
    pub av: AddressVector,
    pub pd: Arc<Pd>,
}

/// A buffer of `ibv_alloc_buf`. The drop unmaps its pages.
pub struct BufObj {
    pub pd: *mut ibv_pd,
    pub addr: *mut c_void,
    pub size: usize,
}

// SAFETY: the pointers are only compared, and the pages are unmapped once.
unsafe impl Send for BufObj {}
// SAFETY: as above.
unsafe impl Sync for BufObj {}

impl Drop for BufObj {
    fn drop(&mut self) {
        // SAFETY: pages mapped for this buffer; the program no longer uses them.
        unsafe { libc::munmap(self.addr, self.size) };
    }
}

/// A CQ, plain or extended. The extended type begins with the plain type.
pub struct CqObj {
    pub cq: Arc<Cq>,
    /// Locked from `start_poll` to `end_poll`, unless the program promised to use a single thread.
    pub poll_lock: Option<RawMutex>,
    /// The current completion for the readers.
    pub current: UnsafeCell<Option<Completion>>,
    /// The last call told the program that there is no (other) completion.
    pub said_empty: UnsafeCell<bool>,
    /// Wallclock minus the node's time, in nanoseconds.
    pub wallclock_offset: i64,
    /// The parent domain's memory of this queue, to be freed with the queue.
    pub custom: Option<CustomMemory>,
}

// SAFETY: the cells are used only between start and end, under the lock, or by the single thread
// promised by the program.
unsafe impl Sync for CqObj {}

/// A shared receive queue.
pub struct SrqObj {
    pub srq: Arc<Srq>,
    pub custom: Option<CustomMemory>,
}

/// A queue pair, plain or extended.
pub struct QpObj {
    pub qp: Arc<Qp>,
    /// Created with `send_ops_flags`.
    pub extended: bool,
    /// Locked from `wr_start` to `wr_complete` or `wr_abort`.
    pub wr_lock: RawMutex,
    pub builder: UnsafeCell<Builder>,
    pub custom: Option<CustomMemory>,
}

// SAFETY: the builder is used under `wr_lock`.
unsafe impl Sync for QpObj {}

/// Memory from a parent domain's allocator for an object.
#[derive(Clone, Copy)]
pub struct CustomMemory {
    pub pd: *mut ibv_pd,
    pub domain: ParentDomain,
    pub memory: *mut c_void,
    pub resource_type: u64,
}

// SAFETY: as for `ParentDomain`.
unsafe impl Send for CustomMemory {}
// SAFETY: as above.
unsafe impl Sync for CustomMemory {}

/// A region's use of a DMA handle.
pub struct InUse(Arc<AtomicUsize>);

impl InUse {
    /// Adds a use by a region.
    pub fn new(users: &Arc<AtomicUsize>) -> Self {
        users.fetch_add(1, Ordering::SeqCst);
        InUse(users.clone())
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

kinds! {
    1 ContextObj: verbs_context, [ibv_context] at offset_of!(verbs_context, context), "context", {};
    2 PdObj: ibv_pd, [ibv_pd], "protection domain", { context handle };
    3 MrObj: ibv_mr, [ibv_mr], "memory region", { context handle };
    4 Arc<Mw>: ibv_mw, [ibv_mw], "memory window", { context handle };
    5 Arc<Dm>: ibv_dm, [ibv_dm], "device memory", { context handle };
    6 XrcdObj: ibv_xrcd, [ibv_xrcd], "XRC domain", { context };
    7 AhObj: ibv_ah, [ibv_ah], "address handle", { context handle };
    8 Arc<CompChannel>: ibv_comp_channel, [ibv_comp_channel], "completion channel", { context };
    9 CqObj: ibv_cq_ex, [ibv_cq, ibv_cq_ex], "completion queue", { context handle };
    10 SrqObj: ibv_srq, [ibv_srq], "shared receive queue", { context handle };
    11 QpObj: ibv_qp_ex, [ibv_qp, ibv_qp_ex], "queue pair", { context handle };
    12 TdObj: ibv_td, [ibv_td], "thread domain", { context };
    13 BufObj: [u64; 1], [ibv_buf], "buffer", {};
    14 DmahObj: ibv_dmah, [ibv_dmah], "DMA handle", { context };
    15 Arc<CompCounter>: ibv_comp_cntr, [ibv_comp_cntr], "completion counter", { context handle };
    16 Arc<Wq>: ibv_wq, [ibv_wq], "work queue", { context handle };
    17 Arc<IndTable>: ibv_rwq_ind_table, [ibv_rwq_ind_table], "indirection table", { context };
    18 Arc<Flow>: ibv_flow, [ibv_flow], "flow", { context handle };
}
