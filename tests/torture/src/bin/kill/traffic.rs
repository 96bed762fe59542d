//! Traffic of one end over some queue pairs with a shared CQ: random requests, with every result
//! verified, until the peer is dead.

use std::sync::Arc;
use std::time::{Duration, Instant};

use adverb_bench::Result;
use adverb_bench::world::{World, post, receive, request};
use adverb_device::engine::cq::arm::ArmKind;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{Cause, Completion, SendFlags, SendOp, WcOpcode, WcStatus};
use adverb_device::{CompChannel, Cq, Errno, Qp};
use adverb_torture::Dice;

use super::area::{Area, CONSTANT, LONGEST, MemoryPart, SLOTS, mark, message};
use super::failed;

/// A silence of this length is a failure.
const HANG_LIMIT: Duration = Duration::from_secs(60);
/// Marks the completion of a receive.
const RECEIVE: u64 = 1 << 32;
/// Lengths of messages: sent in a record, by reference, or in several packets.
const LENGTHS: [usize; 6] = [8, 256, 4096, 16_384, 65_536, LONGEST - LONGEST % 8];

/// Id and memory of the other end.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub id: u64,
    pub area: Remote,
}

/// An outstanding request.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    op: WcOpcode,
    len: usize,
}

/// A queue pair and the progress on it.
struct Line {
    qp: Arc<Qp>,
    /// Index of the queue pair in the memory of both ends.
    place: usize,
    slots: [Option<UnderWay>; SLOTS],
    receives: usize,
    sent: u32,
    received: u32,
    written: u32,
    added: u64,
    failed: bool,
}

/// Result of the traffic.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Successful requests and receives.
    pub good: u64,
    /// Queue pairs that failed because the end of the process was noticed.
    pub gone: u64,
    /// Queue pairs that failed because no answer came.
    pub silent: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.good += other.good;
        self.gone += other.gone;
        self.silent += other.silent;
    }
}

/// Queue pairs with one CQ, and the thread that serves them.
pub struct Traffic<'a> {
    pub area: &'a Area,
    pub id: u64,
    pub peer: Peer,
    pub cq: Arc<Cq>,
    /// The thread sleeps for events of this channel; without a channel it polls.
    pub channel: Option<Arc<CompChannel>>,
    pub dice: Dice,
    lines: Vec<Line>,
    tally: Tally,
}

impl<'a> Traffic<'a> {
    pub fn new(
        area: &'a Area,
        id: u64,
        peer: Peer,
        cq: Arc<Cq>,
        channel: Option<Arc<CompChannel>>,
        seed: u64,
    ) -> Self {
        let (lines, tally) = Default::default();
        Traffic { area, id, peer, cq, channel, dice: Dice(seed), lines, tally }
    }

    /// Connects a queue pair to queue pair `dest`, and posts receives.
    pub fn connect(&mut self, world: &World, qp: Arc<Qp>, place: usize, dest: u32) -> Result<()> {
        world.connect(&qp, dest)?;
        let slots = [None; SLOTS];
        let (sent, received, written, added, failed) = Default::default();
        let line = Line { qp, place, slots, receives: 0, sent, received, written, added, failed };
        self.lines.push(line);
        let n = self.lines.len() - 1;
        (0..SLOTS).try_for_each(|slot| self.post_receive(n, slot))
    }

    fn post_receive(&mut self, n: usize, slot: usize) -> Result<()> {
        let line = &mut self.lines[n];
        let sges = [self.area.sge(line.place, MemoryPart::Receive(slot), LONGEST)];
        receive(&line.qp, RECEIVE | (n * SLOTS + slot) as u64, &sges)?;
        line.receives += 1;
        Ok(())
    }

    /// Posts a random request in a free slot.
    fn begin(&mut self, n: usize, slot: usize) -> Result<()> {
        let len = LENGTHS[self.dice.roll(LENGTHS.len() as u64) as usize];
        let kind = self.dice.roll(4);
        let (area, id, line) = (self.area, self.id, &mut self.lines[n]);
        let there = |part| Area::part_of(self.peer.area, line.place, part);
        let (out, into) = (MemoryPart::Out(slot), MemoryPart::Into(slot));
        let (op, code, part, len) = match kind {
            0 => {
                area.fill(line.place, out, &message(id, line.place, line.sent, len))?;
                line.sent += 1;
                (SendOp::Send, WcOpcode::Send, out, len)
            }
            1 => {
                line.written += 1;
                let words = mark(id, line.written).to_ne_bytes().repeat(len / 8);
                area.fill(line.place, out, &words)?;
                (SendOp::Write(there(MemoryPart::Target)), WcOpcode::RdmaWrite, out, len)
            }
            2 => (SendOp::Read(there(MemoryPart::Source)), WcOpcode::RdmaRead, into, len),
            _ => {
                let op = SendOp::FetchAdd { remote: there(MemoryPart::Counter), add: 1 };
                (op, WcOpcode::FetchAdd, into, 8)
            }
        };
        line.slots[slot] = Some(UnderWay { op: code, len });
        let sges = [area.sge(line.place, part, len)];
        post(&line.qp, &request((n * SLOTS + slot) as u64, SendFlags::SIGNALED, op, &sges))
    }

