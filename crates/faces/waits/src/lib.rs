//! The preload's waits: `epoll_wait`, `poll` and `select` on a channel's descriptor drive the
//! device ([`adverb_device::waits`]).
#![allow(unsafe_code, reason = "memory of programs in C")]

use adverb_device::waits::{self, Driver, Kind, ReplacedCall, Wait, Woken};
use adverb_hooks::waits::{Called, Driver as Given, FOREVER, Hooks, Sleep, VERSION};
use adverb_os::{Mask, Uncancellable, Uncancelled};
use core::ffi::{c_int, c_void};
use libc::{pollfd, sigset_t};
use std::sync::{Once, OnceLock};
use std::time::Duration;

/// [`sleep`], which a cancellation may unwind.
type Unwinding = unsafe extern "C-unwind" fn(
    Given,
    c_int,
    *mut pollfd,
    u64,
    u64,
    *const sigset_t,
    &Called,
) -> c_int;

static HOOKS: Hooks = Hooks {
    version: VERSION,
    kinds,
    look,
    begin,
    // SAFETY: the same arguments and result. A cancellation unwinds through the preloaded
    // library, whose frames have nothing to clean up.
    sleep: unsafe { core::mem::transmute::<Unwinding, Sleep>(sleep) },
    end,
    end_alone,
    does_not_drive,
    closed,
    copied,
    controlled,
};

/// Takes the hooks. Returns the C library's `ppoll`, or null if the version of the hooks differs.
pub type Register = unsafe extern "C" fn(*const Hooks) -> *mut c_void;

/// Has the preloaded library, if there is one, call the device in its waits. A process without an
/// open device has no use for this.
pub fn register() {
    register_or(None);
}

/// As [`register`]. Without a preloaded library, `own` takes the hooks.
pub fn register_or(own: Option<Register>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a string; the call only looks up a name.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"adverb_wait_hooks".as_ptr()) };
        let found = (!found.is_null()).then(|| {
            // SAFETY: only the preloaded library defines this name, with this signature.
            unsafe { core::mem::transmute::<*mut c_void, Register>(found) }
        });
        let Some(register) = found.or(own) else { return };
        // SAFETY: the structure and its functions stay, because no library with these is ever
        // unloaded.
        unsafe {
            let ppoll = register(&raw const HOOKS);
            if ppoll.is_null() {
                log::warn!("the preloaded library is of another version: waits drive no device");
            } else {
                adverb_os::use_ppoll(ppoll);
            }
        }
    });
}

/// Is told of a wait that found nothing within its limit: the name of the call, and the limit.
pub type Over = fn(&'static str, Duration);

static OVER: OnceLock<Over> = OnceLock::new();

/// Sets the function that is told of waits that found nothing. Called once.
pub fn tell_over(over: Over) {
    let _ = OVER.set(over);
}

fn kind(kinds: c_int) -> Kind {
    Kind::from_bits_truncate(kinds as u8)
}

unsafe extern "C" fn kinds(polls: *const pollfd, n: u64) -> c_int {
    // SAFETY: the preload's promise: `n` entries.
    let polls = unsafe { core::slice::from_raw_parts(polls, n as usize) };
    c_int::from(waits::kinds(polls.iter().map(|poll| poll.fd)).bits())
}

extern "C" fn look(kinds: c_int) -> c_int {
    let _uncancelled = Uncancelled::throughout();
    c_int::from(waits::look(kind(kinds)))
}

extern "C" fn begin(kinds: c_int, given: &mut Given) -> c_int {
    let state = Uncancellable::begin();
    let how = match waits::begin(kind(kinds)) {
        Wait::Drives(driver) => {
            *given = Given { place: driver.number(), state };
            return 1;
        }
        Wait::Idle => 0,
        Wait::Alone => 2,
    };
    Uncancellable::of(state).end();
    how
}

/// "C-unwind", because a thread can be cancelled while it sleeps.
unsafe extern "C-unwind" fn sleep(
    given: Given,
    kinds: c_int,
    polls: *mut pollfd,
    n: u64,
    until: u64,
    mask: *const sigset_t,
    call: &Called,
) -> c_int {
    // SAFETY: the preload's promise: `n` entries of its own.
    let polls = unsafe { core::slice::from_raw_parts_mut(polls, n as usize) };
    let until = (until != FOREVER).then_some(until);
    let driver = Driver::numbered(given.place);
    let call = ReplacedCall {
        number: call.number,
        set: (call.set >= 0).then_some(call.set),
        limit: (call.limit != FOREVER).then_some(Duration::from_nanos(call.limit)),
    };
    // SAFETY: a set of the preload, or the program's address.
    let mask = unsafe { Mask::at(mask) };
    let sleep = || waits::sleep(&driver, kind(kinds), polls, until, mask, call);
    match Uncancellable::of(given.state).waits(sleep) {
        Woken::Ask => 1,
        Woken::Over => {
            if let (Some(over), Some(limit), Some(name)) = (OVER.get(), call.limit, call.name()) {
                over(name, limit);
            }
            0
        }
        Woken::Failed(errno) => -(errno as c_int),
    }
}

extern "C" fn end(given: Given) {
    waits::end(&Driver::numbered(given.place));
    Uncancellable::of(given.state).end();
}

extern "C" fn end_alone() {
    waits::end_alone();
}

extern "C" fn does_not_drive() {
    waits::does_not_drive();
}

extern "C" fn closed(fd: c_int) {
    waits::closed(fd);
}

extern "C" fn copied(from: c_int, to: c_int) {
    waits::copied(from, to);
}

extern "C" fn controlled(set: c_int, how: c_int, fd: c_int) {
    waits::controlled(set, how, fd);
}
