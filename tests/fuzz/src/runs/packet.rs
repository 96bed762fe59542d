//! Packets of a hostile peer: most are valid, alone and in their order.
use super::twin::{LOCAL, OPEN, PEER_QPN, QKEY, READ, TYPES};
use crate::input::Input;
use adverb_engine::QpType;
use adverb_local::{MAD_QPN, MULTICAST_QPN};
use adverb_wire::Operation::*;
use adverb_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Headers, Ieth, ImmDt, MAX_HEADER_LEN, Opcode,
    Operation, Psn, Reth, Syndrome, Transport, XrcEth, pad_for,
};

/// First, middle, only and last packet of the messages with payload.
const FAMILIES: [[Operation; 4]; 5] = [
    [SendFirst, SendMiddle, SendOnly, SendLast],
    [SendFirst, SendMiddle, SendOnlyImm, SendLastImm],
    [SendFirst, SendMiddle, SendOnlyInv, SendLastInv],
    [WriteFirst, WriteMiddle, WriteOnly, WriteLast],
    [WriteFirst, WriteMiddle, WriteOnlyImm, WriteLastImm],
];

/// A packet whose keys are names ([`super::twin::Twin::key`]), so that it fits both nodes.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) headers: Headers,
    payload: usize,
    /// A byte of the BTH to change, and its change.
    flip: (usize, u8),
    /// Bytes that arrive, if fewer.
    len: usize,
}

impl Draft {
    /// The bytes for a node with these keys.
    pub(super) fn bytes(&self, key: impl Fn(u8) -> u32) -> Vec<u8> {
        let mut h = self.headers;
        let named = [
            h.reth.as_mut().map(|reth| &mut reth.rkey),
            h.atomic.as_mut().map(|atomic| &mut atomic.rkey),
            h.ieth.as_mut().map(|ieth| &mut ieth.rkey),
        ];
        named.into_iter().flatten().for_each(|rkey| *rkey = key(*rkey as u8));
        let mut bytes = vec![0; MAX_HEADER_LEN];
        let n = h.emit(&mut bytes);
        bytes.truncate(n);
        let first = h.bth.psn.get() as u8;
        bytes.extend((0..self.payload).map(|i| first.wrapping_add(i as u8)));
        bytes.resize(bytes.len() + usize::from(h.bth.pad), 0);
        bytes[self.flip.0] ^= self.flip.1;
        bytes.truncate(self.len);
        bytes
    }
}

/// What a peer knows of the queue pairs.
pub(super) struct Known {
    pub(super) mtu: usize,
    pub(super) srqn: u32,
    pub(super) qpns: [u32; TYPES.len()],
    /// The PSN of the next request to each queue pair.
    pub(super) requests: [Psn; TYPES.len()],
    /// The oldest unacknowledged request of each queue pair.
    pub(super) answers: [Psn; TYPES.len()],
}

impl Known {
    /// The packets of a run: those of a few messages, with faults.
    pub(super) fn run(&mut self, input: &mut Input<'_>) -> Vec<Draft> {
        let mut drawn = Vec::new();
        for _ in 0..=input.below(4) {
            self.message(input, &mut drawn);
        }
        let mut run: Vec<Draft> = Vec::new();
        for mut draft in drawn {
            let bth = &mut draft.headers.bth;
            match input.u8() {
                ..208 => {}
                208..214 => continue,
                214..220 => run.extend(run.last().cloned()),
                220..226 => {
                    let at = input.below(run.len() + 1);
                    run.insert(at, draft);
                    continue;
                }
                226..232 => {
                    let by = i32::from(input.u8() as i8);
                    bth.psn = Psn::new(bth.psn.get().wrapping_add_signed(by));
                }
                232..238 => {
                    let [a, b, c, d, e] = self.qpns;
                    bth.dest_qpn = input.pick(&[a, b, c, d, e, e + 1, MAD_QPN, MULTICAST_QPN]);
                }
                238..244 => draft.flip = (input.below(12), input.u8()),
                244..250 => draft.len = 12 + input.below(40),
                250.. => {
                    draft.payload = input.below(256) * 5;
                    bth.pad = pad_for(draft.payload);
                }
            }
            run.push(draft);
        }
        run
    }

