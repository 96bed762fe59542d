//! Atomics on words of memory that the program may unmap.
//!
//! An instruction of ours on such a word could raise a signal in the program, however recently the
//! word was checked. So the kernel copies the word out and in again (MEM-4), and a lock serializes
//! the atomics of this process: this is the atomicity of `IBV_ATOMIC_HCA`. Other processes may have
//! registered a shared mapping, too, and their atomics do not use this lock. So a word in a shared
//! mapping needs the instruction.
use crate::{check_memory, copy, kernel, page_size, sys};
use adverb_engine::{AtomicOp, MemoryFault, Range};
use adverb_sync::Mutex;

/// Each process of a line of forks uses another lock. So a child never meets a lock held by a
/// thread of its parent at the fork.
static TURNS: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

/// In a word of `/proc/self/pagemap`: the page belongs to a file or to shared memory.
const FILE_OR_SHARED: u64 = 1 << 61;

/// Performs an atomic on eight aligned bytes and returns the old value.
///
/// # Errors
/// The word is unmapped or read-only. Then it is unchanged.
pub(crate) fn perform(at: Range, op: AtomicOp) -> Result<u64, MemoryFault> {
    let _turn = TURNS[sys::ProcessIdentity::current().number() as usize % TURNS.len()].lock();
    // A failing compare needs write access, too.
    check_memory(at.addr, at.len.into(), true).map_err(|_| MemoryFault { addr: at.addr })?;
    if is_shared(at.addr) {
        // SAFETY: eight aligned bytes, mapped and writable a moment ago. A program that unmaps a
        // shared mapping in this moment gets the same signal as from its own access.
        return Ok(unsafe { copy::atomic(at.addr as *mut u64, op) });
    }
    let mut bytes = [0; 8];
    kernel::read(at, &mut bytes)?;
    let old = u64::from_ne_bytes(bytes);
    let new = match op {
        AtomicOp::CompareSwap { compare, .. } if compare != old => return Ok(old),
        AtomicOp::CompareSwap { swap, .. } => swap,
        AtomicOp::FetchAdd { add } => old.wrapping_add(add),
        AtomicOp::Write { value } => value,
    };
    kernel::write(at, &new.to_ne_bytes())?;
    Ok(old)
}

/// Whether the page belongs to a mapping that other processes may share. A page of a private file
/// mapping is a copy by now.
fn is_shared(addr: u64) -> bool {
    // Opened each time: a descriptor kept open would refer to the parent's memory in a child, or
    // could be closed by the program.
    let Ok(fd) = sys::open(c"/proc/self/pagemap") else { return false };
    let mut word = [0; 8];
    // SAFETY: reads into the array.
    let got = unsafe {
        sys::transfer(libc::SYS_pread64, fd, word.as_mut_ptr() as u64, 8, addr / page_size() * 8)
    };
    sys::close(fd);
    got == Ok(8) && u64::from_ne_bytes(word) & FILE_OR_SHARED != 0
}

#[cfg(test)]
mod tests;
