//! What the file of a program says: whether the program is linked with a library of verbs, and
//! whether the loader runs it in secure mode. Nothing here allocates.

use core::ffi::{CStr, c_char, c_int};

/// Libraries that the drop-ins stand for.
const LIBRARIES: [&[u8]; 2] = [b"libibverbs.so.1\0", b"librdmacm.so.1\0"];
const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
/// Program headers, and entries of the dynamic section, that are looked at, at most.
const HEADERS: u64 = 64;
const ENTRIES: u64 = 1024;
const PATH_MAX: usize = 1024;

/// An open file.
pub struct File(c_int);

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: a descriptor of our own.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

impl File {
    /// Opens the file that `exec` finds by a name; `None` if there is none to be read.
    ///
    /// # Safety
    /// Strings; `search` may be null.
    pub unsafe fn find(dir: c_int, name: *const c_char, search: *const c_char) -> Option<File> {
        // SAFETY: the caller's promise.
        let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
        if search.is_null() || crate::path::has_slash(bytes) {
            return Self::open(dir, name);
        }
        // SAFETY: the caller's promise.
        let search = unsafe { CStr::from_ptr(search) }.to_bytes();
        search.split(|b| *b == b':').find_map(|directory| {
            let mut path = [0_u8; PATH_MAX];
            let end = directory.len().checked_add(1)?;
            path.get_mut(..directory.len())?.copy_from_slice(directory);
            *path.get_mut(directory.len())? = b'/';
            path.get_mut(end..end.checked_add(bytes.len())?)?.copy_from_slice(bytes);
            // A zero is left behind the name.
            if end + bytes.len() >= PATH_MAX { None } else { Self::open(dir, path.as_ptr().cast()) }
        })
    }

    fn open(dir: c_int, path: *const c_char) -> Option<File> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: a terminated path.
        let fd = unsafe { libc::syscall(libc::SYS_openat, dir, path, flags) };
        (fd >= 0).then_some(File(fd as c_int))
    }

    /// The same for a descriptor that the program has.
    pub fn of(fd: c_int) -> Option<File> {
        // SAFETY: plain integers.
        let own = unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, 0) };
        (own >= 0).then_some(File(own as c_int))
    }

    fn read(&self, at: u64, to: &mut [u8]) -> bool {
        // SAFETY: into the slice.
        let n = unsafe { libc::syscall(libc::SYS_pread64, self.0, to.as_mut_ptr(), to.len(), at) };
        usize::try_from(n) == Ok(to.len())
    }

    /// Numbers of eight bytes, in order.
    fn words<const N: usize>(&self, at: u64) -> Option<[u64; N]> {
        let mut words = [0_u64; N];
        for (i, word) in words.iter_mut().enumerate() {
            let mut bytes = [0; 8];
            if !self.read(at.checked_add(8 * i as u64)?, &mut bytes) {
                return None;
            }
            *word = u64::from_ne_bytes(bytes);
        }
        Some(words)
    }

    /// Is it a program that is linked with a library of verbs?
    pub fn uses_verbs(&self) -> bool {
        self.needs_verbs().unwrap_or(false)
    }

    fn needs_verbs(&self) -> Option<bool> {
        // The header of a 64-bit ELF file: its mark, its table of program headers, their size and
        // number.
        let [mark, _, _, _, table, _, sizes, _] = self.words(0)?;
        if mark.to_ne_bytes().get(..5)? != b"\x7fELF\x02" {
            return None;
        }
        let sizes = sizes.to_ne_bytes();
        let size = u64::from(u16::from_ne_bytes([*sizes.get(6)?, *sizes.get(7)?]));
        let mut count = [0; 2];
        if !self.read(56, &mut count) {
            return None;
        }
        let count = u64::from(u16::from_ne_bytes(count)).min(HEADERS);
        let header = |n: u64| self.words::<5>(table.checked_add(n.checked_mul(size)?)?);
        let headers = || (0..count).filter_map(header);
        let kind = |first: u64| first & 0xffff_ffff;
        let [_, dynamic, _, _, len] = headers().find(|h| kind(h[0]) == PT_DYNAMIC)?;
        let entries = || {
            let at = |n: u64| self.words::<2>(dynamic.checked_add(16 * n)?);
            (0..(len / 16).min(ENTRIES)).map_while(at)
        };
        let [_, strings] = entries().find(|e| e[0] == DT_STRTAB)?;
        let [_, offset, address, ..] = headers()
            .find(|h| kind(h[0]) == PT_LOAD && (h[2]..h[2].saturating_add(h[4])).contains(&strings))?;
        let strings = (strings - address).checked_add(offset)?;
        let is_ours = |name: u64| {
            LIBRARIES.iter().any(|library| {
                let mut text = [0; 16];
                let text = text.get_mut(..library.len());
                let at = strings.checked_add(name);
                text.zip(at).is_some_and(|(text, at)| self.read(at, text) && *text == **library)
            })
        };
        Some(entries().any(|e| e[0] == DT_NEEDED && is_ours(e[1])))
    }

    /// Does the loader ignore `LD_PRELOAD` and `LD_LIBRARY_PATH` for it, as it gives another user's
    /// or group's rights?
    pub fn is_privileged(&self) -> bool {
        let mut about = core::mem::MaybeUninit::<libc::stat>::zeroed();
        let mut system = core::mem::MaybeUninit::<libc::statvfs>::zeroed();
        // SAFETY: the kernel writes the structures, of which all zeroes is a value too; the rest
        // asks.
        let (about, system, user, group) = unsafe {
            let (about_at, system_at) = (about.as_mut_ptr(), system.as_mut_ptr());
            if libc::syscall(libc::SYS_fstat, self.0, about_at) != 0 || libc::fstatvfs(self.0, system_at) != 0
            {
                return false;
            }
            (about.assume_init(), system.assume_init(), libc::geteuid(), libc::getegid())
        };
        let other_user = about.st_mode & libc::S_ISUID != 0 && about.st_uid != user;
        let other_group = about.st_mode & libc::S_ISGID != 0 && about.st_gid != group;
        system.f_flag & libc::ST_NOSUID == 0 && (other_user || other_group)
    }
}
