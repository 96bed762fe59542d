//! Measures latencies and rates. Both processes run the same function. The first process measures
//! the time.
use super::end::{DEPTH, Endpoint, Kind, failure};
use super::world::{HANG_LIMIT, IN, OUT, World};
use adverb_device::engine::cq::arm::ArmKind;
use adverb_device::engine::{Payload, SendFlags, SendOp, SendWr, WcOpcode, WcStatus};
use std::time::{Duration, Instant};

/// Half round trips: the median and the 99th percentile.
pub struct Latency {
    pub name: &'static str,
    pub median: Duration,
    pub high: Duration,
}

/// The rate of a stream of messages.
pub struct Rate {
    pub name: &'static str,
    pub size: usize,
    pub messages: u64,
    pub time: Duration,
}

/// Approximate duration of each measurement.
const TIME: Duration = Duration::from_millis(350);
/// Round trips before the measurement starts.
const WARM_UP: usize = 50;

/// The operation that carries eight bytes there and back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ping {
    Send,
    Write,
    WriteImm,
}

pub fn latencies(w: &mut World) -> Result<Vec<Latency>, String> {
    let kinds = [
        ("Send 8 B, polling", Ping::Send, false),
        ("Send 8 B, by event", Ping::Send, true),
        ("RDMA Write 8 B, polling memory", Ping::Write, false),
        ("RDMA Write+imm 8 B, by event", Ping::WriteImm, true),
    ];
    kinds.into_iter().map(|(name, ping, by_event)| latency(w, name, ping, by_event)).collect()
}

fn latency(
    w: &mut World,
    name: &'static str,
    ping: Ping,
    by_event: bool,
) -> Result<Latency, String> {
    let mut end = w.connected(Kind::Rc)?;
    w.put(IN, &[0; 8])?;
    for id in 0..u64::from(DEPTH) / 2 {
        end.recv(id, IN + 4096, 8)?;
    }
    w.sync()?;
    // The first few round trips tell how many round trips fit into the time.
    let start = Instant::now();
    let mut game = Game { end: &mut end, ping, by_event, last: 0, sent: 0 };
    game.play(w, WARM_UP)?;
    let each = start.elapsed() / WARM_UP as u32;
    let wanted = (TIME.as_nanos() / each.as_nanos().max(1)).clamp(100, 100_000) as u64;
    let told = w.swap(wanted)?;
    let count = if w.is_first() { wanted } else { told };
    let mut samples = game.play(w, count as usize)?;
    w.sync()?;
    end.close()?;
    samples.sort_unstable();
    let at = |part: usize| samples.get(samples.len() * part / 100).copied().unwrap_or_default() / 2;
    Ok(Latency { name, median: at(50), high: at(99) })
}

/// Eight bytes back and forth. The bytes hold a growing number, so each arrival
/// is checked.
struct Game<'a> {
    end: &'a mut Endpoint,
    ping: Ping,
    by_event: bool,
    last: u64,
    sent: u64,
}

