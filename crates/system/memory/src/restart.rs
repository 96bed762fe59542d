//! Restartable sequences (`rseq`): a check of the entries that open a peer's memory, and one access
//! to this memory, with no time off the processor in between.
//!
//! A thread registers an area with the kernel; the C library does so (glibc 2.35 and newer). The
//! area names the sequence that the thread is in. If the thread leaves the processor or takes a
//! signal inside a sequence, the kernel lets the thread continue at the abort handler of the
//! sequence. So the thread checks again, and finds an entry invalid if the owner has taken it back.
//!
//! A sequence ends with the instruction that completes its access: the last store of a piece, the
//! locked instruction of an atomic, or the instruction that enters the kernel.
use crate::copy;
use adverb_engine::AtomicOp;
use nix::errno::Errno;
use std::sync::atomic::{AtomicIsize, AtomicU64, Ordering, fence};

#[cfg(target_arch = "aarch64")]
#[path = "restart/aarch64.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "restart/x86_64.rs"]
mod arch;
#[cfg(test)]
mod tests;

/// The longest piece copied in one sequence.
pub(crate) const PIECE: usize = 64 << 10;
/// The shortest piece of a copy after restarts.
const LEAST: usize = 1 << 10;

/// The word with the calling thread's current sequence: the field `rseq_cs` of the thread's area.
type Slot = *mut u64;

/// The outcome of a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SequenceOutcome {
    Done,
    /// An entry has changed. Nothing has happened.
    Withdrawn,
    /// The thread was off the processor. Any part of a copy may have happened; an atomic or a
    /// system call has not.
    Again,
}

/// The outcome by the flag that a sequence leaves.
fn outcome(flag: u32) -> SequenceOutcome {
    match flag {
        0 => SequenceOutcome::Done,
        1 => SequenceOutcome::Withdrawn,
        _ => SequenceOutcome::Again,
    }
}

/// The owner has taken back the memory. Part of a copy may have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Withdrawn;

/// Two words of a peer's tables, and their values while the peer's memory is open.
#[derive(Clone, Copy)]
#[repr(C)]
struct Look {
    first: *const u64,
    first_value: u64,
    second: *const u64,
    second_value: u64,
}

/// The calling thread's right to access a peer's memory. The guard holds while two words of the
/// peer's tables have the given values. Each access checks the words in the same sequence.
pub struct Guard<'a> {
    look: Look,
    slot: Option<Slot>,
    words: std::marker::PhantomData<&'a AtomicU64>,
}

/// The offset of the C library's area from the thread pointer; or [`NONE`], or [`UNKNOWN`].
static OFFSET: AtomicIsize = AtomicIsize::new(UNKNOWN);
const UNKNOWN: isize = isize::MIN;
const NONE: isize = isize::MIN + 1;

/// Asks the C library for the offset.
#[cold]
fn find() -> isize {
    // SAFETY: the names are NUL-terminated. The symbols are constants of the C library with these
    // types, and live as long as the process.
    let offset = unsafe {
        let symbol = |name: &std::ffi::CStr| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        let (offset, size) = (symbol(c"__rseq_offset"), symbol(c"__rseq_size"));
        // A size of zero: the kernel has no such areas, or the program disabled them.
        let there = !offset.is_null() && !size.is_null() && *size.cast::<u32>() != 0;
        if there { *offset.cast::<isize>() } else { NONE }
    };
    OFFSET.store(offset, Ordering::Relaxed);
    offset
}

/// The slot of the calling thread, if its area is registered.
#[inline]
fn slot() -> Option<Slot> {
    let offset = match OFFSET.load(Ordering::Relaxed) {
        UNKNOWN => find(),
        offset => offset,
    };
    if offset == NONE {
        return None;
    }
    let area = arch::thread_pointer().wrapping_offset(offset);
    // SAFETY: in each thread the C library has an area of 32 bytes there for `struct rseq`: two
    // words of four bytes, and the slot. The second word is negative if the area is not registered.
    unsafe { (area.add(4).cast::<i32>().read_volatile() >= 0).then(|| area.add(8).cast()) }
}

impl<'a> Guard<'a> {
    /// A guard that holds while each word has the value next to it.
    #[inline]
    #[must_use]
    pub fn new(first: (&'a AtomicU64, u64), second: (&'a AtomicU64, u64)) -> Self {
        let ((first, first_value), (second, second_value)) = (first, second);
        let (first, second) = (first.as_ptr(), second.as_ptr());
        let look = Look { first, first_value, second, second_value };
        Guard { look, slot: slot(), words: std::marker::PhantomData }
    }

