//! The state of a queue pair for the relay.
use super::backlog::Backlog;
use adverb_engine::Time;
use adverb_link::OwnedPacket;
use adverb_wire::{Opcode, Operation};
use std::collections::VecDeque;

/// The state of a queue pair for the relay.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Packets for other processes of this host that wait until these have taken earlier packets
    /// (UC, UD).
    pub(in crate::node::carriers) backlog: Backlog,
    /// Packets of other processes that arrived before their receive, each with its time (UC, UD).
    pub(in crate::node) pending: VecDeque<(Time, OwnedPacket)>,
    /// The last request arrived from its process directly, so the answer goes the same way.
    pub(in crate::node) answers_directly: bool,
}

impl Waiting {
    /// Is there no packet waiting for other processes?
    pub(crate) fn is_sent(&self) -> bool {
        self.backlog.is_empty()
    }
    #[cfg(all(test, not(loom)))]
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }
}

/// Does the packet need a posted receive?
pub(crate) fn takes_receive(opcode: impl Into<Option<Opcode>>) -> bool {
    use Operation::*;
    opcode.into().is_some_and(|o| {
        matches!(
            o.operation(),
            SendFirst | SendOnly | SendOnlyImm | SendOnlyInv | WriteLastImm | WriteOnlyImm
        )
    })
}
