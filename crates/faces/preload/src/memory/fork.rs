//! Forks, in all their forms, with the device's handlers around them; and memory that threads and
//! children run on.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use super::functions::{BARE_FORK, CLONE, FORK, REGISTER_ATFORK, SET_STACK};
use super::hooks::hooks;
use super::stack::{self, Stack};
use crate::real::{errno, real, result, set_errno};

/// The function of this name: refused where the machine cannot hold the child's copies.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_fork() -> c_int {
    let Some(real) = real!(FORK: fn() -> c_int) else { return result(libc::ENOSYS) };
    let Some(hooks) = hooks() else {
        // SAFETY: the caller's.
        return unsafe { real() };
    };
    stack::away_from_blocks(hooks, move || {
        let refused = (hooks.may_fork)();
        // SAFETY: the caller's.
        i64::from(if refused != 0 { result(refused) } else { unsafe { real() } })
    }) as c_int
}

/// The function of this name, which calls no handlers; those of the device's memory are called all
/// the same.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload__Fork() -> c_int {
    let Some(real) = real!(BARE_FORK: fn() -> c_int) else { return result(libc::ENOSYS) };
    // SAFETY: the caller's.
    around_fork(|| i64::from(unsafe { real() })) as c_int
}

/// A fork without handlers, with those of the device's memory around it.
pub fn around_fork(fork: impl FnOnce() -> i64 + Copy) -> i64 {
    let Some(hooks) = hooks() else { return fork() };
    stack::away_from_blocks(hooks, move || {
        let refused = (hooks.may_fork)();
        if refused != 0 {
            return i64::from(result(refused));
        }
        (hooks.before_fork)();
        let pid = fork();
        let errno_of = errno();
        if pid == 0 {
            (hooks.after_fork_child)()
        } else {
            (hooks.after_fork_parent)()
        }
        set_errno(errno_of);
        pid
    })
}

/// A function that `clone` starts.
type Start = unsafe extern "C" fn(*mut c_void) -> c_int;
type Clone = unsafe extern "C" fn(
    Option<Start>,
    *mut c_void,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
) -> c_int;

/// What a child made by `clone` begins with.
struct Begin {
    start: Start,
    arg: *mut c_void,
    /// The end of its stack, where it begins on another.
    moves_to: usize,
    answer: c_int,
}

unsafe extern "C" fn begin(begin: *mut c_void) -> c_int {
    // Before anything of the caller's is looked at, whose stack may be a block, too.
    if let Some(hooks) = hooks() {
        (hooks.after_fork_child)();
    }
    let begin = begin.cast::<Begin>();
    // SAFETY: of the caller's stack, of which the child has a copy.
    unsafe {
        match (*begin).moves_to {
            0 => run(begin.cast()),
            // It has its stack by now.
            top => stack::call_on(top, run, begin.cast()),
        }
        (*begin).answer
    }
}

unsafe extern "C" fn run(begin: *mut c_void) {
    let begin = begin.cast::<Begin>();
    // SAFETY: as in `begin`, and the program's own function.
    unsafe { (*begin).answer = ((*begin).start)((*begin).arg) }
}

