//! What the calls of the data path cost on one thread, in nanoseconds: `cargo run --release -p
//! adverb-ibverbs --example handle_cost`. The queue pair has not left RESET, so that posts fail as
//! early as they can; the queues are empty.
#![allow(unsafe_code, reason = "it calls the C ABI")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "every call keeps the contract of its manual page"
)]

use ibverbs::abi::*;
use ibverbs::verbs::{cq, device, pd, qp};
use std::ffi::CStr;
use std::hint::black_box;
use std::ptr::null_mut;
use std::time::Instant;

const ROUNDS: u32 = 1_000_000;

fn time(what: &str, mut call: impl FnMut()) {
    let mut best = f64::MAX;
    for _ in 0..15 {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            call();
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS));
    }
    println!("{what:32} {best:7.1} ns");
}

fn main() {
    unsafe {
        adverb_device::selection::select("lo".parse().unwrap());
        let mut n = 0;
        let list = device::ibv_get_device_list(&raw mut n);
        let devices = std::slice::from_raw_parts(list, n as usize);
        let lo = devices
            .iter()
            .find(|d| CStr::from_ptr(device::ibv_get_device_name(**d)) == c"adverb_lo");
        let context = device::ibv_open_device(*lo.expect("the loopback device"));
        let domain = pd::ibv_alloc_pd(context);
        let queue = cq::ibv_create_cq(context, 16, null_mut(), null_mut(), 0);
        let mut init = ibv_qp_init_attr_ex::zeroed();
        (init.send_cq, init.recv_cq, init.qp_type, init.pd) = (queue, queue, IBV_QPT_RC, domain);
        (init.cap.max_send_wr, init.cap.max_send_sge, init.cap.max_recv_wr) = (16, 1, 16);
        init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.send_ops_flags = IBV_QP_EX_WITH_SEND;
        let pair = qp::create_qp_ex(context, &raw mut init);
        let ex = qp::ibv_qp_to_qp_ex(pair);
        assert!(!ex.is_null());
        let ops = (*context).ops;
        let (poll, arm, send) =
            (ops.poll_cq.unwrap(), ops.req_notify_cq.unwrap(), ops.post_send.unwrap());
        let mut wc = [ibv_wc::zeroed(); 1];
        time("poll of an empty queue", || {
            black_box(poll(queue, 1, wc.as_mut_ptr()));
        });
        time("arm", || {
            black_box(arm(queue, 0));
        });
        let mut bad = null_mut();
        time("post of an empty list", || {
            black_box(send(pair, null_mut(), &raw mut bad));
        });
        let (start, operation, sge, abort) = (
            (*ex).wr_start.unwrap(),
            (*ex).wr_send.unwrap(),
            (*ex).wr_set_sge.unwrap(),
            (*ex).wr_abort.unwrap(),
        );
        time("wr_start, send, set_sge, abort", || {
            start(ex);
            operation(ex);
            sge(ex, 1, 2, 3);
            abort(ex);
        });
        time("create and destroy of a domain", || {
            pd::ibv_dealloc_pd(pd::ibv_alloc_pd(context));
        });
    }
}
