//! READs whose data is taken late.
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{Payload, SendFlags, SendOp, SendWr, Sge};
use adverb_device::node::Node;

/// The READs of a completion queue to repeat.
#[derive(Clone, Debug, Default)]
pub(crate) struct LateReads {
    /// The queue pairs that repeat their READs from now on.
    of: Vec<u32>,
    reads: Vec<LateRead>,
}

#[derive(Clone, Debug)]
struct LateRead {
    qpn: u32,
    remote: Remote,
    to: Vec<Sge>,
}

impl LateReads {
    /// The queue pair repeats its READs from now on.
    pub(crate) fn begin(&mut self, qpn: u32) {
        if !self.of.contains(&qpn) {
            self.of.push(qpn);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// A request is staged. A fence waits for the READs before, so they are not repeated.
    pub(crate) fn note(&mut self, qpn: u32, wr: &SendWr<'_>) {
        if wr.flags.contains(SendFlags::FENCE) {
            self.forget(qpn);
        }
        if let (SendOp::Read(remote), Payload::Sges(to)) = (wr.op, &wr.data)
            && self.of.contains(&qpn)
        {
            self.reads.push(LateRead { qpn, remote, to: to.to_vec() });
        }
    }

    /// The READs of this queue pair are not repeated.
    pub(crate) fn forget(&mut self, qpn: u32) {
        self.reads.retain(|r| r.qpn != qpn);
    }

    /// Performs the READs once more.
    pub(crate) fn repeat(&self, node: &Node) {
        self.reads.iter().for_each(|read| node.read_again(read.qpn, read.remote, &read.to));
    }
}
