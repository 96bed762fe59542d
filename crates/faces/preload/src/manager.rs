//! `/dev/infiniband/rdma_cm`, the file through which every librdmacm talks to the kernel's
//! connection manager. This module passes its commands to `adverb_ucma_open`, `adverb_ucma_write`
//! and `adverb_ucma_close` of the drop-in libibverbs. So three kinds of librdmacm run unchanged:
//! the distribution's, a copy that the program ships, and a copy linked into the program.
//!
//! The library's descriptor stays fixed, and the program gets duplicates of it. The kernel
//! therefore handles polling, waiting and flags. A table from the program's descriptors to the
//! library's tracks which descriptors the program duplicates or closes. If the program closed a
//! descriptor without calling the C library, the number may be another file by now. So each lookup
//! first compares the descriptor with the library's.

mod files;

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use files::{forget, mark, of, others};

use crate::path::stands_in;
use crate::real::{call, errno, real, reals, replaced, result, set_errno};
use crate::waits;

reals! {
    READ = c"read";
    READ_CHK = c"__read_chk";
    WRITE = c"write";
    CLOSE = c"close";
    DUP = c"dup";
    DUP2 = c"dup2";
    DUP3 = c"dup3";
    FCNTL = c"fcntl";
    FCNTL64 = c"fcntl64";
    FSTAT = c"fstat";
    FSTAT64 = c"fstat64";
    FXSTAT = c"__fxstat";
    FXSTAT64 = c"__fxstat64";
    STAT = c"stat";
    DLOPEN = c"dlopen";
}

const FILE: &CStr = c"/dev/infiniband/rdma_cm";

type Open = extern "C" fn(c_int) -> c_int;
type Close = extern "C" fn(c_int) -> c_int;

/// The library's functions; null until the first successful `open`.
static THEIRS: [AtomicPtr<c_void>; 3] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 3];

/// Finds the library's functions. False if the loaded library is not the drop-in library.
fn find() -> bool {
    if !THEIRS[2].load(Ordering::Acquire).is_null() {
        return true;
    }
    let Some(dlopen) = real!(DLOPEN: fn(*const c_char, c_int) -> *mut c_void) else { return false };
    // SAFETY: a string. If the program has already loaded the library, `dlopen` returns the same
    // library, which is never unloaded.
    let library = unsafe { dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        return false;
    }
    let names = [c"adverb_ucma_open", c"adverb_ucma_write", c"adverb_ucma_close"];
    for (place, name) in THEIRS.iter().zip(names) {
        // SAFETY: the library is loaded, and the name is a string.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        if found.is_null() {
            return false;
        }
        place.store(found, Ordering::Release);
    }
    true
}

/// One of the library's functions. Valid only after [`find`] has succeeded.
macro_rules! theirs {
    ($n:literal as $type:ty) => {{
        let at = THEIRS[$n].load(Ordering::Acquire);
        // SAFETY: null, or the library's function of this signature.
        unsafe { core::mem::transmute::<*mut c_void, Option<$type>>(at) }
    }};
}

/// Opens the file if `path` names it and the prepared directory has such a file.
///
/// # Safety
/// `path` is null or a string.
pub unsafe fn open(path: *const c_char, flags: c_int) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let is_it = !path.is_null() && unsafe { CStr::from_ptr(path) } == FILE;
    if !is_it || !stands_in(FILE) {
        return None;
    }
    let before = errno();
    if !find() {
        return Some(result(libc::ENODEV));
    }
    set_errno(before);
    let (open, close) = (theirs!(0 as Open)?, theirs!(2 as Close)?);
    let library = open(flags | libc::O_CLOEXEC);
    if library < 0 {
        return Some(result(-library));
    }
    let how = if flags & libc::O_CLOEXEC != 0 { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    // SAFETY: the call only duplicates a descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_fcntl, library, how, 0) } as c_int;
    if fd < 0 || !mark(fd, library) {
        let error = if fd < 0 { errno() } else { libc::EMFILE };
        if fd >= 0 {
            bare_close(fd);
        }
        close(library);
        return Some(result(error));
    }
    Some(fd)
}

fn bare_close(fd: c_int) -> c_int {
    call!(CLOSE: fn(fd => c_int) -> c_int)
}

/// Closes the library's descriptor if `fd`, which is about to be closed, is its last duplicate.
fn let_go(fd: c_int) {
    if let Some(library) = of(fd) {
        forget(fd);
        if !others(library)
            && let Some(close) = theirs!(2 as Close)
        {
            close(library);
        }
    }
}

