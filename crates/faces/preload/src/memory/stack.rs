//! A stack for a fork, where the thread that forks runs on memory that peers write to.
//!
//! Such memory is the device's file, which a child does not have at its first instruction. So the
//! fork runs elsewhere, and comes back when the child has its copies, the stack among them.

use core::ffi::c_void;
use core::ptr::null_mut;

use super::functions::C_SYSCALL;
use super::hooks::Hooks;
use crate::real::{errno, real, set_errno};

/// Handlers of the program run there, too. Pages that nobody touches cost nothing.
const LEN: usize = 1 << 20;

/// What runs there: its own bytes of the closure, as a child has nothing else at first.
struct Task<F> {
    run: F,
    answer: i64,
}

/// Calls `run`, on another stack if this one lies in a block that is registered.
pub fn away_from_blocks<F: FnOnce() -> i64 + Copy>(hooks: &Hooks, run: F) -> i64 {
    let here = 0_u8;
    if (hooks.is_held)((&raw const here) as u64) == 0 {
        return run();
    }
    let Some(stack) = Stack::new() else { return run() };
    // SAFETY: the end of the new stack, which has room for the task and is aligned to a page.
    unsafe {
        let task = stack.end().cast::<Task<F>>().sub(1);
        task.write(Task { run, answer: -1 });
        let top = task.addr() & !63;
        call_on(top, perform::<F>, task.cast());
        (*task).answer
    }
}

/// Memory to run on.
pub struct Stack(*mut c_void);

impl Stack {
    pub fn new() -> Option<Stack> {
        let syscall = real!(C_SYSCALL: fn(i64, *mut c_void, usize, i32, i32, i32, i64) -> i64)?;
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        let at = unsafe { syscall(libc::SYS_mmap, null_mut(), LEN, prot, flags, -1, 0) };
        (at > 0).then_some(Stack(at as *mut c_void))
    }

    /// Where it begins to be used.
    pub fn end(&self) -> *mut c_void {
        self.0.wrapping_byte_add(LEN)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let before = errno();
        if let Some(syscall) = real!(C_SYSCALL: fn(i64, *mut c_void, usize) -> i64) {
            // SAFETY: the mapping made above, on which nobody runs any more.
            unsafe { syscall(libc::SYS_munmap, self.0, LEN) };
        }
        set_errno(before);
    }
}

unsafe extern "C" fn perform<F: FnOnce() -> i64 + Copy>(task: *mut c_void) {
    let task = task.cast::<Task<F>>();
    // SAFETY: what `away_from_blocks` wrote.
    unsafe {
        let run = (*task).run;
        (*task).answer = run();
    }
}

/// Calls a function with the stack at `top`.
///
/// # Safety
/// A stack that nobody uses, and what the function wants.
#[cfg(target_arch = "x86_64")]
pub unsafe fn call_on(top: usize, f: unsafe extern "C" fn(*mut c_void), arg: *mut c_void) {
    // SAFETY: the function keeps r12, in which the stack of before is.
    unsafe {
        core::arch::asm!(
            "mov r12, rsp", "mov rsp, {top}", "call {f}", "mov rsp, r12",
            top = in(reg) top, f = in(reg) f, in("rdi") arg, out("r12") _, clobber_abi("C"),
        );
    }
}

/// Calls a function with the stack at `top`.
///
/// # Safety
/// A stack that nobody uses, and what the function wants.
#[cfg(target_arch = "aarch64")]
pub unsafe fn call_on(top: usize, f: unsafe extern "C" fn(*mut c_void), arg: *mut c_void) {
    // SAFETY: the function keeps x20, in which the stack of before is.
    unsafe {
        core::arch::asm!(
            "mov x20, sp", "mov sp, {top}", "blr {f}", "mov sp, x20",
            top = in(reg) top, f = in(reg) f, in("x0") arg, out("x20") _, clobber_abi("C"),
        );
    }
}
