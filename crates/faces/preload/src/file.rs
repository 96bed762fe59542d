//! Files whose text nothing changes.

/// Calls `use_it` with the text of a file that nothing changes; with `None` if the file cannot be
/// mapped.
pub fn with_text<R>(fd: libc::c_long, use_it: impl FnOnce(Option<&[u8]>) -> R) -> R {
    // SAFETY: our own read-only mapping. The file never changes: the launcher writes a new file for
    // a new table, and an answer has a file of its own.
    unsafe {
        let end = libc::syscall(libc::SYS_lseek, fd, 0_u64, libc::SEEK_END);
        let Ok(len) = usize::try_from(end) else { return use_it(None) };
        let null: *mut libc::c_void = core::ptr::null_mut();
        let at = match len {
            0 => return use_it(Some(&[])),
            _ => libc::mmap(null, len, libc::PROT_READ, libc::MAP_PRIVATE, fd as libc::c_int, 0),
        };
        if at == libc::MAP_FAILED {
            return use_it(None);
        }
        let said = use_it(Some(core::slice::from_raw_parts(at.cast(), len)));
        libc::munmap(at, len);
        said
    }
}
