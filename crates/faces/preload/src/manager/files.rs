//! Which of the program's descriptors stand for which of the library's.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::real::{errno, set_errno};

/// Descriptors from this number on are none of these.
const MOST: usize = 1 << 16;

/// The library's descriptor behind each of the program's, plus one; 0 is none. Pages of it that are
/// not used take no memory.
static TABLE: [AtomicI32; MOST] = [const { AtomicI32::new(0) }; MOST];

/// Whether there has ever been one: all calls pass straight through until then.
static USED: AtomicBool = AtomicBool::new(false);

fn slot(fd: c_int) -> Option<&'static AtomicI32> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// From now on `fd` stands for `library`. False where there is no place for it.
pub fn mark(fd: c_int, library: c_int) -> bool {
    let Some(slot) = slot(fd) else { return false };
    slot.store(library + 1, Ordering::Release);
    USED.store(true, Ordering::Release);
    true
}

/// `fd` stands for nothing any more.
pub fn forget(fd: c_int) {
    if let Some(slot) = slot(fd) {
        slot.store(0, Ordering::Release);
    }
}

/// What `fd` stands for, if it is still that file. Keeps `errno`.
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

/// Whether any descriptor stands for `library`.
pub fn others(library: c_int) -> bool {
    TABLE.iter().any(|slot| slot.load(Ordering::Acquire) == library + 1)
}

/// Device and number of an open file, past every stand-in. Keeps `errno`.
fn file(fd: c_int) -> Option<(u64, u64)> {
    let before = errno();
    let mut found = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for the answer, which is there if the call succeeds.
    let said =
        unsafe { (libc::syscall(libc::SYS_fstat, fd, found.as_mut_ptr()) == 0).then(|| found.assume_init()) };
    set_errno(before);
    said.map(|said| (said.st_dev, said.st_ino))
}
