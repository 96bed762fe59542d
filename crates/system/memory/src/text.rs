//! Reading text files of the kernel without allocating.
//!
//! A program may fork in a signal handler interrupting the allocator (`_Fork` is
//! async-signal-safe), and an allocator's own fork handler holds the allocator's locks. So the code
//! around a fork reads `/proc` into a buffer on its stack. The buffers are small, because an
//! alternate signal stack may have only 8 KiB.
use crate::sys;
use nix::errno::Errno;
use std::ffi::CStr;
use std::fmt::{self, Write};
use std::os::fd::RawFd;

/// The capacity of [`Path`] in bytes.
const PATH: usize = 1024;
/// The longest line shown by [`lines`], in bytes; the rest of a longer line is left out.
const LINE: usize = 1024;

/// A path in its own buffer.
pub(crate) struct Path {
    bytes: [u8; PATH],
    len: usize,
}

impl Path {
    /// The path made of these arguments; `None` if too long.
    pub fn of(text: fmt::Arguments<'_>) -> Option<Path> {
        let mut path = Path { bytes: [0; PATH], len: 0 };
        path.write_fmt(text).is_ok().then_some(path)
    }

    /// Removes the last component. Returns `false` if no component is left behind the first `root`
    /// bytes.
    pub fn ascend(&mut self, root: usize) -> bool {
        let slash =
            self.bytes[..self.len].iter().rposition(|b| *b == b'/').filter(|at| *at >= root);
        if let Some(at) = slash {
            self.bytes[at..self.len].fill(0);
            self.len = at;
        }
        slash.is_some()
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }

    /// The path as a NUL-terminated string.
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

impl Write for Path {
    /// The last byte always stays zero.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        if end >= PATH || text.contains('\0') {
            return Err(fmt::Error);
        }
        self.bytes[self.len..end].copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// Calls `each` with the lines of a file, until `each` returns `false`.
pub(crate) fn lines(path: &CStr, mut each: impl FnMut(&[u8]) -> bool) -> Result<(), Errno> {
    let fd = sys::open(path)?;
    let done = lines_of::<LINE>(fd, &mut each);
    sys::close(fd);
    done
}

/// Parses the first line of a file by `from`.
pub(crate) fn first_line<T>(path: &CStr, mut from: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    let mut found = None;
    let _ = lines(path, |line| {
        found = from(line);
        false
    });
    found
}

/// Calls `each` with the lines of an open file from its beginning, until `each` returns `false`.
/// Shows only the first `N` bytes of a longer line.
pub(crate) fn lines_of<const N: usize>(
    fd: RawFd,
    each: &mut impl FnMut(&[u8]) -> bool,
) -> Result<(), Errno> {
    let mut text = [0; N];
    let (mut len, mut at) = (0, 0);
    // Skipping the rest of a long line.
    let mut skips = false;
    loop {
        let (to, room) = (text[len..].as_mut_ptr() as u64, (N - len) as u64);
        // SAFETY: reads into the rest of the array.
        let read = unsafe { sys::transfer(libc::SYS_pread64, fd, to, room, at) };
        match read {
            Ok(n) => (len, at) = (len + n as usize, at + n),
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno),
        }
        let ends = read == Ok(0);
        let mut from = 0;
        while from < len {
            let newline = text[from..len].iter().position(|b| *b == b'\n').map(|n| from + n);
            let fills = from == 0 && len == N;
            let Some(end) = newline.or((ends || fills).then_some(len)) else { break };
            if !std::mem::replace(&mut skips, newline.is_none()) && !each(&text[from..end]) {
                return Ok(());
            }
            from = newline.map_or(end, |end| end + 1);
        }
        text.copy_within(from..len, 0);
        len -= from;
        if ends {
            return Ok(());
        }
    }
}

/// Parses a decimal number.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// Calls `each` with all numbers among the names in a directory.
pub(crate) fn numbers_in(directory: &CStr, mut each: impl FnMut(u64)) {
    /// Offsets of the entry's length and of the name in `struct linux_dirent64`.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let Ok(fd) = sys::open(directory) else { return };
    let mut entries = [0_u8; 1024];
    loop {
        let (at, room) = (entries.as_mut_ptr() as u64, entries.len() as u64);
        // SAFETY: the kernel writes entries into the array.
        let got = unsafe { sys::transfer(libc::SYS_getdents64, fd, at, room, 0) };
        let Ok(len @ 1..) = got else { break };
        let mut rest = &entries[..len as usize];
        while let Some(length) = rest.get(LENGTH..LENGTH + 2) {
            let length = usize::from(u16::from_ne_bytes([length[0], length[1]])).max(NAME);
            let name =
                rest.get(NAME..length).and_then(|name| CStr::from_bytes_until_nul(name).ok());
            if let Some(number) = name.and_then(|name| number(name.to_bytes())) {
                each(number);
            }
            rest = rest.get(length..).unwrap_or_default();
        }
    }
    sys::close(fd);
}

/// Writes a log line of level `warn` to standard error by one system call. Unlike a logger, this
/// function does not allocate.
pub(crate) fn warn(text: fmt::Arguments<'_>) {
    if log::max_level() < log::LevelFilter::Warn {
        return;
    }
    let Some(line) = Path::of(format_args!("adverb: warn: {text}\n")) else { return };
    let (at, len) = (line.as_str().as_ptr() as u64, line.as_str().len() as u64);
    // SAFETY: the bytes of the line.
    let _ = unsafe { sys::transfer(libc::SYS_write, libc::STDERR_FILENO, at, len, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn lines_come_whole_and_long_ones_are_cut() {
        let path = std::env::temp_dir().join(format!("adverb-lines-{}", std::process::id()));
        std::fs::write(&path, "one\n\n0123456789abcdefghij\nlast").unwrap();
        let file = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let mut all = Vec::new();
        lines_of::<8>(file.as_raw_fd(), &mut |line| {
            all.push(String::from_utf8_lossy(line).into_owned());
            true
        })
        .unwrap();
        assert_eq!(all, ["one", "", "01234567", "last"]);
    }

    #[test]
    fn a_path_goes_up_to_its_root() {
        let mut path = Path::of(format_args!("/a/{}/c", "b")).unwrap();
        assert_eq!(path.as_c_str(), c"/a/b/c");
        assert!(path.ascend(2));
        assert_eq!(path.as_c_str(), c"/a/b");
        assert!(path.ascend(2) && !path.ascend(2));
        assert_eq!(path.as_str(), "/a");
        assert!(Path::of(format_args!("{:2000}", 1)).is_none());
    }

    #[test]
    fn threads_are_numbers_of_a_directory() {
        let mut all = Vec::new();
        numbers_in(c"/proc/self/task", |number| all.push(number));
        assert!(all.contains(&u64::try_from(nix::unistd::gettid().as_raw()).unwrap()), "{all:?}");
    }
}
