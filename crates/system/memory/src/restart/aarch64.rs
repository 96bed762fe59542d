//! The sequences in aarch64 instructions, in the form of `x86_64.rs`.
//!
//! A store after the check stays after it, because a branch stands in between. A load may be
//! performed before the check. The memory was open then, because an entry valid at the check was
//! valid before.
use super::{Look, SequenceOutcome, Slot, outcome};
use core::arch::asm;

/// The address from which `__rseq_offset` counts.
#[inline]
pub(super) fn thread_pointer() -> *mut u8 {
    let pointer;
    // SAFETY: reads a register.
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags))
    };
    pointer
}

/// Enters the sequence and checks the words, up to the instructions of the access.
macro_rules! begin {
    () => {
        concat!(
            ".pushsection __rseq_cs, \"aw\"\n",
            ".balign 32\n",
            "22: .word 0, 0\n",
            ".quad 33f, 44f - 33f, 55f\n",
            ".popsection\n",
            "21: mov {flag:w}, wzr\n",
            "adrp {t}, 22b\n",
            "add {t}, {t}, :lo12:22b\n",
            "str {t}, [{slot}]\n",
            "33:\n",
            "ldr {t}, [{look}]\n",
            "ldr {t}, [{t}]\n",
            "ldr {u}, [{look}, #8]\n",
            "cmp {t}, {u}\n",
            "b.ne 66f\n",
            "ldr {t}, [{look}, #16]\n",
            "ldr {t}, [{t}]\n",
            "ldr {u}, [{look}, #24]\n",
            "cmp {t}, {u}\n",
            "b.ne 66f\n",
        )
    };
}

/// The code behind the last instruction of the access.
macro_rules! end {
    ($more:literal) => {
        concat!(
            "44:\n",
            $more,
            "b 77f\n",
            ".inst 0xd428bc00\n",
            "55: mov {flag:w}, #2\n",
            "b 77f\n",
            "66: mov {flag:w}, #1\n",
            "77: str xzr, [{slot}]\n",
        )
    };
}

/// Copies `n` bytes, at least one.
#[inline]
pub(super) unsafe fn copy(
    slot: Slot,
    look: &Look,
    to: *mut u8,
    from: *const u8,
    n: usize,
) -> SequenceOutcome {
    let flag: u32;
    // SAFETY: the caller guarantees that the bytes may be read and written. An aborted copy has
    // written only bytes of `from`.
    unsafe {
        asm!(
            begin!(),
            "88: cmp {n}, #16",
            "b.lo 89f",
            "ldp {t}, {u}, [{from}], #16",
            "stp {t}, {u}, [{to}], #16",
            "sub {n}, {n}, #16",
            "b 88b",
            "89: cbz {n}, 44f",
            "ldrb {t:w}, [{from}], #1",
            "strb {t:w}, [{to}], #1",
            "sub {n}, {n}, #1",
            "b 89b",
            end!(""),
            flag = out(reg) flag,
            t = out(reg) _,
            u = out(reg) _,
            slot = in(reg) slot,
            look = in(reg) look,
            to = inout(reg) to => _,
            from = inout(reg) from => _,
            n = inout(reg) n => _,
            options(nostack),
        );
    }
    outcome(flag)
}

macro_rules! store {
    ($name:ident, $word:ty, $store:literal) => {
        /// One release store of the value at `from`, at any alignment.
        #[inline]
        pub(super) unsafe fn $name(slot: Slot, look: &Look, to: *mut u8, from: *const u8) -> SequenceOutcome {
            let flag: u32;
            // SAFETY: the caller guarantees that the bytes may be read and written.
            unsafe {
                let value = u64::from(from.cast::<$word>().read_unaligned());
                asm!(
                    begin!(),
                    $store,
                    end!(""),
                    flag = out(reg) flag,
                    t = out(reg) _,
                    u = out(reg) _,
                    slot = in(reg) slot,
                    look = in(reg) look,
                    to = in(reg) to,
                    value = in(reg) value,
                    options(nostack),
                );
            }
            outcome(flag)
        }
    };
}

store!(store_8, u64, "stlr {value}, [{to}]");
store!(store_4, u32, "stlr {value:w}, [{to}]");
store!(store_2, u16, "stlrh {value:w}, [{to}]");
store!(store_1, u8, "stlrb {value:w}, [{to}]");

/// Stores `swap` if the word equals `compare`; returns the old value. A failed exclusive store
/// restarts at the check.
#[inline]
pub(super) unsafe fn compare_swap(
    slot: Slot,
    look: &Look,
    word: *mut u64,
    compare: u64,
    swap: u64,
) -> (SequenceOutcome, u64) {
    let (flag, old): (u32, u64);
    // SAFETY: the caller guarantees eight aligned bytes for reading and writing.
    unsafe {
        asm!(
            begin!(),
            "ldaxr {old}, [{word}]",
            "cmp {old}, {compare}",
            "b.ne 44f",
            "stlxr {flag:w}, {swap}, [{word}]",
            end!("cbnz {flag:w}, 21b\n"),
            flag = out(reg) flag,
            t = out(reg) _,
            u = out(reg) _,
            old = out(reg) old,
            slot = in(reg) slot,
            look = in(reg) look,
            word = in(reg) word,
            compare = in(reg) compare,
            swap = in(reg) swap,
            options(nostack),
        );
    }
    (outcome(flag), old)
}

macro_rules! exchange {
    ($name:ident, $instruction:literal) => {
        /// One exclusive store; returns the old value. A failed store restarts at the check.
        #[inline]
        pub(super) unsafe fn $name(slot: Slot, look: &Look, word: *mut u64, value: u64) -> (SequenceOutcome, u64) {
            let (flag, old): (u32, u64);
            // SAFETY: the caller guarantees eight aligned bytes for reading and writing.
            unsafe {
                asm!(
                    begin!(),
                    "ldaxr {old}, [{word}]",
                    $instruction,
                    "stlxr {flag:w}, {t}, [{word}]",
                    end!("cbnz {flag:w}, 21b\n"),
                    flag = out(reg) flag,
                    t = out(reg) _,
                    u = out(reg) _,
                    old = out(reg) old,
                    slot = in(reg) slot,
                    look = in(reg) look,
                    word = in(reg) word,
                    value = in(reg) value,
                    options(nostack),
                );
            }
            (outcome(flag), old)
        }
    };
}

exchange!(fetch_add, "add {t}, {old}, {value}");
exchange!(swap, "mov {t}, {value}");

/// A system call. The last instruction of the sequence enters the kernel: a thread within the call
/// has left the sequence.
#[inline]
pub(super) unsafe fn call(
    slot: Slot,
    look: &Look,
    number: i64,
    args: &[u64; 6],
) -> (SequenceOutcome, i64) {
    let flag: u32;
    let answer: u64;
    // SAFETY: the kernel's calling convention, as in `sys::call`.
    unsafe {
        asm!(
            begin!(),
            "svc 0",
            end!(""),
            flag = out(reg) flag,
            t = out(reg) _,
            u = out(reg) _,
            slot = in(reg) slot,
            look = in(reg) look,
            in("x8") number,
            inlateout("x0") args[0] => answer,
            in("x1") args[1], in("x2") args[2],
            in("x3") args[3], in("x4") args[4], in("x5") args[5],
            options(nostack),
        );
    }
    (outcome(flag), answer.cast_signed())
}
