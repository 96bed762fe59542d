//! The directory with the drop-in libraries, from the environment with which the program was
//! started.

use core::cell::UnsafeCell;
use core::ffi::c_char;

use adverb_text::copies::Library;

use crate::kernel;

/// The name of the variable, with the zero byte that ends the previous variable.
const VARIABLE: &[u8] = b"\0ADVERB_REPLACE=";
/// The length of the longest path in bytes.
const PATH: usize = 4096;

/// The paths of the libraries in the directory.
pub struct Directory(UnsafeCell<[[u8; PATH]; Library::ALL.len()]>);

// SAFETY: only `read` writes, in the first call of the loader. The process has one thread then, and
// no code has read the paths before.
unsafe impl Sync for Directory {}

impl Directory {
    /// No directory is known yet.
    pub const fn new() -> Self {
        Self(UnsafeCell::new([[0; PATH]; Library::ALL.len()]))
    }

    /// Finds the variable and makes the paths. Returns false if the variable is not set or too
    /// long.
    pub fn read(&self) -> bool {
        // SAFETY: the process has one thread, see above, and there is no other reference to the
        // paths.
        let paths = unsafe { &mut *self.0.get() };
        let Some(first) = paths.first_mut() else { return false };
        let Some(len) = value(first) else { return false };
        let [verbs, manager] = paths;
        put(manager, 0, verbs.iter().take(len));
        finish(verbs, len, Library::Verbs) && finish(manager, len, Library::Manager)
    }

    /// The path of a library in the directory.
    pub fn file(&self, library: Library) -> *const c_char {
        let first = self.0.get().cast::<c_char>();
        match library {
            Library::Verbs => first,
            Library::Manager => first.wrapping_add(PATH),
        }
    }
}

/// Appends a library's file name to the directory, which has `len` bytes.
fn finish(path: &mut [u8; PATH], len: usize, library: Library) -> bool {
    put(path, len, b"/".iter().chain(library.file()));
    len + 1 + library.file().len() < PATH
}

/// Copies bytes one by one, because `memcpy` belongs to the C library.
fn put<'a>(path: &mut [u8; PATH], at: usize, from: impl Iterator<Item = &'a u8>) {
    for (to, from) in path.iter_mut().skip(at).zip(from) {
        // SAFETY: `to` is a byte of the array. The write is volatile, so that the compiler does not
        // make a call of `memcpy`.
        unsafe { core::ptr::from_mut(to).write_volatile(*from) };
    }
}

/// Reads the variable's value into `to`, and returns its length.
fn value(to: &mut [u8; PATH]) -> Option<usize> {
    let fd = kernel::open(c"/proc/self/environ");
    if fd < 0 {
        return None;
    }
    // The first variable has no zero byte in front.
    let (mut matched, mut len) = (1, 0);
    let mut found = None;
    let mut chunk = core::mem::MaybeUninit::<[u8; 1024]>::uninit();
    // SAFETY: the kernel writes bytes before the loop reads them.
    let chunk = unsafe { core::slice::from_raw_parts_mut(chunk.as_mut_ptr().cast::<u8>(), 1024) };
    'read: while let Ok(got @ 1..) = usize::try_from(kernel::read(fd, chunk)) {
        for byte in chunk.iter().take(got) {
            if matched == VARIABLE.len() {
                if *byte == 0 {
                    found = Some(len);
                    break 'read;
                }
                put(to, len, core::iter::once(byte));
                len += 1;
            } else if VARIABLE.get(matched) == Some(byte) {
                matched += 1;
            } else {
                matched = usize::from(*byte == 0);
            }
        }
    }
    kernel::close(fd);
    found.filter(|len| (1..PATH).contains(len))
}
