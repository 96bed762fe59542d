//! What was destroyed, or never was an object.
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{from_mut, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::calls::*;
use super::rig::*;
use ibverbs::abi::*;
use ibverbs::verbs::{
    async_event, buf, comp_channel, cq, device, dm, flow, import, mr, pd, qp, wq,
};
use libc::{EBUSY, EINVAL, ENOENT};

#[test]
fn what_was_destroyed_twice_or_more_is_einval() {
    let context = open();
    let ended = Objects::ended(context);
    for _ in 0..3 {
        ended.destroy(|call| code(EINVAL, call));
        silent(|| unsafe { buf::ibv_free_buf(ended.buf) });
        silent(|| unsafe { import::ibv_unimport_pd(ended.pd) });
        silent(|| unsafe { import::ibv_unimport_mr(ended.mr) });
        silent(|| unsafe { import::ibv_unimport_dm(ended.dm) });
    }
    // New objects live beside them.
    Objects::ended(context).destroy(|call| code(EINVAL, call));
    close(context);
    for _ in 0..3 {
        code(EINVAL, || unsafe { device::ibv_close_device(context) });
    }
    ended.destroy(|call| code(EINVAL, call));
}

#[test]
fn every_verb_refuses_what_was_destroyed_also_after_the_device_was_closed() {
    let context = open();
    let mut ended = Objects::ended(context);
    let memory = ended.memory.as_mut_ptr().cast();
    every_verb_refuses(&ended, memory);
    every_inline_call_refuses(&ended);
    // Objects of their own beside them change nothing.
    let living = Objects::new(context);
    every_verb_refuses(&ended, memory);
    living.end();
    close(context);
    every_verb_refuses(&ended, memory);
    every_inline_call_refuses(&ended);
    every_call_on_the_context_refuses(context);
    for event_type in [IBV_EVENT_QP_FATAL, IBV_EVENT_CQ_ERR, IBV_EVENT_SRQ_ERR] {
        let element = ibv_async_event_element { qp: ended.qp };
        silent(|| unsafe {
            async_event::ibv_ack_async_event(from_mut(&mut ibv_async_event {
                element,
                event_type,
            }));
        });
    }
}

/// Pointers that no call gave: null, unmapped, on the stack, on the heap, between objects, in the
/// middle of one.
#[test]
fn what_was_never_a_handle_is_refused_without_a_look_at_it() {
    let context = open();
    let living = Objects::new(context);
    let mut stack = [0_u64; 512];
    let mut heap = vec![0xff_u8; 4096];
    let nowhere = std::ptr::without_provenance_mut::<c_void>(0x10_0000);
    let wild = std::ptr::without_provenance_mut::<c_void>(usize::MAX - 7);
    let copy = unsafe { living.qp.read() };
    let mut memory = [0_u8; 64];
    let memory = memory.as_mut_ptr().cast::<c_void>();
    let strange: [*mut c_void; 9] = [
        null_mut(),
        nowhere,
        wild,
        (&raw mut stack).cast(),
        heap.as_mut_ptr().cast(),
        (&raw const copy).cast_mut().cast(),
        unsafe { living.qp.cast::<c_void>().byte_add(8) },
        unsafe { living.qp.cast::<c_void>().byte_add(64) },
        unsafe { living.cq.cast::<c_void>().byte_add(200_000) },
    ];
    for p in strange {
        let fake = Objects::of_one_pointer(p);
        fake.destroy(|call| code(EINVAL, call));
        every_verb_refuses(&fake, memory);
        every_call_on_the_context_refuses(p.cast());
        let (mut wr, mut bad) = (ibv_send_wr::zeroed(), null_mut());
        let ops = unsafe { (*context).ops };
        code(EINVAL, || unsafe { ops.post_send.unwrap()(p.cast(), &raw mut wr, &raw mut bad) });
        assert_eq!(bad, &raw mut wr);
        negative(-EINVAL, || unsafe {
            ops.poll_cq.unwrap()(p.cast(), 1, from_mut(&mut ibv_wc::zeroed()))
        });
    }
    living.end();
    close(context);
}

/// Objects of kinds that the device does not make cannot exist: whatever is passed for one is none.
#[test]
fn what_is_passed_for_an_object_that_is_never_made_is_einval() {
    let context = open();
    let o = Objects::new(context);
    let mut stack = [0_u64; 64];
    for p in [null_mut(), o.pd.cast::<c_void>(), (&raw mut stack).cast()] {
        unsafe {
            code(EINVAL, || flow::destroy_flow(p.cast()));
            code(EINVAL, || flow::destroy_flow_action(p.cast()));
            code(EINVAL, || flow::modify_flow_action_esp(p.cast(), null_mut()));
            code(EINVAL, || flow::destroy_counters(p.cast()));
            code(EINVAL, || flow::attach_counters_point_flow(p.cast(), null_mut(), null_mut()));
            code(EINVAL, || flow::read_counters(p.cast(), null_mut(), 0, 0));
            code(EINVAL, || wq::modify_wq(p.cast(), null_mut()));
            code(EINVAL, || wq::destroy_wq(p.cast()));
            code(EINVAL, || wq::destroy_rwq_ind_table(p.cast()));
        }
    }
    o.end();
    close(context);
}

#[test]
fn a_refused_destroy_sets_errno_and_leaves_the_object() {
    let context = open();
    let o = Objects::new(context);
    unsafe {
        let channel = o.channel;
        let on_channel = cq::ibv_create_cq(context, 4, null_mut(), channel, 0);
        for _ in 0..2 {
            code(EBUSY, || pd::ibv_dealloc_pd(o.pd));
            code(EBUSY, || pd::dealloc_td(o.td));
            code(EBUSY, || cq::ibv_destroy_cq(o.cq));
            code(EBUSY, || comp_channel::ibv_destroy_comp_channel(channel));
        }
        let more = mr::ibv_reg_mr(o.pd, o.memory.as_ptr().cast_mut().cast(), 8, RW);
        assert!(!more.is_null(), "the domain lives");
        assert_eq!((mr::ibv_dereg_mr(more), cq::ibv_resize_cq(o.cq, 8)), (0, 0));
        assert_eq!(cq::ibv_destroy_cq(on_channel), 0);
    }
    o.end();
    close(context);
}

/// What ended through one of its handles is ENOENT through the other, and ends nothing else.
#[test]
fn what_was_taken_over_ends_once() {
    let context = open();
    let mut memory = vec![0_u8; 64];
    unsafe {
        let imported = import::ibv_import_device(libc::dup((*context).cmd_fd));
        let pd = pd::ibv_alloc_pd(context);
        let mut attr = ibv_alloc_dm_attr { length: 64, log_align_req: 0, comp_mask: 0 };
        let dm = dm::alloc_dm(context, &raw mut attr);
        let mr = mr::ibv_reg_mr(pd, memory.as_mut_ptr().cast(), 64, RW);
        let pd2 = import::ibv_import_pd(imported, (*pd).handle);
        let mr2 = import::ibv_import_mr(pd2, (*mr).handle);
        let dm2 = import::ibv_import_dm(imported, (*dm).handle);
        assert_eq!((mr::ibv_dereg_mr(mr2), dm::free_dm(dm2)), (0, 0));
        let new = mr::ibv_reg_mr(pd, memory.as_mut_ptr().cast(), 64, RW);
        code(ENOENT, || mr::ibv_dereg_mr(mr));
        code(ENOENT, || dm::free_dm(dm));
        assert_eq!(mr::ibv_dereg_mr(new), 0);
        assert_eq!(pd::ibv_dealloc_pd(pd2), 0);
        code(ENOENT, || pd::ibv_dealloc_pd(pd));
        close(imported);
    }
    close(context);
}

#[test]
fn devices_are_those_of_lists() {
    let mut stack = [0_u64; 128];
    unsafe {
        for p in [null_mut(), (&raw mut stack).cast(), std::ptr::without_provenance_mut(0x10_0000)]
        {
            pointer(|| device::ibv_open_device(p));
            negative(-1, || device::ibv_get_device_index(p));
            silent(|| assert_eq!(device::ibv_get_device_guid(p), 0));
        }
        // A name is in the structure, which is public: OBJ-6.
        pointer(|| device::ibv_get_device_name(null_mut()).cast_mut());
        let mut own: ibv_device = Plain::zeroed();
        own.name[..4].copy_from_slice(&b"mock".map(|b| b as c_char));
        assert_eq!(CStr::from_ptr(device::ibv_get_device_name(&raw mut own)), c"mock");
        let list = device::ibv_get_device_list(null_mut());
        let first = *list;
        device::ibv_free_device_list(list);
        silent(|| device::ibv_free_device_list(list));
        silent(|| device::ibv_free_device_list((&raw mut stack).cast()));
        // Programs open what they found in a list they have freed.
        let context = device::ibv_open_device(first);
        assert!(!context.is_null());
        close(context);
    }
}

#[test]
fn an_open_chain_or_poll_outlives_its_object_and_then_ends() {
    let context = open();
    unsafe {
        let pd = pd::ibv_alloc_pd(context);
        let cq = cq_of(context);
        // Destroyed by the thread that has the chain open.
        let p = extended_qp(context, pd, cq);
        (*p).wr_start.unwrap()(p);
        (*p).wr_send.unwrap()(p);
        assert_eq!(qp::ibv_destroy_qp(p.cast()), 0);
        (*p).wr_send.unwrap()(p);
        code(EINVAL, || (*p).wr_complete.unwrap()(p));
        // By another thread, while a third waits for its turn.
        let p = extended_qp(context, pd, cq);
        let (own, waits) = (AtomicPtr::new(p), AtomicBool::new(false));
        (*p).wr_start.unwrap()(p);
        (*p).wr_send.unwrap()(p);
        std::thread::scope(|s| {
            let waiting = s.spawn(|| {
                let p = own.load(Ordering::Relaxed);
                waits.store(true, Ordering::SeqCst);
                (*p).wr_start.unwrap()(p);
                (*p).wr_send.unwrap()(p);
                (*p).wr_complete.unwrap()(p)
            });
            while !waits.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let ended = s.spawn(|| qp::ibv_destroy_qp(own.load(Ordering::Relaxed).cast()));
            assert_eq!(ended.join().unwrap(), 0);
            code(EINVAL, || (*p).wr_complete.unwrap()(p));
            code(EINVAL, || (*p).wr_complete.unwrap()(p));
            assert_eq!(waiting.join().unwrap(), EINVAL);
        });
        assert_eq!(cq::ibv_destroy_cq(cq), 0);
        assert_eq!(pd::ibv_dealloc_pd(pd), 0);
    }
    close(context);
}
