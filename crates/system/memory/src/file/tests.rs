use super::*;
use crate::sys::{At, RW};
use crate::{HostMemory, Pages, PeerMemory};
use adverb_engine::memory::RangeKind;
use adverb_engine::{Memory, Range};
use std::sync::MutexGuard;

mod huge;
mod left;
mod pool;

const PAGE: u64 = 4096;

/// One test at a time, because all tests share the process's file, and some fork.
fn file() -> (&'static SharedFile, MutexGuard<'static, ()>) {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let file = SharedFile::of_process().unwrap();
    file.share_allocations(true);
    (file, one)
}

/// Memory as an allocator has just obtained it.
fn fresh(len: u64) -> u64 {
    // SAFETY: a new mapping.
    unsafe { sys::map(At::Anywhere, len, RW, libc::MAP_PRIVATE, None) }.unwrap()
}

fn unmap(start: u64, len: u64) {
    // SAFETY: a mapping of these tests.
    unsafe { sys::unmap(start, len) }.unwrap();
}

/// A block, as the preload makes one.
fn block(file: &'static SharedFile, len: u64) -> u64 {
    let start = fresh(len);
    // SAFETY: mapped just now.
    assert!(unsafe { file.share_fresh(start, len) });
    start
}

fn put(at: u64, byte: u8, len: u64) {
    // SAFETY: memory of these tests.
    unsafe { std::ptr::write_bytes(at as *mut u8, byte, len as usize) };
}

fn get(at: u64) -> u8 {
    // SAFETY: memory of these tests.
    unsafe { (at as *const u8).read_volatile() }
}

fn free(file: &'static SharedFile, start: u64, len: u64) {
    if file.release(start, len) {
        unmap(start, len);
    }
}

fn protect(start: u64, len: u64, rights: i32) {
    // SAFETY: memory of these tests.
    unsafe { sys::protect(start, len, rights) }.unwrap();
}

/// The program's own call of `mremap`, past the preload.
fn moved(start: u64, old: u64, new: u64, flags: i32, to: u64) -> u64 {
    // SAFETY: memory of these tests; a target is replaced.
    unsafe { sys::remap(start, old, new, libc::MREMAP_MAYMOVE | flags, to) }.unwrap()
}

/// A byte in the device's own mapping.
fn device_byte(addr: u64) -> u8 {
    let mut byte = [0];
    HostMemory.read(Range { addr, len: 1, kind: RangeKind::Mapped }, &mut byte).unwrap();
    byte[0]
}

#[test]
fn mem_2_a_peer_and_the_device_see_the_programs_bytes() {
    let (file, _one) = file();
    let start = block(file, 3 * PAGE);
    put(start, 7, 3 * PAGE);
    let placed = file.place(start + 100, 5000).unwrap();
    let range = Range { addr: placed.addr, len: 5000, kind: RangeKind::Mapped };
    let mut seen = vec![0; 5000];
    HostMemory.read(range, &mut seen).unwrap();
    assert!(seen.iter().all(|b| *b == 7));
    HostMemory.write(range, &[9; 5000]).unwrap();
    assert_eq!([99, 100, 5099, 5100].map(|at| get(start + at)), [7, 9, 9, 7]);
    // The same through the file, as a peer reads it.
    let mut byte = [0];
    // SAFETY: one byte into an array of one.
    let n = unsafe {
        libc::pread(file.raw_fd(), byte.as_mut_ptr().cast(), 1, placed.offset.cast_signed())
    };
    assert_eq!((n, byte), (1, [9]));
    drop(placed);
    free(file, start, 3 * PAGE);
}

/// MEM-1: the file range behind a block belongs to no other block, so a growing block shows zeroes.
#[test]
fn mem_1_growth_shows_zeroes_and_no_neighbour() {
    let (file, _one) = file();
    for _ in 0..40 {
        let (first, second) = (block(file, PAGE), block(file, PAGE));
        put(first, 1, PAGE);
        put(second, 2, PAGE);
        let held = file.place(first, PAGE).unwrap();
        let grown = moved(first, PAGE, 4 * PAGE, 0, 0);
        assert_eq!(get(grown + PAGE - 1), 1);
        for at in [PAGE, 2 * PAGE, 4 * PAGE - 1] {
            assert_eq!(get(grown + at), 0);
        }
        assert_eq!(get(second), 2);
        drop(held);
        unmap(grown, 4 * PAGE);
        free(file, second, PAGE);
    }
}

