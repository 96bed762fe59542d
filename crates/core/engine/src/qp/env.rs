//! The environment of one step of a queue pair: clock, keys, memory, shared receives.
use crate::clock::Clock;
use crate::effects::Effects;
use crate::keys::KeyTable;
use crate::types::PdId;
use crate::wr::RecvWqe;

/// The source of receives of an SRQ, or of the XRC SRQ named in a packet.
pub trait RecvSource {
    /// Takes a receive. `xrc_srqn` is the SRQ number of an XRC packet, `None` on RC and UD.
    fn pop(&mut self, xrc_srqn: Option<u32>) -> Result<RecvWqe, NoRecv>;
    /// Takes a receive of the SRQ for a SEND. `first` is the payload of the SEND's first packet.
    fn pop_message(&mut self, first: &[u8]) -> Result<RecvWqe, NoRecv> {
        let _ = first;
        self.pop(None)
    }
    /// The protection domain of the XRC SRQ with this number, if the QP's domain has one.
    fn pd(&mut self, xrc_srqn: u32) -> Option<PdId> {
        let _ = xrc_srqn;
        None
    }
}

/// Why no receive could be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRecv {
    /// The queue is empty: RNR NAK on reliable transports, otherwise a drop.
    Empty,
    /// No XRC SRQ with this number in the QP's domain.
    NoSuchSrq,
}

/// A source for queue pairs without SRQ.
#[derive(Debug)]
pub struct NoSrq;
impl RecvSource for NoSrq {
    fn pop(&mut self, _: Option<u32>) -> Result<RecvWqe, NoRecv> {
        Err(NoRecv::NoSuchSrq)
    }
}

/// The environment of one step of a queue pair.
pub struct Env<'a, M: ?Sized, S: ?Sized> {
    /// The clock.
    pub clock: &'a dyn Clock,
    /// Keys of the device.
    pub keys: &'a KeyTable,
    /// Memory.
    pub memory: &'a M,
    /// SRQ of the queue pair.
    pub srq: &'a mut S,
    /// Outcome.
    pub effects: &'a mut Effects,
}
