//! The lock and the atomics of the code that a model checker explores: those of adverb-sync and the
//! standard library, but loom's in the tests of `make loom`.
#[cfg(not(all(test, loom)))]
pub use adverb_sync::Mutex;
#[cfg(not(all(test, loom)))]
pub use std::sync::atomic::AtomicUsize;

#[cfg(all(test, loom))]
pub use loom::sync::atomic::AtomicUsize;
#[cfg(all(test, loom))]
pub use model::Mutex;

#[cfg(all(test, loom))]
mod model {
    use loom::sync::MutexGuard;

    /// Loom's mutex with the interface of adverb-sync.
    #[derive(Debug)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value))
        }
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a model that panics ends at once")
        }
    }
}
