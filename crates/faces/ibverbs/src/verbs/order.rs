//! Tells ThreadSanitizer that a completion comes after the posts before it.
//!
//! A program may pass memory from one of its threads to another with only posts and completions:
//! one thread fills a buffer and posts it, and the other thread polls and uses the buffer again.
//! ThreadSanitizer follows the locks that a program calls, but it does not see the locks inside
//! this library, and would report a race. So in a program that has the run-time library of
//! ThreadSanitizer, each post counts as a release of one word, and each completion counts as an
//! acquire of that word.
use core::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

type Annotation = unsafe extern "C" fn(*mut c_void);

static RELEASE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static ACQUIRE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// The word that stands for all posts. Only its address matters.
static POSTS: u8 = 0;

/// Looks for the run-time library.
pub fn look() {
    for (place, name) in [(&RELEASE, c"__tsan_release"), (&ACQUIRE, c"__tsan_acquire")] {
        place.store(find(name), Ordering::Relaxed);
    }
}

fn find(name: &CStr) -> *mut c_void {
    // SAFETY: a valid string; the call only looks up a symbol.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// The thread's actions so far happen before the requests that the thread posts next.
#[inline]
pub fn posted() {
    annotate(&RELEASE);
}

/// The thread's next actions happen after the posts so far.
#[inline]
pub fn completed() {
    annotate(&ACQUIRE);
}

#[inline]
fn annotate(place: &AtomicPtr<c_void>) {
    let function = place.load(Ordering::Relaxed);
    if !function.is_null() {
        // SAFETY: only the functions with these names are stored, and they have this signature.
        let function: Annotation = unsafe { core::mem::transmute(function) };
        // SAFETY: the run-time library accepts any address, and does not write there.
        unsafe { function((&raw const POSTS).cast_mut().cast()) }
    }
}
