//! Which paths are redirected, and where to.

use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;

use crate::real::keeping_errno;
use crate::text::decimal;

const ROOT: &CStr = c"ADVERB_SYSROOT";
/// The link to the directory after `rdma link add`. Until then there is no link.
const LINKS: &CStr = c"ADVERB_LINKS";
const DEVICES: &[u8] = b"/dev/infiniband";
/// `/sys/class/infiniband`, `infiniband_verbs`, `infiniband_mad` …
const CLASSES: &[u8] = b"/sys/class/infiniband";
/// Targets of the links in the class directories.
const VIRTUAL: [&[u8]; 2] = [b"/sys/devices/virtual/adverb", b"/sys/devices/virtual/infiniband"];

/// Paths of the connection manager.
const MANAGER: [&[u8]; 3] =
    [b"/sys/class/misc/rdma_cm", b"/sys/devices/virtual/misc/rdma_cm", b"/proc/sys/net/rdma_ucm"];

/// What the caller of a redirected path will do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Query its type: a device must look like a device.
    Device,
    /// Open it: also, a counter has the value of the moment.
    Open,
    /// Follow or list it: the stand-in file itself is enough.
    File,
}

/// Room for a redirected path, uninitialised until `join` writes a path.
pub struct Buffer {
    bytes: MaybeUninit<[u8; libc::PATH_MAX as usize]>,
    /// The path names this descriptor, until [`Buffer::close`]; -1 for none.
    fd: libc::c_long,
}

impl Buffer {
    /// An empty buffer.
    #[allow(clippy::new_without_default, reason = "4 KiB are not a default")]
    pub const fn new() -> Self {
        Self { bytes: MaybeUninit::uninit(), fd: -1 }
    }

    /// Ends the use of the path. A destructor would need unwinding, which this object lacks.
    pub fn close(self) {
        if self.fd >= 0 {
            crate::objects::close(self.fd);
        }
    }

    /// The path of a descriptor of the buffer.
    fn descriptor(&mut self, fd: libc::c_long) -> Option<*const c_char> {
        let mut name = [0; 20];
        let digits = decimal(fd as u64, &mut name);
        self.fd = fd;
        self.join(b"/proc/self/fd/", digits)
    }

    /// `root` and `path` joined; `None` if the result is too long.
    pub fn join(&mut self, root: &[u8], path: &[u8]) -> Option<*const c_char> {
        let len = root.len() + path.len();
        let start = self.bytes.as_mut_ptr().cast::<u8>();
        if len >= libc::PATH_MAX as usize {
            return None;
        }
        // SAFETY: both pieces and the zero fit, and neither piece overlaps the buffer.
        unsafe {
            start.copy_from_nonoverlapping(root.as_ptr(), root.len());
            start.add(root.len()).copy_from_nonoverlapping(path.as_ptr(), path.len());
            start.add(len).write(0);
        }
        Some(start.cast())
    }
}

/// Whether an RDMA driver would provide this path.
pub fn is_ours(path: &[u8]) -> bool {
    let below = |base: &[u8]| {
        path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    };
    path.starts_with(CLASSES)
        || below(DEVICES)
        || VIRTUAL.iter().chain(&MANAGER).any(|base| below(base))
}

/// The path to use instead of `path`: `path` itself, a path below `ADVERB_SYSROOT`, `/dev/null` for
/// a device, or for a counter a file with the value of the moment.
///
/// # Safety
/// `path` is null or a string. The result is valid as long as `path` and `buffer`.
pub unsafe fn redirect(path: *const c_char, look: Look, buffer: &mut Buffer) -> *const c_char {
    // SAFETY: the caller's promise.
    let file = unsafe { stand_in(path, look, buffer) };
    if look != Look::Open || file == path {
        return file;
    }
    // SAFETY: a redirected path is not null, so a string.
    match crate::objects::counter_file(unsafe { CStr::from_ptr(path) }.to_bytes()) {
        None => file,
        // A value that is not known is no file.
        Some(fd) if fd < 0 => c"".as_ptr(),
        Some(fd) => buffer.descriptor(fd).unwrap_or(c"".as_ptr()),
    }
}

