//! Waits of a Rust program that drive the device, without `adverb run`.
//!
//! A program that links this crate has `epoll_wait`, `poll` and their variants of its own. The
//! linker takes these in place of the C library's, also for the calls of other crates such as
//! `mio`. They are the functions of the preloaded library ([`adverb_preload::waits`]), which call
//! the C library's. Under `adverb run` they do nothing else, because the preloaded library drives.
//!
//! A program that is linked statically keeps the C library's functions.
#![allow(unsafe_code, reason = "functions in the place of the C library's")]
#![cfg(not(target_feature = "crt-static"))]

use adverb_preload::waits;
use core::ffi::c_int;
use core::hint::black_box;
use libc::{epoll_event, nfds_t, pollfd, sigset_t, timespec};

/// Defines functions under the C library's names, and their list.
macro_rules! in_front {
    ($( $name:ident = $own:ident ( $($arg:ident : $ty:ty),* ); )*) => {
        $(
            /// Replaces the C library's function of this name.
            ///
            /// # Safety
            /// As for the C library's function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
                // SAFETY: the caller's arguments.
                unsafe { waits::$own($($arg),*) }
            }
        )*

        /// The addresses of the functions.
        fn functions() -> impl Iterator<Item = usize> {
            [$( $name as *const () as usize ),*].into_iter()
        }
    };
}

in_front! {
    epoll_wait = adverb_preload_epoll_wait(
        set: c_int, to: *mut epoll_event, most: c_int, millis: c_int);
    epoll_pwait = adverb_preload_epoll_pwait(
        set: c_int, to: *mut epoll_event, most: c_int, millis: c_int, mask: *const sigset_t);
    epoll_ctl = adverb_preload_epoll_ctl(
        set: c_int, how: c_int, fd: c_int, event: *mut epoll_event);
    poll = adverb_preload_poll(polls: *mut pollfd, n: nfds_t, millis: c_int);
    ppoll = adverb_preload_ppoll(
        polls: *mut pollfd, n: nfds_t, time: *const timespec, mask: *const sigset_t);
}

/// Has the waits of this program drive the device.
pub fn register() {
    // The linker takes an object of an archive only if something in it is called.
    functions().for_each(|function| _ = black_box(function));
    adverb_waits::register_or(Some(waits::adverb_preload_adverb_wait_hooks));
}
