//! The one door to application bytes.
//!
//! The engine checks keys, bounds and rights and names [`Range`]s; [`HostMemory`] copies to and from them in this
//! process. Two promises make that sound towards the rest of the process:
//!
//! * A range reaches this crate only while the key table's read lock is held, so its region is registered: the program
//!   promised by `ibv_reg_mr` that the bytes stay mapped until it deregisters them. [`probe`] checked at registration
//!   that they are.
//! * Pages of fast-registered regions are vouched for in the same way; `adverb_engine::keys::PagedMemory` turns them into
//!   mapped ranges, and without it they cannot be reached.
//! * On-demand regions promise nothing, so they are reached through the kernel, which answers a missing page with
//!   an error instead of a signal.
//!
//! Other threads of the program may touch the same bytes at any time, as they may with a NIC; nothing here makes
//! decisions on bytes it read twice. Copies into registered memory end with its last word, since programs poll it.
//!
//! # Memory of two processes
//!
//! A peer on the same host reaches registered memory by itself, in one of two ways:
//!
//! | | the owner | the peer | costs it |
//! |---|---|---|---|
//! | shared | [`Shadow::adopt`], [`Pages::shared`] | [`PeerMemory`], [`Window`] | a copy; atomics are the CPU's |
//! | through the kernel | [`Shadow::bar`] | [`Cma`] | a system call and a copy |
//!
//! [`Shadow`] is a file that peers get; registered pages lie in it at the offset that is their address. A program's own pages are
//! moved there and stay where they are for the program, which must never notice: where that is not sure, [`Refusal`] says why. The
//! owner's part of the protocol is short:
//!
//! * Before a key opens memory, `adopt` it; if that is refused, `bar` it, since the kernel writes there for peers and nothing may move
//!   then. Keep what either gives until no key opens it and no peer uses it any more.
//! * The library's own threads say so ([`Shadow::own_thread`]) and work behind a gate, as their heap's pages may move.
//! * Hold no lock meanwhile that such a thread at work waits for.
//! * Call [`Shadow::sweep`] now and then while [`ShadowStats::idle`] is not zero: with other threads about, pages cannot go back at once.
//!
//! A child of `fork` gets private copies, and makes a file of its own when it needs one. What is given up by `madvise` is zero
//! afterwards because the preload of `adverb run` tells [`advised`] about it; without the preload nothing is adopted, unless
//! [`Shadow::trust_allocators`] is told to. `examples/share.rs` is all of it in sixty lines, `examples/adopt_cost.rs` what it costs.
//!
//! Not guarded against: children made by a bare `clone` or `vfork` that write to registered memory before they execute a program (they
//! share it); a futex without `FUTEX_PRIVATE_FLAG` on which a thread waits while the page moves; io_uring whose rings are not mapped;
//! `MADV_HUGEPAGE`, `MADV_DONTDUMP` and NUMA policies, which moved pages lose.
#![deny(missing_docs)]

mod cma;
mod copy;
mod maps;
mod pages;
mod peer;
mod probe;
mod shadow;
#[cfg(test)]
mod tests;

pub use cma::{Cma, CmaError};
pub use pages::Pages;
pub use peer::{PeerError, PeerMemory, Window, WindowFault};
pub use probe::{ProbeError, probe};
pub use shadow::{
    Adopted, Barred, Hook, OwnThread, Refusal, Shadow, ShadowStats, Working, advised, madvise_observed,
};

use probe::page_size;

use adverb_engine::memory::RangeKind;
use adverb_engine::{AtomicOp, Memory, MemoryFault, Range};
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;
use std::io::{IoSlice, IoSliceMut};

/// This process's memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostMemory;

