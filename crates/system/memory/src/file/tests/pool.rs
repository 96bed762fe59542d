//! Which allocations become blocks, and reused blocks.
use super::super::pool::{BOUND, Plan};
use super::*;

/// Allocates as the preload does. Returns the address, and whether the memory is a block.
fn allocate(file: &'static SharedFile, len: u64) -> (u64, bool) {
    match file.plan(PAGE, len) {
        Plan::Private => (fresh(len), false),
        Plan::Block => (block(file, len), true),
        Plan::Pooled(start) => (start, true),
    }
}

/// Frees as the preload does.
fn free(file: &'static SharedFile, start: u64, len: u64) {
    if file.block_at(start) == 0 || (!file.keep(start, len) && file.release(start, len)) {
        unmap(start, len);
    }
}

/// Takes all credit of a class.
fn spend(file: &'static SharedFile, len: u64) {
    while !file.credit.is_spent(len) {
        if file.credit.take(len) {
            file.empty(super::super::classes::class(len));
        }
    }
}

/// MEM-1: a freed block serves the next allocation of its size. A changed block does not, and
/// neither does a block that is too small or not aligned.
#[test]
fn mem_1_a_freed_block_is_handed_out_again_as_it_was_made() {
    let (file, _one) = file();
    let len = 37 * PAGE;
    file.credit.give(len);
    let (first, shared) = allocate(file, len);
    assert!(shared);
    put(first, 7, len);
    free(file, first, len);
    assert_eq!(file.plan(PAGE, len + PAGE), Plan::Block, "of the same class, and longer");
    assert_eq!(file.plan(3 * PAGE, len), Plan::Private, "what is no alignment");
    assert_eq!(file.plan(1 << 46, len), Plan::Block, "not aligned so far");
    assert_eq!(file.plan(PAGE, len - PAGE), Plan::Pooled(first));
    // The program changes the advice for its children, or the rights of a part, and then frees the
    // block.
    assert_eq!(advice::advise(first, PAGE as usize, libc::MADV_DONTFORK), 0);
    free(file, first, len);
    assert_eq!((file.plan(PAGE, len), file.block_at(first)), (Plan::Block, 0));
    let (second, _) = allocate(file, len);
    protect(second + PAGE, PAGE, libc::PROT_READ);
    free(file, second, len);
    assert_eq!(file.plan(PAGE, len), Plan::Block);
    let (third, _) = allocate(file, len);
    let moved = remap::remap(third, len, len, libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP, 0);
    unmap(u64::try_from(moved).unwrap(), len);
    free(file, third, len);
    assert_eq!(file.plan(PAGE, len), Plan::Block);
}

/// MEM-5: the pool holds a bounded number of bytes, and no block of a class without credit.
#[test]
fn mem_5_what_was_freed_is_bounded_and_goes_back() {
    let (file, _one) = file();
    let len = 300 * PAGE;
    file.credit.give(len);
    let before = file.usage();
    let blocks = [(); 40].map(|()| allocate(file, len));
    assert!(blocks.iter().all(|(_, shared)| *shared));
    for (start, _) in blocks {
        put(start, 1, len);
        free(file, start, len);
    }
    let held = file.usage().resident - before.resident;
    assert!(held > BOUND / 2 && held <= BOUND, "{held} bytes are held");
    let mut out = Vec::new();
    while !file.credit.is_spent(len) {
        out.push(allocate(file, len).0);
    }
    let (private, shared) = allocate(file, len);
    assert!(!shared);
    out.into_iter().chain([private]).for_each(|start| free(file, start, len));
    assert_eq!(file.usage(), before);
}

/// MEM-5: a thread that has taken its blocks out of the pool leaves the room to other threads, even
/// if a small block of its own stays there.
#[test]
fn mem_5_room_in_the_pool_goes_to_other_threads() {
    let (file, _one) = file();
    let (small, large, other) = (11 * PAGE, 300 * PAGE, 45 * PAGE);
    [small, large, other].iter().for_each(|len| file.credit.give(*len));
    let (start, _) = allocate(file, small);
    free(file, start, small);
    let blocks = [(); 40].map(|()| allocate(file, large).0);
    blocks.iter().for_each(|start| free(file, *start, large));
    let pooled = blocks.map(|_| allocate(file, large).0);
    // Threads that live at the same time, so that they begin at different shards.
    let (together, turn) = (std::sync::Barrier::new(8), std::sync::Mutex::new(()));
    std::thread::scope(|scope| {
        let reuses = || {
            together.wait();
            let reused = {
                let _turn = turn.lock().unwrap();
                let (start, _) = allocate(file, other);
                free(file, start, other);
                let plan = file.plan(PAGE, other);
                free(file, start, other);
                plan == Plan::Pooled(start)
            };
            together.wait();
            reused
        };
        let threads = [(); 8].map(|()| scope.spawn(reuses));
        assert_eq!(threads.map(|thread| thread.join().unwrap()), [true; 8]);
    });
    pooled.iter().for_each(|start| free(file, *start, large));
    [small, large, other].iter().for_each(|len| spend(file, *len));
}

