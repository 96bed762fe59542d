//! Received Ethernet frames waiting to be taken, and the packet sockets they come from.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use adverb_sync::Mutex;

use adverb_os::sys::Fd;

/// A received frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawFrame {
    /// The index of the interface.
    pub interface: u32,
    /// The interface sends this frame, and does not receive it.
    pub leaving: bool,
    /// The frame from the destination address on, without the check sequence.
    pub bytes: Vec<u8>,
}

/// Packet sockets by token, and frames not yet taken.
#[derive(Default)]
pub(crate) struct Frames {
    pub(crate) sockets: Mutex<Vec<(u64, u32, Arc<Fd>)>>,
    pub(crate) next: AtomicU64,
    pub(crate) kept: Mutex<(VecDeque<RawFrame>, usize)>,
    pub(crate) any: AtomicBool,
}
