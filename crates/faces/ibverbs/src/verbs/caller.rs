//! The program's own call, behind the inline functions of the headers.
//!
//! `ibv_poll_cq` and other functions of `verbs.h` are inline functions that call through a table.
//! Built with optimisation, the call through the table lies in the program's function. Built
//! without, the call lies in a copy of the inline function, and the program's call is one frame up.
//! Such code keeps frame pointers, so the caller's frame is known.
use super::notify::HEADERS;
use adverb_sync::Mutex;
use std::collections::BTreeMap;

/// Most inline functions around a call.
const DEPTH: usize = 3;
/// The frame of an inline function lies within this many bytes of the library's frame.
const NEAR: usize = 4096;

/// By return address: does the call lie in a copy of an inline function?
static KNOWN: Mutex<BTreeMap<usize, bool>> = Mutex::new(BTreeMap::new());

/// Where a call of the library returns to.
#[derive(Clone, Copy)]
pub struct Caller {
    /// 0 if unknown.
    pub return_address: usize,
    /// The frame pointer of the calling function, or anything if the function keeps none.
    pub frame: usize,
}

/// An address in the program's call.
///
/// # Safety
/// The stack of the calling thread reaches [`NEAR`] bytes beyond the caller's frame, as every stack
/// below `main` or a thread's first function does.
pub unsafe fn program_call(caller: Caller) -> usize {
    let Caller { return_address, mut frame } = caller;
    let mut call = return_address.wrapping_sub(1);
    let here = (&raw const call) as usize;
    for _ in 0..DEPTH {
        if return_address == 0 || !is_inline_function(call) {
            break;
        }
        // A frame pointer lies above this function's frame, and not far.
        if frame <= here || frame - here > NEAR || !frame.is_multiple_of(align_of::<usize>()) {
            break;
        }
        // SAFETY: near the caller's frame on this thread's stack.
        let [next, above] = unsafe { (frame as *const [usize; 2]).read() };
        if crate::verbs::notify::file_of(above).is_none() {
            break;
        }
        (call, frame) = (above.wrapping_sub(1), next);
    }
    call
}

/// Does this code belong to a copy of an inline function of the headers?
pub fn is_inline_function(address: usize) -> bool {
    // A thread that a fork left behind may hold the lock in the child.
    if let Some(known) = KNOWN.try_lock().and_then(|known| known.get(&address).copied()) {
        return known;
    }
    let mut inline = false;
    // The last symbol is the function itself, and the symbols before were inlined into it.
    backtrace::resolve(address as *mut _, |symbol| {
        let file = symbol.filename().and_then(|file| file.file_name()?.to_str());
        inline = file.is_some_and(|file| HEADERS.contains(&file));
    });
    if let Some(mut known) = KNOWN.try_lock() {
        known.insert(address, inline);
    }
    inline
}
