//! The lock and the atomics of the code that a model checker explores: parking_lot's and the standard library's, but
//! loom's in the tests of `make loom`.
#[cfg(not(all(test, loom)))]
pub use parking_lot::Mutex;
#[cfg(not(all(test, loom)))]
pub use std::sync::atomic::AtomicUsize;

#[cfg(all(test, loom))]
pub use loom::sync::atomic::AtomicUsize;
#[cfg(all(test, loom))]
pub use model::Mutex;

#[cfg(all(test, loom))]
mod model {
    use loom::sync::MutexGuard;

    /// Loom's mutex with parking_lot's interface.
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
