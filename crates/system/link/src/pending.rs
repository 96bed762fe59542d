//! Received packets waiting for a receiver.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use adverb_sync::Mutex;

use crate::packet::{OwnedPacket, RxPacket, Sink, give};
use crate::stats::{Counters, add};

/// The most packets kept while a link without a running receiver measures its steering.
const PENDING: usize = 4096;

/// Packets kept until there is a receiver.
#[derive(Default)]
pub(crate) struct Pending {
    packets: Mutex<VecDeque<OwnedPacket>>,
    len: AtomicUsize,
}

impl Pending {
    /// Keeps a packet; drops the packet if the limit is reached.
    pub(crate) fn keep(&self, packet: &RxPacket<'_>, counters: &Counters) {
        let mut pending = self.packets.lock();
        if pending.len() == PENDING {
            return add(&counters.rx_drop_pending, 1);
        }
        pending.push_back(OwnedPacket::keep(packet));
        self.len.store(pending.len(), Relaxed);
    }

    /// Gives the kept packets to the sink; returns their number.
    #[inline]
    pub(crate) fn drain(&self, sink: Sink<'_>) -> usize {
        if self.len.load(Relaxed) == 0 {
            return 0;
        }
        let kept = {
            let mut pending = self.packets.lock();
            self.len.store(0, Relaxed);
            std::mem::take(&mut *pending)
        };
        kept.iter().for_each(|packet| give(packet.packet(), sink));
        kept.len()
    }
}