    fn message(&mut self, input: &mut Input<'_>, run: &mut Vec<Draft>) {
        let at = input.below(TYPES.len());
        let (kind, flags) = (input.u8(), input.u8());
        let middle = self.mtu;
        let last = match input.u8() {
            ..12 => middle + 1,
            12..24 => 0,
            len @ ..128 => usize::from(len),
            128..192 => middle,
            len => middle - usize::from(len & 15),
        };
        let is_ud = TYPES[at] == QpType::Ud;
        let (operation, packets) = match kind {
            ..128 => (None, if is_ud { 1 } else { [1, 2, 4, 6][usize::from(flags & 3)] }),
            128..160 => (Some(ReadRequest), 1),
            160..176 => (Some([CompareSwap, FetchAdd][usize::from(kind & 1)]), 1),
            176..208 => (Some(Acknowledge), 1),
            208.. => (Some(Operation::ALL[usize::from(flags) % Operation::ALL.len()]), 1),
        };
        let family = &FAMILIES[usize::from(kind) % FAMILIES.len()];
        for i in 0..packets {
            let is_last = i + 1 == packets;
            let operation =
                operation.unwrap_or(family[usize::from(i > 0) + 2 * usize::from(is_last)]);
            let payload = if is_last { last } else { middle };
            let total = (packets - 1) * middle + last;
            let Some(opcode) = Opcode::new(transport(TYPES[at]), operation) else { return };
            let psn = if opcode.is_response() {
                Psn::new(self.answers[at].get().wrapping_add(u32::from(flags >> 6)))
            } else {
                self.requests[at]
            };
            let mut bth = Bth::new(opcode, self.qpns[at], psn);
            bth.ack_req = flags >> (2 + i % 4) & 1 != 0;
            bth.solicited = kind & 32 != 0;
            let headers = self.headers(input, bth, at, total);
            let asked = headers.reth.filter(|_| operation == ReadRequest).map_or(1, |r| r.len);
            let psns = asked.max(1).div_ceil(middle as u32);
            if opcode.is_request() {
                self.requests[at] = Psn::new(psn.get().wrapping_add(psns));
            }
            let payload = if opcode.carries_payload() { payload } else { 0 };
            let mut draft = Draft { headers, payload, flip: (0, 0), len: usize::MAX };
            draft.headers.bth.pad = pad_for(payload);
            run.push(draft);
        }
    }

    fn headers(&self, input: &mut Input<'_>, bth: Bth, at: usize, total: usize) -> Headers {
        let opcode = bth.opcode;
        let mut h = Headers::new(bth);
        let remote = |input: &mut Input<'_>| {
            let (offset, key) = (u64::from(input.u8()) * 8, input.u8());
            match key {
                ..200 => (OPEN.at(offset), 0),
                200..216 => (READ.at(offset), 4),
                216..232 => (OPEN.at(offset), 7),
                _ => ([OPEN, READ, LOCAL][usize::from(key) % 3].at(offset), u32::from(key) & 15),
            }
        };
        h.xrceth = opcode.has_xrceth().then_some(XrcEth { srqn: self.srqn });
        let qkey = QKEY;
        h.deth = opcode.has_deth().then(|| Deth { qkey, src_qpn: PEER_QPN + at as u32 });
        h.feth = opcode.has_feth().then(|| Feth { placement: input.u8() & 3, selectivity: 0 });
        h.reth = opcode.has_reth().then(|| {
            let ((va, rkey), wrong) = (remote(input), input.u8());
            let len = total as u32 + if wrong < 16 { u32::from(wrong) * 100 } else { 0 };
            Reth { va, rkey, len }
        });
        h.atomic = opcode.has_atomic_eth().then(|| {
            let (va, rkey) = remote(input);
            AtomicEth { va, rkey, swap_add: 3, compare: 0xa5a5_a5a5_a5a5_a5a5 }
        });
        h.aeth = opcode.has_aeth().then(|| {
            let syndrome = input.pick(&[0, 0, 31, 0x1f, 0x21, 0x60, 0x61, 0x62, 0x80]);
            Aeth { syndrome: Syndrome::from_u8(syndrome), msn: u32::from(input.u8()) }
        });
        h.atomic_ack = opcode.has_atomic_ack_eth().then_some(AtomicAckEth { original: 7 });
        h.imm = opcode.has_imm().then_some(ImmDt(0x0102_0304));
        h.ieth = opcode.has_ieth().then(|| Ieth { rkey: input.pick(&[7, 7, 7, 0, 10, 15]) });
        h
    }
}

fn transport(qp_type: QpType) -> Transport {
    match qp_type {
        QpType::Uc => Transport::Uc,
        QpType::Ud => Transport::Ud,
        QpType::XrcRecv => Transport::Xrc,
        _ => Transport::Rc,
    }
}
