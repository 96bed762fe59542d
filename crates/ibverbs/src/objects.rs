//! The C objects: what programs see first, ours behind it.
//!
//! Each is one allocation that begins with the mirror of the header's type, so that a pointer to it is the handle. The
//! visible part is the program's to read (and here and there to write) at any time, so it is only touched through raw
//! pointers; the fields behind it are ours.
use crate::abi::*;
use adverb_device::engine::{AddressVector, Completion};
use adverb_device::{CompChannel, Context, Cq, Device, Dm, Mr, Mw, Pd, Qp, Srq, Xrcd};
use adverb_sync::{Mutex, RawMutex};
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::ManuallyDrop;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A device in a list, or behind a context.
#[repr(C)]
pub struct DeviceObj {
    pub c: ibv_device,
    /// `verbs_device::ops` in rdma-core; providers' own libraries read this word of any device (facts of the ABI).
    pub ops: *const c_void,
    pub device: Arc<Device>,
}

/// A context: the two tables first, the device's context behind.
#[repr(C)]
pub struct ContextObj {
    pub table: verbs_context,
    pub context: Arc<Context>,
    /// Keeps the device object of `table.context.device` alive.
    pub device: Arc<DeviceObj>,
}

/// A protection domain or a parent domain.
#[repr(C)]
pub struct PdObj {
    pub c: ibv_pd,
    pub pd: Arc<Pd>,
    pub parent: Option<ParentDomain>,
}

/// What makes a PD a parent domain.
#[derive(Clone, Copy)]
pub struct ParentDomain {
    /// The PD it stands on.
    pub protection_domain: *mut ibv_pd,
    /// Its thread domain, if any.
    pub td: *mut ibv_td,
    pub alloc: Option<
        unsafe extern "C" fn(*mut ibv_pd, *mut c_void, libc::size_t, libc::size_t, u64) -> *mut c_void,
    >,
    pub free: Option<unsafe extern "C" fn(*mut ibv_pd, *mut c_void, *mut c_void, u64)>,
    pub pd_context: *mut c_void,
}

/// What a memory region is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MrKind {
    /// The program's memory.
    Plain,
    /// Device memory.
    Dm,
    /// Nothing.
    Null,
    /// A region taken over by its handle.
    Imported,
}

#[repr(C)]
pub struct MrObj {
    pub c: ibv_mr,
    pub mr: Arc<Mr>,
    pub kind: MrKind,
}

#[repr(C)]
pub struct MwObj {
    pub c: ibv_mw,
    pub mw: Arc<Mw>,
}

#[repr(C)]
pub struct DmObj {
    pub c: ibv_dm,
    pub dm: Arc<Dm>,
}

#[repr(C)]
pub struct XrcdObj {
    pub c: ibv_xrcd,
    pub xrcd: Arc<Xrcd>,
}

#[repr(C)]
pub struct AhObj {
    pub c: ibv_ah,
    pub av: AddressVector,
    pub pd: Arc<Pd>,
}

#[repr(C)]
pub struct ChannelObj {
    pub c: ibv_comp_channel,
    pub channel: Arc<CompChannel>,
}

/// A CQ, plain or extended: the extended type begins as the plain one does.
#[repr(C)]
pub struct CqObj {
    pub c: ibv_cq_ex,
    /// The object's own address while it lives, else 0: tells a destroyed or a foreign handle (CQN-10).
    pub alive: AtomicUsize,
    pub cq: ManuallyDrop<Arc<Cq>>,
    /// Held from `start_poll` to `end_poll`, unless the program promised a single thread.
    pub poll_lock: Option<RawMutex>,
    /// The completion the readers read.
    pub current: UnsafeCell<Option<Completion>>,
    /// The program was told last that there is no (other) completion.
    pub said_empty: UnsafeCell<bool>,
    /// Wallclock minus the node's time, in nanoseconds.
    pub wallclock_offset: i64,
    /// The parent domain's memory of this queue, to be given back.
    pub custom: Option<CustomMemory>,
}

#[repr(C)]
pub struct SrqObj {
    pub c: ibv_srq,
    pub srq: Arc<Srq>,
    pub custom: Option<CustomMemory>,
}

#[repr(C)]
pub struct QpObj {
    pub c: ibv_qp_ex,
    pub qp: Arc<Qp>,
    /// Created with `send_ops_flags`.
    pub extended: bool,
    /// Held from `wr_start` to `wr_complete` or `wr_abort`.
    pub wr_lock: RawMutex,
    /// The thread that holds it, or 0.
    pub wr_holder: AtomicUsize,
    pub builder: UnsafeCell<crate::verbs::wr_api::Builder>,
    pub custom: Option<CustomMemory>,
}

