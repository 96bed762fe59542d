//! Replacements for memory functions of the C library.
//!
//! Page-aligned allocations get whole pages, so that the device can replace them with pages that
//! its peers map. The device registers [`Hooks`](adverb_hooks::memory::Hooks) here for this
//! purpose. Each block still belongs to the program's allocator: a freed or reallocated block is
//! first shown to the device, and then goes to the allocator. Advice on memory and forks also go
//! through the device. Without hooks, as in every process without verbs, all calls pass straight
//! through.

mod advise;
mod allocate;
mod fork;
mod functions;
mod hooks;
mod remap;
mod stack;
mod syscall;

pub use syscall::look_up;
