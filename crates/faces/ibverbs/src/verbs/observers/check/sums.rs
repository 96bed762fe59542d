//! Checksums of the program's bytes.
use std::hash::{DefaultHasher, Hasher};

/// Longer memory is not checked.
const MOST: u32 = 4096;

/// A checksum of the bytes. `None` if there are no bytes, too many bytes, or unreadable bytes.
/// Unmapped memory raises no signal, because the kernel reads the bytes.
pub fn sum(ranges: &[(u64, u32)]) -> Option<u64> {
    let all = ranges.iter().try_fold(0_u32, |sum, (_, n)| sum.checked_add(*n))?;
    if all == 0 || all > MOST {
        return None;
    }
    let mut bytes = vec![0_u8; all as usize];
    let from: Vec<_> = ranges
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(at, n)| libc::iovec { iov_base: *at as *mut _, iov_len: *n as usize })
        .collect();
    let to = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: the kernel writes to this buffer, and checks the program's memory itself.
    let read = unsafe {
        libc::process_vm_readv(
            libc::getpid(),
            &raw const to,
            1,
            from.as_ptr(),
            from.len() as u64,
            0,
        )
    };
    if usize::try_from(read) != Ok(bytes.len()) {
        return None;
    }
    let mut hash = DefaultHasher::new();
    hash.write(&bytes);
    Some(hash.finish())
}
