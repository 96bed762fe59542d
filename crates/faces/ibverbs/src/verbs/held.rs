//! Objects that stay alive during a wait, even if the program destroys them meanwhile.
use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// The object on which this thread waits. A thread-local variable holds the object, so the
    /// object is dropped when the thread is cancelled. On the stack, it would not be dropped in a
    /// build that aborts on panics, because such a build runs no destructors of the stack.
    static HELD: RefCell<Option<Arc<dyn Any + Send + Sync>>> = const { RefCell::new(None) };
}

/// Calls a function with an object that stays alive during the call.
pub fn hold<T: Any + Send + Sync, R>(object: Arc<T>, call: impl FnOnce(&T) -> R) -> R {
    let place = Arc::as_ptr(&object);
    let before = HELD.replace(Some(object));
    // SAFETY: the thread's `HELD` keeps the object until the next line.
    let result = call(unsafe { &*place });
    let held = HELD.replace(before);
    drop(held);
    result
}
