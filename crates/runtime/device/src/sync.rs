//! The lock and the atomics of the code that a model checker explores. They come from adverb-sync
//! and the standard library, and in the tests of `make loom` from loom.
#[cfg(not(all(test, loom)))]
pub use adverb_sync::Ranked;
#[cfg(not(all(test, loom)))]
pub use std::sync::atomic::AtomicUsize;

#[cfg(all(test, loom))]
pub use loom::sync::atomic::AtomicUsize;
#[cfg(all(test, loom))]
pub use model::Ranked;

#[cfg(all(test, loom))]
mod model {
    use loom::sync::{Mutex, MutexGuard};
    use std::marker::PhantomData;

    /// Loom's mutex with the interface of adverb-sync. Ranks are not checked here.
    #[derive(Debug)]
    pub struct Ranked<T, R>(Mutex<T>, PhantomData<fn() -> R>);

    impl<T, R> Ranked<T, R> {
        pub fn new(value: T) -> Self {
            Ranked(Mutex::new(value), PhantomData)
        }
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a model that panics ends at once")
        }
    }
}