    /// A guard that always holds, for memory that no owner takes back.
    #[must_use]
    pub fn always() -> Guard<'static> {
        static WORD: AtomicU64 = AtomicU64::new(0);
        Guard::new((&WORD, 0), (&WORD, 0))
    }

    /// As if the C library had no area, for tests.
    #[cfg(test)]
    pub(crate) fn without_restarts(self) -> Self {
        Guard { slot: None, ..self }
    }

    /// Whether this thread restarts after any time off the processor. If not, an owner must wait
    /// until the thread says that it is out.
    #[inline]
    #[must_use]
    pub fn restarts(&self) -> bool {
        self.slot.is_some()
    }

    /// Whether the guard holds. If so, it also held during all reads before the call.
    #[inline]
    #[must_use]
    pub fn holds(&self) -> bool {
        fence(Ordering::Acquire);
        // SAFETY: the words live as long as the guard. Only loads, because the mapping may be
        // read-only.
        let (first, second) = unsafe {
            let load =
                |word: *const u64| AtomicU64::from_ptr(word.cast_mut()).load(Ordering::Relaxed);
            (load(self.look.first), load(self.look.second))
        };
        fence(Ordering::Acquire);
        first == self.look.first_value && second == self.look.second_value
    }

    /// Runs the sequence `step` until it ends without a restart.
    #[inline]
    fn until_done(&self, mut step: impl FnMut() -> SequenceOutcome) -> Result<(), Withdrawn> {
        loop {
            match step() {
                SequenceOutcome::Done => return Ok(()),
                SequenceOutcome::Withdrawn => return Err(Withdrawn),
                SequenceOutcome::Again => {}
            }
        }
    }

    /// As [`copy::put`]. The last byte becomes visible last, and a single word is one store.
    ///
    /// # Safety
    /// As for [`copy::put`].
    #[inline(always)]
    pub(crate) unsafe fn put(
        &self,
        to: *mut u8,
        from: *const u8,
        n: usize,
    ) -> Result<(), Withdrawn> {
        // SAFETY: the contract of this function.
        unsafe {
            match self.slot {
                Some(slot) if n == 8 && to.addr().is_multiple_of(8) => {
                    self.until_done(|| arch::store_8(slot, &self.look, to, from))
                }
                _ => self.put_more(to, from, n),
            }
        }
    }

    /// Everything except one aligned word of eight bytes.
    ///
    /// # Safety
    /// As for [`Guard::put`].
    #[inline(never)]
    unsafe fn put_more(&self, to: *mut u8, from: *const u8, n: usize) -> Result<(), Withdrawn> {
        // SAFETY: the contract of this function, in parts.
        unsafe {
            let Some(slot) = self.slot else { return self.put_plainly(to, from, n) };
            if n <= copy::FEW {
                return self.put_words(slot, to, from, n);
            }
            // All bytes before the word with the last byte. That word is stored after the others.
            let most = ((to.addr() + n - 1) & !7) - to.addr();
            self.put_pieces(slot, to, from, most)?;
            let (to, from, rest) = (to.add(most), from.add(most), n - most);
            if rest == 8 {
                return self.until_done(|| arch::store_8(slot, &self.look, to, from));
            }
            self.put_words(slot, to, from, rest)
        }
    }

    /// In pieces short enough that the thread is seldom off the processor within one.
    ///
    /// # Safety
    /// As for [`Guard::put`].
    #[inline]
    unsafe fn put_pieces(
        &self,
        slot: Slot,
        to: *mut u8,
        from: *const u8,
        n: usize,
    ) -> Result<(), Withdrawn> {
        let (mut done, mut most) = (0, PIECE);
        while done < n {
            let len = (n - done).min(most);
            // SAFETY: the contract of this function, for a part.
            match unsafe { arch::copy(slot, &self.look, to.add(done), from.add(done), len) } {
                SequenceOutcome::Done => {
                    done += len;
                    most = PIECE.min(most * 2);
                }
                SequenceOutcome::Again => most = LEAST.max(most / 2),
                SequenceOutcome::Withdrawn => return Err(Withdrawn),
            }
        }
        Ok(())
    }

    /// Stores in the order of addresses, each as large as its address allows.
    ///
    /// # Safety
    /// As for [`Guard::put`].
    #[inline]
    unsafe fn put_words(
        &self,
        slot: Slot,
        mut to: *mut u8,
        mut from: *const u8,
        mut n: usize,
    ) -> Result<(), Withdrawn> {
        while n > 0 {
            let at = to.addr();
            // SAFETY: the contract of this function, for a part: enough bytes are left, and the
            // address was checked for alignment.
            let len = unsafe {
                if n >= 8 && at.is_multiple_of(8) {
                    self.until_done(|| arch::store_8(slot, &self.look, to, from))?;
                    8
                } else if n >= 4 && at.is_multiple_of(4) {
                    self.until_done(|| arch::store_4(slot, &self.look, to, from))?;
                    4
                } else if n >= 2 && at.is_multiple_of(2) {
                    self.until_done(|| arch::store_2(slot, &self.look, to, from))?;
                    2
                } else {
                    self.until_done(|| arch::store_1(slot, &self.look, to, from))?;
                    1
                }
            };
            // SAFETY: within the caller's bytes, or just behind them.
            unsafe { (to, from, n) = (to.add(len), from.add(len), n - len) };
        }
        Ok(())
    }

    /// Without an area: the owner waits for the thread's mark.
    ///
    /// # Safety
    /// As for [`Guard::put`].
    #[cold]
    #[inline(never)]
    unsafe fn put_plainly(&self, to: *mut u8, from: *const u8, n: usize) -> Result<(), Withdrawn> {
        let mut done = 0;
        while done < n {
            // The last piece contains the last word whole, if the piece is longer than a word.
            let len = if n - done > PIECE + 8 { PIECE } else { n - done };
            if !self.holds() {
                return Err(Withdrawn);
            }
            // SAFETY: the contract of this function, for a part.
            unsafe { copy::put(to.add(done), from.add(done), len) };
            done += len;
        }
        Ok(())
    }

    /// Copies `n` bytes out of a peer's memory to memory that others may be reading.
    ///
    /// # Safety
    /// As for [`copy::put`].
    #[inline(always)]
    pub(crate) unsafe fn get(
        &self,
        to: *mut u8,
        from: *const u8,
        n: usize,
    ) -> Result<(), Withdrawn> {
        if n == 8 {
            let mut word = [0; 8];
            // SAFETY: the contract of this function.
            unsafe {
                copy::get(word.as_mut_ptr(), from, 8);
                if !self.holds() {
                    return Err(Withdrawn);
                }
                copy::put(to, word.as_ptr(), 8);
            }
            return Ok(());
        }
        // SAFETY: the contract of this function.
        unsafe { self.get_more(to, from, n) }
    }

    /// Any length other than eight bytes.
    ///
    /// # Safety
    /// As for [`Guard::get`].
    #[inline(never)]
    unsafe fn get_more(&self, to: *mut u8, from: *const u8, n: usize) -> Result<(), Withdrawn> {
        if n > copy::FEW {
            // SAFETY: the contract of this function.
            return unsafe { self.put(to, from, n) };
        }
        // Bytes read while the guard held are valid, whatever happened to the thread since.
        let mut room = [0; copy::FEW];
        // SAFETY: the contract of this function; the room is large enough.
        unsafe {
            copy::get(room.as_mut_ptr(), from, n);
            if !self.holds() {
                return Err(Withdrawn);
            }
            copy::put(to, room.as_ptr(), n);
        }
        Ok(())
    }

    /// As [`copy::atomic`]: performed once, or not at all.
    ///
    /// # Safety
    /// As for [`copy::atomic`].
    #[inline]
    pub(crate) unsafe fn atomic(&self, word: *mut u64, op: AtomicOp) -> Result<u64, Withdrawn> {
        let Some(slot) = self.slot else {
            if !self.holds() {
                return Err(Withdrawn);
            }
            // SAFETY: the contract of this function.
            return Ok(unsafe { copy::atomic(word, op) });
        };
        let mut old = 0;
        // SAFETY: the contract of this function.
        self.until_done(|| unsafe {
            let outcome;
            (outcome, old) = match op {
                AtomicOp::CompareSwap { compare, swap } => {
                    arch::compare_swap(slot, &self.look, word, compare, swap)
                }
                AtomicOp::FetchAdd { add } => arch::fetch_add(slot, &self.look, word, add),
                AtomicOp::Write { value } => arch::swap(slot, &self.look, word, value),
            };
            outcome
        })?;
        Ok(old)
    }

    /// A copying system call.
    ///
    /// # Safety
    /// As for the system call.
    pub(crate) unsafe fn call(
        &self,
        number: i64,
        args: [u64; 6],
    ) -> Result<Result<u64, Errno>, Withdrawn> {
        let Some(slot) = self.slot else {
            if !self.holds() {
                return Err(Withdrawn);
            }
            // SAFETY: the contract of this function.
            return Ok(unsafe { crate::sys::call(number, args) });
        };
        let mut answer = 0;
        self.until_done(|| {
            let outcome;
            // SAFETY: the contract of this function.
            (outcome, answer) = unsafe { arch::call(slot, &self.look, number, &args) };
            outcome
        })?;
        Ok(crate::sys::answer(answer))
    }
}
