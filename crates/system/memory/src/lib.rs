//! The only access to application memory.
//!
//! The engine checks keys, bounds and access rights, and names [`Range`]s. [`HostMemory`] copies to
//! and from these ranges in this process. The kind of a range tells two kinds of memory apart:
//!
//! | kind | memory | reached by |
//! |---|---|---|
//! | [`Mapped`](RangeKind::Mapped) | mappings of the device, which only the device unmaps: its own pages, and its own mapping of a program's block | loads and stores |
//! | [`OnDemand`](RangeKind::OnDemand) | the program's memory at the program's own address. The program may unmap, protect or truncate the memory at any time | the kernel, which answers a missing page with an error instead of a signal |
//!
//! A range reaches this crate only while the caller holds the key table's read lock, so the region
//! is registered. `adverb_engine::keys::PagedMemory` turns pages of fast-registered regions into
//! such ranges.
//!
//! Other threads of the program may access the same bytes at any time, as with a NIC. So this crate
//! never reads a byte twice for one decision. A copy into registered memory writes the last word
//! last, because programs poll the last word.
//!
//! # Memory of two processes
//!
//! A peer on the same host reaches registered memory by itself, in one of two ways:
//!
//! | | the owner | the peer | cost for the peer |
//! |---|---|---|---|
//! | shared | [`SharedFile::place`], [`Pages::shared`] | [`PeerMemory`], [`Window`] | a copy; CPU atomics |
//! | private | nothing | [`Cma`] | a system call and a copy |
//!
//! [`SharedFile`] says which memory lies in the file, and why no memory is ever moved there.
#![allow(unsafe_code, reason = "the only interface to application memory")]
#![deny(missing_docs)]

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!(
    "Adverb runs on Linux on x86-64 and aarch64 alone: it makes system calls and has calling conventions of these"
);

mod check;
mod cma;
mod copy;
mod fd;
mod file;
mod kernel;
mod maps;
mod pages;
mod peer;
mod restart;
mod room;
mod sys;
#[cfg(test)]
mod tests;
mod text;
mod word;

pub use check::{MemoryCheckError, check_memory};
pub use cma::{Cma, CmaError};
pub use fd::{FdError, FdPages};
pub use file::{Hold, OwnThread, Placed, Private, SharedFile, Usage, all_memory_is_open};
pub use pages::Pages;
pub use peer::{KeepsFd, PeerError, PeerMemory, Window, WindowFault};
pub use restart::Guard;
pub use sys::ProcessIdentity;

use kernel::CopyDirection;
use sys::page_size;

use adverb_engine::memory::RangeKind;
use adverb_engine::{AtomicOp, Memory, MemoryFault, Range};

/// The memory of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostMemory;

impl Memory for HostMemory {
    /// The kind for pages of a consumer, which the consumer may unmap.
    fn page_kind(&self) -> RangeKind {
        RangeKind::OnDemand
    }

    #[inline]
    fn read(&self, from: Range, to: &mut [u8]) -> Result<(), MemoryFault> {
        debug_assert_eq!(from.len as usize, to.len());
        match from.kind {
            RangeKind::Mapped => {
                // SAFETY: `from.len` bytes of a mapping of the device, which lives while the key
                // table's lock is held (crate docs). `to` is a buffer of the same length and
                // borrowed exclusively, so the two do not overlap.
                unsafe { copy::get(to.as_mut_ptr(), from.addr as *const u8, to.len()) };
                Ok(())
            }
            RangeKind::OnDemand => kernel::read(from, to),
            RangeKind::Null => {
                to.fill(0);
                Ok(())
            }
            RangeKind::Paged(_) => Err(MemoryFault { addr: from.addr }),
        }
    }

    #[inline]
    fn write(&self, to: Range, from: &[u8]) -> Result<(), MemoryFault> {
        debug_assert_eq!(to.len as usize, from.len());
        match to.kind {
            RangeKind::Mapped => {
                // SAFETY: as in `read`; mappings of the device are writable.
                unsafe { copy::put(to.addr as *mut u8, from.as_ptr(), from.len()) };
                Ok(())
            }
            RangeKind::OnDemand => kernel::write(to, from),
            RangeKind::Null => Ok(()),
            RangeKind::Paged(_) => Err(MemoryFault { addr: to.addr }),
        }
    }

    fn atomic(&self, at: Range, op: AtomicOp) -> Result<u64, MemoryFault> {
        match at.kind {
            RangeKind::Null => Ok(0),
            _ if !at.addr.is_multiple_of(8) => Err(MemoryFault { addr: at.addr }),
            RangeKind::OnDemand => word::perform(at, op),
            // SAFETY: eight bytes of a mapping of the device (as in `write`), aligned to eight
            // (checked above).
            RangeKind::Mapped => Ok(unsafe { copy::atomic(at.addr as *mut u64, op) }),
            RangeKind::Paged(_) => Err(MemoryFault { addr: at.addr }),
        }
    }
}

/// Copies between two checked ranges of this process; `from.len == to.len`. The ranges may overlap.
///
/// # Errors
/// The memory of either range is missing.
pub fn copy(from: Range, to: Range) -> Result<(), MemoryFault> {
    debug_assert_eq!(from.len, to.len);
    match (from.kind, to.kind) {
        (RangeKind::Mapped, RangeKind::Mapped) => {
            let (start, end) = (from.addr as *const u8, to.addr as *mut u8);
            // SAFETY: both ranges are in mappings of the device (crate docs).
            unsafe { std::ptr::copy(start, end, from.len as usize) };
            return Ok(());
        }
        (RangeKind::OnDemand, RangeKind::Mapped | RangeKind::OnDemand) => {
            return kernel::copy(CopyDirection::Out, from.addr, to.addr, from.len.into());
        }
        (RangeKind::Mapped, RangeKind::OnDemand) => {
            return kernel::copy(CopyDirection::In, to.addr, from.addr, from.len.into());
        }
        _ => {}
    }
    let mut room = [0; 4096];
    let mut done = 0;
    while done < from.len {
        let n = (from.len - done).min(room.len() as u32);
        let part = |r: Range| Range { addr: r.addr + u64::from(done), len: n, ..r };
        HostMemory.read(part(from), &mut room[..n as usize])?;
        HostMemory.write(part(to), &room[..n as usize])?;
        done += n;
    }
    Ok(())
}

/// Registers `before`, called before every `fork` in the forking thread, and `child`, called in
/// every child before `fork` returns there. Only one such pair is kept. Both functions must be
/// async-signal-safe: atomics and system calls only. The parent does not see the writes of `child`,
/// because shared pages have become the child's own by then.
pub fn at_fork(before: extern "C" fn(), child: extern "C" fn()) {
    file::at_fork(Some([before, child]));
}

/// Registers `last`, called when the process ends by `exit` or by returning from `main`.
pub fn at_exit(last: extern "C" fn()) {
    // SAFETY: registers a function that lives as long as the library, which is never unloaded. No
    // other precondition.
    unsafe {
        libc::atexit(last);
    }
}
