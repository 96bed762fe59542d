//! Exported functions: their trampolines come here in a traced process, with what they are in a
//! register. All have at most six arguments, each a word.
use super::polls::empty_polls_end;
use adverb_trace::{Record, now, on, record, thread};
use core::ffi::{CStr, c_char};

/// An exported function; trampolines lay these out.
#[repr(C)]
pub struct Site {
    target: *const (),
    name: *const c_char,
}

/// Calls the function of the site in r11, and tells of it.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn tell() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "sub rsp, 80",
        "mov [rsp], rdi",
        "mov [rsp + 8], rsi",
        "mov [rsp + 16], rdx",
        "mov [rsp + 24], rcx",
        "mov [rsp + 32], r8",
        "mov [rsp + 40], r9",
        "mov [rsp + 48], r11",
        "call {now}",
        "mov [rsp + 56], rax",
        "mov rdi, [rsp]",
        "mov rsi, [rsp + 8]",
        "mov rdx, [rsp + 16]",
        "mov rcx, [rsp + 24]",
        "mov r8, [rsp + 32]",
        "mov r9, [rsp + 40]",
        "mov r11, [rsp + 48]",
        "call [r11]",
        "mov [rsp + 64], rax",
        "mov rdi, [rsp + 48]",
        "mov rsi, rsp",
        "mov rdx, [rsp + 56]",
        "mov rcx, rax",
        "call {told}",
        "mov rax, [rsp + 64]",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        now = sym time,
        told = sym told,
    );
}

/// Calls the function of the site in x16, and tells of it.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn tell() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-96]!",
        ".cfi_def_cfa_offset 96",
        ".cfi_offset x29, -96",
        ".cfi_offset x30, -88",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "str x16, [sp, #64]",
        "bl {now}",
        "str x0, [sp, #72]",
        "ldp x0, x1, [sp, #16]",
        "ldp x2, x3, [sp, #32]",
        "ldp x4, x5, [sp, #48]",
        "ldr x16, [sp, #64]",
        "ldr x16, [x16]",
        "blr x16",
        "str x0, [sp, #80]",
        "mov x3, x0",
        "ldr x0, [sp, #64]",
        "add x1, sp, #16",
        "ldr x2, [sp, #72]",
        "bl {told}",
        "ldr x0, [sp, #80]",
        "ldp x29, x30, [sp], #96",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
        now = sym time,
        told = sym told,
    );
}

extern "C" fn time() -> u64 {
    now()
}

/// The call returned; `errno` is left as the call left it.
unsafe extern "C" fn told(site: *const Site, args: *const [u64; 6], t: u64, result: u64) {
    if !on() {
        return;
    }
    // SAFETY: the C library's own variable of this thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the trampoline's own table and the words that were saved.
    let (name, args, before) = unsafe { (CStr::from_ptr((*site).name), *args, *errno) };
    let d = now() - t;
    empty_polls_end();
    let call = name.to_str().unwrap_or_default().into();
    record(&Record::Call { t, d, tid: thread(), call, args, result, errno: before });
    // SAFETY: as above.
    unsafe { *errno = before };
}
