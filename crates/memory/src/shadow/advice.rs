//! Advice by which a program gives pages back while it keeps their addresses.
//!
//! On private memory `MADV_DONTNEED` makes zeroes of the pages, and allocators count on it. On shared memory it does nothing of the
//! kind. So the preload of `adverb run` stands in for the C library's `madvise` and has [`advised`] called after the kernel
//! was asked. It runs under the locks of allocators: it takes none, and allocates nothing.
use super::{Refusal, Shadow, moving};
use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

/// What the preload calls after `madvise`: the call's arguments and its errno, 0 for success. The answer is the errno the program
/// gets.
pub type Hook = extern "C" fn(addr: u64, len: usize, advice: c_int, errno: c_int) -> c_int;

/// Exported by the preload: takes the hook; answers how often `madvise` was asked for special treatment at `fork` so far.
const DOOR: &CStr = c"adverb_madvise_hook";

type Door = unsafe extern "C" fn(Option<Hook>) -> u64;

/// The preload's door, if its `madvise` is the one that the program calls.
fn door() -> Option<Door> {
    static FOUND: OnceLock<Option<Door>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let symbol = |name: &CStr| {
            // SAFETY: looks a name up.
            let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            (!at.is_null()).then_some(at)
        };
        let object = |at: *mut c_void| {
            let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
            // SAFETY: the function writes the structure, of which all zeroes is a value too.
            let (found, info) = unsafe { (libc::dladdr(at, info.as_mut_ptr()), info.assume_init()) };
            (found != 0).then_some(info.dli_fbase)
        };
        let (madvise, door) = (symbol(c"madvise")?, symbol(DOOR)?);
        if object(madvise)? != object(door)? {
            return None;
        }
        // SAFETY: the preload's function of this name has this signature.
        let door = unsafe { std::mem::transmute::<*mut c_void, Door>(door) };
        // SAFETY: the hook lives as long as the process: the library is never unloaded.
        unsafe { door(Some(advised)) };
        Some(door)
    })
}

/// Are the program's calls of `madvise` seen?
#[must_use]
pub fn madvise_observed() -> bool {
    door().is_some()
}

/// Has the program asked for special treatment of some memory at `fork`? Refuses where nobody would know, nor see pages given back.
pub(super) fn special_asked() -> Result<bool, Refusal> {
    let door = door().ok_or(Refusal::MadviseUnseen)?;
    // SAFETY: as in `door`: the same hook again.
    Ok(unsafe { door(Some(advised)) } > 0)
}

/// What an interposed `madvise` does when the kernel has answered: pages of the file that the program gave up are taken from it, so
/// that the next look finds zeroes. Returns the errno for the program, 0 for success.
pub extern "C" fn advised(addr: u64, len: usize, advice: c_int, errno: c_int) -> c_int {
    let given_up =
        matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_REMOVE | DONTNEED_LOCKED);
    let Some(shadow) = Shadow::current().filter(|_| given_up && len > 0) else { return errno };
    let page = crate::page_size();
    let Some(end) = addr.checked_add(len as u64).and_then(|end| end.checked_next_multiple_of(page)) else {
        return errno;
    };
    if !addr.is_multiple_of(page) || !shadow.may_hold(addr, end) {
        return errno;
    }
    let mut errno = errno;
    if advice == libc::MADV_FREE && errno == libc::EINVAL {
        // Shared memory cannot be freed lazily; at once is as good.
        let rest = (addr, end - addr, libc::MADV_DONTNEED);
        // SAFETY: the program gave up the contents. Not through the C library: that would lead back here.
        let rc = unsafe { libc::syscall(libc::SYS_madvise, rest.0, rest.1, rest.2) };
        errno = if rc == 0 { 0 } else { errno };
    }
    // ENOMEM: there are holes in the range, and the rest was done.
    if errno == 0 || errno == libc::ENOMEM {
        moving::punch(shadow.raw_fd(), addr, end.min(super::SPAN));
    }
    errno
}

/// `MADV_DONTNEED_LOCKED`.
const DONTNEED_LOCKED: c_int = 24;
