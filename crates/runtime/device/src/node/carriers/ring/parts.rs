//! One-sided requests that are performed in parts, or a second time, for an adversary.
use super::rings::Rings;
use super::state::Connected;
use crate::host::Ends;
use crate::node::core::Node;
use crate::node::queue_pair::{AnyQp, QpInner};
use adverb_engine::packet::Data;
use adverb_engine::qp::HostRequest;
use adverb_engine::wr::{Remote, SendOp};
use adverb_engine::{Access, QpState, Range, Sge};

/// The line of memory that a device may place before the rest of a message.
const LINE: u64 = 64;

impl Node {
    /// Places the last line of the WRITE or READ at the head of the send queue: in the peer's
    /// memory, or in the memory of this process. The request stays in the queue. Nothing happens if
    /// an earlier request is not done, or if the peer's memory is out of reach.
    pub(crate) fn place_tail(&self, qp: &AnyQp, inner: &mut QpInner) {
        let Some(rings) = Rings::of(self) else { return };
        let ends = Ends { qpn: qp.number(), dest_qpn: inner.engine.attr().dest_qpn };
        let QpInner { engine, carried, .. } = inner;
        let Connected { peer: Some(peer), seen, .. } = &mut carried.ring else { return };
        let keys = self.keys.read();
        let Some(request) = engine.poll_host_request(&keys) else { return };
        let remote = match request.op {
            SendOp::Write(remote) | SendOp::WriteImm(remote, _) | SendOp::Read(remote) => remote,
            _ => return,
        };
        if peer.was_left() {
            return;
        }
        let Some(at) = tail(remote.va, request.len) else { return };
        let parts;
        let local = match request.local {
            Data::Bytes(bytes) => Data::Bytes(&bytes[at as usize..]),
            Data::Gather(ranges) => {
                parts = behind(ranges, at);
                Data::Gather(&parts)
            }
        };
        let part = Remote { va: remote.va + at, ..remote };
        let is_read = matches!(request.op, SendOp::Read(_));
        let op = if is_read { SendOp::Read(part) } else { SendOp::Write(part) };
        let part = HostRequest { op, len: request.len - at, local };
        rings.host.perform(peer, seen, ends, &keys, &part);
    }

    /// Performs a READ once more, as after a lost response. Nothing happens if the memory is out of
    /// reach.
    pub fn read_again(&self, qpn: u32, remote: Remote, to: &[Sge]) {
        let Some(qp) = self.qp(qpn).filter(|_| !self.is_stale()) else { return };
        let Some(rings) = Rings::of(self) else { return };
        let inner = &mut *qp.inner.lock();
        let ends = Ends { qpn: qp.number(), dest_qpn: inner.engine.attr().dest_qpn };
        let QpInner { engine, carried, .. } = inner;
        let Connected { peer: Some(peer), seen, .. } = &mut carried.ring else { return };
        if peer.was_left() || engine.state() != QpState::Rts {
            return;
        }
        let (keys, pd) = (self.keys.read(), engine.config().pd);
        let place = |s: &Sge| keys.check_local(pd, s.lkey, Access::LOCAL_WRITE, s.addr, s.length);
        let Ok(ranges) = to.iter().map(place).collect::<Result<Vec<_>, _>>() else { return };
        let len = ranges.iter().map(|r| u64::from(r.len)).sum();
        let local = Data::Gather(&ranges);
        let request = HostRequest { op: SendOp::Read(remote), len, local };
        rings.host.perform(peer, seen, ends, &keys, &request);
    }
}

/// The offset of the last line of a message to `va`. `None`: the message has a single line.
fn tail(va: u64, len: u64) -> Option<u64> {
    let last = va.checked_add(len.checked_sub(1)?)?;
    (last / LINE * LINE).checked_sub(va).filter(|at| *at > 0)
}

/// The bytes of a list from an offset on.
fn behind(ranges: &[Range], at: u64) -> Vec<Range> {
    let mut skip = at;
    let mut rest = Vec::new();
    for r in ranges {
        let skipped = skip.min(r.len.into());
        skip -= skipped;
        let len = r.len - skipped as u32;
        if len > 0 {
            rest.push(Range { addr: r.addr + skipped, len, ..*r });
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use adverb_engine::memory::RangeKind;

    /// HUN-13: the last line begins at a multiple of its size in the peer's memory, and a message
    /// within a line has none.
    #[test]
    fn the_last_line_of_a_message() {
        assert_eq!(tail(0x1000, 65536), Some(65536 - 64));
        assert_eq!(tail(0x1010, 65536), Some(65536 - 0x10));
        assert_eq!(tail(0x1010, 0x31), Some(0x30));
        assert_eq!((tail(0x1010, 0x30), tail(0x1000, 0), tail(u64::MAX, 2)), (None, None, None));
    }

    /// HUN-13: the parts behind an offset are the bytes from this offset on.
    #[test]
    fn the_bytes_behind_an_offset() {
        let range = |addr, len| Range { addr, len, kind: RangeKind::Mapped };
        let parts = behind(&[range(100, 10), range(200, 20), range(300, 5)], 14);
        let parts: Vec<_> = parts.iter().map(|r| (r.addr, r.len)).collect();
        assert_eq!(parts, [(204, 16), (300, 5)]);
    }
}
