//! The host's part: packets out and in, timers, key operations, and completions to their queues.
//! The host works like the device, but checks each step.
use super::{PD, QPN, Queue, SharedQueue, World};
use crate::memory::owned;
use crate::model::responder::Expect;
use crate::model::{Check, Op, Rx, Violation, ensure};
use crate::net::{CE, Flying, gid};
use adverb_engine::keys::PagedMemory;
use adverb_engine::qp::NoRecv;
use adverb_engine::{
    AckOrder, Completion, CqRef, Env, KeyOp, Memory, MemoryFault, Output, Packet, PdId, QpEvent,
    QpState, RecvSource, RecvWqe, Transmit,
};
use adverb_wire::{Headers, MAX_HEADER_LEN, Opcode, Syndrome, pad_for};
use std::time::Duration;

/// Limit of packets that a host takes from a queue pair before it looks at the others.
const BURST: u64 = 40;

/// IP headers of a packet.
struct Ip {
    to: [u8; 4],
    source_port: u16,
    traffic_class: u8,
}

/// Result of a poll of a queue pair, with owned bytes.
enum Polled {
    Packet { headers: Headers, payload: Vec<u8>, ip: Ip },
    Fault(Headers, MemoryFault),
    Key(KeyOp),
    Idle,
}

/// The SRQs that a queue pair takes receives from.
struct Source<'a> {
    srqs: &'a mut [SharedQueue],
    device: usize,
    own: Option<usize>,
}

impl Source<'_> {
    fn find(&self, srqn: Option<u32>) -> Option<usize> {
        srqn.map_or(self.own, |n| World::srq_by_number(self.device, n))
    }
}

impl RecvSource for Source<'_> {
    fn pop(&mut self, xrc_srqn: Option<u32>) -> Result<RecvWqe, NoRecv> {
        let Some(index) = self.find(xrc_srqn) else { return Err(NoRecv::NoSuchSrq) };
        let queue = &mut self.srqs[index];
        let (wqe, reached) = queue.srq.pop().ok_or(NoRecv::Empty)?;
        queue.taken.push(reached);
        Ok(wqe)
    }
    fn pd(&mut self, xrc_srqn: u32) -> Option<PdId> {
        self.find(Some(xrc_srqn)).map(|_| PD)
    }
}

fn own<M: Memory>(t: &Transmit<'_>, memory: &M) -> Polled {
    match owned(&t.payload, memory) {
        Err(fault) => Polled::Fault(*t.headers, fault),
        Ok(payload) => {
            let to = t.path.dgid.ipv4().unwrap_or_default();
            let ip = Ip { to, source_port: t.source_port, traffic_class: t.traffic_class };
            Polled::Packet { headers: *t.headers, payload, ip }
        }
    }
}

impl World {
    /// Performs the output of a queue pair, until the queue pair is idle or the burst is over.
    pub(crate) fn pump(&mut self, q: usize) -> Check {
        let hold = self.rng.chance(self.config.hold_ack);
        let burst = self.rng.range(1, BURST);
        self.ends[q].engine.delay_ack(hold);
        let order = if q.is_multiple_of(2) { AckOrder::Behind } else { AckOrder::Ahead };
        self.ends[q].engine.set_ack_order(order);
        for _ in 0..burst {
            let end = &mut self.ends[q];
            let device = &self.devices[end.device];
            let memory = PagedMemory { keys: &device.keys, memory: &device.arena };
            let polled = match end.engine.poll_output(&self.now, &device.keys, &mut end.effects) {
                Output::Packet(t) => own(&t, &memory),
                Output::Key(op) => Polled::Key(op),
                Output::Idle => Polled::Idle,
            };
            match polled {
                Polled::Packet { headers, payload, ip } => self.emit(q, &headers, &payload, &ip)?,
                Polled::Fault(headers, fault) => self.fault(q, &headers, fault)?,
                Polled::Key(op) => {
                    let allowed = self.check_key_op(q, &op)?;
                    let end = &mut self.ends[q];
                    let result = self.devices[end.device].keys.apply(&op);
                    ensure!(result.is_ok() == allowed, "{op:?}: {result:?}, allowed: {allowed}");
                    end.engine.key_op_done(result, &mut end.effects);
                }
                Polled::Idle => {
                    self.settle(q)?;
                    let Rx { nak_due, nak_sent, next, .. } = self.ends[q].rx;
                    let ended = self.ends[q].engine.state() == QpState::Err;
                    let later = self.ends[q].engine.inside().nak_at.is_some();
                    ensure!(
                        !nak_due || nak_sent || later || ended,
                        "queue pair {q} sends no NAK for PSN {next}"
                    );
                    let waits = self.ends[q].engine.inside().answers > 0;
                    ensure!(!waits || hold, "queue pair {q} is idle, but an ACK waits");
                    if waits {
                        self.ends[q].engine.delay_ack(false);
                        let later = self.now + Duration::from_micros(self.rng.range(1, 500));
                        self.ends[q].pump_at = Some(later);
                    }
                    return Ok(());
                }
            }
            self.settle(q)?;
        }
        self.ends[q].pump_at = Some(self.now + Duration::from_nanos(self.rng.range(1, 5000)));
        Ok(())
    }

