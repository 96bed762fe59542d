//! What is refused, and that it is left alone.
use crate::world::*;
use adverb_memory::{Refusal, Shadow};
use std::sync::atomic::{AtomicU64, Ordering};

cases![
    when_switched_off,
    ranges_that_are_none,
    holes,
    guard_pages,
    constants,
    code,
    the_stack,
    the_data_of_this_thread,
    mapped_files,
    shared_memory,
    huge_pages,
    locked_memory,
    memory_special_at_fork,
    arenas_of_threads,
    rings_of_aio,
    rings_of_io_uring,
    pinned_pages,
    limits_on_files,
    many_small_pieces,
    twins_without_userfaultfd,
];

/// It is refused for this reason, and nothing has moved.
#[track_caller]
fn refused(memory: &[u8], why: Refusal) {
    assert_eq!(adopt(memory).err(), Some(why));
    assert_eq!(file_size(), 0);
    assert_eq!(shadow().stats().refused.get(why.name()), Some(&1));
}

fn when_switched_off() {
    let memory = filled(1);
    shadow().enable(false);
    refused(memory, Refusal::Disabled);
    shadow().enable(true);
    drop(adopt(memory).unwrap());
}

fn ranges_that_are_none() {
    for (addr, len) in
        [(4096, 0), (u64::MAX - 10, 5), (u64::MAX - 10, 100), (1 << 62, 4096), (4096, u64::MAX)]
    {
        assert_eq!(shadow().adopt(addr, len).err(), Some(Refusal::Range));
    }
}

fn holes() {
    let memory = filled(3);
    // Before there is a hole that it could fall into.
    let _ = shadow();
    // SAFETY: a page that nothing uses.
    unsafe { libc::munmap(memory[PAGE..].as_mut_ptr().cast(), PAGE) };
    refused(memory, Refusal::NotMapped);
    assert_eq!(shadow().adopt(4096, 8).err(), Some(Refusal::NotMapped));
}

fn guard_pages() {
    let memory = filled(3);
    protect(&memory[2 * PAGE..], libc::PROT_NONE);
    refused(memory, Refusal::Guard);
    assert_eq!(memory[..PAGE], filled(3)[..PAGE]);
    drop(adopt(&memory[..2 * PAGE]).unwrap());
}

fn constants() {
    let memory = filled(2);
    protect(memory, libc::PROT_READ);
    refused(memory, Refusal::Guard);
}

fn code() {
    let memory = filled(1);
    protect(memory, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC);
    refused(memory, Refusal::Executable);
}

fn the_stack() {
    let here = [1_u8; 100];
    refused(std::hint::black_box(&here), Refusal::Stack);
    // A stack of the program's own making.
    static ALTERNATIVE: AtomicU64 = AtomicU64::new(0);
    extern "C" fn on_it(_: libc::c_int) {
        let (start, len) = (ALTERNATIVE.load(Ordering::Relaxed), 64 * PAGE as u64);
        assert_eq!(shadow().adopt(start, len).err(), Some(Refusal::Stack));
        // SAFETY: ends the case, on whatever stack.
        unsafe { libc::_exit(0) };
    }
    let stack = pages(64);
    ALTERNATIVE.store(addr(stack), Ordering::Relaxed);
    let alternative = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: stack.len() };
    // SAFETY: the handler runs on memory that is its alone.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_it as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigaltstack(&raw const alternative, std::ptr::null_mut());
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
        libc::raise(libc::SIGUSR1);
    }
    unreachable!("the handler ends the case");
}

fn the_data_of_this_thread() {
    // SAFETY: the address of errno.
    let errno = unsafe { libc::__errno_location() };
    assert_eq!(shadow().adopt(errno as u64, 4).err(), Some(Refusal::Stack));
    assert_eq!(file_size(), 0);
}

fn mapped_files() {
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    let memory = map(2 * PAGE, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE, fd);
    memory[0] = 1;
    refused(memory, Refusal::File);
}

