//! Ethernet frames that came and wait to be taken, and the packet sockets that they come from.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use adverb_sync::Mutex;

use adverb_os::sys::Fd;

/// A frame that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawFrame {
    /// Index of the interface.
    pub interface: u32,
    /// It leaves by the interface, and was not sent to it.
    pub leaving: bool,
    /// From the destination address on, without the check sequence.
    pub bytes: Vec<u8>,
}

/// Packet sockets by token, and frames that nobody has taken yet.
#[derive(Default)]
pub(crate) struct Frames {
    pub(crate) sockets: Mutex<Vec<(u64, u32, Arc<Fd>)>>,
    pub(crate) next: AtomicU64,
    pub(crate) kept: Mutex<(VecDeque<RawFrame>, usize)>,
    pub(crate) any: AtomicBool,
}
