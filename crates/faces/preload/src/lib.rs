//! The small preload of `adverb run`: answers for what programs look at beside the library.
//!
//! UCX wants `/dev/infiniband/uverbsN` to be a character device it may open; UCX and NCCL read GID
//! types below `/sys/class/infiniband`; the tests of rdma-core list `device/net/` there. Without a
//! kernel driver none of that exists. The launcher prepares a directory with the same paths in it
//! and names it in `ADVERB_SYSROOT`. A look at a path that
//! - begins like those ([`path::is_ours`]),
//! - does not exist on the real system, and
//! - exists below that directory
//!
//! goes there instead. A character device is stood in for by `/dev/null`. Everything else, and
//! everything when the variable is not set, passes straight through, `errno` included.
//!
//! Programs that ask the kernel by netlink instead get answers from the same directory
//! ([`netlink`]).
//!
//! The file of the connection manager is one that answers ([`manager`]).
//!
//! Copies of the libraries that a program opens give way ([`copies`]). Who clears the environment
//! is told what that means ([`exec`]). A device that checks its program is told of the end that
//! calls nobody ([`exit`]).
//!
//! And what the program does with its memory is seen here, for the device ([`memory`]), and
//! sanitizers get answers (module `sanitizers`).
//!
//! Nothing here allocates, panics, takes a lock or keeps state that a `fork` could tear, and the
//! functions of the C library are looked up as the object is loaded. It works with any C library
//! that has the functions that a program calls, musl's too.
#![allow(unsafe_code, reason = "functions in the place of the C library's")]

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!(
    "Adverb runs on Linux on x86-64 and aarch64 alone: it makes system calls and has calling conventions of these"
);

pub mod copies;
pub mod exec;
pub mod exit;
pub mod manager;
pub mod memory;
pub mod netlink;
mod path;
mod real;
mod sanitizers;
mod table;

pub use path::{Buffer, Look, is_ours, redirect};
pub use sanitizers::NAMES as SANITIZER_NAMES;

use core::ffi::{c_char, c_int, c_uint, c_void};

use libc::{DIR, FILE, mode_t, size_t, ssize_t, stat as Stat, statx as Statx};

use crate::real::Real;

/// Defines every interposed function: it redirects its path argument and calls the C library's
/// function.
macro_rules! interpose {
    ($( $name:literal $symbol:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty = $look:ident $path:ident, $fail:expr; )*) => {
        #[allow(non_camel_case_types, reason = "one variant for each function, under its name")]
        #[derive(Clone, Copy)]
        #[repr(usize)]
        enum Id { $( $symbol ),* }

        /// The names interposed, in the order of the table of real functions.
        pub const NAMES: &[&str] = &[ $( $name ),* ];

        static REAL: [Real; NAMES.len()] = [ $( Real::new(match core::ffi::CStr::from_bytes_with_nul(
            concat!($name, "\0").as_bytes()) { Ok(name) => name, Err(_) => c"" }) ),* ];

        $(
            /// The function of this name, with a redirected path.
            ///
            /// # Safety
            /// That of the C library's function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $symbol($($arg: $ty),*) -> $ret {
                let Some(real) = REAL[Id::$symbol as usize].get() else {
                    real::set_errno(libc::ENOSYS);
                    return $fail;
                };
                // SAFETY: the C library's function of this name has this signature. `open` and its
                // like take a variable third argument in C, which is passed as a fixed one is on
                // the supported machines.
                let real: unsafe extern "C" fn($($ty),*) -> $ret = unsafe { core::mem::transmute(real) };
                let mut buffer = Buffer::new();
                // SAFETY: the caller passes a string or null.
                let $path = unsafe { redirect($path, Look::$look, &mut buffer) };
                // SAFETY: the caller's arguments, with another path.
                unsafe { real($($arg),*) }
            }
        )*
    };
}

/// Of `scandir`.
pub type Filter = Option<unsafe extern "C" fn(*const c_void) -> c_int>;
/// Of `scandir`.
pub type Compare = Option<unsafe extern "C" fn(*mut *const c_void, *mut *const c_void) -> c_int>;

type Path = *const c_char;