    /// The payload of a packet meets a hole, so the packet is not sent.
    fn fault(&mut self, q: usize, headers: &Headers, fault: MemoryFault) -> Check {
        self.note(|| {
            format!("{q}: payload of {} {}: {fault}", headers.bth.opcode, headers.bth.psn)
        });
        let is_response = headers.bth.opcode.is_response();
        if !is_response {
            self.check_request(q, headers, None)?;
        }
        let end = &mut self.ends[q];
        end.engine.transmit_failed(fault, &mut end.effects);
        if is_response { self.check_fault(q, headers) } else { Ok(()) }
    }

    fn emit(&mut self, q: usize, headers: &Headers, payload: &[u8], ip: &Ip) -> Check {
        ensure!(headers.is_consistent(), "headers do not fit their opcode: {headers:?}");
        ensure!(headers.bth.pad == pad_for(payload.len()), "wrong pad: {headers:?}");
        let capable = ip.traffic_class & CE != 0;
        let meta = if headers.bth.opcode == Opcode::CNP {
            self.check_notification(q, headers, payload)?
        } else if headers.bth.opcode.is_response() {
            self.check_response(q, headers)?
        } else {
            self.check_request(q, headers, Some(payload))?
        };
        let heeds = self.ends[q].is_reliable() && headers.bth.opcode != Opcode::CNP;
        ensure!(
            capable == heeds,
            "{}: marks allowed: {capable}, heeded: {heeds}",
            headers.bth.opcode
        );
        let mut bytes = vec![0; MAX_HEADER_LEN];
        let n = headers.emit(&mut bytes);
        bytes.truncate(n);
        bytes.extend_from_slice(payload);
        bytes.resize(bytes.len() + usize::from(headers.bth.pad), 0);
        let from = self.ends[q].device;
        let mut flying = Flying {
            meta,
            from,
            to: usize::from(ip.to[3]) - 1,
            source_port: ip.source_port,
            traffic_class: ip.traffic_class,
            bytes,
        };
        flying.seal();
        self.note(|| {
            let (bth, n) = (&headers.bth, payload.len());
            let aeth = headers.aeth.map(|a| a.syndrome);
            format!("{q} sends {} {} {aeth:?} {n} bytes", bth.opcode, bth.psn)
        });
        self.count_packet(&flying);
        self.net.send(self.now, flying);
        Ok(())
    }

    /// The queue pair that a packet is for, if the packet arrived undamaged.
    fn receiver(&mut self, flying: &Flying) -> Option<usize> {
        let Some(body) = flying.checked() else {
            self.note(|| format!("a damaged packet of {} is dropped", flying.meta.qp));
            return None;
        };
        let (headers, _) = Headers::parse(body).ok()?;
        let q = headers.bth.dest_qpn.checked_sub(QPN)? as usize;
        self.ends.get(q).is_some_and(|e| e.device == flying.to).then_some(q)
    }

