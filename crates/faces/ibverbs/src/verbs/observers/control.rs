//! Functions outside of the data path: exported functions, and functions in a context's tables.
//! Each has at most six arguments, and each argument is a word.
//!
//! Trampolines of exported functions ([`crate::exports`]) and stubs in the tables (`stub`) jump
//! to [`enter`], with a [`Site`] in a register. So each call has the same frame:
//!
//! - A thread is not cancelled in the call. With rdma-core such a call is an `ioctl`, which is no
//!   cancellation point. Here the call may hold locks and open files.
//! - The instruments see the call.
use super::call::{Call, CallOutcome, What};
use super::list::{is_on, observe};
use crate::verbs::caller::Caller;
use adverb_os::Uncancelled;
use core::ffi::{CStr, c_char};

/// A function and its name, laid out by the trampolines.
#[repr(C)]
pub struct Site {
    target: WordFn,
    name: *const c_char,
}

/// A function with its arguments as words. A function with fewer arguments ignores the rest.
type WordFn = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64) -> u64;

/// The instructions of a trampoline: the address of the site in a register, and a jump to `enter`.
macro_rules! to_site {
    () => {
        $crate::abi::by_processor!(
            "lea r11, [rip + 3f]\njmp {enter}",
            "adrp x16, 3f\nadd x16, x16, :lo12:3f\nb {enter}"
        )
    };
}

/// The [`Site`] of a trampoline, for the function `target`.
macro_rules! site {
    ($name:expr) => {
        concat!(
            ".pushsection .data.rel.ro,\"aw\",@progbits\n.p2align 3\n3: .quad {target}, 4f\n.popsection\n",
            ".pushsection .rodata.adverb_names,\"a\",@progbits\n4: .asciz \"",
            $name,
            "\"\n.popsection"
        )
    };
}

/// The entry of a context's table for a function: `stub!(module::function as "ibv_name")`.
macro_rules! stub {
    ($target:path as $name:literal) => { {
        #[unsafe(naked)]
        unsafe extern "C" fn stub() {
            core::arch::naked_asm!(
                $crate::verbs::observers::control::to_site!(),
                $crate::verbs::observers::control::site!($name),
                enter = sym $crate::verbs::observers::control::enter,
                target = sym $target,
            );
        }
        $crate::verbs::observers::control::like(Some($target), stub)
    } };
}
pub(crate) use {site, stub, to_site};

/// A stub with the type of its function.
pub fn like<F: Copy>(_function: Option<F>, stub: unsafe extern "C" fn()) -> Option<F> {
    const { assert!(size_of::<Option<F>>() == size_of::<unsafe extern "C" fn()>()) };
    // SAFETY: both are pointers to functions. The stub passes its arguments to the function.
    unsafe { core::mem::transmute_copy(&Some(stub)) }
}

/// Calls the function of the site in r11, with `call`.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn enter() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "sub rsp, 48",
        "mov [rsp], rdi",
        "mov [rsp + 8], rsi",
        "mov [rsp + 16], rdx",
        "mov [rsp + 24], rcx",
        "mov [rsp + 32], r8",
        "mov [rsp + 40], r9",
        "mov rdi, r11",
        "mov rsi, rsp",
        "mov rdx, [rbp + 8]",
        "mov rcx, [rbp]",
        "call {call}",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        call = sym call,
    );
}

/// Calls the function of the site in x16, with [`call`].
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn enter() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-64]!",
        ".cfi_def_cfa_offset 64",
        ".cfi_offset x29, -64",
        ".cfi_offset x30, -56",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "mov x2, x30",
        "ldr x3, [sp]",
        "mov x0, x16",
        "add x1, sp, #16",
        "bl {call}",
        "ldp x29, x30, [sp], #64",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
        call = sym call,
    );
}

/// Calls the function of a site with these arguments. Instruments see the call, and the thread is
/// not cancelled in it.
unsafe extern "C" fn call(
    site: *const Site,
    args: *const [u64; 6],
    return_address: usize,
    frame: usize,
) -> u64 {
    let _uncancelled = Uncancelled::throughout();
    // SAFETY: the trampoline's own table, and the words saved by the trampoline.
    let (target, name, args) = unsafe { ((*site).target, CStr::from_ptr((*site).name), &*args) };
    let [a, b, c, d, e, f] = *args;
    // SAFETY: the function takes these arguments, which are the program's.
    let plain = || unsafe { target(a, b, c, d, e, f) };
    if !is_on() {
        return plain();
    }
    // SAFETY: the arguments are the program's.
    let call = unsafe { Call::of(Caller { return_address, frame }, What::Named { name, args }) };
    observe(&call, &mut || CallOutcome::word(plain())).result
}
