//! What a registration, or a thread, holds.
use super::{IS_OWN, Shadow, hazards};
use std::sync::atomic::Ordering;

impl Shadow {
    /// Keeps the pages of a registration that peers reach in other ways where they are, be that in the file or not, while it
    /// lasts: they must not move under a write of the kernel's.
    pub fn bar(&'static self, addr: u64, len: u64) -> Barred {
        let (start, end) = if self.is_ours() { super::pages_of(addr, len).unwrap_or((0, 0)) } else { (0, 0) };
        if start < end {
            self.state.lock().counts.bar(start, end);
        }
        Barred { shadow: self, start, end }
    }

    /// Says that the calling thread is the library's own. See [`OwnThread`].
    pub fn own_thread(&'static self) -> OwnThread {
        // SAFETY: asks for a number.
        let tid = unsafe { libc::gettid() };
        let (start, end) = hazards::stack_of(&self.maps, tid).unwrap_or((0, 0));
        let stack = self.bar(start, end.saturating_sub(start));
        IS_OWN.set(true);
        self.own_threads.fetch_add(1, Ordering::SeqCst);
        OwnThread { shadow: self, _stack: stack, _here: std::marker::PhantomData }
    }
}

/// Pages of the program's that lie in the file while this lives.
#[derive(Debug)]
#[must_use = "dropped, the pages are given back"]
pub struct Adopted {
    shadow: &'static Shadow,
    start: u64,
    end: u64,
}

impl Adopted {
    pub(super) fn new(shadow: &'static Shadow, start: u64, end: u64) -> Self {
        Adopted { shadow, start, end }
    }

    /// First address: that of a page.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// First address behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }
}

impl Drop for Adopted {
    fn drop(&mut self) {
        self.shadow.unshare(self.start, self.end);
    }
}

/// Pages that must not move while this lives. See [`Shadow::bar`].
#[derive(Debug)]
#[must_use = "dropped, the pages may move"]
pub struct Barred {
    shadow: &'static Shadow,
    start: u64,
    end: u64,
}

impl Drop for Barred {
    fn drop(&mut self) {
        if self.start < self.end && self.shadow.is_ours() {
            self.shadow.state.lock().counts.unbar(self.start, self.end);
        }
    }
}

/// Held by a thread of the library's own for as long as it lives.
///
/// Such a thread writes to memory that may lie on the same pages as the program's: all that comes from the heap does. So it
/// works only behind a gate, and outside of it touches nothing but its own stack, in a system call at most; pages move while it
/// is outside. A thread that runs a program's code, callbacks say, is not one of them.
#[derive(Debug)]
pub struct OwnThread {
    shadow: &'static Shadow,
    _stack: Barred,
    /// It stays on its thread.
    _here: std::marker::PhantomData<*const ()>,
}

impl OwnThread {
    /// Begins to work; waits while pages move.
    #[must_use]
    pub fn work(&self) -> Working<'_> {
        self.shadow.gate.enter();
        Working(self)
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        IS_OWN.set(false);
        self.shadow.own_threads.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A thread of the library's own is at work.
#[derive(Debug)]
pub struct Working<'a>(&'a OwnThread);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.shadow.gate.leave();
    }
}
