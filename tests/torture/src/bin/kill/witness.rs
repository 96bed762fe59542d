//! A process that lives during all rounds, and answers although other processes die.

use std::sync::Arc;
use std::time::{Duration, Instant};

use adverb_bench::Result;
use adverb_bench::member::numbers;
use adverb_bench::pair::{self, Other};
use adverb_bench::world::{World, post, receive, request};
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{SendFlags, SendOp, WcStatus};
use adverb_device::{Cq, Qp};

use super::area::message;

const LEN: usize = 70_000;
const HANG_LIMIT: Duration = Duration::from_secs(60);

/// Offset of the answer in the buffer.
const IN: usize = LEN.next_multiple_of(4096);

fn objects(world: &World) -> Result<(Arc<Cq>, Arc<Qp>)> {
    let cq = Cq::new(&world.context, 64, None, 0).map_err(|e| format!("CQ: {e}"))?;
    let qp = world.qp(&cq, &cq, 16)?;
    Ok((cq, qp))
}

/// The next completion; `None` after a long silence.
fn next(cq: &Arc<Cq>) -> Result<Option<u64>> {
    let end = Instant::now() + HANG_LIMIT;
    while Instant::now() < end {
        let mut found = None;
        cq.poll(1, |c| found = Some(c)).map_err(|e| format!("poll: {e}"))?;
        match found {
            Some(c) if c.status == WcStatus::Success => return Ok(Some(c.wr_id)),
            Some(c) => return Err(format!("{c:?}")),
            None => std::thread::yield_now(),
        }
    }
    Ok(None)
}

/// The witness's process: sends each message back.
pub fn live() -> Result<()> {
    let world = World::open(2 * IN)?;
    let (cq, qp) = objects(&world)?;
    println!("{} {} {}", qp.number(), world.buffer.addr(), world.buffer.key());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|e| format!("no orders: {e}"))?;
    world.connect(&qp, line.trim().parse().map_err(|e| format!("{line:?}: {e}"))?)?;
    let sges = [world.buffer.sge(0, LEN)];
    receive(&qp, 1, &sges)?;
    println!("ready");
    // Ends with its parent, by a signal, or after a silence.
    while let Some(which) = next(&cq)? {
        if which == 1 {
            post(&qp, &request(2, SendFlags::SIGNALED, SendOp::Send, &sges))?;
            while next(&cq)? != Some(2) {}
            receive(&qp, 1, &sges)?;
        }
    }
    Ok(())
}

/// The witness, seen from the survivor.
pub struct Witness {
    _other: Other,
    world: World,
    cq: Arc<Cq>,
    qp: Arc<Qp>,
    remote: Remote,
}

impl Witness {
    /// Starts the witness and connects.
    ///
    /// # Errors
    /// The refusal of the device or the system, in words.
    pub fn new() -> Result<Self> {
        let world = World::open(2 * IN)?;
        let (cq, qp) = objects(&world)?;
        let mut other = pair::talk(None, &["witness".to_string()])?;
        let line = other.line()?;
        let all: Vec<u64> = numbers(&line)?;
        let [dest, va, rkey] = all[..] else {
            return Err(format!("no line of a witness: {line:?}"));
        };
        let small = |n: u64| u32::try_from(n).map_err(|e| format!("{n}: {e}"));
        other.say(&qp.number().to_string())?;
        if other.line()? != "ready" {
            return Err("the witness is not ready".to_string());
        }
        world.connect(&qp, small(dest)?)?;
        Ok(Witness { _other: other, cq, qp, remote: Remote { va, rkey: small(rkey)? }, world })
    }

    /// Sends a message, receives the answer, and reads the same bytes again.
    ///
    /// # Errors
    /// A lost or wrong message.
    pub fn exchange(&mut self, round: u64) -> Result<()> {
        let sent = message(round, 0, 0, LEN);
        let (out, into) = ([self.world.buffer.sge(0, LEN)], [self.world.buffer.sge(IN, LEN)]);
        for read in [false, true] {
            if !self.world.buffer.write_at(0, &sent)
                || !self.world.buffer.write_at(IN, &vec![0; LEN])
            {
                return Err("memory".to_string());
            }
            if read {
                post(&self.qp, &request(3, SendFlags::SIGNALED, SendOp::Read(self.remote), &into))?;
            } else {
                receive(&self.qp, 1, &into)?;
                post(&self.qp, &request(2, SendFlags::SIGNALED, SendOp::Send, &out))?;
            }
            for _ in 0..if read { 1 } else { 2 } {
                next(&self.cq)?.ok_or_else(|| format!("no answer within {HANG_LIMIT:?}"))?;
            }
            let mut got = vec![0; LEN];
            if !self.world.buffer.read_at(IN, &mut got) || got != sent {
                return Err(format!("other bytes came back (read: {read})"));
            }
        }
        Ok(())
    }
}
