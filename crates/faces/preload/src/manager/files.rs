//! The table from the program's descriptors to the library's.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::real::keeping_errno;

/// Descriptors from this number on are never in the table.
const MOST: usize = 1 << 16;

/// The library's descriptor for each of the program's descriptors, plus one; 0 means none. Unused
/// pages of the table take no memory.
static TABLE: [AtomicI32; MOST] = [const { AtomicI32::new(0) }; MOST];

/// Whether the table was ever used. Until then all calls pass straight through.
static USED: AtomicBool = AtomicBool::new(false);

fn slot(fd: c_int) -> Option<&'static AtomicI32> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// Enters `fd` for `library`. False if the number is too large for the table.
pub fn mark(fd: c_int, library: c_int) -> bool {
    let Some(slot) = slot(fd) else { return false };
    slot.store(library + 1, Ordering::Release);
    USED.store(true, Ordering::Release);
    true
}

/// Removes `fd` from the table.
pub fn forget(fd: c_int) {
    if let Some(slot) = slot(fd) {
        slot.store(0, Ordering::Release);
    }
}

/// The library's descriptor for `fd`, if `fd` is still the same file. Keeps `errno`.
pub fn of(fd: c_int) -> Option<c_int> {
    if !USED.load(Ordering::Acquire) {
        return None;
    }
    let library = slot(fd)?.load(Ordering::Acquire) - 1;
    if library < 0 {
        return None;
    }
    let is_it = matches!((file(fd), file(library)), (Some(one), Some(other)) if one == other);
    if !is_it {
        forget(fd);
    }
    is_it.then_some(library)
}

/// Whether any descriptor in the table belongs to `library`.
pub fn others(library: c_int) -> bool {
    TABLE.iter().any(|slot| slot.load(Ordering::Acquire) == library + 1)
}

/// Device and inode number of an open file, without the interposed functions. Keeps `errno`.
fn file(fd: c_int) -> Option<(u64, u64)> {
    let mut found = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `found` has room for the result, and is read only if the call succeeded.
    let said = keeping_errno(|| unsafe {
        (libc::syscall(libc::SYS_fstat, fd, found.as_mut_ptr()) == 0).then(|| found.assume_init())
    });
    said.map(|said| (said.st_dev, said.st_ino))
}