impl Memory for HostMemory {
    #[inline]
    fn read(&self, from: Range, to: &mut [u8]) -> Result<(), MemoryFault> {
        debug_assert_eq!(from.len as usize, to.len());
        match from.kind {
            RangeKind::Mapped => {
                // SAFETY: the key table's entry vouches for `from.len` mapped bytes at `from.addr` while its lock is
                // held (crate docs), `to` is our own buffer of the same length and cannot overlap registered memory
                // that the program gave us, since we borrow it exclusively.
                unsafe { copy::get(to.as_mut_ptr(), from.addr as *const u8, to.len()) };
                Ok(())
            }
            RangeKind::OnDemand => read_soft(from, to),
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
                // SAFETY: as in `read`; the entry's LOCAL_WRITE right was probed as writable at registration.
                unsafe { copy::put(to.addr as *mut u8, from.as_ptr(), from.len()) };
                Ok(())
            }
            RangeKind::OnDemand => write_soft(to, from),
            RangeKind::Null => Ok(()),
            RangeKind::Paged(_) => Err(MemoryFault { addr: to.addr }),
        }
    }

    fn atomic(&self, at: Range, op: AtomicOp) -> Result<u64, MemoryFault> {
        match at.kind {
            RangeKind::Null => return Ok(0),
            RangeKind::OnDemand => {
                // Bring the page in, or find out that it is not there, before touching it directly.
                let mut now = [0; 8];
                read_soft(at, &mut now)?;
                populate_for_write(at)?;
            }
            RangeKind::Mapped => {}
            RangeKind::Paged(_) => return Err(MemoryFault { addr: at.addr }),
        }
        if !at.addr.is_multiple_of(8) {
            return Err(MemoryFault { addr: at.addr });
        }
        // SAFETY: eight mapped, writable bytes (as in `write`), aligned to eight (checked above).
        Ok(unsafe { copy::atomic(at.addr as *mut u64, op) })
    }
}

/// Copies between two checked ranges of this process; `from.len == to.len`. They may overlap.
///
/// # Errors
/// The memory on either side is not there.
pub fn copy(from: Range, to: Range) -> Result<(), MemoryFault> {
    debug_assert_eq!(from.len, to.len);
    if from.kind == RangeKind::Mapped && to.kind == RangeKind::Mapped {
        // SAFETY: the key table vouches for both ranges (crate docs).
        unsafe { std::ptr::copy(from.addr as *const u8, to.addr as *mut u8, from.len as usize) };
        return Ok(());
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

fn read_soft(from: Range, to: &mut [u8]) -> Result<(), MemoryFault> {
    let mut done = 0;
    while done < to.len() {
        let remote = RemoteIoVec { base: from.addr as usize + done, len: to.len() - done };
        match process_vm_readv(Pid::this(), &mut [IoSliceMut::new(&mut to[done..])], &[remote]) {
            Ok(n) if n > 0 => done += n,
            _ => return Err(MemoryFault { addr: from.addr + done as u64 }),
        }
    }
    Ok(())
}

fn write_soft(to: Range, from: &[u8]) -> Result<(), MemoryFault> {
    let mut done = 0;
    while done < from.len() {
        let remote = RemoteIoVec { base: to.addr as usize + done, len: from.len() - done };
        match process_vm_writev(Pid::this(), &[IoSlice::new(&from[done..])], &[remote]) {
            Ok(n) if n > 0 => done += n,
            _ => return Err(MemoryFault { addr: to.addr + done as u64 }),
        }
    }
    Ok(())
}

/// Makes the page of an on-demand word writable without changing it, or reports the fault.
fn populate_for_write(at: Range) -> Result<(), MemoryFault> {
    probe(at.addr, u64::from(at.len), true).map_err(|_| MemoryFault { addr: at.addr })
}

/// Has `child` called in every child after `fork`, before `fork` returns there. `child` must be async-signal-safe:
/// atomics and `close` only. What it writes its parent does not see: pages that are shared have become the child's own by then.
pub fn at_fork_child(child: extern "C" fn()) {
    // Children's handlers run in the order of their registration.
    shadow::at_fork();
    // SAFETY: registers a function that lives as long as the library (it is never unloaded); no other precondition.
    unsafe {
        libc::pthread_atfork(None, None, Some(child));
    }
}

/// Has `last` called when the process ends by `exit` or by returning from `main`.
pub fn at_exit(last: extern "C" fn()) {
    // SAFETY: registers a function that lives as long as the library (it is never unloaded); no other precondition.
    unsafe {
        libc::atexit(last);
    }
}