fn shared_memory() {
    let memory = map(PAGE, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1);
    refused(memory, Refusal::Shared);
}

fn huge_pages() {
    // Without reservation they can be had where there are none, as long as nobody touches them.
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_NORESERVE;
    let memory = map(2 << 20, libc::PROT_READ | libc::PROT_WRITE, flags, -1);
    refused(&memory[..10], Refusal::HugePages);
}

fn locked_memory() {
    let memory = filled(3);
    // SAFETY: locks a page.
    assert_eq!(unsafe { libc::mlock(memory[PAGE..].as_ptr().cast(), PAGE) }, 0);
    refused(memory, Refusal::Locked);
    drop(adopt(&memory[..PAGE]).unwrap());
}

fn memory_special_at_fork() {
    let memory = filled(3);
    drop(adopt(memory).unwrap());
    for advice in [libc::MADV_DONTFORK, libc::MADV_WIPEONFORK] {
        advise(&memory[PAGE..2 * PAGE], advice).unwrap();
        assert_eq!(adopt(memory).err(), Some(Refusal::Special));
        assert_eq!(file_size(), 0);
        drop(adopt(&memory[..PAGE]).unwrap());
        advise(&memory[PAGE..2 * PAGE], libc::MADV_DOFORK).unwrap();
        let _ = advise(&memory[PAGE..2 * PAGE], 19); // MADV_KEEPONFORK
    }
    drop(adopt(memory).unwrap());
}

fn arenas_of_threads() {
    let buffer = std::thread::spawn(|| vec![5_u8; 10_000]).join().unwrap();
    wait_until_alone();
    refused(&buffer, Refusal::Arena);
    // Whatever its mappings are cut into.
    advise(&buffer[PAGE - addr(&buffer) as usize % PAGE..][..PAGE], libc::MADV_DONTDUMP).unwrap();
    assert_eq!(adopt(&buffer[PAGE - addr(&buffer) as usize % PAGE..][..PAGE]).err(), Some(Refusal::Arena));
    // What only begins at such an address is no arena.
    let large = pages((128 << 20) / PAGE);
    let start = addr(large).next_multiple_of(64 << 20) - addr(large);
    let memory = &mut large[start as usize..][..PAGE];
    memory.fill(7);
    drop(adopt(memory).unwrap());
}

fn rings_of_aio() {
    let memory = filled(1);
    drop(adopt(memory).unwrap());
    let set_up = || {
        let mut context = 0_u64;
        // SAFETY: the kernel writes the word.
        assert_eq!(unsafe { libc::syscall(libc::SYS_io_setup, 8, &raw mut context) }, 0);
        context
    };
    // SAFETY: ends a ring that nothing uses.
    let end = |context: u64| unsafe { libc::syscall(libc::SYS_io_destroy, context) };
    let context = set_up();
    refused(memory, Refusal::AsyncIo);
    end(context);
    let adopted = adopt(memory).unwrap();
    let context = set_up();
    // Nor does anything go back.
    drop(adopted);
    assert_eq!((shadow().stats().idle, file_size()), (PAGE as u64, PAGE as u64));
    end(context);
    shadow().sweep();
    assert_eq!((shadow().stats().inside, file_size()), (0, 0));
    assert_eq!(memory, filled(1));
}

/// A ring, if there is io_uring here.
fn ring() -> Option<i32> {
    let mut parameters = [0_u32; 30];
    // SAFETY: the kernel writes the structure of 120 bytes.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 8, parameters.as_mut_ptr()) } as i32;
    let error = std::io::Error::last_os_error();
    if ring < 0 && matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) {
        eprintln!("no io_uring here: {error}");
        return None;
    }
    assert!(ring >= 0, "io_uring: {error}");
    Some(ring)
}