replaced! {
    /// Replaces the C library's function of this name. Reading the file fails, as with the kernel's
    /// file.
    "C" adverb_preload_read = READ(fd: c_int, to: *mut c_void, len: usize) -> isize,
    of(fd).map(|_| result(libc::EINVAL) as isize);
    /// The `_FORTIFY_SOURCE` variant of `read`.
    "C" adverb_preload___read_chk = READ_CHK(
        fd: c_int, to: *mut c_void, len: usize, has: usize) -> isize,
    of(fd).map(|_| result(libc::EINVAL) as isize);
}

/// `struct rdma_ucm_migrate_id` after its header: the only command that names a file.
#[repr(C)]
#[derive(Clone, Copy)]
struct Migration {
    command: u32,
    input: u16,
    output: u16,
    response: u64,
    id: u32,
    fd: u32,
}

/// `RDMA_USER_CM_CMD_MIGRATE_ID`.
const MIGRATE_ID: u32 = 18;

/// The command with the program's descriptor replaced by the library's. `None` for any other
/// command.
///
/// # Safety
/// `bytes` may be any address. If it is valid, it has `len` bytes.
unsafe fn migration(bytes: *const c_void, len: usize) -> Option<Migration> {
    if len < size_of::<Migration>() {
        return None;
    }
    let mut found = core::mem::MaybeUninit::<Migration>::uninit();
    let piece = |at: *mut c_void| libc::iovec { iov_base: at, iov_len: size_of::<Migration>() };
    let (ours, theirs) = (piece(found.as_mut_ptr().cast()), piece(bytes.cast_mut()));
    let before = errno();
    // SAFETY: the kernel checks the program's address, and writes to our memory.
    let copied = unsafe {
        let pid = libc::syscall(libc::SYS_getpid);
        let call = libc::SYS_process_vm_readv;
        libc::syscall(call, pid, &raw const ours, 1_usize, &raw const theirs, 1_usize, 0_usize)
    };
    let refused = copied < 0 && errno() != libc::EFAULT;
    set_errno(before);
    if refused {
        // A filter of system calls forbids the call. Then a bad address ends the program.
        // SAFETY: the caller's bytes.
        unsafe { found.write(bytes.cast::<Migration>().read_unaligned()) };
    } else if copied != size_of::<Migration>() as libc::c_long {
        return None;
    }
    // SAFETY: the whole structure was written.
    let mut command = unsafe { found.assume_init() };
    if command.command != MIGRATE_ID {
        return None;
    }
    command.fd = of(command.fd as c_int)? as u32;
    Some(command)
}

/// A call of `write`, on the stack of [`adverb_preload_write`], which relies on this layout.
#[repr(C)]
struct Call {
    fd: usize,
    bytes: *const c_void,
    len: usize,
    /// 1 if the library handles the call. The result is then a negative errno on failure.
    library: usize,
    migration: Migration,
}

const _: () = assert!(size_of::<Call>() == 56, "the functions in assembly have room for so much");

/// Chooses the function to call, and puts its arguments in `call`.
///
/// # Safety
/// The first three fields are the program's arguments.
unsafe extern "C-unwind" fn route(call: &mut Call) -> *mut c_void {
    call.library = 0;
    let Some(library) = of(call.fd as c_int) else {
        return WRITE.get().unwrap_or(absent as *mut c_void);
    };
    let write = THEIRS[1].load(Ordering::Acquire);
    if write.is_null() {
        return absent as *mut c_void;
    }
    // SAFETY: the caller's bytes; the function checks the address.
    if let Some(ours) = unsafe { migration(call.bytes, call.len) } {
        call.migration = ours;
        (call.bytes, call.len) = ((&raw const call.migration).cast(), size_of::<Migration>());
    }
    (call.fd, call.library) = (library as usize, 1);
    write
}

/// Replaces a function that this C library does not have.
extern "C" fn absent(_fd: c_int, _bytes: *const c_void, _len: usize) -> isize {
    result(libc::ENOSYS) as isize
}

/// The result of `write` for the program.
extern "C" fn answer(done: isize, library: usize) -> isize {
    if library == 1 && done < 0 { result(-done as c_int) as isize } else { done }
}