impl Game<'_> {
    /// Plays `count` round trips. In the first process, returns the duration of each.
    fn play(&mut self, w: &World, count: usize) -> Result<Vec<Duration>, String> {
        let mut samples = Vec::with_capacity(count);
        if self.by_event {
            self.end.arm(ArmKind::Next)?;
        }
        for _ in 0..count {
            self.last += 1;
            let start = Instant::now();
            if w.is_first() {
                self.serve(w)?;
            }
            self.await_ball(w)?;
            if w.is_first() {
                samples.push(start.elapsed());
            } else {
                self.serve(w)?;
            }
        }
        Ok(samples)
    }

    fn serve(&mut self, w: &World) -> Result<(), String> {
        let bytes = self.last.to_ne_bytes();
        self.sent += 1;
        // Every 64th request is signaled. The completion empties the queue.
        let signal =
            if self.sent.is_multiple_of(64) { SendFlags::SIGNALED } else { SendFlags::empty() };
        let op = match self.ping {
            Ping::Send => SendOp::Send,
            Ping::Write => SendOp::Write(w.remote(IN)),
            Ping::WriteImm => SendOp::WriteImm(w.remote(IN), 0),
        };
        self.end.send_with(0, op, SendFlags::INLINE | signal, Payload::Inline(&[&bytes]))
    }

    fn await_ball(&mut self, w: &World) -> Result<(), String> {
        let start = Instant::now();
        let late = |what: &str| format!("no {what} came in {HANG_LIMIT:?}");
        loop {
            let mut arrived = self.ping == Ping::Write && w.word(IN)? == self.last;
            let mut bad = None;
            let end = &mut self.end;
            end.poll(16, |c| match (c.status, c.opcode) {
                (WcStatus::Success, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm) => arrived = true,
                (WcStatus::Success, _) => {}
                _ => bad = Some(failure(&c)),
            })?;
            if let Some(why) = bad {
                return Err(why);
            }
            if arrived {
                break;
            }
            if self.by_event {
                if !self.end.event(HANG_LIMIT)? {
                    return Err(late("event"));
                }
                self.end.arm(ArmKind::Next)?;
            } else if start.elapsed() > HANG_LIMIT {
                return Err(late("answer"));
            }
        }
        if self.ping != Ping::Write {
            let place = if self.ping == Ping::Send { IN + 4096 } else { IN };
            let found = w.word(place)?;
            if found != self.last {
                return Err(format!("message {} arrived as {found}", self.last));
            }
            self.end.recv(0, IN + 4096, 8)?;
        }
        Ok(())
    }
}