interpose! {
    "stat" adverb_preload_stat(path: Path, buf: *mut Stat) -> c_int = Device path, -1;
    "stat64" adverb_preload_stat64(path: Path, buf: *mut Stat) -> c_int = Device path, -1;
    "lstat" adverb_preload_lstat(path: Path, buf: *mut Stat) -> c_int = Device path, -1;
    "lstat64" adverb_preload_lstat64(path: Path, buf: *mut Stat) -> c_int = Device path, -1;
    "fstatat" adverb_preload_fstatat(dir: c_int, path: Path, buf: *mut Stat, flags: c_int) -> c_int
        = Device path, -1;
    "fstatat64" adverb_preload_fstatat64(dir: c_int, path: Path, buf: *mut Stat, flags: c_int) -> c_int
        = Device path, -1;
    "statx" adverb_preload_statx(dir: c_int, path: Path, flags: c_int, mask: c_uint, buf: *mut Statx) -> c_int
        = Device path, -1;
    // The names under which programs built before glibc 2.33 call the same.
    "__xstat" adverb_preload___xstat(version: c_int, path: Path, buf: *mut Stat) -> c_int = Device path, -1;
    "__xstat64" adverb_preload___xstat64(version: c_int, path: Path, buf: *mut Stat) -> c_int = Device path, -1;
    "__lxstat" adverb_preload___lxstat(version: c_int, path: Path, buf: *mut Stat) -> c_int = Device path, -1;
    "__lxstat64" adverb_preload___lxstat64(version: c_int, path: Path, buf: *mut Stat) -> c_int = Device path, -1;
    "__fxstatat" adverb_preload___fxstatat(
        version: c_int, dir: c_int, path: Path, buf: *mut Stat, flags: c_int) -> c_int = Device path, -1;
    "__fxstatat64" adverb_preload___fxstatat64(
        version: c_int, dir: c_int, path: Path, buf: *mut Stat, flags: c_int) -> c_int = Device path, -1;

    "access" adverb_preload_access(path: Path, mode: c_int) -> c_int = Device path, -1;
    "faccessat" adverb_preload_faccessat(dir: c_int, path: Path, mode: c_int, flags: c_int) -> c_int
        = Device path, -1;
    "euidaccess" adverb_preload_euidaccess(path: Path, mode: c_int) -> c_int = Device path, -1;
    "eaccess" adverb_preload_eaccess(path: Path, mode: c_int) -> c_int = Device path, -1;

    "open" inner_open(path: Path, flags: c_int, mode: mode_t) -> c_int = Device path, -1;
    "open64" inner_open64(path: Path, flags: c_int, mode: mode_t) -> c_int = Device path, -1;
    "openat" inner_openat(dir: c_int, path: Path, flags: c_int, mode: mode_t) -> c_int = Device path, -1;
    "openat64" inner_openat64(dir: c_int, path: Path, flags: c_int, mode: mode_t) -> c_int
        = Device path, -1;
    // What `_FORTIFY_SOURCE` makes of them.
    "__open_2" inner___open_2(path: Path, flags: c_int) -> c_int = Device path, -1;
    "__open64_2" inner___open64_2(path: Path, flags: c_int) -> c_int = Device path, -1;
    "__openat_2" inner___openat_2(dir: c_int, path: Path, flags: c_int) -> c_int = Device path, -1;
    "__openat64_2" inner___openat64_2(dir: c_int, path: Path, flags: c_int) -> c_int = Device path, -1;

    "fopen" adverb_preload_fopen(path: Path, mode: *const c_char) -> *mut FILE
        = Device path, core::ptr::null_mut();
    "fopen64" adverb_preload_fopen64(path: Path, mode: *const c_char) -> *mut FILE
        = Device path, core::ptr::null_mut();
    "opendir" adverb_preload_opendir(path: Path) -> *mut DIR = File path, core::ptr::null_mut();
    "scandir" adverb_preload_scandir(
        path: Path, list: *mut *mut *mut c_void, filter: Filter, compare: Compare) -> c_int = File path, -1;
    "scandir64" adverb_preload_scandir64(
        path: Path, list: *mut *mut *mut c_void, filter: Filter, compare: Compare) -> c_int = File path, -1;

    "readlink" adverb_preload_readlink(path: Path, buf: *mut c_char, size: size_t) -> ssize_t = File path, -1;
    "readlinkat" adverb_preload_readlinkat(dir: c_int, path: Path, buf: *mut c_char, size: size_t) -> ssize_t
        = File path, -1;
    "__readlink_chk" adverb_preload___readlink_chk(
        path: Path, buf: *mut c_char, size: size_t, room: size_t) -> ssize_t = File path, -1;
    "__readlinkat_chk" adverb_preload___readlinkat_chk(
        dir: c_int, path: Path, buf: *mut c_char, size: size_t, room: size_t) -> ssize_t = File path, -1;

    "chdir" adverb_preload_chdir(path: Path) -> c_int = File path, -1;
    "getxattr" adverb_preload_getxattr(
        path: Path, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t = File path, -1;
    "lgetxattr" adverb_preload_lgetxattr(
        path: Path, name: *const c_char, value: *mut c_void, size: size_t) -> ssize_t = File path, -1;
    "listxattr" adverb_preload_listxattr(path: Path, list: *mut c_char, size: size_t) -> ssize_t = File path, -1;
    "llistxattr" adverb_preload_llistxattr(path: Path, list: *mut c_char, size: size_t) -> ssize_t
        = File path, -1;

    "realpath" inner_realpath(path: Path, resolved: *mut c_char) -> *mut c_char
        = File path, core::ptr::null_mut();
    "__realpath_chk" inner___realpath_chk(path: Path, resolved: *mut c_char, room: size_t) -> *mut c_char
        = File path, core::ptr::null_mut();
}

/// Defines the functions that open files: the connection manager's is opened by its library.
macro_rules! opening {
    ($( $symbol:ident $inner:ident ( $($arg:ident : $ty:ty),* ) of $path:ident $flags:ident; )*) => { $(
        /// The function of this name, with a redirected path.
        ///
        /// # Safety
        /// That of the C library's function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol($($arg: $ty),*) -> c_int {
            // SAFETY: the caller's arguments.
            unsafe { manager::open($path, $flags).unwrap_or_else(|| $inner($($arg),*)) }
        }
    )* };
}