/// The function of this name: without `CLONE_VM` it is a fork on another stack. The arguments
/// behind the fourth are there if the flags ask for them; where C passes none, what is read here is
/// passed on and not looked at.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_clone(
    start: Option<Start>,
    stack: *mut c_void,
    flags: c_int,
    arg: *mut c_void,
    parent: *mut c_void,
    tls: *mut c_void,
    child: *mut c_void,
) -> c_int {
    let Some(real) = CLONE.get() else { return result(libc::ENOSYS) };
    // SAFETY: the C library's function takes these in the same places.
    let real = unsafe { core::mem::transmute::<*mut c_void, Clone>(real) };
    let shares = flags & (libc::CLONE_VM | libc::CLONE_VFORK) != 0;
    let (Some(hooks), Some(run), false) = (hooks(), start, shares || stack.is_null()) else {
        // SAFETY: the caller's arguments.
        return unsafe { real(start, stack, flags, arg, parent, tls, child) };
    };
    (hooks.run_on)((stack as u64).wrapping_sub(1), 1);
    // One that is registered stays a block, which a child has not at its first instruction.
    let held = (hooks.is_held)((stack as u64).wrapping_sub(1)) != 0;
    let Some(aside) = (if held { Stack::new().map(Some) } else { Some(None) }) else {
        return result(libc::ENOMEM);
    };
    let moves_to = if held { stack.addr() & !15 } else { 0 };
    let mut first = Begin { start: run, arg, moves_to, answer: 0 };
    let refused = (hooks.may_fork)();
    if refused != 0 {
        return result(refused);
    }
    let stack = aside.as_ref().map_or(stack, Stack::end);
    (hooks.before_fork)();
    // SAFETY: the caller's arguments, but for the first function, which calls the caller's, and a
    // stack of ours.
    let pid = unsafe { real(Some(begin), stack, flags, (&raw mut first).cast(), parent, tls, child) };
    let errno_of = errno();
    (hooks.after_fork_parent)();
    drop(aside);
    set_errno(errno_of);
    pid
}

/// The function of this name: a thread's stack, with what the C library keeps there, is looked at
/// by it in every child before any handler runs.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_pthread_attr_setstack(
    attr: *mut libc::pthread_attr_t,
    addr: *mut c_void,
    size: usize,
) -> c_int {
    let Some(real) = real!(SET_STACK: fn(*mut libc::pthread_attr_t, *mut c_void, usize) -> c_int) else {
        return libc::ENOSYS;
    };
    // SAFETY: the caller's arguments.
    let error = unsafe { real(attr, addr, size) };
    if error == 0
        && let Some(hooks) = hooks()
    {
        (hooks.run_on)(addr as u64, size as u64);
    }
    error
}

type Handler = Option<unsafe extern "C" fn()>;

unsafe extern "C" fn before_fork() {
    if let Some(hooks) = hooks() {
        (hooks.before_fork)();
    }
}

unsafe extern "C" fn after_fork_parent() {
    if let Some(hooks) = hooks() {
        (hooks.after_fork_parent)();
    }
}

unsafe extern "C" fn after_fork_child() {
    if let Some(hooks) = hooks() {
        (hooks.after_fork_child)();
    }
}

/// Registers our handlers, once. An allocator may be registering its own, under its locks: no name
/// is looked up here that the C library has not, which would allocate a message. (Another C
/// library's programs have no device that leaves hooks.) They have to be the first that are
/// registered: those run last before a fork, and first after.
pub fn register_handlers() {
    static DONE: core::sync::atomic::AtomicBool = core::sync::atomic::AtomicBool::new(false);
    if DONE.swap(true, Ordering::AcqRel) {
        return;
    }
    let (before, parent, child): (Handler, Handler, Handler) =
        (Some(before_fork), Some(after_fork_parent), Some(after_fork_child));
    if let Some(real) = real!(REGISTER_ATFORK: fn(Handler, Handler, Handler, *mut c_void) -> c_int) {
        // SAFETY: functions of an object that is never unloaded, so it needs no name.
        unsafe { real(before, parent, child, core::ptr::null_mut()) };
    }
}

/// The function of this name, by which glibc's `pthread_atfork` registers: no handler comes before
/// ours.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload___register_atfork(
    before: Handler,
    parent: Handler,
    child: Handler,
    object: *mut c_void,
) -> c_int {
    register_handlers();
    match real!(REGISTER_ATFORK: fn(Handler, Handler, Handler, *mut c_void) -> c_int) {
        // SAFETY: the caller's arguments.
        Some(real) => unsafe { real(before, parent, child, object) },
        None => libc::ENOSYS,
    }
}