fn rings_of_io_uring() {
    let memory = filled(1);
    drop(adopt(memory).unwrap());
    let Some(ring) = ring() else { return };
    let _mapped = map(PAGE, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, ring);
    refused(memory, Refusal::AsyncIo);
}

/// Buffers of a ring that is not mapped are pinned like those of a device: the kernel writes to the pages, wherever they are.
fn pinned_pages() {
    let memory = filled(2);
    let adopted = adopt(memory).unwrap();
    let Some(ring) = ring() else { return };
    let buffer = pages(1);
    let buffers = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: PAGE };
    let register = |operation: libc::c_int, buffers: Option<&libc::iovec>| {
        let (buffers, n) =
            (buffers.map_or(std::ptr::null(), std::ptr::from_ref), u32::from(buffers.is_some()));
        // SAFETY: pins the pages of the case, or lets go of them.
        let rc = unsafe { libc::syscall(libc::SYS_io_uring_register, ring, operation, buffers, n) };
        assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
    };
    // IORING_REGISTER_BUFFERS, and below IORING_UNREGISTER_BUFFERS.
    register(0, Some(&buffers));
    assert_eq!(adopt(buffer).err(), Some(Refusal::Pinned));
    // Nor does anything go back.
    drop(adopted);
    assert_eq!((shadow().stats().idle, file_size()), (2 * PAGE as u64, 2 * PAGE as u64));
    register(1, None);
    shadow().sweep();
    assert_eq!((shadow().stats().inside, file_size()), (0, 0));
    drop(adopt(buffer).unwrap());
    assert_eq!(memory, filled(2));
}

fn limits_on_files() {
    let memory = filled(1);
    let _ = shadow();
    // A write beyond the limit would end the process.
    limit(libc::RLIMIT_FSIZE, 1 << 20);
    refused(memory, Refusal::FileSize);
    assert!(adverb_memory::Pages::shared(shadow(), 1, 1).is_err());
    let other = in_child(|| i32::from(Shadow::of_process().is_ok()));
    assert_eq!(other, 0);
}

/// What a registration costs does not grow with the number of those before it; what is long is worth it all the same.
fn many_small_pieces() {
    const COUNT: usize = 400;
    let memory = filled(2 * COUNT + 64);
    let pages = |first: usize, count: usize| &memory[first * PAGE..(first + count) * PAGE];
    let adopted: Vec<_> = (0..COUNT).map(|n| adopt(pages(2 * n, 1))).collect();
    let refused = adopted.iter().filter(|a| matches!(a, Err(Refusal::Scattered))).count();
    let inside = adopted.iter().flatten().count();
    assert_eq!(inside + refused, COUNT);
    assert!((256..COUNT - 1).contains(&inside), "{inside}");
    assert_eq!(shadow().stats().refused.get("scattered"), Some(&(refused as u64)));
    let long = adopt(pages(2 * COUNT, 64)).unwrap();
    drop(adopted);
    drop(adopt(pages(1, 1)).unwrap());
    drop(long);
}

fn twins_without_userfaultfd() {
    extern "C" fn sleep(_: *mut libc::c_void) -> libc::c_int {
        // SAFETY: sleeps until killed.
        unsafe { libc::pause() }
    }
    become_nobody();
    let memory = filled(1);
    let stack = pages(16);
    drop(adopt(memory).unwrap());
    // SAFETY: a process in our address space, with a stack of its own, which only sleeps.
    let twin = unsafe {
        let top = stack.as_mut_ptr().add(stack.len());
        libc::clone(sleep, top.cast(), libc::CLONE_VM | libc::SIGCHLD, std::ptr::null_mut())
    };
    assert!(twin > 0);
    let refusal = adopt(memory).err();
    // SAFETY: our own child.
    unsafe {
        libc::kill(twin, libc::SIGKILL);
        libc::waitpid(twin, std::ptr::null_mut(), 0);
    }
    assert_eq!(refusal, Some(Refusal::Processes));
    drop(adopt(memory).unwrap());
}
