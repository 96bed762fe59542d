//! Which descriptors of the program belong to librspreload. These are descriptors that librspreload
//! returned and that are still `/dev/null`, the stand-in for an rsocket.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::next::{errno, set_errno};

/// Only descriptors below this number can belong to librspreload, because its table ends here.
const MOST: usize = 1 << 16;

/// A set of descriptors that can be read without a lock.
pub(crate) struct Marks([AtomicU64; MOST / 64]);

impl Marks {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; MOST / 64])
    }

    fn place(&self, fd: c_int) -> Option<(&AtomicU64, u64)> {
        let fd = usize::try_from(fd).ok()?;
        Some((self.0.get(fd / 64)?, 1 << (fd % 64)))
    }

    pub(crate) fn set(&self, fd: c_int) {
        if let Some((word, bit)) = self.place(fd) {
            word.fetch_or(bit, Ordering::AcqRel);
        }
    }

    pub(crate) fn clear(&self, fd: c_int) {
        if let Some((word, bit)) = self.place(fd) {
            word.fetch_and(!bit, Ordering::AcqRel);
        }
    }

    pub(crate) fn has(&self, fd: c_int) -> bool {
        self.place(fd).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
    }

    /// The descriptors from `first` to `last`, in order.
    pub(crate) fn within(&self, first: u32, last: u32) -> impl Iterator<Item = c_int> {
        let last = last.min(MOST as u32 - 1);
        (first / 64..=last / 64)
            .filter(move |_| first <= last)
            .flat_map(move |at| {
                let word = self.0[at as usize].load(Ordering::Acquire);
                (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| at * 64 + bit)
            })
            .filter(move |fd| (first..=last).contains(fd))
            .map(|fd| fd as c_int)
    }

    /// Removes and returns all descriptors.
    pub(crate) fn take(&self) -> impl Iterator<Item = c_int> {
        self.0.iter().zip(0..).filter(|(word, _)| word.load(Ordering::Relaxed) != 0).flat_map(
            |(word, at)| {
                let word = word.swap(0, Ordering::AcqRel);
                (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| at * 64 + bit)
            },
        )
    }
}

/// The descriptors that librspreload returned. The next file with the number of a closed descriptor
/// is not librspreload's, so a close clears the mark.
pub(crate) static GIVEN: Marks = Marks::new();

/// Notes a descriptor that librspreload returned: a stand-in, or a socket of the kernel.
pub(crate) fn note(fd: c_int) {
    if fd >= 0 && is_null_device(fd) {
        GIVEN.set(fd);
    }
}

/// Whether the descriptor belongs to librspreload. If a number was closed without a call of these
/// functions, it is no `/dev/null` any more.
pub(crate) fn is_theirs(fd: c_int) -> bool {
    GIVEN.has(fd) && is_null_device(fd)
}

/// The descriptors of librspreload from `first` to `last`.
pub(crate) fn theirs_within(first: u32, last: u32) -> impl Iterator<Item = c_int> {
    GIVEN.within(first, last).filter(|fd| is_theirs(*fd))
}

/// Whether the descriptor is `/dev/null`, which has the same number on every Linux. Keeps `errno`.
fn is_null_device(fd: c_int) -> bool {
    let before = errno();
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `found` has room for the answer, and is read only if the call succeeded.
    let is_it = unsafe {
        libc::syscall(libc::SYS_fstat, fd, found.as_mut_ptr()) == 0 && {
            let found = found.assume_init();
            found.st_mode & libc::S_IFMT == libc::S_IFCHR && found.st_rdev == libc::makedev(1, 3)
        }
    };
    set_errno(before);
    is_it
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_a_range_are_found_and_taken() {
        let marks = Marks::new();
        [3, 63, 64, 700].iter().for_each(|fd| marks.set(*fd));
        assert_eq!(marks.within(4, 64).collect::<Vec<_>>(), [63, 64]);
        assert_eq!(marks.within(65, u32::MAX).collect::<Vec<_>>(), [700]);
        assert_eq!(marks.within(9, 8).count(), 0);
        assert_eq!(marks.take().collect::<Vec<_>>(), [3, 63, 64, 700]);
        assert_eq!(marks.take().count(), 0);
    }
}
