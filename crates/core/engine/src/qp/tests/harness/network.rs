//! The network between the two queue pairs. A test can make it drop, repeat or delay packets.
//! Packets cross as bytes, so that headers and opcodes must agree.
use super::*;

/// A packet on its way.
#[derive(Clone, Debug)]
pub(crate) struct Flying {
    /// Sender.
    pub(crate) from: usize,
    pub(crate) traffic_class: u8,
    pub(crate) headers: Headers,
    pub(crate) bytes: Vec<u8>,
}

impl Flying {
    pub(crate) fn op(&self) -> Operation {
        self.headers.bth.opcode.operation()
    }
    pub(crate) fn psn(&self) -> u32 {
        self.headers.bth.psn.get()
    }
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Deliver,
    Drop,
    Twice,
    /// Delivered after this many further packets.
    Late(usize),
}

impl Pair {
    /// Lets a side send all it can; answers the number of packets.
    pub(crate) fn pump(&mut self, side: usize) -> usize {
        self.pump_some(side, usize::MAX)
    }

    /// The same, for at most this number of packets.
    pub(crate) fn pump_some(&mut self, side: usize, most: usize) -> usize {
        let mut sent = 0;
        while sent < most {
            let s = &mut self.sides[side];
            let memory = PagedMemory { keys: &s.keys, memory: &s.arena };
            match s.qp.poll_output(&self.now, &s.keys, &mut s.effects) {
                Output::Idle => break,
                Output::Key(op) => {
                    let result = s.keys.apply(&op);
                    s.key_ops += 1;
                    s.qp.key_op_done(result, &mut s.effects);
                }
                Output::Packet(t) => {
                    let mut headers = [0; adverb_wire::MAX_HEADER_LEN];
                    let n = t.headers.emit(&mut headers);
                    let mut bytes = headers[..n].to_vec();
                    let mut fault = None;
                    match t.payload {
                        Data::Bytes(b) => bytes.extend_from_slice(b),
                        Data::Gather(ranges) => {
                            for r in ranges {
                                let from = bytes.len();
                                bytes.resize(from + r.len as usize, 0);
                                assert_ne!(r.len, 0);
                                fault = memory.read(*r, &mut bytes[from..]).err().or(fault);
                            }
                        }
                    }
                    assert_eq!(t.headers.bth.pad, pad_for(bytes.len() - n), "{:?}", t.headers);
                    bytes.resize(bytes.len() + usize::from(t.headers.bth.pad), 0);
                    assert!(t.headers.is_consistent());
                    assert_eq!(t.path.dgid, gid(1 - side));
                    let flying = Flying {
                        from: side,
                        traffic_class: t.traffic_class,
                        headers: *t.headers,
                        bytes,
                    };
                    if let Some(fault) = fault {
                        s.qp.transmit_failed(fault, &mut s.effects);
                    } else {
                        sent += 1;
                        self.log.push(flying.clone());
                        match (self.fate)(&flying) {
                            Fate::Drop => {}
                            Fate::Deliver => self.net.push_back(flying),
                            Fate::Twice => {
                                self.net.push_back(flying.clone());
                                self.net.push_back(flying);
                            }
                            Fate::Late(by) => self.late.push((by, flying)),
                        }
                    }
                }
            }
            self.sides[side].settle();
        }
        self.sides[side].settle();
        sent
    }

    /// Delivers the next packet, if there is one.
    pub(crate) fn deliver(&mut self) -> bool {
        let due = self.late.iter().position(|(by, _)| *by == 0);
        let due = due.or(if self.net.is_empty() && !self.late.is_empty() { Some(0) } else { None });
        let flying = match due {
            Some(i) => self.late.remove(i).1,
            None => match self.net.pop_front() {
                None => return false,
                Some(f) => f,
            },
        };
        for (by, _) in &mut self.late {
            *by = by.saturating_sub(1);
        }
        self.inject(&flying);
        true
    }

    /// Hands a packet to its destination.
    pub(crate) fn inject(&mut self, flying: &Flying) {
        let (headers, payload) = Headers::parse(&flying.bytes).unwrap();
        assert_eq!(headers, flying.headers);
        let packet = Packet {
            src: gid(flying.from),
            dst: gid(1 - flying.from),
            traffic_class: flying.traffic_class,
            hop_limit: 64,
            mtu: self.link_mtu[flying.from],
            headers,
            payload,
        };
        self.inject_packet(1 - flying.from, &packet);
    }

    /// Hands a packet with these headers to a side.
    pub(crate) fn inject_headers(&mut self, to: usize, src: Gid, headers: Headers, payload: &[u8]) {
        let (dst, traffic_class, hop_limit, mtu) = (gid(to), 0, 64, None);
        self.inject_packet(
            to,
            &Packet { src, dst, traffic_class, hop_limit, mtu, headers, payload },
        );
    }

    fn inject_packet(&mut self, to: usize, packet: &Packet<'_>) {
        let s = &mut self.sides[to];
        let memory = PagedMemory { keys: &s.keys, memory: &s.arena };
        let mut env = Env {
            clock: &self.now,
            keys: &s.keys,
            memory: &memory,
            srq: &mut s.srq,
            effects: &mut s.effects,
        };
        let before = s.qp.counters().handled();
        s.qp.handle_packet(&mut env, packet);
        while let Some(kept) = s.qp.take_turn(self.now) {
            s.qp.handle_packet(&mut env, &kept.packet());
        }
        assert_eq!(s.qp.counters().handled(), before + 1, "not counted once: {packet:?}");
        s.settle();
    }

    /// Lets both sides talk until neither has a packet to send. Time stands still.
    pub(crate) fn run(&mut self) {
        for _ in 0..1_000_000 {
            let sent = self.pump(0) + self.pump(1);
            if !self.deliver() && sent == 0 {
                return;
            }
        }
        panic!("they never stop talking");
    }

    /// Lets both sides talk, and moves time from timer to timer, until all is quiet.
    pub(crate) fn run_timed(&mut self) {
        for _ in 0..10_000 {
            self.run();
            let next = self.sides.iter().filter_map(|s| s.qp.poll_timeout()).min();
            let Some(next) = next else { return };
            self.advance(next.since(self.now));
        }
        panic!("timers never stop");
    }

    /// Moves time and calls both sides.
    pub(crate) fn advance(&mut self, by: Duration) {
        self.now = self.now + by;
        for s in &mut self.sides {
            s.qp.handle_timeout(self.now, &mut s.effects);
            s.settle();
        }
    }

    /// Number of a side's packets that `which` selects.
    pub(crate) fn count(&self, from: usize, which: impl Fn(&Flying) -> bool) -> usize {
        self.log.iter().filter(|f| f.from == from && which(f)).count()
    }
}