/// MEM-1: a reallocated block has its bytes at the new address, whatever was there before.
#[test]
fn mem_1_new_memory_has_the_bytes_and_the_holes() {
    let (file, _one) = file();
    let (start, to) = (block(file, 4 * PAGE), fresh(4 * PAGE));
    put(to, 9, 4 * PAGE);
    put(start + PAGE, 1, PAGE);
    assert_eq!(file.copy_touched(start, to, 4 * PAGE - 5), 4 * PAGE - 5);
    assert_eq!(
        [0, PAGE, 2 * PAGE - 1, 2 * PAGE, 4 * PAGE - 6, 4 * PAGE - 5].map(|at| get(to + at)),
        [0, 1, 1, 0, 0, 9]
    );
    unmap(to, 4 * PAGE);
    free(file, start, 4 * PAGE);
}

/// MEM-1: pages cut off or split from a block do not reappear when the block grows, and a move
/// leaves zeroes behind.
#[test]
fn mem_1_growth_and_moves_by_the_preload_show_zeroes() {
    let (file, _one) = file();
    for held in [false, true] {
        let call = |at: u64, old: u64, new: u64, flags| {
            let got = remap::remap(at, old * PAGE, new * PAGE, libc::MREMAP_MAYMOVE | flags, 0);
            u64::try_from(got).unwrap()
        };
        let make = || {
            let start = block(file, 4 * PAGE);
            (0..4).for_each(|page| put(start + page * PAGE, 1, PAGE));
            (start, held.then(|| file.place(start, 4 * PAGE).unwrap()))
        };
        let (cut, _hold) = make();
        assert_eq!(call(cut, 4, 1, 0), cut);
        let grown = call(cut, 1, 4, 0);
        assert_eq!([0, 1, 3].map(|page| get(grown + page * PAGE)), [1, 0, 0]);
        let (split, _hold) = make();
        let grown = call(split, 1, 4, 0);
        assert_eq!([0, 1, 3].map(|page| get(grown + page * PAGE)), [1, 0, 0]);
        put(grown + PAGE, 2, PAGE);
        assert_eq!([1, 2].map(|page| get(split + page * PAGE)), [1, 1], "nothing of it is shared");
        let (left, _hold) = make();
        let moved = call(left, 4, 4, libc::MREMAP_DONTUNMAP);
        assert_eq!([0, 3].map(|page| get(left + page * PAGE)), [0, 0]);
        put(left, 2, PAGE);
        assert_eq!([0, 3].map(|page| get(moved + page * PAGE)), [1, 1]);
        assert_eq!(remap::remap(moved, 0, PAGE, libc::MREMAP_MAYMOVE, 0), -i64::from(libc::EINVAL));
    }
}

/// MEM-1: advice that gives pages up leaves zeroes. Advice unknown for private memory changes
/// nothing.
#[test]
fn mem_1_pages_given_up_are_zeroes() {
    let (file, _one) = file();
    let start = block(file, 4 * PAGE);
    let far = start + 3 * PAGE;
    for (advice, errno, zeroed) in [
        (libc::MADV_DONTNEED, 0, true),
        (libc::MADV_FREE, 0, true),
        (libc::MADV_REMOVE, libc::EINVAL, false),
        (libc::MADV_SEQUENTIAL, 0, false),
        (libc::MADV_WILLNEED, 0, false),
        (libc::MADV_COLD, 0, false),
    ] {
        put(start, 5, 4 * PAGE);
        let got = advice::advise(start + PAGE, 2 * PAGE as usize, advice);
        assert_eq!(got, errno, "advice {advice}");
        let inside = if zeroed { 0 } else { 5 };
        let seen = [start, start + PAGE, far - 1, far].map(get);
        assert_eq!(seen, [5, inside, inside, 5], "advice {advice}");
    }
    assert_eq!(advice::advise(start + 1, PAGE as usize, libc::MADV_DONTNEED), libc::EINVAL);
    free(file, start, 4 * PAGE);
}

