//! Atomics on words of memory that may vanish.
//!
//! An instruction of ours on such a word could be a signal for the program, however lately the word
//! was looked at. So the kernel copies the word out and in again (MEM-4), and a lock keeps the
//! atomics of this process apart: that is the atomicity that `IBV_ATOMIC_HCA` promises. A mapping
//! that other processes share may be registered by them as well, whose atomics do not know the
//! lock. There the instruction is the only way.
use crate::{copy, kernel, page_size, sys};
use adverb_engine::{AtomicOp, MemoryFault, Range};
use adverb_sync::Mutex;

/// One at a time in each process of a line: a child never meets a lock that a thread of its parent
/// held at the fork.
static TURNS: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

/// In a word of `/proc/self/pagemap`: the page belongs to a file or to shared memory.
const FILE_OR_SHARED: u64 = 1 << 61;

/// Performs an atomic on eight aligned bytes and answers what was there.
///
/// # Errors
/// The word is not there, or read-only. Then it is as it was.
pub(crate) fn perform(at: Range, op: AtomicOp) -> Result<u64, MemoryFault> {
    let _turn = TURNS[sys::Life::current().number() as usize % TURNS.len()].lock();
    // A compare that fails wants the right to write, too.
    kernel::populate_for_write(at)?;
    if is_shared(at.addr) {
        // SAFETY: eight aligned bytes, which were there and writable a moment ago. A program that
        // takes a shared mapping away in that moment gets the signal that its own access would get.
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

/// Does the page belong to a mapping that other processes may have, too? Private ones of files are
/// copies by now.
fn is_shared(addr: u64) -> bool {
    // Opened each time: a descriptor that is kept would lead to a parent's memory in its child, or
    // be closed by the program.
    let Ok(fd) = sys::open(c"/proc/self/pagemap") else { return false };
    let mut word = [0; 8];
    // SAFETY: into the array.
    let got =
        unsafe { sys::transfer(libc::SYS_pread64, fd, word.as_mut_ptr() as u64, 8, addr / page_size() * 8) };
    sys::close(fd);
    got == Ok(8) && u64::from_ne_bytes(word) & FILE_OR_SHARED != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use adverb_engine::memory::RangeKind;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    fn mapped(flags: i32) -> u64 {
        // SAFETY: a new mapping.
        unsafe { sys::map(sys::At::Anywhere, page_size(), sys::RW, flags, None) }.unwrap()
    }

    fn add(addr: u64) -> Result<u64, MemoryFault> {
        perform(Range { addr, len: 8, kind: RangeKind::OnDemand }, AtomicOp::FetchAdd { add: 1 })
    }

    /// MEM-4: memory is unmapped and mapped again all the time while words of it are added to: the
    /// requests fail, and nothing else happens.
    #[test]
    fn mem_4_words_vanish_under_atomics() {
        let addr = mapped(libc::MAP_PRIVATE);
        let over = AtomicBool::new(false);
        let (done, failed) = std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let (mut done, mut failed) = (0, 0);
                while !over.load(Ordering::Relaxed) {
                    *if add(addr).is_ok() { &mut done } else { &mut failed } += 1;
                }
                (done, failed)
            });
            for round in 0..4000 {
                let rights = if round % 2 == 0 { libc::PROT_NONE } else { sys::RW };
                let len = page_size() as usize;
                // SAFETY: this test's own mapping, which only the worker looks at, by the kernel.
                let result = unsafe { libc::mprotect(addr as *mut libc::c_void, len, rights) };
                assert_eq!(result, 0);
                std::thread::sleep(Duration::from_micros(round % 97));
            }
            over.store(true, Ordering::Relaxed);
            worker.join().unwrap()
        });
        assert!(done > 0 && failed > 0, "{done} done, {failed} failed");
    }

    #[test]
    fn a_shared_mapping_is_told_from_a_private_one() {
        for (flags, shared) in [(libc::MAP_PRIVATE, false), (libc::MAP_SHARED, true)] {
            let addr = mapped(flags);
            assert_eq!((add(addr), add(addr)), (Ok(0), Ok(1)));
            assert_eq!(is_shared(addr), shared);
        }
    }

    /// Words that threads add to by requests lose nothing.
    #[test]
    fn atomics_of_a_process_are_apart() {
        let addr = mapped(libc::MAP_PRIVATE);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|_| assert!(add(addr).is_ok())));
            }
        });
        assert_eq!(add(addr), Ok(2000));
    }
}
