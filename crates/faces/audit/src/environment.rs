//! The directory with the drop-in libraries, from the environment that the program was started
//! with.

use core::cell::UnsafeCell;
use core::ffi::c_char;

use adverb_copies::Library;

use crate::kernel;

/// Its variable, with the zero in front that ends the one before.
const VARIABLE: &[u8] = b"\0ADVERB_REPLACE=";
/// Bytes of the longest path.
const PATH: usize = 4096;

/// Paths of the libraries in the directory.
pub struct Directory(UnsafeCell<[[u8; PATH]; Library::ALL.len()]>);

// SAFETY: written in `read` alone, which the loader's first question calls: the process has one
// thread then, and nothing is read before.
unsafe impl Sync for Directory {}

impl Directory {
    /// None is known.
    pub const fn new() -> Self {
        Self(UnsafeCell::new([[0; PATH]; Library::ALL.len()]))
    }

    /// Finds the variable and makes the paths; false where it is not set, or too long.
    pub fn read(&self) -> bool {
        // SAFETY: one thread, see above; nobody has a reference to what is inside.
        let paths = unsafe { &mut *self.0.get() };
        let Some(first) = paths.first_mut() else { return false };
        let Some(len) = value(first) else { return false };
        let [verbs, manager] = paths;
        put(manager, 0, verbs.iter().take(len));
        finish(verbs, len, Library::Verbs) && finish(manager, len, Library::Manager)
    }

    /// The path of a library.
    pub fn file(&self, library: Library) -> *const c_char {
        let first = self.0.get().cast::<c_char>();
        match library {
            Library::Verbs => first,
            Library::Manager => first.wrapping_add(PATH),
        }
    }
}

/// Adds a library's name to the directory of `len` bytes.
fn finish(path: &mut [u8; PATH], len: usize, library: Library) -> bool {
    put(path, len, b"/".iter().chain(library.file()));
    len + 1 + library.file().len() < PATH
}

/// Copies bytes one by one: what copies them at once is in the C library.
fn put<'a>(path: &mut [u8; PATH], at: usize, from: impl Iterator<Item = &'a u8>) {
    for (to, from) in path.iter_mut().skip(at).zip(from) {
        // SAFETY: a place in the array. Volatile, so that the loop stays one.
        unsafe { core::ptr::from_mut(to).write_volatile(*from) };
    }
}

/// Reads the variable's value into `to`, and answers its length.
fn value(to: &mut [u8; PATH]) -> Option<usize> {
    let fd = kernel::open(c"/proc/self/environ");
    if fd < 0 {
        return None;
    }
    // The first variable has no zero in front.
    let (mut matched, mut len) = (1, 0);
    let mut found = None;
    let mut chunk = core::mem::MaybeUninit::<[u8; 1024]>::uninit();
    // SAFETY: bytes are written by the kernel before they are looked at.
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