/// Memory that a parent domain's allocator gave for an object.
#[derive(Clone, Copy)]
pub struct CustomMemory {
    pub pd: *mut ibv_pd,
    pub domain: ParentDomain,
    pub memory: *mut c_void,
    pub resource_type: u64,
}

/// A C object that begins with the header's type `C`.
///
/// # Safety
/// `Self` is `repr(C)` and its first field is a `C` (or a type that begins as `C` does).
pub unsafe trait Object<C>: Sized {
    /// Our object behind a handle.
    ///
    /// # Safety
    /// `handle` came from [`Object::into_handle`] of this type and was not freed.
    unsafe fn behind<'a>(handle: *mut C) -> &'a Self {
        // SAFETY: the caller's promise and the trait's.
        unsafe { &*handle.cast::<Self>() }
    }
    /// Gives an object to the program.
    fn into_handle(self) -> *mut C {
        Box::into_raw(Box::new(self)).cast()
    }
    /// Frees an object.
    ///
    /// # Safety
    /// As [`Object::behind`], and nobody uses the handle any more.
    unsafe fn free(handle: *mut C) {
        // SAFETY: made by `into_handle`, the caller's promise.
        drop(unsafe { Box::from_raw(handle.cast::<Self>()) });
    }
}

macro_rules! objects {
    ($($object:ty: $($c:ty),*;)*) => { $( $(
        // SAFETY: repr(C) with the C type, or one that begins as it does, as its first field (above).
        unsafe impl Object<$c> for $object {}
    )* )* };
}

objects! {
    PdObj: ibv_pd;
    MrObj: ibv_mr;
    MwObj: ibv_mw;
    DmObj: ibv_dm;
    XrcdObj: ibv_xrcd;
    AhObj: ibv_ah;
    ChannelObj: ibv_comp_channel;
    CqObj: ibv_cq, ibv_cq_ex;
    SrqObj: ibv_srq;
    QpObj: ibv_qp, ibv_qp_ex;
}

impl ContextObj {
    /// Our object behind a context handle.
    ///
    /// # Safety
    /// `context` is the `table.context` of a live `ContextObj`.
    pub unsafe fn behind<'a>(context: *mut ibv_context) -> &'a ContextObj {
        // SAFETY: the caller's promise; the table is the first field and ends with the context.
        unsafe { &*context.byte_sub(core::mem::offset_of!(verbs_context, context)).cast::<ContextObj>() }
    }
}

/// Destroyed CQs whose memory is kept, so that a handle used too late is told from a live one (CQN-10) instead of
/// reading memory that is somebody else's by now.
static GRAVEYARD: Mutex<VecDeque<usize>> = Mutex::new(VecDeque::new());
/// How many of them.
const GRAVES: usize = 1024;

impl CqObj {
    /// Our object behind a CQ handle; `None` for a destroyed or foreign one.
    ///
    /// # Safety
    /// `cq` points to readable memory of an `ibv_cq` and, as far as the size of our object goes, behind it.
    #[inline]
    pub unsafe fn living<'a>(cq: *mut ibv_cq) -> Option<&'a CqObj> {
        if cq.is_null() {
            return None;
        }
        // SAFETY: the caller's promise; the atomic is read through its own field only.
        let alive = unsafe { &(*cq.cast::<CqObj>()).alive };
        if alive.load(Ordering::Acquire) != cq as usize {
            return None;
        }
        // SAFETY: it is alive.
        Some(unsafe { CqObj::behind(cq) })
    }
    /// Gives a CQ to the program.
    pub fn enter(self) -> *mut ibv_cq {
        let cq: *mut ibv_cq = self.into_handle();
        // SAFETY: made by the line above.
        unsafe { CqObj::behind(cq) }.alive.store(cq as usize, Ordering::Release);
        cq
    }
    /// Ends a handle; its memory is kept for a while.
    ///
    /// # Safety
    /// A live handle that nobody uses any more.
    pub unsafe fn bury(cq: *mut ibv_cq) {
        // SAFETY: the caller's promise; the parts with destructors are dropped exactly once, here.
        unsafe {
            let obj = cq.cast::<CqObj>();
            (*obj).alive.store(0, Ordering::Release);
            ManuallyDrop::drop(&mut (*obj).cq);
            *(*obj).current.get() = None;
        }
        let mut graves = GRAVEYARD.lock();
        graves.push_back(cq as usize);
        if graves.len() > GRAVES
            && let Some(oldest) = graves.pop_front()
        {
            // SAFETY: buried above, as one allocation of `CqObj`; what has a destructor is gone (ManuallyDrop).
            drop(unsafe { Box::from_raw(oldest as *mut CqObj) });
        }
    }
}