    /// A queue pair handles a packet.
    fn take(&mut self, q: usize, flying: &Flying) -> Check {
        let meta = &flying.meta;
        let body = flying.checked().unwrap_or_default();
        let (headers, payload) = Headers::parse(body)
            .map_err(|e| Violation(format!("a packet of our own does not parse: {e}")))?;
        self.note(|| format!("{q} takes {} {}", headers.bth.opcode, headers.bth.psn));
        let stale = meta.epoch != self.epoch_of(meta.qp);
        if meta.response
            && !stale
            && headers.aeth.is_some_and(|a| matches!(a.syndrome, Syndrome::RnrNak { .. }))
        {
            self.ends[q].flow.rnr_naks += 1;
        }
        let expect = if meta.response || stale {
            Expect::default()
        } else {
            self.predict(q, meta, &headers, payload)
        };
        self.handle(q, flying, headers, payload);
        if meta.response || stale {
            self.check_placed(q, meta, payload, stale)?;
        } else {
            self.confirm(q, meta, &headers, &expect)?;
        }
        self.settle_packet(q, &expect)?;
        self.wake(q);
        Ok(())
    }

    /// A packet arrives. Earlier packets that waited for it then have their turn.
    pub(crate) fn deliver(&mut self, flying: &Flying) -> Check {
        let Some(q) = self.receiver(flying) else { return Ok(()) };
        self.ends[q].marked |= flying.traffic_class & CE == CE;
        let kept = self.ends[q].engine.counters().buffered;
        self.take(q, flying)?;
        if self.ends[q].engine.counters().buffered != kept {
            self.ends[q].early.push(flying.clone());
        }
        while let Some(kept) = self.ends[q].engine.take_turn(self.now) {
            self.step += 1;
            let packet = kept.packet();
            let same = |f: &Flying| {
                f.checked()
                    .and_then(|body| Headers::parse(body).ok())
                    .is_some_and(|(h, payload)| h == packet.headers && payload == packet.payload)
            };
            let early = &mut self.ends[q].early;
            let Some(at) = early.iter().position(same) else {
                return Err(Violation(format!(
                    "{q}: a packet has its turn that never came: {packet:?}"
                )));
            };
            // The mark of this packet was counted at its arrival.
            let flying = Flying { traffic_class: packet.traffic_class, ..early.swap_remove(at) };
            self.take(q, &flying)?;
        }
        if !self.ends[q].engine.has_kept() {
            self.ends[q].early.clear();
        }
        Ok(())
    }

    fn handle(&mut self, q: usize, flying: &Flying, headers: Headers, payload: &[u8]) {
        let packet = Packet {
            src: gid(flying.from),
            dst: gid(flying.to),
            traffic_class: flying.traffic_class,
            hop_limit: 64,
            mtu: self.config.links[flying.meta.qp / 2].lane,
            headers,
            payload,
        };
        let end = &mut self.ends[q];
        let device = &self.devices[end.device];
        let memory = PagedMemory { keys: &device.keys, memory: &device.arena };
        let mut source = Source { srqs: &mut self.srqs, device: end.device, own: end.srq };
        let mut env = Env {
            clock: &self.now,
            keys: &device.keys,
            memory: &memory,
            srq: &mut source,
            effects: &mut end.effects,
        };
        end.engine.handle_packet(&mut env, &packet);
    }

    pub(crate) fn timeout(&mut self, q: usize) -> Check {
        self.note(|| format!("{q}: its time has come"));
        let end = &mut self.ends[q];
        end.engine.handle_timeout(self.now, &mut end.effects);
        let again = end.engine.poll_timeout();
        ensure!(
            again.is_none_or(|t| t > self.now),
            "queue pair {q} wants its timeout again at once"
        );
        self.settle(q)?;
        self.wake(q);
        Ok(())
    }

    /// Processes the effects of a step.
    pub(crate) fn settle(&mut self, q: usize) -> Check {
        self.settle_packet(q, &Expect::default())
    }

