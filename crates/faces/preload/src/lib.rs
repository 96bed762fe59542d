//! The small preload of `adverb run`. It answers the questions that programs ask outside of the
//! verbs library.
//!
//! UCX requires `/dev/infiniband/uverbsN` to be a character device that it can open. UCX and NCCL
//! read GID types below `/sys/class/infiniband`, and the tests of rdma-core list `device/net/`
//! there. Without a kernel driver these files do not exist. The launcher prepares a directory with
//! the same paths and sets `ADVERB_SYSROOT` to it. The preload redirects a path to this directory
//! if the path begins like the paths above ([`path::is_ours`]). On a machine with RDMA hardware,
//! the directory hides the files of the real devices, because verbs do not show these devices.
//!
//! `/dev/null` stands in for a character device. All other calls pass through unchanged, including
//! `errno`. Without the variable, every call passes through.
//!
//! Programs that ask the kernel through netlink get answers from the same directory ([`netlink`]).
//! The survivor of the run collects the objects and counters of all processes (module `objects`).
//! The command changes the devices of the run for `rdma link add` (module `links`).
//!
//! The connection manager's file answers commands ([`manager`]).
//!
//! If a program opens a copy of a library, the drop-in library replaces the copy ([`copies`]). If a
//! program starts another program with a cleared environment, a warning explains the effect
//! ([`exec`]). A device that checks its program gets a call before `_exit` and `abort` ([`exit`]).
//!
//! The device also sees what the program does with its memory ([`memory`]). Sanitizers get their
//! options (module `sanitizers`).
//!
//! Waits for a channel's descriptor drive the device (module [`waits`]).
//!
//! A function with the prefix `adverb_preload_` takes the place of the C library's function of the
//! same name (`build.rs`), and has the contract of that function.
//!
//! This crate does not allocate, panic, take locks, or keep state that a `fork` could tear. It
//! looks up the functions of the C library while the object is loaded. It works with every C
//! library that has the functions the program calls, including musl.
#![allow(unsafe_code, reason = "functions in the place of the C library's")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the contracts are those of the C library's functions"
)]

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!(
    "Adverb runs on Linux on x86-64 and aarch64 alone: it makes system calls and has calling conventions of these"
);

pub mod copies;
pub mod exec;
pub mod exit;
mod file;
mod links;
pub mod manager;
pub mod memory;
pub mod netlink;
mod objects;
mod path;
mod real;
mod sanitizers;
mod table;
mod text;
pub mod waits;

pub use path::{Buffer, Look, is_ours, redirect};

use core::ffi::{c_char, c_int, c_uint, c_void};

use libc::{DIR, FILE, mode_t, size_t, ssize_t, stat as Stat, statx as Statx};

use crate::real::Real;

/// Defines every interposed function. The function redirects its path argument and calls the C
/// library's function.
macro_rules! interpose {
    ($( $name:literal $symbol:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty = $look:ident $path:ident, $fail:expr; )*) => {
        #[allow(non_camel_case_types, reason = "one variant for each function, under its name")]
        #[derive(Clone, Copy)]
        #[repr(usize)]
        enum Id { $( $symbol ),* }

        static REAL: [Real; [ $( $name ),* ].len()] = [ $( Real::new(match core::ffi::CStr::from_bytes_with_nul(
            concat!($name, "\0").as_bytes()) { Ok(name) => name, Err(_) => c"" }) ),* ];

        $(
            /// Replaces the C library's function of this name, with a redirected path.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $symbol($($arg: $ty),*) -> $ret {
                let Some(real) = REAL[Id::$symbol as usize].get() else {
                    real::set_errno(libc::ENOSYS);
                    return $fail;
                };
                // SAFETY: the C library's function of this name has this signature. `open` and
                // similar functions have a variadic third argument in C. On the supported machines
                // a variadic argument is passed like a fixed argument.
                let real: unsafe extern "C" fn($($ty),*) -> $ret = unsafe { core::mem::transmute(real) };
                let mut buffer = Buffer::new();
                // SAFETY: the caller passes a string or null.
                let $path = unsafe { redirect($path, Look::$look, &mut buffer) };
                // SAFETY: the caller's arguments; only the path differs.
                let result = unsafe { real($($arg),*) };
                buffer.close();
                result
            }
        )*
    };
}

