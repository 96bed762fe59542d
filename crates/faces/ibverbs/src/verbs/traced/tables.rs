//! The control path behind a context's tables: its functions are told of as exported ones are.
use crate::abi::*;
use crate::verbs::trace::tell;
use crate::verbs::{cq, device, dm, flow, mr, mw, pd, qp, srq, tags, wq, xrcd};

/// Puts a stub for each function into its slot, which is laid out as a trampoline of
/// [`crate::exports`].
macro_rules! told {
    ($table:ident: $($slot:ident = $module:ident::$target:ident as $name:literal;)*) => { $( {
        #[unsafe(naked)]
        unsafe extern "C" fn stub() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                "lea r11, [rip + 3f]",
                "jmp {tell}",
                ".pushsection .data.rel.ro,\"aw\",@progbits",
                ".p2align 3",
                "3: .quad {target}, 4f",
                ".popsection",
                ".pushsection .rodata.adverb_names,\"a\",@progbits",
                concat!("4: .asciz \"", $name, "\""),
                ".popsection",
                tell = sym tell,
                target = sym $module::$target,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                "adrp x16, 3f",
                "add x16, x16, :lo12:3f",
                "b {tell}",
                ".pushsection .data.rel.ro,\"aw\",@progbits",
                ".p2align 3",
                "3: .quad {target}, 4f",
                ".popsection",
                ".pushsection .rodata.adverb_names,\"a\",@progbits",
                concat!("4: .asciz \"", $name, "\""),
                ".popsection",
                tell = sym tell,
                target = sym $module::$target,
            );
        }
        // SAFETY: the stub calls the function that is in the slot, with the arguments as they are.
        $table.$slot = unsafe { core::mem::transmute::<*const (), _>(stub as *const ()) };
    } )* };
}

/// Puts the calls of a trace into a context's extended table, if the process is traced.
#[allow(clippy::missing_transmute_annotations, reason = "the slot says which type of function it is")]
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub fn replace_extended(table: &mut verbs_context) {
    if !adverb_trace::on() {
        return;
    }
    told! { table:
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
    told! { ops:
        alloc_mw = mw::alloc_mw as "ibv_alloc_mw";
        bind_mw = mw::bind_mw as "ibv_bind_mw";
        dealloc_mw = mw::dealloc_mw as "ibv_dealloc_mw";
    }
}

/// Elsewhere these calls are not told of.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn replace_extended(_table: &mut verbs_context) {}
