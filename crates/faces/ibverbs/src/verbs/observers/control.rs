//! Instrumented functions outside of the data path: exported functions, and functions in a
//! context's extended table. Each has at most six arguments, and each argument is a word.
//!
//! In a process with instruments, trampolines of exported functions ([`crate::exports`]) and the
//! stubs below jump to [`enter`], with a [`Site`] in a register.
use super::call::{Call, CallOutcome, What};
use super::list::{is_on, observe};
use crate::abi::*;
use crate::verbs::{cq, device, dm, flow, mr, mw, pd, qp, srq, tags, wq, xrcd};
use core::ffi::{CStr, c_char};

/// A function and its name, laid out by the trampolines.
#[repr(C)]
pub struct Site {
    target: WordFn,
    name: *const c_char,
}

/// A function with its arguments as words. A function with fewer arguments ignores the rest.
type WordFn = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64) -> u64;

/// Calls the function of the site in r11, surrounded by the instruments.
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

/// Calls the function of the site in x16, surrounded by the instruments.
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

/// Calls the function of a site with these arguments, surrounded by the instruments.
unsafe extern "C-unwind" fn call(
    site: *const Site,
    args: *const [u64; 6],
    return_address: usize,
    frame: usize,
) -> u64 {
    // SAFETY: the trampoline's own table, and the words saved by the trampoline.
    let (target, name, args) = unsafe { ((*site).target, CStr::from_ptr((*site).name), &*args) };
    // SAFETY: the arguments are the program's.
    let call = unsafe { Call::returning_to(return_address, frame, What::Named { name, args }) };
    // SAFETY: the function with this name, with unchanged arguments.
    observe(&call, &mut || unsafe { plain(target, args) }).result
}

/// Calls a function. This frame needs no destructor, so a thread may be cancelled in the function.
///
/// # Safety
/// The function takes these arguments.
#[inline(never)]
unsafe fn plain(target: WordFn, args: &[u64; 6]) -> CallOutcome {
    let [a, b, c, d, e, f] = *args;
    // SAFETY: the caller's promise.
    CallOutcome::word(unsafe { target(a, b, c, d, e, f) })
}

/// Puts a stub into the slot of each function. The stub has the layout of a trampoline of
/// [`crate::exports`].
macro_rules! instrumented {
    ($table:ident: $($slot:ident = $module:ident::$target:ident as $name:literal;)*) => { $( {
        #[unsafe(naked)]
        unsafe extern "C" fn stub() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                "lea r11, [rip + 3f]",
                "jmp {enter}",
                ".pushsection .data.rel.ro,\"aw\",@progbits",
                ".p2align 3",
                "3: .quad {target}, 4f",
                ".popsection",
                ".pushsection .rodata.adverb_names,\"a\",@progbits",
                concat!("4: .asciz \"", $name, "\""),
                ".popsection",
                enter = sym enter,
                target = sym $module::$target,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                "adrp x16, 3f",
                "add x16, x16, :lo12:3f",
                "b {enter}",
                ".pushsection .data.rel.ro,\"aw\",@progbits",
                ".p2align 3",
                "3: .quad {target}, 4f",
                ".popsection",
                ".pushsection .rodata.adverb_names,\"a\",@progbits",
                concat!("4: .asciz \"", $name, "\""),
                ".popsection",
                enter = sym enter,
                target = sym $module::$target,
            );
        }
        // SAFETY: the stub calls the function of the slot, with unchanged arguments.
        $table.$slot = unsafe { core::mem::transmute::<*const (), _>(stub as *const ()) };
    } )* };
}

/// Puts the instrumented entry points into a context's extended table, if an instrument is on.
#[allow(
    clippy::missing_transmute_annotations,
    reason = "the slot says which type of function it is"
)]
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub fn replace(table: &mut verbs_context) {
    if !is_on() {
        return;
    }
    instrumented! { table:
        query_port = device::query_port as "ibv_query_port";
        query_device_ex = device::query_device_ex as "ibv_query_device_ex";
        query_rt_values = device::query_rt_values as "ibv_query_rt_values_ex";
        advise_mr = mr::advise_mr as "ibv_advise_mr";
        alloc_null_mr = mr::alloc_null_mr as "ibv_alloc_null_mr";
        alloc_dm = dm::alloc_dm as "ibv_alloc_dm";
        free_dm = dm::free_dm as "ibv_free_dm";
        reg_dm_mr = dm::reg_dm_mr as "ibv_reg_dm_mr";
        alloc_parent_domain = pd::alloc_parent_domain as "ibv_alloc_parent_domain";
        alloc_td = pd::alloc_td as "ibv_alloc_td";
        dealloc_td = pd::dealloc_td as "ibv_dealloc_td";
        create_cq_ex = cq::create_cq_ex as "ibv_create_cq_ex";
        modify_cq = cq::modify_cq as "ibv_modify_cq";
        create_qp_ex = qp::create_qp_ex as "ibv_create_qp_ex";
        open_qp = qp::open_qp as "ibv_open_qp";
        modify_qp_rate_limit = qp::modify_qp_rate_limit as "ibv_modify_qp_rate_limit";
        create_srq_ex = srq::create_srq_ex as "ibv_create_srq_ex";
        get_srq_num = srq::get_srq_num as "ibv_get_srq_num";
        post_srq_ops = tags::post_srq_ops as "ibv_post_srq_ops";
        open_xrcd = xrcd::open_xrcd as "ibv_open_xrcd";
        close_xrcd = xrcd::close_xrcd as "ibv_close_xrcd";
        create_wq = wq::create_wq as "ibv_create_wq";
        modify_wq = wq::modify_wq as "ibv_modify_wq";
        destroy_wq = wq::destroy_wq as "ibv_destroy_wq";
        create_rwq_ind_table = wq::create_rwq_ind_table as "ibv_create_rwq_ind_table";
        destroy_rwq_ind_table = wq::destroy_rwq_ind_table as "ibv_destroy_rwq_ind_table";
        ibv_create_flow = flow::create_flow as "ibv_create_flow";
        ibv_destroy_flow = flow::destroy_flow as "ibv_destroy_flow";
        create_counters = flow::create_counters as "ibv_create_counters";
        destroy_counters = flow::destroy_counters as "ibv_destroy_counters";
        attach_counters_point_flow = flow::attach_counters_point_flow as "ibv_attach_counters_point_flow";
        read_counters = flow::read_counters as "ibv_read_counters";
    }
    let ops = &mut table.context.ops;
    instrumented! { ops:
        alloc_mw = mw::alloc_mw as "ibv_alloc_mw";
        bind_mw = mw::bind_mw as "ibv_bind_mw";
        dealloc_mw = mw::dealloc_mw as "ibv_dealloc_mw";
    }
}

/// On other processors instruments do not see these calls.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn replace(_table: &mut verbs_context) {}