    /// Runs until every queue pair has failed and all posted requests have completed.
    ///
    /// # Errors
    /// A wrong result, or a silence.
    pub fn run(mut self) -> Result<Tally> {
        let mut last = Instant::now();
        loop {
            for n in 0..self.lines.len() {
                for slot in 0..SLOTS {
                    if !self.lines[n].failed && self.lines[n].slots[slot].is_none() {
                        self.begin(n, slot)?;
                    }
                }
            }
            if self.take()? {
                last = Instant::now();
                continue;
            }
            if self
                .lines
                .iter()
                .all(|l| l.failed && l.receives == 0 && l.slots.iter().all(Option::is_none))
            {
                return Ok(self.tally);
            }
            if last.elapsed() > HANG_LIMIT {
                let words = |l: &Line| format!("{:?} {:?} {}", l.qp.state(), l.slots, l.receives);
                let lines: Vec<_> = self.lines.iter().map(words).collect();
                return Err(format!("nothing within {HANG_LIMIT:?}: {}", lines.join("; ")));
            }
            self.sleep()?;
        }
    }

    /// Sleeps for an event, if there is a channel.
    fn sleep(&mut self) -> Result<()> {
        let Some(channel) = self.channel.clone() else { return Ok(()) };
        self.cq.req_notify(ArmKind::Next).map_err(failed("arm"))?;
        if self.take()? {
            return Ok(());
        }
        match channel.next_event(Some(Instant::now() + HANG_LIMIT)) {
            Ok(cq) => cq.ack_events(1),
            Err(Errno::ETIMEDOUT) => {}
            Err(e) => return Err(format!("get event: {e}")),
        }
        Ok(())
    }

    fn take(&mut self) -> Result<bool> {
        let mut all = Vec::new();
        self.cq.poll(16, |c| all.push(c)).map_err(failed("poll"))?;
        all.iter().try_for_each(|c| self.completed(c))?;
        Ok(!all.is_empty())
    }

    fn completed(&mut self, c: &Completion) -> Result<()> {
        let (n, slot) = ((c.wr_id & !RECEIVE) as usize / SLOTS, c.wr_id as usize % SLOTS);
        let receives = c.wr_id & RECEIVE != 0;
        let under_way = if receives {
            self.lines[n].receives -= 1;
            None
        } else {
            Some(self.lines[n].slots[slot].take().ok_or("a request completed twice")?)
        };
        if c.status != WcStatus::Success {
            return self.broken(n, c, receives);
        }
        self.tally.good += 1;
        match under_way {
            None => {
                self.received(n, slot, c.byte_len as usize)?;
                self.post_receive(n, slot)
            }
            Some(request) => self.done(n, slot, request),
        }
    }

    fn broken(&mut self, n: usize, c: &Completion, receives: bool) -> Result<()> {
        if std::mem::replace(&mut self.lines[n].failed, true) {
            return if c.status == WcStatus::WrFlushErr {
                Ok(())
            } else {
                Err(format!("not flushed: {c:?}"))
            };
        }
        if receives || c.status != WcStatus::RetryExcErr {
            return Err(format!("the peer has gone, and the first to fail is {c:?}"));
        }
        match c.cause.as_deref() {
            Some(Cause::PeerEnded { .. }) => self.tally.gone += 1,
            Some(Cause::RetryExceeded { .. }) => self.tally.silent += 1,
            other => return Err(format!("no reason: {other:?}")),
        }
        Ok(())
    }

    /// A message must be the next of the queue pair, and whole.
    fn received(&mut self, n: usize, slot: usize, len: usize) -> Result<()> {
        let line = &mut self.lines[n];
        let wanted = message(self.peer.id, line.place, line.received, len);
        if self.area.bytes(line.place, MemoryPart::Receive(slot), len)? != wanted {
            return Err(format!(
                "message {} of {len} bytes over queue pair {}",
                line.received, line.place
            ));
        }
        line.received += 1;
        Ok(())
    }

    fn done(&mut self, n: usize, slot: usize, request: UnderWay) -> Result<()> {
        let line = &mut self.lines[n];
        match request.op {
            WcOpcode::RdmaRead => {
                let wanted = message(self.peer.id, line.place, CONSTANT, request.len);
                if self.area.bytes(line.place, MemoryPart::Into(slot), request.len)? != wanted {
                    return Err(format!(
                        "a read of {} bytes over queue pair {}",
                        request.len, line.place
                    ));
                }
            }
            WcOpcode::FetchAdd => {
                let old = self.area.word(line.place, MemoryPart::Into(slot))?;
                if old != line.added {
                    return Err(format!("the counter was {old} for {} additions", line.added));
                }
                line.added += 1;
            }
            _ => {}
        }
        Ok(())
    }
}
