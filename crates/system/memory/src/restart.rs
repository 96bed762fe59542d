//! Restartable sequences (`rseq`): a look at the entries that open a peer's memory, and one access
//! to that memory, without any time off the processor in between.
//!
//! A thread registers an area with the kernel; the C library does that (glibc 2.35 and newer). The
//! area names the sequence that the thread is in. When the thread leaves the processor or takes a
//! signal inside of a sequence, the kernel has it go on at the sequence's abort handler. So the
//! thread that comes back looks again, and finds an entry invalid that its owner has taken back.
//!
//! A sequence ends with the one instruction after which its access has happened: the last store of
//! a piece, the locked instruction of an atomic, or the instruction that enters the kernel.
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

/// The longest piece that is copied in one sequence.
pub(crate) const PIECE: usize = 64 << 10;
/// The shortest piece that a sequence is made for after it was begun again in vain.
const LEAST: usize = 1 << 10;

/// The word in which the calling thread names its sequence: the field `rseq_cs` of its area.
type Slot = *mut u64;

/// What has become of a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Done,
    /// An entry has changed. Nothing has happened.
    Withdrawn,
    /// The thread was off the processor. Of a copy any part may have happened, of an atomic or a
    /// system call nothing.
    Again,
}

/// The owner has taken back what opened the memory. Part of a copy may have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Withdrawn;

/// Two words of a peer's tables, and the values they have while the peer's memory is open.
#[derive(Clone, Copy)]
#[repr(C)]
struct Look {
    first: *const u64,
    first_value: u64,
    second: *const u64,
    second_value: u64,
}

/// The right to reach a peer's memory, for the calling thread: it holds while two words of the
/// peer's tables have the values given. Each access looks at them in one sequence with itself.
pub struct Guard<'a> {
    look: Look,
    slot: Option<Slot>,
    words: std::marker::PhantomData<&'a AtomicU64>,
}

/// Where the C library has the area, from the thread pointer on; [`NONE`], or [`UNKNOWN`].
static OFFSET: AtomicIsize = AtomicIsize::new(UNKNOWN);
const UNKNOWN: isize = isize::MIN;
const NONE: isize = isize::MIN + 1;