opening! {
    adverb_preload_open inner_open(path: Path, flags: c_int, mode: mode_t) of path flags;
    adverb_preload_open64 inner_open64(path: Path, flags: c_int, mode: mode_t) of path flags;
    adverb_preload_openat inner_openat(dir: c_int, path: Path, flags: c_int, mode: mode_t) of path flags;
    adverb_preload_openat64 inner_openat64(dir: c_int, path: Path, flags: c_int, mode: mode_t) of path flags;
    adverb_preload___open_2 inner___open_2(path: Path, flags: c_int) of path flags;
    adverb_preload___open64_2 inner___open64_2(path: Path, flags: c_int) of path flags;
    adverb_preload___openat_2 inner___openat_2(dir: c_int, path: Path, flags: c_int) of path flags;
    adverb_preload___openat64_2 inner___openat64_2(dir: c_int, path: Path, flags: c_int) of path flags;
}

/// `realpath`: the answer is the path the program would see, without the directory in front.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_realpath(path: Path, resolved: *mut c_char) -> *mut c_char {
    // SAFETY: the caller's arguments; the answer is null or a string.
    unsafe { path::without_root(inner_realpath(path, resolved)) }
}

/// The names that are answered by another name's function.
pub const BY_ANOTHER: &[&str] = &["canonicalize_file_name"];

/// `canonicalize_file_name`: `realpath` into memory of the C library's.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_canonicalize_file_name(path: Path) -> *mut c_char {
    // SAFETY: the caller's argument; without room `realpath` allocates.
    unsafe { adverb_preload_realpath(path, core::ptr::null_mut()) }
}

/// What `_FORTIFY_SOURCE` makes of `realpath`.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload___realpath_chk(
    path: Path,
    resolved: *mut c_char,
    room: size_t,
) -> *mut c_char {
    // SAFETY: the caller's arguments; the answer is null or a string.
    unsafe { path::without_root(inner___realpath_chk(path, resolved, room)) }
}

/// Looks all functions up while the program has one thread: looking up takes the loader's lock,
/// which a child made by `fork` or a signal handler must not need.
extern "C" fn look_up_all() {
    for real in &REAL {
        real.get();
    }
    memory::look_up();
    netlink::look_up();
    manager::look_up();
    copies::look_up();
    exec::look_up();
    exit::look_up();
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_UP_ALL: extern "C" fn() = look_up_all;

/// Has the name of the routine for unwinding in the shared object (`build.rs`), which has no
/// unwinding. 5 means that the stack ends here (`_URC_END_OF_STACK`).
#[unsafe(no_mangle)]
pub extern "C" fn adverb_preload_no_unwinding() -> c_int {
    5
}