/// As [`redirect`], for counters the file without a value.
///
/// # Safety
/// As [`redirect`].
unsafe fn stand_in(path: *const c_char, look: Look, buffer: &mut Buffer) -> *const c_char {
    if path.is_null() {
        return path;
    }
    // SAFETY: not null, so a string.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    if !is_ours(bytes) {
        return path;
    }
    // The prepared directory replaces the files of real devices as well, because verbs show only
    // the devices of Adverb. A path that the directory lacks does not exist.
    let Some(file) = root().and_then(|root| buffer.join(root, bytes)) else { return path };
    if look != Look::File
        && bytes.starts_with(DEVICES)
        && keeping_errno(|| exists(file) && !is_directory(file))
    {
        return c"/dev/null".as_ptr();
    }
    file
}

/// Whether the prepared directory has a file of this path. Keeps `errno`.
pub fn stands_in(path: &CStr) -> bool {
    let mut buffer = Buffer::new();
    let file = root().and_then(|root| buffer.join(root, path.to_bytes()));
    file.is_some_and(|file| keeping_errno(|| exists(file)))
}

/// Removes the directory of `ADVERB_SYSROOT` from a resolved path, in place.
///
/// # Safety
/// `resolved` is null, or a string in writable memory.
pub unsafe fn without_root(resolved: *mut c_char) -> *mut c_char {
    if resolved.is_null() {
        return resolved;
    }
    // SAFETY: not null, so a string.
    let path = unsafe { CStr::from_ptr(resolved) }.to_bytes();
    let Some(rest) = below(path, ROOT).or_else(|| below(path, LINKS)) else { return resolved };
    let (from, len) = (rest.as_ptr(), rest.len() + 1);
    // SAFETY: moves the rest to the front within the same string, including its zero.
    unsafe { resolved.cast::<u8>().copy_from(from, len) };
    resolved
}

/// The part of a path below a prepared directory, if the directory lies beside the directory that a
/// variable names. `rdma link add` replaces the directory by another directory beside it.
fn below<'a>(path: &'a [u8], variable: &CStr) -> Option<&'a [u8]> {
    let mut parent = value(variable)?;
    while let [shorter @ .., last] = parent
        && *last != b'/'
    {
        parent = shorter;
    }
    let mut rest = path.strip_prefix(parent).filter(|_| !parent.is_empty())?;
    while let [first, longer @ ..] = rest
        && *first != b'/'
    {
        rest = longer;
    }
    is_ours(rest).then_some(rest)
}

/// The prepared directory, without slashes at the end; `None` if the preload is off. Keeps `errno`.
pub fn root() -> Option<&'static [u8]> {
    let changed = keeping_errno(|| value(LINKS).filter(|link| exists(link.as_ptr().cast())));
    changed.or_else(|| value(ROOT))
}

/// The value of a variable, without slashes at the end. `None` if empty. The zero of the string, or
/// a slash, is behind the value.
fn value(variable: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the C library's view of the environment. If another thread changes the environment at
    // this moment, any other `getenv` has the same problem.
    let value = unsafe { libc::getenv(variable.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: not null, so a string of the environment.
    let mut root = unsafe { CStr::from_ptr(value) }.to_bytes();
    while let Some(shorter) = root.strip_suffix(b"/") {
        root = shorter;
    }
    (!root.is_empty()).then_some(root)
}

/// Asks the kernel directly, because the C library's functions for this lead back to this crate.
pub(crate) fn exists(path: *const c_char) -> bool {
    // SAFETY: a string; the call changes nothing.
    unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, path, libc::F_OK) == 0 }
}

/// Whether a file of the prepared directory is a directory, which can be entered.
fn is_directory(path: *const c_char) -> bool {
    // `O_DIRECTORY | O_PATH` succeeds only for a directory. Appending "/." would do the same, but
    // needs a buffer.
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: a string; the descriptor is closed at once.
    unsafe {
        let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags);
        if fd >= 0 {
            libc::syscall(libc::SYS_close, fd);
        }
        fd >= 0
    }
}
