//! Parts of a call that a signal does not interrupt for an examination.
//!
//! The handler of a signal that ends the process keeps its thread until the examiner is done. A
//! thread in the ledger or in the device may hold a lock that the examiner needs. So the handler
//! returns from such a part at once, and the thread raises the signal again at the end of the part.
//! These parts never wait for anything but locks.
use core::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Is there an examiner in this process?
static ON: AtomicBool = AtomicBool::new(false);

/// From now on parts are kept from signals.
pub fn turn_on() {
    ON.store(true, Ordering::Relaxed);
}

/// A thread that finds no free place waits for one.
const PLACES: usize = 64;

/// The threads in such a part: the thread id, and in the upper half the signal that has come. 0: no
/// thread. A table in place of a thread-local variable, because a handler must not be the first
/// user of such a variable.
static THREADS: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// This thread.
fn own() -> u64 {
    // SAFETY: only reads a number.
    unsafe { libc::syscall(libc::SYS_gettid) as u64 }
}

fn is_of(word: u64, thread: u64) -> bool {
    word as u32 == thread as u32 && word != 0
}

/// The calling thread is in such a part until the end of this value.
pub struct Uninterrupted(Option<&'static AtomicU64>);

impl Uninterrupted {
    pub fn begin() -> Uninterrupted {
        if !ON.load(Ordering::Relaxed) {
            return Uninterrupted(None);
        }
        let thread = own();
        // An outer part covers this one.
        if THREADS.iter().any(|place| is_of(place.load(Ordering::Relaxed), thread)) {
            return Uninterrupted(None);
        }
        loop {
            for n in 0..PLACES {
                let place = &THREADS[(thread as usize + n) % PLACES];
                let (free, order) = (place.load(Ordering::Relaxed) == 0, Ordering::SeqCst);
                if free && place.compare_exchange(0, thread, order, Ordering::Relaxed).is_ok() {
                    return Uninterrupted(Some(place));
                }
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Uninterrupted {
    fn drop(&mut self) {
        let Some(place) = self.0 else { return };
        let signal = (place.swap(0, Ordering::SeqCst) >> 32) as c_int;
        if signal != 0 {
            // SAFETY: raises a signal that came before.
            unsafe { libc::raise(signal) };
        }
    }
}

/// Called by a handler: is this thread in such a part? Then the signal comes again.
pub fn postpone(signal: c_int) -> bool {
    let thread = own();
    let mine = |place: &&AtomicU64| is_of(place.load(Ordering::Relaxed), thread);
    let Some(place) = THREADS.iter().find(mine) else { return false };
    // Only this thread changes the word, and this handler has interrupted it.
    place.store(thread | (signal as u64) << 32, Ordering::SeqCst);
    true
}

/// A child of a fork has none of the parent's other threads, and another thread id.
pub fn forked() {
    THREADS.iter().for_each(|place| place.store(0, Ordering::SeqCst));
}

#[cfg(test)]
mod tests;
