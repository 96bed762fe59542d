use super::*;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// All kinds of guards: with the C library's area, if there is one; without an area; and with an
/// area unknown to the kernel, to test the instructions where the kernel has no such areas.
fn guards<'a>(word: &'a AtomicU64, value: u64) -> [Guard<'a>; 3] {
    let guard = || Guard::new((word, value), (word, value));
    [guard(), guard().without_restarts(), Guard { slot: Some(own_slot()), ..guard() }]
}

fn own_slot() -> Slot {
    Box::leak(Box::new(0))
}

#[test]
fn this_thread_restarts() {
    // SAFETY: a NUL-terminated name.
    let known = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) };
    // SAFETY: an invalid area, which a kernel with areas refuses. qemu-user has no areas.
    let missing =
        unsafe { libc::syscall(libc::SYS_rseq, 0, 0, 0, 0) } < 0 && Errno::last() == Errno::ENOSYS;
    let wanted = !known.is_null() && !missing && std::env::var_os("GLIBC_TUNABLES").is_none();
    assert_eq!(Guard::always().restarts(), wanted);
}

#[test]
fn copies_of_all_lengths_and_places_are_whole() {
    let word = AtomicU64::new(4);
    let source: Vec<u8> = (0..3 * PIECE + 100).map(|i| (i * 7 % 251) as u8).collect();
    let few = 0..70_usize;
    let many =
        [500, 511, 512, 513, 527, 4096, PIECE - 1, PIECE, PIECE + 1, PIECE + 9, 3 * PIECE + 3];
    for n in few.chain(many) {
        for (skip, from) in [(0, 0), (1, 0), (3, 5), (7, 8), (8, 1), (15, 2)] {
            for guard in guards(&word, 4) {
                for reads in [false, true] {
                    let mut to = vec![255; n + 64];
                    let start = 16 - to.as_ptr() as usize % 16 + skip;
                    let (at, bytes) = (to[start..].as_mut_ptr(), source[from..].as_ptr());
                    // SAFETY: both buffers have enough bytes, and do not overlap.
                    let done = unsafe {
                        if reads { guard.get(at, bytes, n) } else { guard.put(at, bytes, n) }
                    };
                    assert_eq!(done, Ok(()));
                    assert!(to[start..start + n] == source[from..from + n], "{n} bytes at {skip}");
                    assert!(to[..start].iter().chain(&to[start + n..]).all(|byte| *byte == 255));
                }
            }
        }
    }
}

#[test]
fn nothing_happens_once_it_is_withdrawn() {
    let word = AtomicU64::new(4);
    let valid = AtomicU64::new(0);
    for wrong in [(&word, 2), (&valid, 1)] {
        for guard in [
            Guard::new(wrong, (&valid, 0)),
            Guard::new((&valid, 0), wrong),
            Guard::new((&valid, 0), wrong).without_restarts(),
            Guard { slot: Some(own_slot()), ..Guard::new(wrong, (&valid, 0)) },
            Guard { slot: Some(own_slot()), ..Guard::new((&valid, 0), wrong) },
        ] {
            let mut to = [0_u8; 4096];
            for n in [1, 2, 3, 4, 8, 16, 64, 4096] {
                // SAFETY: both buffers have `n` bytes.
                let done = unsafe { guard.put(to.as_mut_ptr(), [7_u8; 4096].as_ptr(), n) };
                assert_eq!(done, Err(Withdrawn));
                // SAFETY: as above.
                let done = unsafe { guard.get(to.as_mut_ptr(), [7_u8; 4096].as_ptr(), n) };
                assert_eq!(done, Err(Withdrawn));
            }
            let mut value = 5_u64;
            for op in [
                AtomicOp::CompareSwap { compare: 5, swap: 6 },
                AtomicOp::FetchAdd { add: 1 },
                AtomicOp::Write { value: 9 },
            ] {
                // SAFETY: a local word.
                assert_eq!(unsafe { guard.atomic(&raw mut value, op) }, Err(Withdrawn));
            }
            // SAFETY: the call has no arguments.
            assert_eq!(unsafe { guard.call(libc::SYS_getpid, [0; 6]) }, Err(Withdrawn));
            assert!(!guard.holds() && value == 5 && to.iter().all(|byte| *byte == 0));
        }
    }
}

#[test]
fn calls_answer_what_the_kernel_says() {
    let word = AtomicU64::new(0);
    for guard in guards(&word, 0) {
        // SAFETY: the call has no arguments.
        let pid = unsafe { guard.call(libc::SYS_getpid, [0; 6]) };
        assert_eq!(pid, Ok(Ok(std::process::id().into())));
        // SAFETY: an invalid descriptor.
        let closed = unsafe { guard.call(libc::SYS_close, [u64::MAX, 0, 0, 0, 0, 0]) };
        assert_eq!(closed, Ok(Err(Errno::EBADF)));
    }
}

/// MEM-2: despite restarts an atomic happens once and a copy is whole. Signals hit the thread all
/// the time here, and each one restarts a sequence.
#[test]
fn mem_2_what_begins_again_happens_once() {
    extern "C" fn nothing(_: i32) {}
    const TIMES: u64 = 400_000;
    let word = AtomicU64::new(0);
    let (over, mut sum) = (AtomicBool::new(false), 0_u64);
    // SAFETY: an empty handler, and the number of this thread, which outlives the scope.
    let target = unsafe {
        libc::signal(libc::SIGURG, nothing as *const () as libc::sighandler_t);
        libc::pthread_self()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // SAFETY: as above.
                assert_eq!(unsafe { libc::pthread_kill(target, libc::SIGURG) }, 0);
                std::thread::sleep(Duration::from_micros(3));
            }
        });
        let guard = Guard::new((&word, 0), (&word, 0));
        let (from, mut to) = (vec![3_u8; PIECE], vec![0_u8; PIECE]);
        for n in 0..TIMES {
            // SAFETY: a local word.
            assert_eq!(unsafe { guard.atomic(&raw mut sum, AtomicOp::FetchAdd { add: 1 }) }, Ok(n));
            if n % 64 == 0 {
                to.fill(0);
                // SAFETY: both buffers have PIECE bytes.
                assert_eq!(unsafe { guard.put(to.as_mut_ptr(), from.as_ptr(), PIECE) }, Ok(()));
                assert!(to == from);
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(sum, TIMES);
}

/// MEM-2: an atomic returns the old value, with each kind of guard.
#[test]
fn mem_2_atomics_answer_what_was_there() {
    let word = AtomicU64::new(0);
    for guard in guards(&word, 0) {
        let mut value = u64::MAX - 1;
        // SAFETY: a local word.
        let mut atomic = |op| unsafe { guard.atomic(&raw mut value, op) }.unwrap();
        assert_eq!(atomic(AtomicOp::FetchAdd { add: 3 }), u64::MAX - 1);
        assert_eq!(atomic(AtomicOp::CompareSwap { compare: 2, swap: 9 }), 1);
        assert_eq!(atomic(AtomicOp::CompareSwap { compare: 1, swap: 1 << 40 }), 1);
        assert_eq!(atomic(AtomicOp::Write { value: 7 }), 1 << 40);
        assert_eq!((atomic(AtomicOp::FetchAdd { add: 0 }), value), (7, 7));
    }
}
