//! `syscall`: handles the system calls that the device needs to see.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use super::advise::{advise, advise_many};
use super::fork::{around_fork, register_handlers};
use super::functions::{C_SYSCALL, REALS};
use super::hooks::HOOKS;
use super::remap::remap;
use crate::real::{self, call};

/// System calls that the device needs to see even if the program makes them through `syscall`.
unsafe extern "C" fn seen(number: i64, a: u64, b: u64, c: u64, d: u64, e: u64) -> i64 {
    match number {
        // SAFETY: the caller's arguments, each of the type that the call takes.
        libc::SYS_madvise => unsafe { i64::from(advise(a as *mut c_void, b as usize, c as c_int)) },
        // SAFETY: as above.
        libc::SYS_process_madvise => unsafe {
            let vectors = b as *const libc::iovec;
            advise_many(a as c_int, vectors, c as usize, d as c_int, e as u32) as i64
        },
        // SAFETY: as above.
        libc::SYS_mremap => unsafe {
            remap(a as *mut c_void, b as usize, c as usize, d as c_int, e as *mut c_void) as i64
        },
        // An older form of fork: with the parent's stack, and separate memory.
        _ => around_fork(|| {
            call!(C_SYSCALL: fn(
                number => i64, a => u64, b => u64, c => u64, d => u64, e => u64) -> i64)
        }),
    }
}

/// The C library's function, for [`adverb_preload_syscall`].
static SYSCALL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static SEEN: unsafe extern "C" fn(i64, u64, u64, u64, u64, u64) -> i64 = seen;

/// Looks up the C library's functions. Called before the program runs.
pub fn look_up() {
    SYSCALL.store(C_SYSCALL.get().unwrap_or(core::ptr::null_mut()), Ordering::Release);
    real::look_up(REALS);
    register_handlers();
}

/// Handles a `syscall` before [`look_up`].
unsafe extern "C" fn early() -> *mut c_void {
    look_up();
    SYSCALL.load(Ordering::Acquire)
}

/// Size in bytes of the arguments of `clone3` in its first version.
const CLONE_ARGS: usize = 64;

/// Replaces the C library's function of this name. Calls that the device does not need to see go to
/// the C library's function with unchanged registers and stack, because `vfork` and `clone` return
/// twice.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_syscall() {
    core::arch::naked_asm!(
        "cmp edi, {madvise}",
        "je 2f",
        "cmp edi, {process_madvise}",
        "je 2f",
        "cmp edi, {mremap}",
        "je 2f",
        "cmp edi, {fork}",
        "je 2f",
        "cmp edi, {clone}",
        "jne 5f",
        // clone(flags, 0, ...) without CLONE_VM and CLONE_VFORK is a fork.
        "test rdx, rdx",
        "jnz 3f",
        "test esi, {shares}",
        "jnz 3f",
        "jmp 2f",
        // clone3 with neither flag and without a stack is a fork, too. Programs that test whether
        // the call exists pass no arguments.
        "5:",
        "cmp edi, {clone3}",
        "jne 3f",
        "test rsi, rsi",
        "jz 3f",
        "cmp rdx, {clone_args}",
        "jb 3f",
        "test dword ptr [rsi], {shares}",
        "jnz 3f",
        "cmp qword ptr [rsi + {stack}], 0",
        "jne 3f",
        "2:",
        "mov rax, [rip + {hooks}]",
        "test rax, rax",
        "jz 3f",
        "jmp [rip + {seen}]",
        "3:",
        "mov rax, [rip + {real}]",
        "test rax, rax",
        "jz 4f",
        "jmp rax",
        "4:",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        "call {early}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        madvise = const libc::SYS_madvise,
        process_madvise = const libc::SYS_process_madvise,
        mremap = const libc::SYS_mremap,
        fork = const libc::SYS_fork,
        clone = const libc::SYS_clone,
        clone3 = const libc::SYS_clone3,
        clone_args = const CLONE_ARGS,
        stack = const core::mem::offset_of!(libc::clone_args, stack),
        shares = const libc::CLONE_VM | libc::CLONE_VFORK,
        hooks = sym HOOKS,
        seen = sym SEEN,
        real = sym SYSCALL,
        early = sym early,
    )
}

/// Replaces the C library's function of this name. See the x86-64 version.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_syscall() {
    core::arch::naked_asm!(
        "mov x16, {madvise}",
        "cmp x0, x16",
        "b.eq 2f",
        "mov x16, {process_madvise}",
        "cmp x0, x16",
        "b.eq 2f",
        "mov x16, {mremap}",
        "cmp x0, x16",
        "b.eq 2f",
        "mov x16, {clone}",
        "cmp x0, x16",
        "b.ne 5f",
        "cbnz x2, 3f",
        "mov x16, {shares}",
        "tst x1, x16",
        "b.ne 3f",
        "b 2f",
        "5:",
        "mov x16, {clone3}",
        "cmp x0, x16",
        "b.ne 3f",
        "cbz x1, 3f",
        "cmp x2, {clone_args}",
        "b.lo 3f",
        "ldr x17, [x1]",
        "mov x16, {shares}",
        "tst x17, x16",
        "b.ne 3f",
        "ldr x17, [x1, {stack}]",
        "cbnz x17, 3f",
        "2:",
        "adrp x16, {hooks}",
        "ldr x16, [x16, :lo12:{hooks}]",
        "cbz x16, 3f",
        "adrp x16, {seen}",
        "ldr x16, [x16, :lo12:{seen}]",
        "br x16",
        "3:",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "cbz x16, 4f",
        "br x16",
        "4:",
        "stp x29, x30, [sp, -80]!",
        "stp x0, x1, [sp, 16]",
        "stp x2, x3, [sp, 32]",
        "stp x4, x5, [sp, 48]",
        "str x6, [sp, 64]",
        "bl {early}",
        "mov x16, x0",
        "ldp x0, x1, [sp, 16]",
        "ldp x2, x3, [sp, 32]",
        "ldp x4, x5, [sp, 48]",
        "ldr x6, [sp, 64]",
        "ldp x29, x30, [sp], 80",
        "br x16",
        madvise = const libc::SYS_madvise,
        process_madvise = const libc::SYS_process_madvise,
        mremap = const libc::SYS_mremap,
        clone = const libc::SYS_clone,
        clone3 = const libc::SYS_clone3,
        clone_args = const CLONE_ARGS,
        stack = const core::mem::offset_of!(libc::clone_args, stack),
        shares = const libc::CLONE_VM | libc::CLONE_VFORK,
        hooks = sym HOOKS,
        seen = sym SEEN,
        real = sym SYSCALL,
        early = sym early,
    )
}
