//! The threads of a node, step by step.
use super::connect::refused;
use super::end::{Message, Op, SLOT, Told, Verb, WORDS, bytes_of};
use super::net::{lock, with_between};
use super::threads::{Background, Next};
use super::world::{Step, World};
use crate::verdict::{Check, Violation, ensure};
use adverb_device::Qp;
use adverb_device::node::Rest;
use adverb_engine::cq::arm::ArmKind;
use adverb_engine::wr::UdDest;
use adverb_engine::{Completion, Payload, QpType, RecvWr, SendFlags, SendOp, SendWr, Sge};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A drawn and recorded request, not yet posted.
pub(super) struct Drawn {
    qp: Arc<Qp>,
    op: Op,
    flags: SendFlags,
    verb: SendOp,
    sge: Sge,
    inline: Option<Vec<u8>>,
    ud: Option<UdDest>,
}

impl Drawn {
    fn post(&self) -> Result<(), adverb_device::Error> {
        let sges = if self.sge.length == 0 { &[][..] } else { std::slice::from_ref(&self.sge) };
        let bytes = self.inline.as_deref().map(|bytes| [bytes]);
        let data = match &bytes {
            Some(parts) => Payload::Inline(parts),
            None => Payload::Sges(sges),
        };
        let mut chain = self.qp.send_chain()?;
        chain.stage(&SendWr {
            wr_id: self.op.seq << 1,
            flags: self.flags,
            op: self.verb,
            data,
            ud: self.ud,
            xrc_srqn: 0,
        })?;
        chain.commit();
        Ok(())
    }
}

impl World {
    pub(super) fn perform(&mut self, step: Step) -> Check {
        match step {
            Step::Wake(node, number) => self.wake_up(node, number),
            Step::Arrived(node, number) => self.wake_for_packet(node, number),
            Step::Rest(node) => self.rest(node),
            Step::Consume(node, number) => self.consume(node, number),
            Step::TimeOut(node, number) => {
                let consumer = &mut self.nodes[node].consumer;
                if consumer.asleep && consumer.number == number {
                    consumer.next = Next::Take;
                    return self.consume(node, number);
                }
                Ok(())
            }
            Step::Post(node) => self.post_some(node),
            Step::Refill(end) => self.refill(end),
            Step::Connect(end) => {
                self.enter(self.ends[end].node);
                self.connect(end)
            }
            Step::Break(end, destroy) => {
                self.enter(self.ends[end].node);
                self.break_end(end, destroy)
            }
            Step::Renew(link) => self.renew(link),
            Step::Moderate(queue) => self.moderate(queue),
            Step::WindUp => self.wind_up(),
        }
    }

    /// Begins a step of a node: advances the node's clock to the world's time.
    pub(super) fn enter(&mut self, node: usize) {
        self.nodes[node].node.advance(self.now);
    }

    // The background thread.

    fn wake_up(&mut self, node: usize, number: u64) -> Check {
        match self.nodes[node].background {
            Background::Asleep { number: now, .. } if now == number => {}
            _ => return Ok(()),
        }
        self.enter(node);
        let host = &mut self.nodes[node];
        host.background = Background::Awake;
        host.node.wake_up();
        host.node.turn();
        self.note(|| format!("node {node}: a turn of the background thread"));
        self.judge(node, None)?;
        let wait = self.rng.below(3000);
        self.after(wait, Step::Rest(node));
        Ok(())
    }

    fn wake_for_packet(&mut self, node: usize, sleep: u64) -> Check {
        let arrived = lock(&self.net).has_arrived(node);
        let host = &mut self.nodes[node];
        if let Background::Asleep { waking, number, .. } = &mut host.background
            && *number == sleep
            && !arrived
            && !host.node.is_woken()
        {
            *waking = false;
            return self.judge(node, None);
        }
        self.wake_up(node, sleep)
    }

