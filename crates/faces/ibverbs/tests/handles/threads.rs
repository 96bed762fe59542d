//! Threads that destroy what others use, and forks beside them.
use std::ffi::{c_int, c_void};
use std::ptr::{from_mut, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use super::rig::*;
use ibverbs::abi::*;
use ibverbs::verbs::{ah, cq, mr, mw, pd, qp, srq};
use libc::EINVAL;

/// A sequence that depends on the seed alone.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

const SHARED: usize = 24;

/// Four threads make, use and destroy what they share, and mistake the kinds. Nothing may crash,
/// each object ends once, and at the end the domain they all lie in has no user left.
#[test]
fn threads_that_destroy_what_others_use() {
    let rounds: u64 =
        std::env::var("ADVERB_HANDLE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let context = open();
    let pd = unsafe { pd::ibv_alloc_pd(context) };
    let shared: [[AtomicPtr<c_void>; SHARED]; 6] = Default::default();
    let counts = [(); 6].map(|()| (AtomicUsize::new(0), AtomicUsize::new(0)));
    let mut bytes = vec![0_u8; 4096];
    let memory = AtomicPtr::new(bytes.as_mut_ptr());
    let (context_at, pd_at) = (AtomicPtr::new(context), AtomicPtr::new(pd));
    let left = Mutex::new(Vec::new());
    let attr = address(context);
    let kinds: [fn(*mut c_void) -> c_int; 6] = unsafe {
        [
            |p| qp::ibv_destroy_qp(p.cast()),
            |p| cq::ibv_destroy_cq(p.cast()),
            |p| srq::ibv_destroy_srq(p.cast()),
            |p| mr::ibv_dereg_mr(p.cast()),
            |p| ah::ibv_destroy_ah(p.cast()),
            |p| mw::dealloc_mw(p.cast()),
        ]
    };
    std::thread::scope(|s| {
        for seed in 1..=4_u64 {
            let (shared, counts, memory, attr, left) = (&shared, &counts, &memory, &attr, &left);
            let (context_at, pd_at) = (&context_at, &pd_at);
            s.spawn(move || unsafe {
                let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let (context, pd) =
                    (context_at.load(Ordering::Relaxed), pd_at.load(Ordering::Relaxed));
                let memory = memory.load(Ordering::Relaxed).cast::<c_void>();
                for _ in 0..rounds {
                    let kind = random.below(6) as usize;
                    let slot = &shared[kind][random.below(SHARED as u64) as usize];
                    // Now and then a handle of another kind.
                    let from = if random.below(16) == 0 { random.below(6) as usize } else { kind };
                    let used =
                        shared[from][random.below(SHARED as u64) as usize].load(Ordering::SeqCst);
                    match random.below(4) {
                        0 => {
                            let cq = shared[1][random.below(SHARED as u64) as usize]
                                .load(Ordering::SeqCst);
                            let new: *mut c_void = match kind {
                                0 => extended_qp(context, pd, cq.cast()).cast(),
                                1 => {
                                    let mut attr = ibv_cq_init_attr_ex::zeroed();
                                    attr.cqe = 4;
                                    cq::create_cq_ex(context, &raw mut attr).cast()
                                }
                                2 => srq_of(pd).cast(),
                                3 => mr::ibv_reg_mr(pd, memory, 4096, RW).cast(),
                                4 => ah::ibv_create_ah(pd, from_mut(&mut attr.clone())).cast(),
                                _ => mw::alloc_mw(pd, IBV_MW_TYPE_2).cast(),
                            };
                            if !new.is_null() {
                                counts[kind].0.fetch_add(1, Ordering::SeqCst);
                                // What the place held goes, or is kept for the end if it is in use.
                                let old = slot.swap(new, Ordering::SeqCst);
                                if kinds[kind](old) == 0 {
                                    counts[kind].1.fetch_add(1, Ordering::SeqCst);
                                } else if !old.is_null() {
                                    left.lock().unwrap().push((kind, old as usize));
                                }
                            }
                        }
                        1 => {
                            if kinds[kind](used) == 0 {
                                counts[kind].1.fetch_add(1, Ordering::SeqCst);
                            }
                        }
                        _ => use_it(context, kind, used),
                    }
                }
            });
        }
    });
    // Queue pairs first, then all else; a destroyed object says EINVAL.
    let left = left.into_inner().unwrap();
    for (kind, destroy) in kinds.iter().enumerate() {
        let kept = left.iter().filter(|(of, _)| *of == kind).map(|(_, p)| *p as *mut c_void);
        for p in shared[kind].iter().map(|place| place.load(Ordering::SeqCst)).chain(kept) {
            match destroy(p) {
                0 => {
                    counts[kind].1.fetch_add(1, Ordering::SeqCst);
                    code(EINVAL, || destroy(p));
                }
                other => assert_eq!(other, EINVAL, "kind {kind}"),
            }
        }
    }
    for (kind, (made, ended)) in counts.iter().enumerate() {
        let (made, ended) = (made.load(Ordering::SeqCst), ended.load(Ordering::SeqCst));
        assert!(made > 0, "none of kind {kind} was made");
        assert_eq!(made, ended, "kind {kind}: each object ends once");
    }
    assert_eq!(unsafe { pd::ibv_dealloc_pd(pd) }, 0, "nothing uses the domain");
    close(context);
}

/// Uses what may be dead, or of another kind.
unsafe fn use_it(context: *mut ibv_context, kind: usize, p: *mut c_void) {
    unsafe {
        let ops = (*context).ops;
        match kind {
            0 => {
                let (mut wr, mut bad) = (ibv_send_wr::zeroed(), null_mut());
                ops.post_send.unwrap()(p.cast(), &raw mut wr, &raw mut bad);
                let (mut wr, mut bad) = (ibv_recv_wr::zeroed(), null_mut());
                ops.post_recv.unwrap()(p.cast(), &raw mut wr, &raw mut bad);
                let ex = qp::ibv_qp_to_qp_ex(p.cast());
                if !ex.is_null() {
                    (*ex).wr_start.unwrap()(ex);
                    (*ex).wr_send.unwrap()(ex);
                    (*ex).wr_set_sge.unwrap()(ex, 1, 2, 3);
                    (*ex).wr_complete.unwrap()(ex);
                }
            }
            1 => {
                let mut wc = ibv_wc::zeroed();
                ops.poll_cq.unwrap()(p.cast(), 1, &raw mut wc);
                ops.req_notify_cq.unwrap()(p.cast(), 0);
                cq::ibv_resize_cq(p.cast(), 8);
            }
            2 => {
                let (mut wr, mut bad) = (ibv_recv_wr::zeroed(), null_mut());
                ops.post_srq_recv.unwrap()(p.cast(), &raw mut wr, &raw mut bad);
                srq::ibv_query_srq(p.cast(), from_mut(&mut ibv_srq_attr::zeroed()));
            }
            3 => {
                mr::ibv_rereg_mr(
                    p.cast(),
                    IBV_REREG_MR_CHANGE_ACCESS as c_int,
                    null_mut(),
                    null_mut(),
                    0,
                    RW,
                );
            }
            _ => {
                mw::bind_mw(p.cast(), p.cast(), from_mut(&mut ibv_mw_bind::zeroed()));
            }
        }
    }
}

/// A child of a process whose other threads make and destroy objects can do so, too, at once.
#[test]
fn a_fork_beside_threads_that_make_objects_leaves_the_child_able_to() {
    let context = open();
    let (at, ends) = (AtomicPtr::new(context), AtomicBool::new(false));
    let make = |context: *mut ibv_context| unsafe {
        let td = pd::alloc_td(context, from_mut(&mut ibv_td_init_attr { comp_mask: 0 }));
        assert_eq!(pd::dealloc_td(td), 0);
    };
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                while !ends.load(Ordering::SeqCst) {
                    make(at.load(Ordering::SeqCst));
                }
            });
        }
        for _ in 0..100 {
            let child = unsafe { libc::fork() };
            if child == 0 {
                // A lock that stays locked ends the child by the alarm.
                unsafe { libc::alarm(30) };
                for _ in 0..10 {
                    make(context);
                }
                unsafe { libc::_exit(0) };
            }
            let mut status = -1;
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            if status != 0 {
                ends.store(true, Ordering::SeqCst);
            }
            assert_eq!(status, 0, "the child did not end well");
        }
        ends.store(true, Ordering::SeqCst);
    });
    close(context);
}
