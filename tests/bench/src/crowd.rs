//! Many connected queue pairs of one process, all on one CQ. Every byte of their messages is
//! verified.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use adverb_device::engine::cq::arm::ArmKind;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{SendFlags, SendOp, WcStatus};
use adverb_device::{CompChannel, Cq, Errno, Qp};

use crate::Result;
use crate::world::{World, failed, post, receive, request};

/// Depth of each queue of a queue pair.
const DEPTH: u32 = 16;
/// Receives always posted on each queue pair.
const RECEIVES: usize = 2;
/// A silence of this length is a failure.
const HANG_LIMIT: Duration = Duration::from_secs(60);
/// Half a second. Dozens of processes on two processors wait for their turn, and such a wait must
/// not look like a loss.
const TIMEOUT: u8 = 17;
const WORD: usize = 8;

/// Marks the completion of a receive. Any other `wr_id` is the index of the queue pair that sent or
/// wrote.
const RECEIVE: u64 = 1 << 63;

/// A queue pair and the progress on it.
struct Member {
    qp: Arc<Qp>,
    peer: u32,
    sent: u64,
    received: u64,
    written: u64,
    /// The last request has not completed, so the memory must not be changed.
    busy: bool,
}

/// The meaning of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message arrived over the queue pair with this index, and was verified.
    Received(usize),
    /// A message without a byte: the signal to stop.
    Stopped,
    /// A request of this process completed.
    Completed(usize),
}

/// The queue pairs of this process. For each of them the memory holds a message to send, the
/// messages to receive, and a word that the other end may write.
pub struct Crowd {
    world: World,
    channel: Arc<CompChannel>,
    cq: Option<Arc<Cq>>,
    members: Vec<Member>,
    most: usize,
    message: usize,
    /// Buffer in which a message is made or verified.
    scratch: Vec<u8>,
}

