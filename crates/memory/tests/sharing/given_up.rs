//! Memory that the program gives up, in whole or by `madvise`, while it is registered.
use crate::world::*;
use adverb_memory::{Refusal, madvise_observed};
use std::sync::Mutex;

cases![
    pages_given_up_are_zero,
    what_cannot_be_advised_says_so,
    unmapped_and_mapped_anew,
    registered_again_at_the_same_place,
    moved_by_mremap,
    moved_by_mremap_and_barred_there,
    new_memory_where_moved_memory_was,
    grown_by_realloc,
    grown_by_realloc_when_adopted_page_by_page,
    grown_by_realloc_when_adopted_next_to_threads,
    a_stack_in_their_place,
    the_end_of_the_heap_goes_and_comes,
    a_large_block_is_freed_and_another_comes,
    new_pages_where_others_were,
];

/// These have no preload.
pub const UNSEEN: &[Case] = &[Case { name: "without_the_preload", preload: false, run: without_the_preload }];

fn pages_given_up_are_zero() {
    assert!(madvise_observed());
    for advice in [libc::MADV_DONTNEED, libc::MADV_FREE, libc::MADV_REMOVE] {
        let memory = filled(6);
        let adopted = adopt(&memory[PAGE..5 * PAGE]).unwrap();
        // From memory that is not adopted into some that is; MADV_REMOVE is for shared memory alone.
        let from = if advice == libc::MADV_REMOVE { PAGE } else { 0 };
        advise(&memory[from..3 * PAGE - 100], advice).unwrap();
        assert!(memory[PAGE..3 * PAGE].iter().all(|byte| *byte == 0), "advice {advice}");
        if advice == libc::MADV_DONTNEED {
            assert!(memory[..PAGE].iter().all(|byte| *byte == 0));
        }
        assert_eq!(memory[3 * PAGE..], filled(6)[3 * PAGE..]);
        memory[PAGE] = 3;
        assert_eq!(in_file(addr(memory) + PAGE as u64, 2), [3, 0], "peers see the same");
        drop(adopted);
        assert_eq!((memory[PAGE], &memory[3 * PAGE..]), (3, &filled(6)[3 * PAGE..]));
        assert!(memory[PAGE + 1..3 * PAGE].iter().all(|byte| *byte == 0));
    }
}

fn what_cannot_be_advised_says_so() {
    let memory = filled(2);
    let _adopted = adopt(memory).unwrap();
    for (at, advice, errno) in [(1, libc::MADV_DONTNEED, libc::EINVAL), (0, 12345, libc::EINVAL)] {
        let error = advise(&memory[at..PAGE], advice).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno));
    }
    assert_eq!(memory, filled(2));
    // Whatever is not adopted is as ever.
    let other = filled(1);
    assert_eq!(advise(other, libc::MADV_REMOVE).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    advise(other, libc::MADV_WILLNEED).unwrap();
    assert_eq!(other, filled(1));
    advise(other, libc::MADV_DONTNEED).unwrap();
    assert_eq!(other, [0; PAGE]);
    assert_eq!(memory, filled(2));
}

fn without_the_preload() {
    assert!(!madvise_observed());
    let memory = filled(1);
    assert_eq!(adopt(memory).err(), Some(Refusal::MadviseUnseen));
    assert_eq!(file_size(), 0);
    shadow().trust_allocators(true);
    drop(adopt(memory).unwrap());
}

fn unmapped_and_mapped_anew() {
    let memory = filled(4);
    let adopted = adopt(memory).unwrap();
    let anew = map_at(&memory[PAGE..3 * PAGE]);
    anew.fill(42);
    drop(adopted);
    assert_eq!(file_size(), 0);
    assert!(anew.iter().all(|byte| *byte == 42), "what is there now is nobody else's");
    assert_eq!((&memory[..PAGE], &memory[3 * PAGE..]), (&filled(4)[..PAGE], &filled(4)[3 * PAGE..]));
}

