//! The file of a program: which file the kernel runs, and whether the loader runs it in secure
//! mode. This module does not allocate.

use core::ffi::{CStr, c_char, c_int};

use crate::text::{decimal, join};

/// Room for a path.
pub(super) const PATH_MAX: usize = 1024;

/// An open file.
pub struct File(c_int);

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: our own descriptor.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

impl File {
    /// Opens the file that `exec` would find by a name; `None` if no file can be opened.
    ///
    /// # Safety
    /// `name` is a string. `search` is a string or null.
    pub unsafe fn find(dir: c_int, name: *const c_char, search: *const c_char) -> Option<File> {
        // SAFETY: the caller's promise.
        let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
        if search.is_null() || crate::text::has_slash(bytes) {
            return Self::open(dir, name);
        }
        // SAFETY: the caller's promise.
        let search = unsafe { CStr::from_ptr(search) }.to_bytes();
        search.split(|b| *b == b':').find_map(|directory| {
            let mut path = [0_u8; PATH_MAX];
            let path = join(&mut path, [directory, b"/", bytes])?;
            Self::open(dir, path.as_ptr().cast())
        })
    }

    pub(super) fn open(dir: c_int, path: *const c_char) -> Option<File> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: a terminated path.
        let fd = unsafe { libc::syscall(libc::SYS_openat, dir, path, flags) };
        (fd >= 0).then_some(File(fd as c_int))
    }

    /// Duplicates a descriptor of the program.
    pub fn of(fd: c_int) -> Option<File> {
        // SAFETY: all arguments are integers.
        let own = unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, 0) };
        (own >= 0).then_some(File(own as c_int))
    }

    /// Reads bytes, and answers how many.
    fn read(&self, at: u64, to: &mut [u8]) -> Option<usize> {
        // SAFETY: the kernel writes into the slice only.
        let n = unsafe { libc::syscall(libc::SYS_pread64, self.0, to.as_mut_ptr(), to.len(), at) };
        usize::try_from(n).ok()
    }

    /// Reads numbers of eight bytes, in order.
    pub(super) fn words<const N: usize>(&self, at: u64) -> Option<[u64; N]> {
        let mut words = [0_u64; N];
        for (i, word) in words.iter_mut().enumerate() {
            let mut bytes = [0; 8];
            if self.read(at.checked_add(8 * i as u64)?, &mut bytes)? != bytes.len() {
                return None;
            }
            *word = u64::from_ne_bytes(bytes);
        }
        Some(words)
    }

    /// The bytes from `at` up to a byte for which `ends` is true, in `room`. `None` if `room` is
    /// too small.
    pub(super) fn text<'a>(
        &self,
        at: u64,
        room: &'a mut [u8],
        ends: impl Fn(u8) -> bool,
    ) -> Option<&'a mut [u8]> {
        let len = self.read(at, room)?;
        let read = room.get_mut(..len)?;
        let end = read.iter().position(|b| ends(*b))?;
        read.get_mut(..end)
    }

    /// The file that the kernel runs: the interpreter of a script (`#!`), else the file itself.
    pub fn interpreter(self) -> File {
        let mut file = self;
        // The kernel follows four levels, too.
        for _ in 0..4 {
            let Some(next) = file.named_interpreter() else { break };
            file = next;
        }
        file
    }

    fn named_interpreter(&self) -> Option<File> {
        let mut line = [0; 256];
        let line = self.text(0, &mut line, |b| matches!(b, b'\n' | 0))?;
        let line = line.strip_prefix(b"#!")?;
        let is_blank = |b: &u8| matches!(*b, b' ' | b'\t');
        let from = line.iter().position(|b| !is_blank(b))?;
        let name = line.get(from..)?.split(is_blank).next()?;
        let mut path = [0; PATH_MAX];
        let path = join(&mut path, [name, b"", b""])?;
        Self::open(libc::AT_FDCWD, path.as_ptr().cast())
    }

    fn attributes(&self) -> Option<libc::stat> {
        let mut about = core::mem::MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: the kernel writes the structure, for which zeros are valid.
        unsafe {
            let done = libc::syscall(libc::SYS_fstat, self.0, about.as_mut_ptr()) == 0;
            done.then(|| about.assume_init())
        }
    }

    /// Device and inode number of the file.
    pub fn identity(&self) -> Option<[u64; 2]> {
        self.attributes().map(|about| [about.st_dev, about.st_ino])
    }

    /// The path of the file, in `room`.
    pub(super) fn path<'a>(&self, room: &'a mut [u8]) -> Option<&'a [u8]> {
        let (mut number, mut link) = ([0; 20], [0; 48]);
        let digits = decimal(self.0.unsigned_abs().into(), &mut number);
        let link = join(&mut link, [b"/proc/self/fd/", digits, b""])?;
        // SAFETY: a terminated path; the kernel writes into the slice only.
        let n = unsafe {
            libc::syscall(
                libc::SYS_readlinkat,
                libc::AT_FDCWD,
                link.as_ptr(),
                room.as_mut_ptr(),
                room.len(),
            )
        };
        room.get(..usize::try_from(n).ok()?)
    }

    /// Does the file give the rights of another user or group? The loader then ignores `LD_PRELOAD`
    /// and `LD_LIBRARY_PATH`.
    pub fn is_privileged(&self) -> bool {
        let Some(about) = self.attributes() else { return false };
        let mut system = core::mem::MaybeUninit::<libc::statvfs>::zeroed();
        // SAFETY: the kernel writes the structure, for which zeros are valid. The other calls have
        // no arguments.
        let (system, user, group) = unsafe {
            if libc::fstatvfs(self.0, system.as_mut_ptr()) != 0 {
                return false;
            }
            (system.assume_init(), libc::geteuid(), libc::getegid())
        };
        let other_user = about.st_mode & libc::S_ISUID != 0 && about.st_uid != user;
        let other_group = about.st_mode & libc::S_ISGID != 0 && about.st_gid != group;
        system.f_flag & libc::ST_NOSUID == 0 && (other_user || other_group)
    }
}
