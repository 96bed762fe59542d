//! Stand-ins for functions of the C library that concern memory.
//!
//! Page-aligned allocations are handed out in whole pages, so that the device can make them of
//! pages that its peers map; for that it leaves [`Hooks`] here. Its allocator keeps every block:
//! what is freed or reallocated is shown to the device first, and then goes to the allocator that
//! the program has. Advice on memory and forks go by way of the device as well. Without hooks, in
//! every process that uses no verbs, all of this passes straight through.

mod advise;
mod allocate;
mod fork;
mod functions;
mod hooks;
mod remap;
mod stack;
mod syscall;

pub use hooks::{Hooks, VERSION};
pub use syscall::look_up;

/// The names that this module defines.
pub const NAMES: &[&str] = &[
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "valloc",
    "pvalloc",
    "realloc",
    "free",
    "madvise",
    "process_madvise",
    "mremap",
    "fork",
    "_Fork",
    "clone",
    "__register_atfork",
    "pthread_attr_setstack",
    "syscall",
    "adverb_memory_hooks",
];