/// The filter argument of `scandir`.
pub type Filter = Option<unsafe extern "C" fn(*const c_void) -> c_int>;
/// The comparison argument of `scandir`.
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
    // The same functions under the names in programs built before glibc 2.33.
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

    "open" inner_open(path: Path, flags: c_int, mode: mode_t) -> c_int = Open path, -1;
    "open64" inner_open64(path: Path, flags: c_int, mode: mode_t) -> c_int = Open path, -1;
    "openat" inner_openat(dir: c_int, path: Path, flags: c_int, mode: mode_t) -> c_int = Open path, -1;
    "openat64" inner_openat64(dir: c_int, path: Path, flags: c_int, mode: mode_t) -> c_int
        = Open path, -1;
    // The `_FORTIFY_SOURCE` variants.
    "__open_2" inner___open_2(path: Path, flags: c_int) -> c_int = Open path, -1;
    "__open64_2" inner___open64_2(path: Path, flags: c_int) -> c_int = Open path, -1;
    "__openat_2" inner___openat_2(dir: c_int, path: Path, flags: c_int) -> c_int = Open path, -1;
    "__openat64_2" inner___openat64_2(dir: c_int, path: Path, flags: c_int) -> c_int = Open path, -1;

    "fopen" adverb_preload_fopen(path: Path, mode: *const c_char) -> *mut FILE
        = Open path, core::ptr::null_mut();
    "fopen64" adverb_preload_fopen64(path: Path, mode: *const c_char) -> *mut FILE
        = Open path, core::ptr::null_mut();
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

/// Defines the functions that open files. The drop-in library opens the connection manager's file.
macro_rules! opening {
    ($( $symbol:ident $inner:ident ( $($arg:ident : $ty:ty),* ) of $path:ident $flags:ident; )*) => { $(
        /// Replaces the C library's function of this name, with a redirected path.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $symbol($($arg: $ty),*) -> c_int {
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

/// `realpath`: the result is the path that the program would see, without the prepared directory.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_preload_realpath(
    path: Path,
    resolved: *mut c_char,
) -> *mut c_char {
    // SAFETY: the caller's arguments; the result is null or a string.
    unsafe { path::without_root(inner_realpath(path, resolved)) }
}

/// `canonicalize_file_name`: `realpath` into memory that the C library allocates.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn adverb_preload_canonicalize_file_name(path: Path) -> *mut c_char {
    // SAFETY: the caller's argument; with a null buffer `realpath` allocates.
    unsafe { adverb_preload_realpath(path, core::ptr::null_mut()) }
}

/// The `_FORTIFY_SOURCE` variant of `realpath`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload___realpath_chk(
    path: Path,
    resolved: *mut c_char,
    room: size_t,
) -> *mut c_char {
    // SAFETY: the caller's arguments; the result is null or a string.
    unsafe { path::without_root(inner___realpath_chk(path, resolved, room)) }
}

/// Looks up all functions while the program has only one thread. A lookup takes the loader's lock.
/// The child of a `fork`, or a signal handler, must not need this lock.
extern "C" fn look_up_all() {
    for real in &REAL {
        real.get();
    }
    memory::look_up();
    let others = [netlink::REALS, manager::REALS, links::REALS, exit::REALS];
    others.into_iter().for_each(real::look_up);
    copies::look_up();
    exec::look_up();
    waits::look_up();
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_UP_ALL: extern "C" fn() = look_up_all;

/// Takes the name of the unwinding routine in the shared object (`build.rs`), because the object
/// never unwinds. 5 is `_URC_END_OF_STACK`: the stack ends here.
#[unsafe(no_mangle)]
pub extern "C" fn adverb_preload_no_unwinding() -> c_int {
    5
}
