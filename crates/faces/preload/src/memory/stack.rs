//! A separate stack for a fork, for a thread with its own stack in memory that peers write to.
//!
//! Such memory is part of the device's file, and the child does not have it at its first
//! instruction. So the fork runs on another stack, and returns when the child has its copies,
//! including the original stack.

use core::ffi::c_void;
use core::ptr::null_mut;

use super::functions::C_SYSCALL;
use crate::real::{call, keeping_errno};
use adverb_hooks::memory::Hooks;

/// The program's fork handlers run on this stack too. Untouched pages cost nothing.
const LEN: usize = 1 << 20;

/// The work for the other stack. It holds its own copy of the closure, because the child has no
/// other memory at first.
struct Task<F> {
    run: F,
    answer: i64,
}

/// Calls `run`. If the current stack lies in a registered block, the call runs on another stack.
pub fn away_from_blocks<F: FnOnce() -> i64 + Copy>(hooks: &Hooks, run: F) -> i64 {
    let here = 0_u8;
    if (hooks.is_held)((&raw const here) as u64) == 0 {
        return run();
    }
    let Some(stack) = Stack::new() else { return run() };
    // SAFETY: the end of the new stack is page-aligned, and has room for the task.
    unsafe {
        let task = stack.end().cast::<Task<F>>().sub(1);
        task.write(Task { run, answer: -1 });
        let top = task.addr() & !63;
        call_on(top, perform::<F>, task.cast());
        (*task).answer
    }
}

/// A separate stack.
pub struct Stack(*mut c_void);

impl Stack {
    pub fn new() -> Option<Stack> {
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let at = call!(C_SYSCALL: fn(
            libc::SYS_mmap => i64, null_mut() => *mut c_void, LEN => usize, prot => i32, flags => i32,
            -1 => i32, 0 => i64) -> i64);
        (at > 0).then_some(Stack(at as *mut c_void))
    }

    /// The top of the stack, where use begins.
    pub fn end(&self) -> *mut c_void {
        self.0.wrapping_byte_add(LEN)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // The mapping was made above, and no code runs on it any more.
        keeping_errno(
            || call!(C_SYSCALL: fn(libc::SYS_munmap => i64, self.0 => *mut c_void, LEN => usize) -> i64),
        );
    }
}

unsafe extern "C" fn perform<F: FnOnce() -> i64 + Copy>(task: *mut c_void) {
    let task = task.cast::<Task<F>>();
    // SAFETY: `away_from_blocks` wrote the task.
    unsafe {
        let run = (*task).run;
        (*task).answer = run();
    }
}

/// Calls a function on the stack with this top.
///
/// # Safety
/// No other code uses the stack. The requirements of the function are met.
pub unsafe fn call_on(top: usize, f: unsafe extern "C" fn(*mut c_void), arg: *mut c_void) {
    // SAFETY: the function preserves r12 or x20, which holds the previous stack pointer.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!(
            "mov r12, rsp", "mov rsp, {top}", "call {f}", "mov rsp, r12",
            top = in(reg) top, f = in(reg) f, in("rdi") arg, out("r12") _, clobber_abi("C"),
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "mov x20, sp", "mov sp, {top}", "blr {f}", "mov sp, x20",
            top = in(reg) top, f = in(reg) f, in("x0") arg, out("x20") _, clobber_abi("C"),
        );
    }
}