/// MEM-5: a class with registered blocks stays shared. Without credit it is shared again from the
/// next registration on.
#[test]
fn mem_5_a_class_is_shared_while_its_blocks_are_registered() {
    let (file, _one) = file();
    let len = 21 * PAGE;
    file.credit.give(len);
    for _ in 0..1000 {
        let (start, shared) = allocate(file, len);
        assert!(shared);
        drop(file.place(start, len).unwrap());
        free(file, start, len);
    }
    spend(file, len);
    let (private, shared) = allocate(file, len);
    assert!(!shared);
    assert!(matches!(file.place(private, len), Err(Private::NoBlock | Private::Replaced)));
    let (start, shared) = allocate(file, len);
    assert!(shared);
    free(file, start, len);
    unmap(private, len);
}

/// A registered block freed by the program is not reused before its registration ends.
#[test]
fn mem_5_a_registered_block_is_not_pooled() {
    let (file, _one) = file();
    let len = 19 * PAGE;
    file.credit.give(len);
    let (start, _) = allocate(file, len);
    let placed = file.place(start, len).unwrap();
    free(file, start, len);
    assert_eq!((file.plan(PAGE, len), file.block_at(start)), (Plan::Block, 0));
    drop(placed);
    assert_eq!(file.plan(PAGE, len), Plan::Block);
}

/// MEM-6: a child has none of the blocks freed by its parent, and such a block is not handed out
/// there.
#[test]
fn mem_6_a_child_has_nothing_of_the_pool() {
    let (file, _one) = file();
    // No other test has blocks of this class: they would be looked at first.
    let len = 29 * PAGE;
    file.credit.give(len);
    let [(kept, _), (freed, _)] = [(); 2].map(|()| allocate(file, len));
    put(kept, 5, len);
    put(freed, 6, len);
    free(file, freed, len);
    let code = in_child(|| {
        let seen = SharedFile::outside().is_none() && get(kept) == 5;
        u8::from(!seen || sys::is_mapped(freed))
    });
    assert_eq!(code, 0);
    assert_eq!(file.plan(PAGE, len), Plan::Pooled(freed));
    assert_eq!(get(freed), 6, "the parent has it as before");
    free(file, kept, len);
    free(file, freed, len);
}

/// MEM-7: a signal handler that interrupts its thread in the pool finds the pool empty, and may
/// fork. The child continues inside the pool, so it has all blocks.
#[test]
fn mem_7_a_thread_in_the_pool_forks() {
    let (file, _one) = file();
    let len = 25 * PAGE;
    file.credit.give(len);
    let (start, _) = allocate(file, len);
    put(start, 4, len);
    free(file, start, len);
    assert!(file.pool.hold());
    assert_eq!(file.plan(PAGE, len), Plan::Block);
    assert_eq!(in_child(|| u8::from(get(start) != 4)), 0);
    file.pool.let_go();
    assert_eq!(file.plan(PAGE, len), Plan::Pooled(start));
    free(file, start, len);
}

/// Threads allocate and free at the same time, and the process forks: no block belongs to two
/// threads.
#[test]
fn mem_7_threads_share_the_pool() {
    let (file, _one) = file();
    let len = 9 * PAGE;
    file.credit.give(len);
    std::thread::scope(|scope| {
        for me in 1..=4_u8 {
            scope.spawn(move || {
                for _ in 0..2000 {
                    file.credit.give(len);
                    let (start, _) = allocate(file, len);
                    put(start, me, 64);
                    std::thread::yield_now();
                    assert!((0..64).all(|at| get(start + at) == me));
                    free(file, start, len);
                }
            });
        }
        for _ in 0..20 {
            assert_eq!(in_child(|| 0), 0);
        }
    });
}