/// MEM-5: freed memory goes back to the machine, registered memory at the end of its registration,
/// whatever other threads do.
#[test]
fn mem_5_freed_memory_goes_back_to_the_machine() {
    let (file, _one) = file();
    let (stop, at_work) = (std::sync::mpsc::channel::<()>(), std::sync::mpsc::channel());
    let other = std::thread::spawn(move || {
        at_work.0.send(()).unwrap();
        let _ = stop.1.recv();
    });
    at_work.1.recv().unwrap();
    let before = file.usage();
    let len = 256 * PAGE;
    let (one, two) = (block(file, len), block(file, len));
    put(one, 1, len);
    put(two, 1, len);
    let usage = file.usage();
    assert_eq!(
        (usage.resident - before.resident, usage.blocks - before.blocks),
        (2 * len, 2 * len)
    );
    let kept = file.place(two, len).unwrap();
    free(file, one, len);
    assert_eq!(file.usage().resident - before.resident, len);
    // Freed by the program while registered: the block stays for its keys, and is freed with them.
    free(file, two, len);
    assert_eq!(file.usage().resident - before.resident, len);
    assert_eq!(device_byte(kept.addr), 1);
    drop(kept);
    assert_eq!(file.usage(), before);
    drop(stop.0);
    other.join().unwrap();
}

/// A block freed without our knowledge, with other memory in its place by now, is left alone.
#[test]
fn mem_1_memory_of_others_is_not_touched_when_a_block_was_freed_past_us() {
    let (file, _one) = file();
    let start = block(file, 2 * PAGE);
    // The allocator has split the block: the memory starting there now is shorter.
    put(start, 3, 2 * PAGE);
    assert!(file.release(start, 100));
    assert_eq!([start, start + PAGE].map(get), [3, 3]);
    unmap(start, 2 * PAGE);
    // Unmapped and mapped anew.
    let start = block(file, 2 * PAGE);
    // SAFETY: the block is this test's. One call, because another thread may map memory there in
    // between.
    unsafe { sys::map_zeroes(start, 2 * PAGE, RW) }.unwrap();
    put(start, 4, 2 * PAGE);
    assert!(matches!(file.place(start, PAGE), Err(Private::Replaced)));
    assert!(file.release(start, 2 * PAGE));
    assert_eq!([start, start + PAGE].map(get), [4, 4]);
    // SAFETY: no other code knows of the memory. The allocator hands it out again.
    assert!(unsafe { file.share_fresh(start, 2 * PAGE) });
    assert_eq!(get(start), 0);
    free(file, start, 2 * PAGE);
}

#[test]
fn what_is_no_block_is_private() {
    let (file, _one) = file();
    let start = block(file, PAGE);
    let other = fresh(PAGE);
    let place = |addr, len| file.place(addr, len).map(|placed| placed.addr);
    // `Replaced`: the kernel chose the address of a block freed by another test without our
    // knowledge.
    let got = [place(other, 8), place(start + PAGE - 4, 8)];
    assert!(
        got.iter().all(|at| matches!(at, Err(Private::NoBlock | Private::Replaced))),
        "{got:?}"
    );
    let got = [place(start, 0), place(u64::MAX - 4, 8)];
    assert!(got.iter().all(|at| matches!(at, Err(Private::NoBlock))), "{got:?}");
    unmap(other, PAGE);
    free(file, start, PAGE);
}

/// Starts `child` in a child of fork, which ends with the exit code that `child` returns.
fn start_child(child: impl FnOnce() -> u8) -> i32 {
    // SAFETY: the child only reads, writes and makes system calls.
    match unsafe { libc::fork() } {
        0 => {
            let code = child();
            // SAFETY: ends the child.
            unsafe { libc::_exit(code.into()) }
        }
        pid => pid,
    }
}