    fn rest(&mut self, node: usize) -> Check {
        self.enter(node);
        let drawn = if self.rng.chance(self.config.between) { self.draw(node)? } else { None };
        let failed = Rc::new(RefCell::new(None));
        let between = drawn.map(|drawn| -> Box<dyn FnOnce()> {
            let failed = failed.clone();
            Box::new(move || *failed.borrow_mut() = drawn.post().err())
        });
        let host = &mut self.nodes[node];
        let rest = with_between(between, || host.node.sleep());
        if let Some(e) = failed.take() {
            return Err(refused("a post")(e));
        }
        match rest {
            Rest::None => {
                // The thread goes on at once.
                host.node.turn();
                let wait = self.rng.below(3000);
                self.after(wait, Step::Rest(node));
            }
            Rest::Asleep { until, at_sockets } => {
                self.serial += 1;
                let number = self.serial;
                let work = host.node.work();
                self.note(|| {
                    format!(
                        "node {node}: rests until {until:?}, at the sockets: {at_sockets}, beside {work:?}"
                    )
                });
                self.nodes[node].background =
                    Background::Asleep { until, at_sockets, waking: false, number };
                if let Some(until) = until {
                    let wait = until.0.saturating_sub(self.now.0) + self.latency();
                    self.after(wait, Step::Wake(node, number));
                }
            }
        }
        self.judge(node, None)
    }

    // The poster.

    fn post_some(&mut self, node: usize) -> Check {
        self.enter(node);
        for _ in 0..self.rng.range(1, 4) {
            let Some(drawn) = self.draw(node)? else { break };
            drawn.post().map_err(refused("a post"))?;
            self.judge(node, None)?;
        }
        let host = &self.nodes[node];
        if host.ends.iter().any(|end| self.ends[*end].left > 0) {
            let gap = self.rng.pick(&[1_000, 1_000, 8_000, 60_000, 400_000, 5_000_000, 40_000_000]);
            let wait = self.rng.range(gap / 2, gap);
            self.after(wait, Step::Post(node));
        }
        Ok(())
    }