fn registered_again_at_the_same_place() {
    let memory = filled(4);
    let first = adopt(memory).unwrap();
    let anew = map_at(memory);
    anew.fill(42);
    let second = adopt(anew).unwrap();
    assert_eq!(in_file(addr(anew), 4 * PAGE), [42; 4 * PAGE], "the second shares what is there now");
    drop(first);
    anew[0] = 43;
    assert_eq!(in_file(addr(anew), 1), [43]);
    drop(second);
    assert_eq!((file_size(), anew[0], anew[1]), (0, 43, 42));
}

fn moved_by_mremap() {
    let memory = filled(4);
    let adopted = adopt(memory).unwrap();
    let moved = move_elsewhere(memory);
    moved[0] = 200;
    drop(adopted);
    assert_eq!(file_size(), 0);
    assert_eq!((moved[0], &moved[1..]), (200, &filled(4)[1..]));
    moved.fill(1);
    assert_eq!(file_size(), 0, "private where it is now");
}

/// Others may be writing to what is registered in another way at its new place.
fn moved_by_mremap_and_barred_there() {
    let memory = filled(4);
    let adopted = adopt(memory).unwrap();
    let moved = move_elsewhere(memory);
    let barred = shadow().bar(addr(&moved[PAGE..]), 8);
    drop(adopted);
    assert_eq!(file_size(), 4 * PAGE as u64, "it stays");
    drop(barred);
    shadow().sweep();
    assert_eq!((file_size(), &*moved), (0, &*filled(4)));
}

/// What the program has moved elsewhere is in the file at its old place.
fn new_memory_where_moved_memory_was() {
    let memory = filled(4);
    let adopted = adopt(memory).unwrap();
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || wait.recv().is_err());
    drop(adopted);
    let moved = move_elsewhere(memory);
    let anew = map_at(memory);
    anew.fill(42);
    assert_eq!(adopt(anew).err(), Some(Refusal::Taken));
    assert_eq!(moved, filled(4));
    drop(end);
    assert!(thread.join().unwrap());
    wait_until_alone();
    let adopted = adopt(anew).unwrap();
    moved[0] = 7;
    assert_eq!(in_file(addr(anew), 4 * PAGE), [42; 4 * PAGE]);
    drop(adopted);
    assert_eq!((moved[0], &moved[1..], &*anew), (7, &filled(4)[1..], &[42; 4 * PAGE][..]));
    assert_eq!(file_size(), 0);
}

fn grown_by_realloc() {
    grown(false, |memory| vec![adopt(memory).unwrap()]);
}

fn grown_by_realloc_when_adopted_page_by_page() {
    grown(false, |memory| {
        let pages =
            (addr(memory) / PAGE as u64 * PAGE as u64..addr(memory) + memory.len() as u64).step_by(PAGE);
        pages.map(|page| shadow().adopt(page, 1).unwrap()).collect()
    });
}

fn grown_by_realloc_when_adopted_next_to_threads() {
    if can_hold_up() {
        grown(true, |memory| vec![adopt(memory).unwrap()]);
    }
}

/// The first of two blocks next to each other grows when it is registered no more, but in the file still, as other threads run.
fn grown(threads: bool, adopt: impl Fn(&[u8]) -> Vec<adverb_memory::Adopted>) {
    const LEN: usize = 4 << 20;
    let _ = shadow();
    // SAFETY: new memory, of this length.
    let block = || unsafe { std::slice::from_raw_parts_mut(libc::malloc(LEN).cast::<u8>(), LEN) };
    let mut blocks = [block(), block()];
    blocks.sort_by_key(|block| addr(block));
    let [first, second] = blocks;
    assert!(addr(second) - addr(first) < (LEN + 2 * PAGE) as u64, "not next to each other");
    first.fill(1);
    second.fill(2);
    let (_end, wait) = std::sync::mpsc::channel::<()>();
    let run = || std::thread::spawn(move || wait.recv());
    let (adopted, _other) = if threads {
        run();
        (adopt(first), adopt(second))
    } else {
        let adopted = (adopt(first), adopt(second));
        run();
        adopted
    };
    drop(adopted);
    // SAFETY: the block is used at its new place alone from here on.
    let grown = unsafe {
        let at = libc::realloc(first.as_mut_ptr().cast(), 2 * LEN);
        assert!(!at.is_null());
        std::slice::from_raw_parts_mut(at.cast::<u8>(), 2 * LEN)
    };
    assert!(grown[..LEN].iter().all(|byte| *byte == 1), "the contents were kept");
    grown.fill(3);
    assert!(second.iter().all(|byte| *byte == 2), "the other block has changed");
    second.fill(4);
    assert!(grown.iter().all(|byte| *byte == 3));
}

