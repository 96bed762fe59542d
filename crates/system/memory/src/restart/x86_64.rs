//! The sequences in x86-64 instructions.
//!
//! All sequences have the same form. Label `22:` is the descriptor read by the kernel: begin,
//! length, abort handler. The sequence goes from `33:` to `44:`, which is just behind its last
//! instruction. The four bytes before the abort handler `55:` are the signature registered by
//! glibc, inside a trapping instruction.
use super::{Look, SequenceOutcome, Slot, outcome};
use core::arch::asm;

/// The address from which `__rseq_offset` counts.
#[inline]
pub(super) fn thread_pointer() -> *mut u8 {
    let pointer;
    // SAFETY: reads the word at the thread pointer. By the ABI this word holds its own address.
    unsafe { asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags)) };
    pointer
}

/// Enters the sequence and checks the words, up to the instructions of the access.
macro_rules! begin {
    () => {
        concat!(
            ".pushsection __rseq_cs, \"aw\"\n",
            ".balign 32\n",
            "22: .long 0, 0\n",
            ".quad 33f, 44f - 33f, 55f\n",
            ".popsection\n",
            "xor {flag:e}, {flag:e}\n",
            "lea {t}, [rip + 22b]\n",
            "mov [{slot}], {t}\n",
            "33:\n",
            "mov {t}, [{look}]\n",
            "mov {t}, [{t}]\n",
            "cmp {t}, [{look} + 8]\n",
            "jne 66f\n",
            "mov {t}, [{look} + 16]\n",
            "mov {t}, [{t}]\n",
            "cmp {t}, [{look} + 24]\n",
            "jne 66f\n",
        )
    };
}

/// The code behind the last instruction of the access.
macro_rules! end {
    () => {
        concat!(
            "44:\n",
            "jmp 77f\n",
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long 0x53053053\n",
            "55: mov {flag:e}, 2\n",
            "jmp 77f\n",
            "66: mov {flag:e}, 1\n",
            "77: mov qword ptr [{slot}], 0\n",
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
            "cmp rcx, {few}",
            "jae 88f",
            "cmp rcx, 32",
            "jb 90f",
            "89:",
            "movdqu {x}, [rsi]",
            "movdqu {y}, [rsi + 16]",
            "movdqu [rdi], {x}",
            "movdqu [rdi + 16], {y}",
            "add rsi, 32",
            "add rdi, 32",
            "sub rcx, 32",
            "cmp rcx, 32",
            "jae 89b",
            "90:",
            "cmp rcx, 8",
            "jb 91f",
            "mov {t}, [rsi]",
            "mov [rdi], {t}",
            "add rsi, 8",
            "add rdi, 8",
            "sub rcx, 8",
            "jmp 90b",
            "91:",
            "test rcx, rcx",
            "jz 44f",
            "mov {t:l}, [rsi]",
            "mov [rdi], {t:l}",
            "inc rsi",
            "inc rdi",
            "dec rcx",
            "jmp 91b",
            "88: rep movsb",
            end!(),
            flag = out(reg) flag,
            t = out(reg) _,
            x = out(xmm_reg) _,
            y = out(xmm_reg) _,
            slot = in(reg) slot,
            look = in(reg) look,
            few = const 512,
            inout("rdi") to => _,
            inout("rsi") from => _,
            inout("rcx") n => _,
            options(nostack),
        );
    }
    outcome(flag)
}

macro_rules! store {
    ($name:ident, $word:ty, $class:ident, $store:literal) => {
        /// One store of the value at `from`, at any alignment.
        #[inline]
        pub(super) unsafe fn $name(slot: Slot, look: &Look, to: *mut u8, from: *const u8) -> SequenceOutcome {
            let flag: u32;
            // SAFETY: the caller guarantees that the bytes may be read and written.
            unsafe {
                let value = from.cast::<$word>().read_unaligned();
                asm!(
                    begin!(),
                    $store,
                    end!(),
                    flag = out(reg) flag,
                    t = out(reg) _,
                    slot = in(reg) slot,
                    look = in(reg) look,
                    to = in(reg) to,
                    value = in($class) value,
                    options(nostack),
                );
            }
            outcome(flag)
        }
    };
}

store!(store_8, u64, reg, "mov [{to}], {value}");
store!(store_4, u32, reg, "mov [{to}], {value:e}");
store!(store_2, u16, reg, "mov [{to}], {value:x}");
store!(store_1, u8, reg_byte, "mov [{to}], {value}");

/// Stores `swap` if the word equals `compare`; returns the old value.
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
            "lock cmpxchg [{word}], {swap}",
            end!(),
            flag = out(reg) flag,
            t = out(reg) _,
            slot = in(reg) slot,
            look = in(reg) look,
            word = in(reg) word,
            swap = in(reg) swap,
            inout("rax") compare => old,
            options(nostack),
        );
    }
    (outcome(flag), old)
}

macro_rules! exchange {
    ($name:ident, $instruction:literal) => {
        /// One locked instruction; returns the old value.
        #[inline]
        pub(super) unsafe fn $name(slot: Slot, look: &Look, word: *mut u64, value: u64) -> (SequenceOutcome, u64) {
            let (flag, old): (u32, u64);
            // SAFETY: the caller guarantees eight aligned bytes for reading and writing.
            unsafe {
                asm!(
                    begin!(),
                    $instruction,
                    end!(),
                    flag = out(reg) flag,
                    t = out(reg) _,
                    slot = in(reg) slot,
                    look = in(reg) look,
                    word = in(reg) word,
                    value = inout(reg) value => old,
                    options(nostack),
                );
            }
            (outcome(flag), old)
        }
    };
}

exchange!(fetch_add, "lock xadd [{word}], {value}");
exchange!(swap, "xchg [{word}], {value}");

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
    let answer: i64;
    // SAFETY: the kernel's calling convention, as in `sys::call`.
    unsafe {
        asm!(
            begin!(),
            "syscall",
            end!(),
            flag = out(reg) flag,
            t = out(reg) _,
            slot = in(reg) slot,
            look = in(reg) look,
            inlateout("rax") number => answer,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            out("rcx") _, out("r11") _,
            options(nostack),
        );
    }
    (outcome(flag), answer)
}