    /// Draws a request for an end of a node that may post, and records the request.
    fn draw(&mut self, node: usize) -> Check<Option<Drawn>> {
        let may = |end: &&usize| {
            let peer = &self.ends[Self::peer_of(**end)];
            self.ends[**end].may_post(peer.connected)
        };
        let able: Vec<usize> = self.nodes[node].ends.iter().filter(may).copied().collect();
        if able.is_empty() {
            return Ok(None);
        }
        let end = self.rng.pick(&able);
        let ud = self.destination(end)?;
        let rng = &mut self.rng;
        let (e, peer) = (&self.ends[end], &self.ends[Self::peer_of(end)]);
        let Some(qp) = e.qp.clone() else { return Ok(None) };
        let verb = match (e.qp_type, rng.below(10)) {
            (QpType::Ud, _) | (_, 0..5) => Verb::Send,
            (QpType::Uc, _) | (_, 5..7) => Verb::Write,
            (_, 7..9) => Verb::Read { from: rng.index(SLOT / 2) },
            _ => Verb::Atomic { swap: rng.chance(300), old: 0 },
        };
        let most = rng.pick(&[16, 200, if e.qp_type == QpType::Ud { 1000 } else { SLOT as u64 }]);
        let len = match verb {
            Verb::Atomic { .. } => 8,
            Verb::Read { from } => rng.range(1, most.min((SLOT - from) as u64)) as usize,
            _ => rng.range(8, most) as usize,
        };
        let seq = e.seq + 1;
        let imm = matches!(verb, Verb::Send | Verb::Write)
            .then(|| rng.chance(400).then(|| rng.next() as u32));
        let imm = imm.flatten();
        let signaled = rng.chance(750) || e.unsignaled >= 6 || e.left == 1;
        let solicited = imm.is_some() && rng.chance(400) || verb == Verb::Send && rng.chance(300);
        let inline = verb == Verb::Send && len <= 128 && rng.chance(300);
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, signaled);
        flags.set(SendFlags::SOLICITED, solicited);
        flags.set(SendFlags::INLINE, inline);
        let target = &self.nodes[peer.node].buffer;
        let word = seq as usize % WORDS;
        let mut op = Op { seq, verb, signaled, len, imm };
        let mut words = e.words;
        let action = match (verb, imm) {
            (Verb::Send, None) => SendOp::Send,
            (Verb::Send, Some(imm)) => SendOp::SendImm(imm),
            (Verb::Write, None) => SendOp::Write(peer.remote(target, peer.remote_at(seq))),
            (Verb::Write, Some(imm)) => {
                SendOp::WriteImm(peer.remote(target, peer.remote_at(seq)), imm)
            }
            (Verb::Read { from }, _) => SendOp::Read(peer.remote(target, peer.source_at() + from)),
            (Verb::Atomic { swap, .. }, _) => {
                let (remote, old, new) =
                    (peer.remote(target, peer.word_at(word)), words[word], rng.next());
                op.verb = Verb::Atomic { swap, old };
                words[word] = if swap { new } else { old.wrapping_add(new) };
                match swap {
                    true => SendOp::CompareSwap { remote, compare: old, swap: new },
                    false => SendOp::FetchAdd { remote, add: new },
                }
            }
        };
        let own = &self.nodes[node].buffer;
        let bytes = bytes_of(end, seq, len);
        if matches!(verb, Verb::Send | Verb::Write) {
            ensure!(own.write_at(e.send_at(seq), &bytes), "the buffer is too small");
        }
        let sge = own.sge(e.send_at(seq), len);
        let message =
            (verb == Verb::Send || imm.is_some()).then(|| Message::new(&op, solicited, e.epoch));
        let e = &mut self.ends[end];
        (e.seq, e.left, e.words) = (seq, e.left - 1, words);
        e.unsignaled = if signaled { 0 } else { e.unsignaled + 1 };
        e.outstanding.push_back(op.clone());
        self.posted = self.now;
        self.ends[Self::peer_of(end)].due.extend(message);
        self.note(|| format!("end {end} posts {op:?} {flags:?}"));
        Ok(Some(Drawn { qp, op, flags, verb: action, sge, inline: inline.then_some(bytes), ud }))
    }

    fn moderate(&mut self, queue: usize) -> Check {
        let node = self.nodes.iter().position(|host| host.queues.contains(&queue)).unwrap_or(0);
        self.enter(node);
        let count = self.rng.pick(&[0, 1, 3, 16]) as u32;
        // Without a period, moderation by count alone may never raise the event.
        let period = Duration::from_micros(self.rng.pick(&[20, 300, 4000]));
        let both_zero = count == 0 && self.rng.chance(300);
        let period = if both_zero { Duration::ZERO } else { period };
        self.queues[queue].moderate(count, period);
        self.note(|| format!("queue {queue} is moderated: {count}, {period:?}"));
        let moderated = self.queues[queue].cq.moderate(count, period);
        moderated.map_err(refused("moderation"))?;
        self.judge(node, None)
    }

    // The consumer.

    fn consume(&mut self, node: usize, number: u64) -> Check {
        if self.nodes[node].consumer.number != number {
            return Ok(());
        }
        let next = self.nodes[node].consumer.next;
        if next == Next::Call(true) && !self.has_cause(node) {
            // Another thread has taken the packet, so the kernel lets the consumer sleep on.
            return self.falls_asleep(node, next);
        }
        self.enter(node);
        self.nodes[node].consumer.asleep = false;
        let (next, wait) = match next {
            Next::Spin(left) => {
                for queue in self.nodes[node].queues.clone() {
                    self.poll(node, queue, 16)?;
                }
                match left {
                    0 => (self.choose(node), self.idle()),
                    _ => (Next::Spin(left - 1), self.rng.range(300, 3000)),
                }
            }
            Next::Arm(at) => {
                let queue = self.nodes[node].queues[at];
                let solicited = !self.winding_up && self.rng.chance(300);
                let consumer = &mut self.nodes[node].consumer;
                consumer.solicited = solicited || at > 0 && consumer.solicited;
                let kind = if solicited { ArmKind::Solicited } else { ArmKind::Next };
                self.queues[queue].arm(kind);
                self.note(|| format!("node {node} arms queue {queue}: {kind:?}"));
                self.queues[queue].cq.req_notify(kind).map_err(refused("an arm"))?;
                self.judge(node, None)?;
                let last = at + 1 == self.nodes[node].queues.len();
                (if last { Next::Drain(0) } else { Next::Arm(at + 1) }, self.rng.below(3000))
            }
            Next::Drain(at) => {
                let queue = self.nodes[node].queues[at];
                let most = self.rng.pick(&[1, 4, 64]) as usize;
                let more = self.poll(node, queue, most)? > 0;
                let last = at + 1 == self.nodes[node].queues.len();
                let next = match (more, last) {
                    (true, _) => Next::Drain(at),
                    (false, false) => Next::Drain(at + 1),
                    (false, true) if self.nodes[node].consumer.calls => Next::Call(false),
                    (false, true) => Next::Sleep,
                };
                (next, self.rng.below(2000))
            }
            Next::Sleep => return self.falls_asleep(node, Next::Take),
            Next::Take => {
                let event = self.nodes[node].channel.try_event();
                match event {
                    Some(cq) => {
                        self.takes(node, &cq)?;
                        (Next::Take, self.rng.below(1000))
                    }
                    None => {
                        self.judge(node, None)?;
                        (Next::Acknowledge, 0)
                    }
                }
            }
            Next::Call(slept) => {
                let event = self.nodes[node].channel.event_step(slept);
                match event {
                    Some(cq) => {
                        self.takes(node, &cq)?;
                        (Next::Acknowledge, self.rng.below(1000))
                    }
                    None => {
                        self.judge(node, None)?;
                        return self.falls_asleep(node, Next::Call(true));
                    }
                }
            }
            Next::Acknowledge => {
                for queue in self.nodes[node].queues.clone() {
                    // Acknowledges now, or many events at once later.
                    if self.rng.chance(600) {
                        let queue = &mut self.queues[queue];
                        queue.cq.ack_events(std::mem::take(&mut queue.unacked));
                    }
                }
                (self.choose(node), self.rng.below(2000))
            }
        };
        self.nodes[node].consumer.next = next;
        let number = self.nodes[node].consumer.number;
        let wait = wait + if self.rng.chance(self.config.stalls / 5) { self.latency() } else { 0 };
        self.after(wait, Step::Consume(node, number));
        Ok(())
    }

    /// The next step of a program after it has taken all completions.
    fn choose(&mut self, node: usize) -> Next {
        let consumer = &mut self.nodes[node].consumer;
        if consumer.rounds > 0 || self.winding_up {
            consumer.rounds = consumer.rounds.saturating_sub(1);
            return Next::Arm(0);
        }
        match self.rng.below(3) {
            0 => Next::Spin(self.rng.range(1, 200) as u32),
            way => {
                consumer.calls = way == 1;
                consumer.rounds = self.rng.below(20);
                Next::Arm(0)
            }
        }
    }

    /// How long a polling program does something else, in nanoseconds.
    fn idle(&mut self) -> u64 {
        let most = self.rng.pick(&[1_000, 20_000, 500_000, 3_000_000, 20_000_000]);
        self.rng.range(most / 2, most)
    }

    fn falls_asleep(&mut self, node: usize, next: Next) -> Check {
        self.serial += 1;
        let number = self.serial;
        let consumer = &mut self.nodes[node].consumer;
        (consumer.next, consumer.asleep, consumer.number) = (next, true, number);
        self.note(|| format!("the consumer of node {node} sleeps: {next:?}"));
        // A program with arms for solicited completions alone sometimes polls for the others.
        if !self.winding_up || self.nodes[node].consumer.solicited {
            let wait = self.rng.range(3_000_000, 30_000_000);
            self.after(wait, Step::TimeOut(node, number));
        }
        self.wake_consumer(node);
        Ok(())
    }

    /// Makes a sleeping consumer of a node arm again for every completion.
    pub(super) fn rouse(&mut self, node: usize) {
        if self.nodes[node].consumer.asleep {
            self.serial += 1;
            let number = self.serial;
            let consumer = &mut self.nodes[node].consumer;
            (consumer.next, consumer.asleep, consumer.number) = (Next::Arm(0), false, number);
            self.after(0, Step::Consume(node, number));
        }
    }

    /// Has the event or packet for the sleeping consumer of a node arrived?
    fn has_cause(&self, node: usize) -> bool {
        let host = &self.nodes[node];
        let calls = host.consumer.next == Next::Call(true);
        let event = |queue: &usize| self.queues[*queue].unread() > 0;
        host.queues.iter().any(event) || calls && lock(&self.net).has_arrived(node)
    }

    /// Wakes the consumer of a node if the awaited event or packet has arrived.
    pub(super) fn wake_consumer(&mut self, node: usize) {
        if self.nodes[node].consumer.asleep && self.has_cause(node) {
            let wait = self.latency();
            self.serial += 1;
            let number = self.serial;
            let consumer = &mut self.nodes[node].consumer;
            (consumer.asleep, consumer.number) = (false, number);
            self.after(wait, Step::Consume(node, number));
        }
    }

    fn takes(&mut self, node: usize, cq: &Arc<adverb_device::Cq>) -> Check {
        let queue = self.nodes[node]
            .queues
            .iter()
            .copied()
            .find(|at| Arc::ptr_eq(&self.queues[*at].cq, cq));
        let Some(queue) = queue else {
            return Err(Violation("an event of a strange queue".to_owned()));
        };
        self.events += 1;
        self.note(|| format!("node {node} takes an event of queue {queue}"));
        self.queues[queue].taken()?;
        self.judge(node, None)
    }

    fn poll(&mut self, node: usize, queue: usize, most: usize) -> Check<usize> {
        let mut polled = Vec::new();
        let result = self.queues[queue].cq.poll(most, |completion| polled.push(completion));
        result.map_err(|cause| Violation(format!("queue {queue}: {cause}")))?;
        self.judge(node, Some((queue, &polled)))?;
        for completion in &polled {
            self.completes(node, completion)?;
        }
        Ok(polled.len())
    }

    fn completes(&mut self, node: usize, completion: &Completion) -> Check {
        self.completions += 1;
        self.record.mix(self.now, completion.wr_id << 24 | u64::from(completion.byte_len));
        let is_its = |end: &&usize| {
            self.ends[**end].qp.as_ref().is_some_and(|qp| qp.number() == completion.qpn)
        };
        let Some(end) = self.nodes[node].ends.iter().find(is_its).copied() else {
            return Err(Violation(format!("{completion:?} is of no queue pair")));
        };
        self.note(|| format!("end {end}: {:?} {}", completion.opcode, completion.wr_id));
        let peer = Self::peer_of(end);
        let told = self.ends[end].completes(completion, &self.nodes[node].buffer, peer)?;
        match told {
            Told::Received => {
                self.ends[end].owed += 1;
                let wait = self.rng.pick(&[0, 0, 0, 50_000, 2_000_000, 40_000_000]);
                self.after(wait, Step::Refill(end));
            }
            Told::Retired(ops) => {
                let there = self.ends[peer].node;
                let buffers = [&self.nodes[node].buffer, &self.nodes[there].buffer];
                for op in &ops {
                    self.ends[end].check_retired(op, buffers, &self.ends[peer])?;
                }
            }
        }
        Ok(())
    }

    fn refill(&mut self, end: usize) -> Check {
        let node = self.ends[end].node;
        self.enter(node);
        if self.ends[end].connected {
            self.post_receives(end, u64::MAX)?;
        }
        self.judge(node, None)
    }

    /// Posts owed receives, at most `most`.
    pub(super) fn post_receives(&mut self, end: usize, most: u64) -> Check {
        let e = &mut self.ends[end];
        let Some(qp) = e.qp.clone() else { return Ok(()) };
        let buffer = &self.nodes[e.node].buffer;
        let now = e.owed.min(most);
        e.owed -= now;
        for _ in 0..now {
            let n = e.next_recv;
            e.next_recv += 1;
            let sge = e.recv_sge(buffer, n);
            qp.post_recv(&RecvWr { wr_id: n << 1 | 1, sges: &[sge] })
                .map_err(refused("a receive"))?;
            e.recvs.push_back(n);
        }
        Ok(())
    }
}
