//! What a receiving thread keeps from call to call: room for datagrams, and what it knows of the
//! one in hand.

use adverb_wire::icrc::Solver;

use adverb_os::sys::RecvVec;

/// Buffers to receive into: one set for each receiving thread.
pub struct RxBuffers {
    pub(crate) vec: RecvVec,
    /// How many datagrams to ask for next.
    pub(crate) next: usize,
    /// Packets of the datagram in hand that go to another process, as a message without its header.
    pub(crate) misdirected: Vec<u8>,
    pub(crate) solver: Solver,
}

impl RxBuffers {
    /// Room for that many GRO datagrams of 64 KiB in one system call, 1 to 16.
    pub fn new(datagrams: usize) -> Self {
        RxBuffers { vec: RecvVec::new(datagrams), next: 1, misdirected: Vec::new(), solver: Solver::new() }
    }

    /// Where a message between processes is received to.
    pub(crate) fn scratch(&mut self) -> &mut [u8] {
        self.vec.scratch()
    }

    pub(crate) fn parts(&mut self) -> (&mut Solver, &mut Vec<u8>) {
        (&mut self.solver, &mut self.misdirected)
    }
}

impl Default for RxBuffers {
    fn default() -> Self {
        Self::new(8)
    }
}