/// The word at index `place` of message number `count` between two queue pairs. No two words are
/// alike.
fn word(from: u32, to: u32, count: u64, place: usize) -> u64 {
    let ends = u64::from(from) << 32 | u64::from(to);
    (ends ^ count.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_add(place as u64)
        .rotate_left(place as u32 % 64)
}

fn fill(bytes: &mut [u8], from: u32, to: u32, count: u64) {
    for (place, chunk) in bytes.chunks_exact_mut(WORD).enumerate() {
        chunk.copy_from_slice(&word(from, to, count, place).to_ne_bytes());
    }
}

impl Crowd {
    /// Opens the loopback device, with memory for `most` queue pairs and messages of `message`
    /// bytes.
    ///
    /// # Errors
    /// The refusal of the device, in words.
    pub fn open(most: usize, message: usize) -> Result<Self> {
        if message == 0 || !message.is_multiple_of(WORD) {
            return Err(format!("{message} bytes of a message: a multiple of {WORD} is wanted"));
        }
        let mut world = World::open(most * (message * (1 + RECEIVES) + WORD))?;
        world.timeout = TIMEOUT;
        let channel = CompChannel::new(&world.context).map_err(failed("channel"))?;
        let scratch = vec![0; message];
        Ok(Self {
            world,
            channel,
            cq: None,
            members: Vec::with_capacity(most),
            most,
            message,
            scratch,
        })
    }

    /// Makes the CQ, with room for all possible completions.
    ///
    /// # Errors
    /// The refusal of the device, in words.
    pub fn make_cq(&mut self) -> Result<()> {
        let entries = u32::try_from(self.most * (RECEIVES + 1)).map_err(|e| e.to_string())?;
        self.cq = Some(
            Cq::new(&self.world.context, entries, Some(&self.channel), 0).map_err(failed("CQ"))?,
        );
        Ok(())
    }

    fn cq(&self) -> Result<Arc<Cq>> {
        self.cq.clone().ok_or_else(|| "there is no CQ yet".to_string())
    }

    /// Makes `count` more queue pairs, and returns their numbers.
    ///
    /// # Errors
    /// The refusal of the device, in words.
    pub fn make(&mut self, count: usize) -> Result<Vec<u32>> {
        let (cq, first) = (self.cq()?, self.members.len());
        if first + count > self.most {
            return Err(format!("{count} queue pairs more than {first} are too many"));
        }
        for n in first..first + count {
            let qp = self.world.qp(&cq, &cq, DEPTH).map_err(|e| format!("queue pair {n}: {e}"))?;
            self.members.push(Member {
                qp,
                peer: 0,
                sent: 0,
                received: 0,
                written: 0,
                busy: false,
            });
        }
        Ok(self.members[first..].iter().map(|m| m.qp.number()).collect())
    }

    /// Connects the queue pairs made last with these peers, one by one, and posts their receives.
    ///
    /// # Errors
    /// The refusal of the device, in words.
    pub fn connect(&mut self, peers: &[u32]) -> Result<()> {
        let first =
            self.members.len().checked_sub(peers.len()).ok_or("more peers than queue pairs")?;
        for (n, &peer) in (first..).zip(peers) {
            self.members[n].peer = peer;
            self.world
                .connect(&self.members[n].qp, peer)
                .map_err(|e| format!("queue pair {n}: {e}"))?;
            (0..RECEIVES).try_for_each(|slot| self.post_receive(n, slot))?;
        }
        Ok(())
    }

    /// The number of queue pairs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is no queue pair.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The words that the other end may write.
    #[must_use]
    pub fn area(&self) -> Remote {
        let offset = self.word_at(0) as u64;
        Remote { va: self.world.buffer.addr() + offset, rkey: self.world.buffer.key() }
    }

    fn out_at(&self, n: usize) -> usize {
        n * self.message
    }

    fn in_at(&self, n: usize, slot: usize) -> usize {
        (self.most + n * RECEIVES + slot) * self.message
    }

    fn word_at(&self, n: usize) -> usize {
        self.most * (1 + RECEIVES) * self.message + n * WORD
    }

    fn post_receive(&self, n: usize, slot: usize) -> Result<()> {
        let sges = [self.world.buffer.sge(self.in_at(n, slot), self.message)];
        receive(&self.members[n].qp, RECEIVE | (n * RECEIVES + slot) as u64, &sges)
    }

    /// Sends the next message over queue pair `n`, once its last request has completed.
    ///
    /// # Errors
    /// A refusal of the device, or a mistake in something that arrives meanwhile.
    pub fn send(&mut self, n: usize) -> Result<()> {
        self.idle(n)?;
        let member = &mut self.members[n];
        member.sent += 1;
        fill(&mut self.scratch, member.qp.number(), member.peer, member.sent);
        self.post(n, SendOp::Send, self.message)
    }

    /// Sends the signal to stop.
    ///
    /// # Errors
    /// As [`Crowd::send`].
    pub fn send_stop(&mut self) -> Result<()> {
        self.idle(0)?;
        self.post(0, SendOp::Send, 0)
    }

    /// Writes the next word into the other end's area, over queue pair `n`.
    ///
    /// # Errors
    /// As [`Crowd::send`].
    pub fn write(&mut self, n: usize, area: Remote) -> Result<()> {
        self.idle(n)?;
        let member = &mut self.members[n];
        member.written += 1;
        let value = word(member.qp.number(), member.peer, member.written, 0);
        self.scratch[..WORD].copy_from_slice(&value.to_ne_bytes());
        let va = area.va + (n * WORD) as u64;
        self.post(n, SendOp::Write(Remote { va, ..area }), WORD)
    }

    fn post(&mut self, n: usize, op: SendOp, len: usize) -> Result<()> {
        let at = self.out_at(n);
        if !self.world.buffer.write_at(at, &self.scratch[..len]) {
            return Err("a message outside of its memory".to_string());
        }
        let sges = [self.world.buffer.sge(at, len)];
        let sges = if len == 0 { &sges[..0] } else { &sges[..] };
        self.members[n].busy = true;
        post(&self.members[n].qp, &request(n as u64, SendFlags::SIGNALED, op, sges))
    }

    /// Polls until the last request of queue pair `n` has completed.
    fn idle(&mut self, n: usize) -> Result<()> {
        while self.members[n].busy {
            match self.event()? {
                Event::Completed(_) => {}
                other => return Err(format!("{other:?} while a request was to complete")),
            }
        }
        Ok(())
    }

    /// Polls until all requests of this process have completed.
    ///
    /// # Errors
    /// A mistake in something that arrives, or a silence.
    pub fn settle(&mut self) -> Result<()> {
        (0..self.members.len()).try_for_each(|n| self.idle(n))
    }

    /// Polls for the next completion.
    ///
    /// # Errors
    /// A mistake in the completion, or a silence.
    pub fn event(&mut self) -> Result<Event> {
        let cq = self.cq()?;
        let mut since = None;
        for turn in 1u32.. {
            if let Some(event) = self.poll(&cq)? {
                return Ok(event);
            }
            if turn.is_multiple_of(1024)
                && since.get_or_insert_with(Instant::now).elapsed() > HANG_LIMIT
            {
                break;
            }
        }
        Err(self.silence())
    }

    /// Waits for the next completion, and sleeps if there is none.
    ///
    /// # Errors
    /// As [`Crowd::event`].
    pub fn event_asleep(&mut self) -> Result<Event> {
        let (cq, end) = (self.cq()?, Instant::now() + HANG_LIMIT);
        loop {
            if let Some(event) = self.poll(&cq)? {
                return Ok(event);
            }
            cq.req_notify(ArmKind::Next).map_err(failed("arm"))?;
            if let Some(event) = self.poll(&cq)? {
                return Ok(event);
            }
            match self.channel.next_event(Some(end)) {
                Ok(cq) => cq.ack_events(1),
                Err(Errno::ETIMEDOUT) => return Err(self.silence()),
                Err(e) => return Err(format!("get event: {e}")),
            }
        }
    }

    /// Arms the CQ, sleeps for this time, and returns the number of events.
    ///
    /// # Errors
    /// The refusal of the device.
    pub fn sleep(&mut self, time: Duration) -> Result<u32> {
        let (cq, end) = (self.cq()?, Instant::now() + time);
        // Events of completions that were polled before their events were read.
        while let Some(cq) = self.channel.try_event() {
            cq.ack_events(1);
        }
        cq.req_notify(ArmKind::Next).map_err(failed("arm"))?;
        let mut events = 0;
        loop {
            match self.channel.next_event(Some(end)) {
                Ok(cq) => {
                    cq.ack_events(1);
                    events += 1;
                }
                Err(Errno::ETIMEDOUT) => return Ok(events),
                Err(e) => return Err(format!("get event: {e}")),
            }
        }
    }

    fn silence(&self) -> String {
        let busy = self.members.iter().filter(|m| m.busy).count();
        let (sent, received) =
            self.members.iter().fold((0, 0), |(s, r), m| (s + m.sent, r + m.received));
        format!(
            "no completion within {HANG_LIMIT:?}: {busy} of {} queue pairs have a request under way; {sent} messages \
             sent, {received} received",
            self.members.len()
        )
    }

    fn poll(&mut self, cq: &Arc<Cq>) -> Result<Option<Event>> {
        let mut found = None;
        cq.poll(1, |c| found = Some(c)).map_err(|e| format!("poll: {e}"))?;
        let Some(completion) = found else { return Ok(None) };
        if completion.status != WcStatus::Success {
            let n = completion.wr_id & !RECEIVE;
            return Err(format!(
                "{:?} at place {n} (receive: {})",
                completion.status,
                completion.wr_id >= RECEIVE
            ));
        }
        if completion.wr_id & RECEIVE == 0 {
            let n = completion.wr_id as usize;
            self.members[n].busy = false;
            return Ok(Some(Event::Completed(n)));
        }
        let place = (completion.wr_id & !RECEIVE) as usize;
        self.arrived(place / RECEIVES, place % RECEIVES, completion.byte_len as usize).map(Some)
    }

    /// A message must be the next one of its queue pair, whole and undamaged.
    fn arrived(&mut self, n: usize, slot: usize, len: usize) -> Result<Event> {
        let at = self.in_at(n, slot);
        let member = &mut self.members[n];
        if len != 0 {
            member.received += 1;
            let (from, to, count) = (member.peer, member.qp.number(), member.received);
            if len != self.message || !self.world.buffer.read_at(at, &mut self.scratch) {
                return Err(format!("message {count} at place {n} has {len} bytes"));
            }
            let mut words = self.scratch.chunks_exact(WORD).enumerate();
            if let Some((place, _)) =
                words.find(|(place, w)| **w != word(from, to, count, *place).to_ne_bytes())
            {
                return Err(format!("message {count} at place {n} is wrong in word {place}"));
            }
        }
        self.post_receive(n, slot)?;
        Ok(if len == 0 { Event::Stopped } else { Event::Received(n) })
    }

    /// The words expected in the other end's area.
    #[must_use]
    pub fn written(&self) -> Vec<u64> {
        let value = |m: &Member| match m.written {
            0 => 0,
            count => word(m.qp.number(), m.peer, count, 0),
        };
        self.members.iter().map(value).collect()
    }

    /// The words in the area of this end.
    ///
    /// # Errors
    /// An unreadable word.
    pub fn found(&self) -> Result<Vec<u64>> {
        let read = |n| {
            let mut bytes = [0; WORD];
            let read = self.world.buffer.read_at(self.word_at(n), &mut bytes);
            read.then(|| u64::from_ne_bytes(bytes))
                .ok_or_else(|| "a word outside of its memory".to_string())
        };
        (0..self.members.len()).map(read).collect()
    }

    /// Sends `count` messages over every queue pair and receives as many, and sleeps when there is
    /// nothing to do. At most `window` requests are outstanding at a time.
    ///
    /// # Errors
    /// A lost, doubled or wrong message.
    pub fn exchange(&mut self, count: u64, window: usize) -> Result<u64> {
        let goal: Vec<u64> = self.members.iter().map(|m| m.received + count).collect();
        let mut to_send: VecDeque<usize> = (0..count).flat_map(|_| 0..self.len()).collect();
        let all = to_send.len();
        let (mut received, mut completed, mut under_way) = (0, 0, 0);
        while received < all || completed < all {
            while let Some(&n) =
                to_send.front().filter(|n| under_way < window && !self.members[**n].busy)
            {
                to_send.pop_front();
                self.send(n)?;
                under_way += 1;
            }
            match self.event_asleep()? {
                Event::Received(n) if self.members[n].received <= goal[n] => received += 1,
                Event::Completed(_) => {
                    completed += 1;
                    under_way -= 1;
                }
                other => return Err(format!("{other:?} beyond what was sent")),
            }
        }
        Ok(received as u64)
    }
}
