//! Objects that calls wait on, whatever the program destroys meanwhile.
use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// What this thread waits on. Here and not on its stack, so that it goes with a thread that is
    /// cancelled, also where a build that aborts on panics runs no destructors of the stack.
    static HELD: RefCell<Option<Arc<dyn Any + Send + Sync>>> = const { RefCell::new(None) };
}

/// Calls with an object that lives until then.
pub fn hold<T: Any + Send + Sync, R>(object: Arc<T>, call: impl FnOnce(&T) -> R) -> R {
    let place = Arc::as_ptr(&object);
    let before = HELD.replace(Some(object));
    // SAFETY: the thread's own word holds it until the next line.
    let result = call(unsafe { &*place });
    let held = HELD.replace(before);
    drop(held);
    result
}
