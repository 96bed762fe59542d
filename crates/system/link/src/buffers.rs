//! The state of a receiving thread between calls: room for datagrams, and the state of the current
//! datagram.

use adverb_wire::icrc::Solver;

use adverb_os::sys::RecvVec;

/// Buffers for receiving: one set for each receiving thread.
pub struct RxBuffers {
    pub(crate) vec: RecvVec,
    /// The number of datagrams to request next.
    pub(crate) next: usize,
    /// Packets of the current datagram for another process, as a message without its header.
    pub(crate) misdirected: Vec<u8>,
    pub(crate) solver: Solver,
}

impl RxBuffers {
    /// Room for `datagrams` GRO datagrams of 64 KiB in one system call, 1 to 16.
    pub fn new(datagrams: usize) -> Self {
        RxBuffers {
            vec: RecvVec::new(datagrams),
            next: 1,
            misdirected: Vec::new(),
            solver: Solver::new(),
        }
    }
}
