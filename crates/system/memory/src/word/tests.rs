use super::*;
use adverb_engine::memory::RangeKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn mapped(flags: i32) -> u64 {
    // SAFETY: a new mapping.
    unsafe { sys::map(sys::At::Anywhere, page_size(), sys::RW, flags, None) }.unwrap()
}

fn add(addr: u64) -> Result<u64, MemoryFault> {
    perform(Range { addr, len: 8, kind: RangeKind::OnDemand }, AtomicOp::FetchAdd { add: 1 })
}

/// MEM-4: memory is protected and made accessible again all the time while requests add to its
/// words. The requests fail, and nothing else happens.
#[test]
fn mem_4_words_vanish_under_atomics() {
    let addr = mapped(libc::MAP_PRIVATE);
    let over = AtomicBool::new(false);
    let (done, failed) = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let (mut done, mut failed) = (0, 0);
            while !over.load(Ordering::Relaxed) {
                *if add(addr).is_ok() { &mut done } else { &mut failed } += 1;
            }
            (done, failed)
        });
        for round in 0..4000 {
            let rights = if round % 2 == 0 { libc::PROT_NONE } else { sys::RW };
            let len = page_size() as usize;
            // SAFETY: this test's own mapping; the worker accesses it only through the kernel.
            let result = unsafe { libc::mprotect(addr as *mut libc::c_void, len, rights) };
            assert_eq!(result, 0);
            std::thread::sleep(Duration::from_micros(round % 97));
        }
        over.store(true, Ordering::Relaxed);
        worker.join().unwrap()
    });
    assert!(done > 0 && failed > 0, "{done} done, {failed} failed");
}

#[test]
fn a_shared_mapping_is_told_from_a_private_one() {
    for (flags, shared) in [(libc::MAP_PRIVATE, false), (libc::MAP_SHARED, true)] {
        let addr = mapped(flags);
        assert_eq!((add(addr), add(addr)), (Ok(0), Ok(1)));
        assert_eq!(is_shared(addr), shared);
    }
}

/// Atomics of several threads on one word lose no addition.
#[test]
fn atomics_of_a_process_are_apart() {
    let addr = mapped(libc::MAP_PRIVATE);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..500).for_each(|_| assert!(add(addr).is_ok())));
        }
    });
    assert_eq!(add(addr), Ok(2000));
}