/// A stream of requests with the same operation.
#[derive(Clone, Copy)]
struct Stream {
    name: &'static str,
    op: StreamOp,
    size: usize,
    /// Number of requests on their way at the same time.
    window: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamOp {
    Send,
    Write,
    Read,
    /// Small inline writes in chains. Few of them complete.
    Small,
}

const STREAMS: [Stream; 4] = [
    Stream { name: "Send", op: StreamOp::Send, size: 65_536, window: 64 },
    Stream { name: "RDMA Write", op: StreamOp::Write, size: 1 << 20, window: 8 },
    Stream { name: "RDMA Read", op: StreamOp::Read, size: 1 << 20, window: 8 },
    Stream { name: "RDMA Write", op: StreamOp::Small, size: 8, window: 256 },
];

/// Number of requests in a chain of small writes.
const CHAIN: u64 = 32;

pub fn rates(w: &mut World) -> Result<Vec<Rate>, String> {
    STREAMS.into_iter().map(|stream| rate(w, stream)).collect()
}

fn rate(w: &mut World, stream: Stream) -> Result<Rate, String> {
    let mut end = w.connected(Kind::Rc)?;
    let slots = stream.window as usize;
    let seed = stream.size as u64 + stream.window;
    let sender = w.is_first() == (stream.op != StreamOp::Read);
    w.fill(OUT, slots * stream.size, if sender { seed } else { 0 })?;
    w.fill(IN, slots * stream.size, 0)?;
    if stream.op == StreamOp::Send && !w.is_first() {
        for i in 0..slots {
            end.recv(i as u64, IN + i * stream.size, stream.size)?;
        }
    }
    // The time of a few requests tells how many requests take the wanted time.
    let some = stream.window * 2;
    let mut turn = 0;
    let time = run(w, &mut end, stream, some, &mut turn)?;
    let wanted = u128::from(some) * TIME.as_nanos() / time.as_nanos().max(1);
    let wanted = (wanted as u64).clamp(some, 20_000_000).next_multiple_of(stream.window);
    let told = w.swap(wanted)?;
    let messages = if w.is_first() { wanted } else { told };
    let time = run(w, &mut end, stream, messages, &mut turn)?;
    // The last write to each slot of the target wrote the slot's own bytes.
    if w.is_first() == (stream.op == StreamOp::Read) {
        w.check(IN, slots * stream.size, seed)?;
    }
    w.sync()?;
    end.close()?;
    Ok(Rate { name: stream.name, size: stream.size, messages, time })
}

/// Runs `count` messages until all have completed. Returns the time measured in the first process.
/// `turn` counts receives over several runs.
fn run(
    w: &mut World,
    end: &mut Endpoint,
    stream: Stream,
    count: u64,
    turn: &mut u64,
) -> Result<Duration, String> {
    w.sync()?;
    let start = Instant::now();
    match (w.is_first(), stream.op) {
        (true, StreamOp::Small) => small(w, end, stream, count)?,
        (true, _) => large(w, end, stream, count)?,
        (false, StreamOp::Send) => receive(end, stream, count, turn)?,
        (false, _) => {}
    }
    let time = start.elapsed();
    w.sync()?;
    Ok(time)
}

fn place(stream: Stream, id: u64) -> usize {
    (id % stream.window) as usize * stream.size
}

fn large(w: &World, end: &mut Endpoint, stream: Stream, count: u64) -> Result<(), String> {
    let (mut posted, mut done) = (0, 0);
    let mut watch = Watch::new();
    while done < count {
        while posted < count && posted - done < stream.window {
            let at = place(stream, posted);
            match stream.op {
                StreamOp::Send => end.send(posted, SendOp::Send, OUT + at, stream.size)?,
                StreamOp::Read => {
                    end.send(posted, SendOp::Read(w.remote(OUT + at)), IN + at, stream.size)?
                }
                StreamOp::Write | StreamOp::Small => {
                    end.send(posted, SendOp::Write(w.remote(IN + at)), OUT + at, stream.size)?;
                }
            }
            posted += 1;
        }
        done += watch.completed(end, done)?;
    }
    Ok(())
}

fn small(w: &World, end: &mut Endpoint, stream: Stream, count: u64) -> Result<(), String> {
    let bytes = w.get(OUT, stream.window as usize * stream.size)?;
    let (mut posted, mut done) = (0, 0);
    let mut watch = Watch::new();
    while done * CHAIN < count {
        while posted < count && posted - done * CHAIN < stream.window {
            let mut chain = end.qp.send_chain().map_err(|e| e.to_string())?;
            for id in posted..posted + CHAIN {
                let at = place(stream, id);
                let signal =
                    if id + 1 == posted + CHAIN { SendFlags::SIGNALED } else { SendFlags::empty() };
                let part: [&[u8]; 1] = [&bytes[at..at + stream.size]];
                let request = SendWr {
                    wr_id: id / CHAIN,
                    flags: SendFlags::INLINE | signal,
                    op: SendOp::Write(w.remote(IN + at)),
                    data: Payload::Inline(&part),
                    ud: None,
                    xrc_srqn: 0,
                };
                chain.stage(&request).map_err(|e| e.to_string())?;
            }
            chain.commit();
            posted += CHAIN;
        }
        done += watch.completed(end, done)?;
    }
    Ok(())
}

fn receive(end: &mut Endpoint, stream: Stream, count: u64, turn: &mut u64) -> Result<(), String> {
    // Receives are consumed in order. Each receive is posted again behind the others, with the
    // number of its next turn.
    let mut done = 0;
    let mut watch = Watch::new();
    while done < count {
        for _ in 0..watch.completed(end, *turn)? {
            end.recv(*turn + stream.window, IN + place(stream, *turn), stream.size)?;
            *turn += 1;
            done += 1;
        }
    }
    Ok(())
}

/// Checks completions as they come, and fails if none come for too long.
struct Watch {
    last: Instant,
    idle: u32,
}

impl Watch {
    fn new() -> Self {
        Watch { last: Instant::now(), idle: 0 }
    }

    /// The number of completed requests. Requests complete in order, beginning with `next`.
    fn completed(&mut self, end: &Endpoint, mut next: u64) -> Result<u64, String> {
        let mut bad = None;
        let n = end.poll(64, |c| {
            if c.status != WcStatus::Success {
                bad.get_or_insert_with(|| failure(&c));
            } else if c.wr_id != next {
                bad.get_or_insert_with(|| format!("request {} completed, {next} was due", c.wr_id));
            }
            next += 1;
        })?;
        if let Some(why) = bad {
            return Err(why);
        }
        if n > 0 {
            self.idle = 0;
        } else {
            self.idle += 1;
            match self.idle {
                1 => self.last = Instant::now(),
                i if i.is_multiple_of(1024) && self.last.elapsed() > HANG_LIMIT => {
                    return Err(format!("no completion came in {HANG_LIMIT:?}"));
                }
                _ => {}
            }
        }
        Ok(n as u64)
    }
}
