//! The number of the calling thread.
use adverb_memory::ProcessIdentity;
use nix::unistd::gettid;
use std::cell::Cell;

thread_local! {
    /// The thread's process and number. The child of a `fork` inherits both.
    static OWN: Cell<(u32, i32)> = const { Cell::new((0, 0)) };
}

/// The number of the calling thread (`gettid`). Costs a system call once.
#[must_use]
pub fn own_id() -> i32 {
    let process = ProcessIdentity::current().number();
    // A thread about to end may have destroyed its thread-local variables already.
    let known = OWN.try_with(Cell::get).ok().filter(|(of, id)| *of == process && *id != 0);
    known.map_or_else(
        || {
            let id = gettid().as_raw();
            let _ = OWN.try_with(|own| own.set((process, id)));
            id
        },
        |(_, id)| id,
    )
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_a_number_of_its_own() {
        assert_eq!(own_id(), gettid().as_raw());
        assert_ne!(std::thread::spawn(own_id).join().unwrap(), own_id());
    }
}