/// While other threads run pages stay in the file; when the program has unmapped them new ones come to their place.
fn new_pages_where_others_were() {
    const N: usize = 64;
    let (gone, moved) = (filled(N), filled(N));
    let (place, other) = (addr(gone), addr(moved));
    let adopted = (adopt(gone).unwrap(), adopt(moved).unwrap());
    let (_ends, wait) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || wait.recv());
    drop(adopted);
    assert_eq!(file_size(), (2 * N * PAGE) as u64, "nothing was given back");
    let moved = move_elsewhere(moved);
    // SAFETY: the memory is not touched any more.
    assert_eq!(unsafe { libc::munmap(gone.as_mut_ptr().cast(), N * PAGE) }, 0);
    let (mut met, mut all) = ([false; 2], Vec::new());
    for _ in 0..64 {
        let pages = adverb_memory::Pages::shared(shadow(), N * PAGE, 1).unwrap();
        let mut bytes = vec![1; N * PAGE];
        assert!(pages.read_at(0, &mut bytes) && bytes.iter().all(|byte| *byte == 0), "not zeroed");
        assert!(pages.write_at(0, &[9; N * PAGE]));
        for (met, place) in met.iter_mut().zip([place, other]) {
            *met |= pages.addr() < place + (N * PAGE) as u64 && place < pages.addr() + (N * PAGE) as u64;
        }
        all.push(pages);
    }
    assert!(met[0], "no new page came to where others were");
    assert!(!met[1], "new pages over some that the program has elsewhere");
    assert_eq!(moved, filled(N), "what was moved is still the program's");
}

/// A program runs on memory that it has not deregistered: coroutines reuse their stacks.
fn a_stack_in_their_place() {
    extern "C" fn on_it(_: libc::c_int) {
        drop(ADOPTED.lock().unwrap().take());
        assert_eq!(file_size(), 64 * PAGE as u64, "not under our feet");
    }
    static ADOPTED: Mutex<Option<adverb_memory::Adopted>> = Mutex::new(None);
    let stack = pages(64);
    let alternative = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: stack.len() };
    *ADOPTED.lock().unwrap() = Some(adopt(stack).unwrap());
    // SAFETY: the handler runs on memory that is its alone.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_it as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigaltstack(&raw const alternative, std::ptr::null_mut());
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
        libc::raise(libc::SIGUSR1);
    }
    shadow().sweep();
    assert_eq!(file_size(), 0);
}

fn the_end_of_the_heap_goes_and_comes() {
    // SAFETY: the case has the end of the heap to itself as long as it allocates nothing.
    unsafe {
        let _ = shadow();
        let end = (libc::sbrk(0) as usize).next_multiple_of(PAGE);
        assert_eq!(libc::brk((end + 8 * PAGE) as *mut _), 0);
        let memory = std::slice::from_raw_parts_mut(end as *mut u8, 8 * PAGE);
        memory.fill(5);
        let adopted = adopt(memory);
        assert_eq!(libc::brk(end as *mut _), 0);
        assert_eq!(libc::brk((end + 8 * PAGE) as *mut _), 0);
        let zero = memory.iter().all(|byte| *byte == 0);
        memory.fill(6);
        drop(adopted);
        assert!(zero && memory.iter().all(|byte| *byte == 6));
        assert_eq!(file_size(), 0);
    }
}

fn a_large_block_is_freed_and_another_comes() {
    for _ in 0..50 {
        let block = vec![3_u8; 1 << 20];
        let adopted = adopt(&block).unwrap();
        drop(block);
        let next = vec![0_u8; 1 << 20];
        assert!(next.iter().all(|byte| *byte == 0));
        drop(adopted);
        assert!(next.iter().all(|byte| *byte == 0));
        assert_eq!(file_size(), 0);
    }
}