/// How a child ended.
fn ended(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: room for the status.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

/// Runs `child` in a child of fork; returns the exit code that `child` returned.
fn in_child(child: impl FnOnce() -> u8) -> u8 {
    let status = ended(start_child(child));
    assert!(libc::WIFEXITED(status), "status {status:#x}");
    libc::WEXITSTATUS(status) as u8
}

/// MEM-6: a child has its own copy from the time of the fork, of blocks and of the device's pages,
/// wherever the program moved them.
#[test]
fn mem_6_a_child_has_a_copy_of_its_own() {
    let (file, _one) = file();
    let (start, len) = (block(file, 4 * PAGE), 4 * PAGE);
    put(start, 1, PAGE);
    put(start + 3 * PAGE, 2, PAGE);
    let own = Pages::shared(file, 4096, 1).unwrap();
    put(own.addr(), 3, PAGE);
    // Registered, or not.
    let held = file.place(start, len).unwrap();
    let (goes, target) = (block(file, PAGE), fresh(PAGE));
    put(goes, 4, PAGE);
    assert_eq!(moved(goes, PAGE, PAGE, libc::MREMAP_FIXED, target), target);
    protect(start + 3 * PAGE, PAGE, libc::PROT_READ);
    let code = in_child(|| {
        let seen = [start, start + PAGE, start + 3 * PAGE, own.addr(), target].map(get);
        if seen != [1, 0, 2, 3, 4] {
            return 1;
        }
        put(start, 9, PAGE);
        put(own.addr(), 9, PAGE);
        u8::from(get(start) != 9)
    });
    assert_eq!(code, 0);
    assert_eq!([start, own.addr()].map(get), [1, 3]);
    put(start, 5, PAGE);
    assert_eq!(device_byte(held.addr), 5, "the parent keeps what is registered");
    drop(held);
    unmap(target, PAGE);
    assert!(file.release(goes, PAGE), "it is not there any more");
    protect(start, len, RW);
    free(file, start, len);
}

/// MEM-6: the child's copy contains nothing that the parent writes once `fork` has returned.
#[test]
fn mem_6_the_copy_is_as_of_the_fork() {
    let (file, _one) = file();
    let len = 4096 * PAGE;
    let start = block(file, len);
    put(start, 1, len);
    let whole = || (start..start + len).step_by(64).all(|at| get(at) == 1);
    let child = start_child(|| u8::from(!whole()));
    put(start, 2, len);
    assert_eq!(ended(child), 0);
    free(file, start, len);
}

/// MEM-6: advice on children takes effect.
#[test]
fn mem_6_what_children_shall_not_have_they_have_not() {
    let (file, _one) = file();
    let start = block(file, 4 * PAGE);
    put(start, 1, 4 * PAGE);
    let page = PAGE as usize;
    assert_eq!(advice::advise(start, page, libc::MADV_WIPEONFORK), 0);
    assert_eq!(advice::advise(start + PAGE, 2 * page, libc::MADV_DONTFORK), 0);
    assert_eq!(advice::advise(start + 2 * PAGE, page, libc::MADV_DOFORK), 0);
    let code = in_child(|| {
        let there = sys::is_mapped(start + PAGE);
        u8::from(there || [start, start + 2 * PAGE, start + 3 * PAGE].map(get) != [0, 1, 1])
    });
    assert_eq!(code, 0);
    assert_eq!(get(start + PAGE), 1);
    free(file, start, 4 * PAGE);
}

/// MEM-6: a child made without our handlers has no page of its parent's blocks, instead of the same
/// pages.
#[test]
fn mem_6_a_child_made_in_another_way_shares_nothing() {
    let (file, _one) = file();
    let start = block(file, PAGE);
    put(start, 1, PAGE);
    // SAFETY: a fork by its system call number; the child only makes one write, which fails or ends
    // the child.
    let pid = unsafe { sys::call(libc::SYS_clone, [libc::SIGCHLD as u64, 0, 0, 0, 0, 0]) }.unwrap();
    if pid == 0 {
        put(start, 9, 1);
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    let status = ended(pid as i32);
    assert_eq!(get(start), 1);
    assert!(libc::WIFSIGNALED(status), "it had the page: {status:#x}");
    free(file, start, PAGE);
}

/// MEM-6: a thread running on a block forks, and both processes continue.
#[test]
fn mem_6_a_stack_in_a_block_survives_a_fork() {
    let (file, _one) = file();
    let len = 64 * PAGE;
    let start = block(file, len);
    extern "C" fn run(_: *mut libc::c_void) -> *mut libc::c_void {
        let mut mine = [1_u8; 512];
        let code = in_child(|| {
            let copy = std::hint::black_box(&mut mine);
            copy.fill(2);
            u8::from(copy.iter().any(|b| *b != 2))
        });
        usize::from(code == 0 && mine.iter().all(|b| *b == 1)) as *mut libc::c_void
    }
    let mut answer = std::ptr::null_mut();
    // SAFETY: attributes and a stack that live until the thread has ended.
    unsafe {
        let mut attr = std::mem::MaybeUninit::uninit();
        libc::pthread_attr_init(attr.as_mut_ptr());
        let stack = start as *mut libc::c_void;
        assert_eq!(libc::pthread_attr_setstack(attr.as_mut_ptr(), stack, len as usize), 0);
        let (mut thread, null) = (0, std::ptr::null_mut());
        assert_eq!(libc::pthread_create(&raw mut thread, attr.as_ptr(), run, null), 0);
        libc::pthread_join(thread, &raw mut answer);
        libc::pthread_attr_destroy(attr.as_mut_ptr());
    }
    assert_eq!(answer as usize, 1);
    assert!(file.release(start, len));
    unmap(start, len);
}

/// MEM-5: pages are allocated at the first access, and a length that the machine cannot hold gives
/// ENOMEM.
#[test]
fn mem_5_pages_of_our_own_are_lazy_and_bounded() {
    let (file, _one) = file();
    let before = file.usage();
    let pages = Pages::shared(file, 48 << 20, 1).unwrap();
    let usage = file.usage();
    assert_eq!((usage.resident, usage.own), (before.resident, before.own + (48 << 20)));
    assert!(pages.write_at(40 << 20, &[1]));
    assert_eq!(file.usage().resident - before.resident, PAGE);
    drop(pages);
    assert_eq!(file.usage(), before);
    for len in [1 << 46, 1 << 61, usize::MAX] {
        assert_eq!(Pages::shared(file, len, 1).err(), Some(Errno::ENOMEM), "{len} bytes");
        assert_eq!(Pages::new(len).err(), Some(Errno::ENOMEM), "{len} bytes");
    }
    assert_eq!(file.usage(), before);
    assert_eq!(Pages::shared(file, 8, 3).err(), Some(Errno::EINVAL));
    assert_eq!(Pages::shared(file, 8, 1 << 21).unwrap().addr() % (1 << 21), 0);
}

/// A range that a peer may know never becomes another block's.
///
/// A block starts at its address modulo the huge page inside its range. The next block of the test
/// can have another address, because other tests map memory too. So the test compares the ranges.
#[test]
fn mem_2_a_range_that_peers_saw_is_not_used_again() {
    let (file, _one) = file();
    let range = |start| {
        file.place(start, PAGE).map(|placed| placed.offset - start % super::classes::HUGE).unwrap()
    };
    let unseen = block(file, PAGE);
    let first = range(unseen);
    free(file, unseen, PAGE);
    let again = block(file, PAGE);
    if !has_peers() {
        assert_eq!(range(again), first, "no peer has the file");
    }
    let peer = PeerMemory::new(file.fd().unwrap().try_clone_to_owned().unwrap());
    assert!(matches!(peer, Err(crate::PeerError::Own)));
    let seen = range(again);
    free(file, again, PAGE);
    let next = block(file, PAGE);
    assert_ne!(range(next), seen);
    free(file, next, PAGE);
}

/// MEM-4: missing memory gives an error, by both ways of the kernel's copies.
#[test]
fn mem_4_vanished_memory_is_an_error() {
    let _one = file();
    let start = fresh(2 * PAGE);
    put(start, 6, 2 * PAGE);
    // Not unmapped, because another test might map the address.
    protect(start + PAGE, PAGE, libc::PROT_NONE);
    for forbidden in [false, true] {
        crate::kernel::forbid(forbidden);
        let range = |at, len| Range { addr: start + at, len, kind: RangeKind::OnDemand };
        let mut room = [0; 64];
        assert_eq!(HostMemory.read(range(PAGE - 64, 64), &mut room), Ok(()));
        assert_eq!(room, [6; 64]);
        assert_eq!(
            HostMemory.read(range(PAGE - 32, 64), &mut room).map_err(|e| e.addr),
            Err(start + PAGE)
        );
        assert!(HostMemory.write(range(PAGE, 8), &[0; 8]).is_err());
        assert_eq!(HostMemory.write(range(8, 8), &[1; 8]), Ok(()));
        assert_eq!([7, 8, 15, 16].map(|at| get(start + at)), [6, 1, 1, 6]);
        protect(start, PAGE, libc::PROT_READ);
        assert!(HostMemory.write(range(0, 8), &[0; 8]).is_err());
        protect(start, PAGE, RW);
        put(start, 6, PAGE);
    }
    crate::kernel::forbid(false);
    unmap(start, 2 * PAGE);
}
