//! All forms of fork, with the device's handlers around them; and the memory on which threads and
//! children run.

use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering;

use super::functions::{BARE_FORK, CLONE, FORK, REGISTER_ATFORK, SET_STACK};
use super::hooks::hooks;
use super::stack::{self, Stack};
use crate::real::{errno, real, result, set_errno};

/// Replaces the C library's function of this name. Fails if the machine cannot hold the child's
/// copies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_fork() -> c_int {
    let Some(real) = real!(FORK: fn() -> c_int) else { return result(libc::ENOSYS) };
    let Some(hooks) = hooks() else {
        // SAFETY: as for the caller.
        return unsafe { real() };
    };
    stack::away_from_blocks(hooks, move || {
        let refused = (hooks.may_fork)();
        // SAFETY: as for the caller.
        i64::from(if refused != 0 { result(refused) } else { unsafe { real() } })
    }) as c_int
}

/// Replaces the C library's function of this name. `_Fork` calls no handlers, but the handlers of
/// the device's memory run nevertheless.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload__Fork() -> c_int {
    let Some(real) = real!(BARE_FORK: fn() -> c_int) else { return result(libc::ENOSYS) };
    // SAFETY: as for the caller.
    around_fork(|| i64::from(unsafe { real() })) as c_int
}

/// Runs a fork without handlers, with the handlers of the device's memory around it.
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

/// The start function of `clone`.
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

/// Start arguments of a child made by `clone`.
struct Begin {
    start: Start,
    arg: *mut c_void,
    /// The top of the child's final stack, if the child starts on another stack; else 0.
    moves_to: usize,
    answer: c_int,
}

unsafe extern "C" fn begin(begin: *mut c_void) -> c_int {
    // This comes before any access to the caller's memory, because the caller's stack may be a
    // block too.
    if let Some(hooks) = hooks() {
        (hooks.after_fork_child)();
    }
    let begin = begin.cast::<Begin>();
    // SAFETY: `begin` lies on the caller's stack, of which the child has a copy.
    unsafe {
        match (*begin).moves_to {
            0 => run(begin.cast()),
            // By now the child has its copy of the final stack.
            top => stack::call_on(top, run, begin.cast()),
        }
        (*begin).answer
    }
}

unsafe extern "C" fn run(begin: *mut c_void) {
    let begin = begin.cast::<Begin>();
    // SAFETY: as in `begin`; the start function is the program's.
    unsafe { (*begin).answer = ((*begin).start)((*begin).arg) }
}

/// Replaces the C library's function of this name. Without `CLONE_VM` it is a fork on another
/// stack. The arguments after the fourth exist only if the flags need them. If the caller passes
/// none, the values read here are passed on and not used.
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
    // SAFETY: the C library's function takes these arguments in the same positions.
    let real = unsafe { core::mem::transmute::<*mut c_void, Clone>(real) };
    let shares = flags & (libc::CLONE_VM | libc::CLONE_VFORK) != 0;
    let (Some(hooks), Some(run), false) = (hooks(), start, shares || stack.is_null()) else {
        // SAFETY: the caller's arguments.
        return unsafe { real(start, stack, flags, arg, parent, tls, child) };
    };
    (hooks.run_on)((stack as u64).wrapping_sub(1), 1);
    // A registered block stays a block, and the child does not have its pages at the first
    // instruction.
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
    // SAFETY: the caller's arguments, except for the start function, which calls the caller's, and
    // possibly our own stack.
    let pid =
        unsafe { real(Some(begin), stack, flags, (&raw mut first).cast(), parent, tls, child) };
    let errno_of = errno();
    (hooks.after_fork_parent)();
    drop(aside);
    set_errno(errno_of);
    pid
}

/// Replaces the C library's function of this name. In every child, the C library reads its data on
/// each thread's stack before any handler runs. So the stack must not be a block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_pthread_attr_setstack(
    attr: *mut libc::pthread_attr_t,
    addr: *mut c_void,
    size: usize,
) -> c_int {
    let Some(real) = real!(SET_STACK: fn(*mut libc::pthread_attr_t, *mut c_void, usize) -> c_int)
    else {
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

macro_rules! handlers {
    ($($name:ident)*) => { $(
        unsafe extern "C" fn $name() {
            if let Some(hooks) = hooks() {
                (hooks.$name)();
            }
        }
    )* };
}

handlers! { before_fork after_fork_parent after_fork_child }

/// Registers our handlers, once. An allocator may be registering its own handlers under its locks.
/// So this function looks up only names that the C library has, because a failed lookup allocates a
/// message. (With another C library, no device registers hooks.) Our handlers must be the first:
/// first handlers run last before a fork, and first after it.
pub fn register_handlers() {
    static DONE: core::sync::atomic::AtomicBool = core::sync::atomic::AtomicBool::new(false);
    if DONE.swap(true, Ordering::AcqRel) {
        return;
    }
    let (before, parent, child): (Handler, Handler, Handler) =
        (Some(before_fork), Some(after_fork_parent), Some(after_fork_child));
    if let Some(real) = real!(REGISTER_ATFORK: fn(Handler, Handler, Handler, *mut c_void) -> c_int)
    {
        // SAFETY: the functions belong to an object that is never unloaded, so the object handle
        // may be null.
        unsafe { real(before, parent, child, core::ptr::null_mut()) };
    }
}

/// Replaces the C library's function of this name, with which glibc's `pthread_atfork` registers
/// handlers. This ensures that no handler comes before ours.
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