    fn settle_packet(&mut self, q: usize, expect: &Expect) -> Check {
        let (mut received, mut fatal) = (expect.received, expect.fatal);
        let event_due = fatal.is_some_and(|f| f.receive.is_none());
        let key_op = self.ends[q].effects.key_op.take();
        ensure!(
            key_op == expect.invalidate,
            "the peer invalidates {key_op:?}, due: {:?}",
            expect.invalidate
        );
        if let Some(op) = key_op {
            let device = &mut self.devices[self.ends[q].device];
            let (done, allowed) = (device.keys.apply(&op), device.naive.perform(&op));
            ensure!(done.is_ok() && allowed, "{op:?}: {done:?}, allowed: {allowed}");
        }
        while !self.ends[q].effects.is_empty() {
            let effects = std::mem::take(&mut self.ends[q].effects);
            let mut overflow = None;
            for (cq, completion) in effects.completions {
                self.note(|| {
                    let c = &completion;
                    format!(
                        "{q}: completion {} {:?} {:?} {:?}",
                        c.wr_id, c.opcode, c.status, c.cause
                    )
                });
                if cq == CqRef::Send {
                    self.check_send_completion(q, &completion)?;
                } else {
                    self.check_recv_completion(q, cq, &completion, &mut received, &mut fatal)?;
                }
                overflow = overflow.or(self.push(q, cq, completion)?);
            }
            for event in effects.events {
                let is_error =
                    matches!(event, QpEvent::Fatal(_) | QpEvent::ReqErr(_) | QpEvent::AccessErr(_));
                let due = event_due || self.ends[q].doomed;
                ensure!(!is_error || due, "queue pair {q} raises {event:?} without a reason");
            }
            let end = &mut self.ends[q];
            if let Some(cause) = overflow
                && end.engine.state() != QpState::Err
            {
                end.doomed = true;
                end.engine.fail(cause, &mut end.effects);
            }
        }
        ensure!(received.is_none(), "a message ended without a completion: {received:?}");
        let end = &self.ends[q];
        if let Some(f) = fatal {
            ensure!(f.receive.is_none(), "a receive fails without a completion: {f:?}");
            ensure!(end.engine.state() == QpState::Err, "queue pair {q} is not in ERR after {f:?}");
        }
        if end.engine.state() == QpState::Err {
            let (rx, flow) = (&end.rx, &end.flow);
            let left = rx.recvs.len() + usize::from(rx.active.is_some());
            ensure!(left == 0, "queue pair {q} is in ERR, {left} receives were not flushed");
            // Unsignaled requests that had succeeded leave no trace.
            let silent = |o: &Op| !flow.failed && o.is_silent() && o.is_finished(end.is_reliable());
            let left = flow.ops[flow.head..flow.committed].iter().find(|o| !silent(o));
            ensure!(
                left.is_none(),
                "queue pair {q} is in ERR, {:?} was not flushed",
                left.map(|o| o.id)
            );
        }
        self.check_state(q)
    }

    /// Adds a completion to its queue, and returns the cause of an overrun.
    fn push(
        &mut self,
        q: usize,
        cq: CqRef,
        completion: Completion,
    ) -> Check<Option<adverb_engine::Cause>> {
        self.completions += 1;
        self.record.mix(self.now, completion.wr_id ^ (completion.status as u64) << 56);
        let end = &self.ends[q];
        // An XRC SRQ has the CQ of its first queue pair.
        let index = match cq {
            CqRef::Send => end.cqs[0],
            CqRef::Recv | CqRef::XrcSrq(_) => end.cqs[1],
        };
        let Queue { cq, naive, events } = &mut self.queues[index];
        let (fits, event) = naive.push(&completion, self.now);
        let (pushed, fired) = match cq.push(completion, self.now) {
            Ok(fired) => (None, fired),
            Err(overrun) => (Some(overrun.cause), overrun.fire),
        };
        ensure!(pushed.is_none() == fits, "CQ {index}: {pushed:?}, it fits: {fits}");
        ensure!(
            fired == event,
            "CQ {index}: event {fired}, due: {event}; arm {:?} (CQN)",
            cq.armed()
        );
        *events += u64::from(fired);
        Ok(pushed)
    }
}
