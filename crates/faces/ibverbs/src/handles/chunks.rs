//! Address space for handles: chunks, each for objects of one kind, which are never unmapped.
//!
//! A table finds the chunk of an address without a read at the address. An entry is the chunk's
//! base with the kind in the low bits. In most processes chunks lie side by side, and so do their
//! entries, so a look-up is one load.
use adverb_device::{Errno, Error};
use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Size of a chunk in bytes, and its alignment.
pub(super) const CHUNK: usize = 256 << 10;
/// Entries in the table. At most half of them are used, so that every search ends soon: 8 GiB of
/// objects.
const PLACES: usize = 1 << 16;

static TABLE: [AtomicUsize; PLACES] = [const { AtomicUsize::new(0) }; PLACES];
static USED: AtomicUsize = AtomicUsize::new(0);

const fn place_of(base: usize) -> usize {
    base / CHUNK % PLACES
}

/// The chunk of an address, and the kind of its objects.
#[inline]
pub(super) fn find(address: usize) -> Option<(usize, u8)> {
    let base = address & !(CHUNK - 1);
    let mut at = place_of(base);
    loop {
        let entry = TABLE[at].load(Ordering::Acquire);
        if entry == 0 {
            return None;
        }
        if entry & !(CHUNK - 1) == base {
            return Some((base, entry as u8));
        }
        at = (at + 1) % PLACES;
    }
}

/// Maps a chunk of zeros for objects of a kind (not 0) and answers its base.
///
/// # Errors
/// ENOMEM.
pub(super) fn add(kind: u8) -> Result<usize, Error> {
    let full = |_| {
        Error::new(Errno::ENOMEM, "the process has as many verbs objects as the library can hold")
    };
    USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < PLACES / 2).then_some(n + 1))
        .map_err(full)?;
    let base = map().inspect_err(|_| {
        USED.fetch_sub(1, Ordering::Relaxed);
    })?;
    tell_leak_checker(base);
    let mut at = place_of(base);
    while TABLE[at]
        .compare_exchange(0, base | usize::from(kind), Ordering::Release, Ordering::Relaxed)
        .is_err()
    {
        at = (at + 1) % PLACES;
    }
    Ok(base)
}

/// The function that tells LeakSanitizer about memory with pointers, if the program has
/// LeakSanitizer.
static LEAK_CHECKER: AtomicUsize = AtomicUsize::new(0);

/// Looks the function up. Called before the first chunk is added and without a lock, because the
/// loader takes its own locks.
pub(super) fn find_leak_checker() {
    // SAFETY: a look-up by name in all loaded objects of the process.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__lsan_register_root_region".as_ptr()) };
    LEAK_CHECKER.store(found as usize, Ordering::Release);
}

/// Registers the chunk with LeakSanitizer. Otherwise LeakSanitizer would report memory that only
/// slots point to as a leak.
fn tell_leak_checker(base: usize) {
    let found = LEAK_CHECKER.load(Ordering::Acquire) as *const c_void;
    if !found.is_null() {
        // SAFETY: the function of that name has this type (`sanitizer/lsan_interface.h`).
        let register: unsafe extern "C" fn(*const c_void, usize) =
            unsafe { core::mem::transmute(found) };
        // SAFETY: the chunk is mapped for ever.
        unsafe { register(base as *const c_void, CHUNK) };
    }
}

/// Uses system calls and not the C library's functions, because programs replace these functions
/// and run their own code in them.
fn map() -> Result<usize, Error> {
    let length = 2 * CHUNK;
    // SAFETY: new private pages at an address that the kernel chooses.
    let start = unsafe {
        libc::syscall(
            libc::SYS_mmap,
            0_usize,
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1_isize,
            0_usize,
        )
    };
    if start == -1 {
        let errno = Errno::last();
        return Err(Error::new(
            errno,
            format!("no {length} bytes of address space for verbs objects"),
        ));
    }
    let start = start as usize;
    let base = start.next_multiple_of(CHUNK);
    let unmap = |from: usize, to: usize| {
        if from < to {
            // SAFETY: a part of the pages just mapped, which no other code knows.
            unsafe { libc::syscall(libc::SYS_munmap, from, to - from) };
        }
    };
    unmap(start, base);
    unmap(base + CHUNK, start + length);
    Ok(base)
}