/// Asks the C library.
#[cold]
fn find() -> isize {
    // SAFETY: two names that end with a zero; what is found are constants of the C library, of the
    // types given, which live as long as the process.
    let offset = unsafe {
        let symbol = |name: &std::ffi::CStr| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        let (offset, size) = (symbol(c"__rseq_offset"), symbol(c"__rseq_size"));
        // A size of zero: the kernel has no such areas, or the program wants none.
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
    // SAFETY: the C library has an area of 32 bytes there in each of its threads, for `struct
    // rseq`: two words of four bytes, and the slot. The second word is negative in a thread whose
    // area is not registered.
    unsafe { (area.add(4).cast::<i32>().read_volatile() >= 0).then(|| area.add(8).cast()) }
}

impl<'a> Guard<'a> {
    /// Holds while each word has the value that stands beside it.
    #[inline]
    #[must_use]
    pub fn new(first: (&'a AtomicU64, u64), second: (&'a AtomicU64, u64)) -> Self {
        let look = Look {
            first: first.0.as_ptr(),
            first_value: first.1,
            second: second.0.as_ptr(),
            second_value: second.1,
        };
        Guard { look, slot: slot(), words: std::marker::PhantomData }
    }

    /// Always holds: for what no owner takes back.
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

    /// Does this thread begin again after any time off the processor? If not, an owner has to wait
    /// until the thread says that it is out.
    #[inline]
    #[must_use]
    pub fn restarts(&self) -> bool {
        self.slot.is_some()
    }

    /// Does it hold? What was read before the call was read while it held, then.
    #[inline]
    #[must_use]
    pub fn holds(&self) -> bool {
        fence(Ordering::Acquire);
        // SAFETY: the words live as long as the guard. Loads alone; the mapping may be read-only.
        let (first, second) = unsafe {
            let load = |word: *const u64| AtomicU64::from_ptr(word.cast_mut()).load(Ordering::Relaxed);
            (load(self.look.first), load(self.look.second))
        };
        fence(Ordering::Acquire);
        first == self.look.first_value && second == self.look.second_value
    }

    /// Runs `step`, a sequence, until it was not begun again.
    #[inline]
    fn until_done(&self, mut step: impl FnMut() -> Outcome) -> Result<(), Withdrawn> {
        loop {
            match step() {
                Outcome::Done => return Ok(()),
                Outcome::Withdrawn => return Err(Withdrawn),
                Outcome::Again => {}
            }
        }
    }

    /// As [`copy::put`]. Its last byte becomes visible last, and what is one word is one store.
    ///
    /// # Safety
    /// That of [`copy::put`].
    #[inline(always)]
    pub(crate) unsafe fn put(&self, to: *mut u8, from: *const u8, n: usize) -> Result<(), Withdrawn> {
        // SAFETY: the caller's.
        unsafe {
            match self.slot {
                Some(slot) if n == 8 && to.addr().is_multiple_of(8) => {
                    self.until_done(|| arch::store_8(slot, &self.look, to, from))
                }
                _ => self.put_more(to, from, n),
            }
        }
    }

    /// What is not one word of eight bytes.
    ///
    /// # Safety
    /// As for [`Guard::put`].
    #[inline(never)]
    unsafe fn put_more(&self, to: *mut u8, from: *const u8, n: usize) -> Result<(), Withdrawn> {
        // SAFETY: the caller's, in parts.
        unsafe {
            let Some(slot) = self.slot else { return self.put_plainly(to, from, n) };
            if n <= copy::FEW {
                return self.put_words(slot, to, from, n);
            }
            // All but the word that the last byte lies in, which is stored when the others are.
            let most = ((to.addr() + n - 1) & !7) - to.addr();
            self.put_pieces(slot, to, from, most)?;
            let (to, from, rest) = (to.add(most), from.add(most), n - most);
            if rest == 8 {
                return self.until_done(|| arch::store_8(slot, &self.look, to, from));
            }
            self.put_words(slot, to, from, rest)
        }
    }

    /// In pieces so small that the thread is seldom off the processor within one.
    ///
    /// # Safety
    /// As for [`Guard::put`].
    #[inline]
    unsafe fn put_pieces(&self, slot: Slot, to: *mut u8, from: *const u8, n: usize) -> Result<(), Withdrawn> {
        let (mut done, mut most) = (0, PIECE);
        while done < n {
            let len = (n - done).min(most);
            // SAFETY: the caller's, of a part.
            match unsafe { arch::copy(slot, &self.look, to.add(done), from.add(done), len) } {
                Outcome::Done => {
                    done += len;
                    most = PIECE.min(most * 2);
                }
                Outcome::Again => most = LEAST.max(most / 2),
                Outcome::Withdrawn => return Err(Withdrawn),
            }
        }
        Ok(())
    }

    /// Stores in the order of their addresses, each as large as its address allows.
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
            // SAFETY: the caller's, of a part: as many bytes are left, and the address was found
            // to be a multiple.
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
            // SAFETY: within the caller's bytes, or behind the last.
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
            // The last piece has the last word whole, if it has more than that.
            let len = if n - done > PIECE + 8 { PIECE } else { n - done };
            if !self.holds() {
                return Err(Withdrawn);
            }
            // SAFETY: the caller's, of a part.
            unsafe { copy::put(to.add(done), from.add(done), len) };
            done += len;
        }
        Ok(())
    }

    /// Copies `n` bytes out of a peer's memory to where others may look.
    ///
    /// # Safety
    /// That of [`copy::put`].
    #[inline(always)]
    pub(crate) unsafe fn get(&self, to: *mut u8, from: *const u8, n: usize) -> Result<(), Withdrawn> {
        if n == 8 {
            let mut word = [0; 8];
            // SAFETY: the caller's.
            unsafe {
                copy::get(word.as_mut_ptr(), from, 8);
                if !self.holds() {
                    return Err(Withdrawn);
                }
                copy::put(to, word.as_ptr(), 8);
            }
            return Ok(());
        }
        // SAFETY: the caller's.
        unsafe { self.get_more(to, from, n) }
    }

    /// What is not eight bytes.
    ///
    /// # Safety
    /// As for [`Guard::get`].
    #[inline(never)]
    unsafe fn get_more(&self, to: *mut u8, from: *const u8, n: usize) -> Result<(), Withdrawn> {
        if n > copy::FEW {
            // SAFETY: the caller's.
            return unsafe { self.put(to, from, n) };
        }
        // What was read while the guard held is right, whatever the thread did since.
        let mut room = [0; copy::FEW];
        // SAFETY: the caller's; the room is large enough.
        unsafe {
            copy::get(room.as_mut_ptr(), from, n);
            if !self.holds() {
                return Err(Withdrawn);
            }
            copy::put(to, room.as_ptr(), n);
        }
        Ok(())
    }

    /// As [`copy::atomic`]: once, or not at all.
    ///
    /// # Safety
    /// That of [`copy::atomic`].
    #[inline]
    pub(crate) unsafe fn atomic(&self, word: *mut u64, op: AtomicOp) -> Result<u64, Withdrawn> {
        let Some(slot) = self.slot else {
            // SAFETY: the caller's.
            return if self.holds() { Ok(unsafe { copy::atomic(word, op) }) } else { Err(Withdrawn) };
        };
        let mut old = 0;
        // SAFETY: the caller's.
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

    /// A system call that copies.
    ///
    /// # Safety
    /// That of the call.
    pub(crate) unsafe fn call(&self, number: i64, args: [u64; 6]) -> Result<Result<u64, Errno>, Withdrawn> {
        let Some(slot) = self.slot else {
            // SAFETY: the caller's promise.
            return if self.holds() { Ok(unsafe { crate::sys::call(number, args) }) } else { Err(Withdrawn) };
        };
        let mut answer = 0;
        self.until_done(|| {
            let outcome;
            // SAFETY: the caller's promise.
            (outcome, answer) = unsafe { arch::call(slot, &self.look, number, &args) };
            outcome
        })?;
        Ok(crate::sys::answer(answer))
    }
}