/// Replaces the C library's function of this name. The bytes are a command.
///
/// A thread may be cancelled while it waits for an event here, and then its stack is unwound. No
/// Rust function is on the stack below the wait. In a release build, a Rust function would have a
/// guard against unwinding, and the guard needs the panic routines.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_write(
    fd: c_int,
    bytes: *const c_void,
    len: usize,
) -> isize {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "sub rsp, 56",
        ".cfi_adjust_cfa_offset 56",
        "mov [rsp], rdi",
        "mov [rsp + 8], rsi",
        "mov [rsp + 16], rdx",
        "mov rdi, rsp",
        "call {route}",
        "mov rdi, [rsp]",
        "mov rsi, [rsp + 8]",
        "mov rdx, [rsp + 16]",
        "call rax",
        "mov rdi, rax",
        "mov rsi, [rsp + 24]",
        "add rsp, 56",
        ".cfi_adjust_cfa_offset -56",
        "jmp {answer}",
        ".cfi_endproc",
        route = sym route,
        answer = sym answer,
    )
}

/// Replaces the C library's function of this name. The bytes are a command.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_write(
    fd: c_int,
    bytes: *const c_void,
    len: usize,
) -> isize {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, -80]!",
        ".cfi_def_cfa_offset 80",
        ".cfi_offset 29, -80",
        ".cfi_offset 30, -72",
        "stp x0, x1, [sp, 16]",
        "str x2, [sp, 32]",
        "add x0, sp, 16",
        "bl {route}",
        "mov x9, x0",
        "ldp x0, x1, [sp, 16]",
        "ldr x2, [sp, 32]",
        "blr x9",
        "ldr x1, [sp, 40]",
        "ldp x29, x30, [sp], 80",
        ".cfi_restore 29",
        ".cfi_restore 30",
        ".cfi_def_cfa_offset 0",
        "b {answer}",
        ".cfi_endproc",
        route = sym route,
        answer = sym answer,
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_close(fd: c_int) -> c_int {
    let_go(fd);
    waits::closed(fd);
    bare_close(fd)
}

/// A descriptor was duplicated. Marks the duplicate of a descriptor of this file in the table.
fn duplicated(from: c_int, library: Option<c_int>, fd: c_int) -> c_int {
    waits::copied(from, fd);
    if let Some(library) = library
        && fd >= 0
        && !mark(fd, library)
    {
        bare_close(fd);
        return result(libc::EMFILE);
    }
    fd
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_dup(fd: c_int) -> c_int {
    duplicated(fd, of(fd), call!(DUP: fn(fd => c_int) -> c_int))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_dup2(fd: c_int, to: c_int) -> c_int {
    let library = of(fd);
    if fd != to {
        let_go(to);
    }
    duplicated(fd, library, call!(DUP2: fn(fd => c_int, to => c_int) -> c_int))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    let library = of(fd);
    if fd != to {
        let_go(to);
    }
    duplicated(fd, library, call!(DUP3: fn(fd => c_int, to => c_int, flags => c_int) -> c_int))
}

/// Defines `fcntl` under one of its names. The third argument is variadic in C, and on the
/// supported machines it is passed like a fixed argument. If the caller passes no third argument,
/// the value read here is passed on and not used.
macro_rules! fcntl {
    ($($symbol:ident = $real:ident;)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol(fd: c_int, what: c_int, with: *mut c_void) -> c_int {
            let done =
                || call!($real: fn(fd => c_int, what => c_int, with => *mut c_void) -> c_int);
            match what {
                libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, of(fd), done()),
                _ => done(),
            }
        }
    )* };
}

fcntl! {
    adverb_preload_fcntl = FCNTL;
    adverb_preload_fcntl64 = FCNTL64;
}

/// The result of `fstat` for this file: a character device, like the result for its path. The
/// structure has the same layout under all these names.
///
/// # Safety
/// `to` has room for the structure.
unsafe fn kind(fd: c_int, to: *mut libc::stat) -> Option<c_int> {
    of(fd)?;
    let real = real!(STAT: fn(*const c_char, *mut libc::stat) -> c_int)?;
    // SAFETY: the path is a string; `to` is the caller's.
    Some(unsafe { real(c"/dev/null".as_ptr(), to) })
}

/// Defines `fstat` under one of its names.
macro_rules! fstat {
    ($( $symbol:ident $real:ident ( $($arg:ident : $ty:ty),* ); )*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol($($arg: $ty,)* fd: c_int, to: *mut libc::stat) -> c_int {
            // SAFETY: `to` is the caller's.
            if let Some(said) = unsafe { kind(fd, to) } {
                return said;
            }
            call!($real: fn($($arg => $ty,)* fd => c_int, to => *mut libc::stat) -> c_int)
        }
    )* };
}

fstat! {
    adverb_preload_fstat FSTAT();
    adverb_preload_fstat64 FSTAT64();
    adverb_preload___fxstat FXSTAT(version: c_int);
    adverb_preload___fxstat64 FXSTAT64(version: c_int);
}
