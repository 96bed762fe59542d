//! `execl`, `execlp` and `execle`. Stable Rust cannot define variadic functions. So each function
//! is a few instructions: they lay out the arguments as a list, directly below the arguments that
//! are already on the caller's stack. Then they call a function that takes the list.

use core::arch::naked_asm;
use core::ffi::c_int;

use super::{List, Path, adverb_preload_execv, adverb_preload_execve, adverb_preload_execvp};

/// Defines a variadic function: `(path, argument, …)` becomes `(path, list)`.
macro_rules! variadic {
    ($($name:ident = $listed:path;)*) => { $(
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        #[cfg(target_arch = "x86_64")]
        pub unsafe extern "C" fn $name() -> c_int {
            // The register arguments take the place of the return address, below the stack
            // arguments. The return address goes below the list, and is restored at the end. The
            // stack is aligned at the call.
            naked_asm!(
                "pop r10",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push r10",
                "call {listed}",
                "pop r10",
                "add rsp, 40",
                "push r10",
                "ret",
                listed = sym $listed,
            )
        }

        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        #[cfg(target_arch = "aarch64")]
        pub unsafe extern "C" fn $name() -> c_int {
            // The register arguments are stored directly below the stack arguments.
            naked_asm!(
                "sub sp, sp, #80",
                "stp x29, x30, [sp]",
                "stp x1, x2, [sp, #24]",
                "stp x3, x4, [sp, #40]",
                "stp x5, x6, [sp, #56]",
                "str x7, [sp, #72]",
                "add x1, sp, #24",
                "bl {listed}",
                "ldp x29, x30, [sp]",
                "add sp, sp, #80",
                "ret",
                listed = sym $listed,
            )
        }
    )* };
}

variadic! {
    adverb_preload_execl = adverb_preload_execv;
    adverb_preload_execlp = adverb_preload_execvp;
    adverb_preload_execle = with_environment;
}

/// `execle`: the environment follows the null at the end of the arguments.
unsafe extern "C" fn with_environment(path: Path, list: List) -> c_int {
    let mut end = list;
    // SAFETY: a list of strings with a null at its end, followed by the environment, as the caller
    // promises.
    unsafe {
        while !(*end).is_null() {
            end = end.add(1);
        }
        let environment: List = (*end.add(1)).cast();
        adverb_preload_execve(path, list, environment)
    }
}
