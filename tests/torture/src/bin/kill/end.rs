//! One end of a connection that will break: its objects, and the exchange of addresses between the
//! two ends.

use std::sync::Arc;

use adverb_bench::Result;
use adverb_bench::member::{line_of, numbers};
use adverb_bench::world::World;
use adverb_device::engine::wr::Remote;
use adverb_device::{CompChannel, Cq, Qp};

use super::area::{Area, KINDS};
use super::failed;
use super::traffic::{Peer, Tally, Traffic};
use adverb_torture::Dice;

/// Queue pairs between the two ends: half of them are polled, the others use events.
pub const QPS: usize = 4;
const DEPTH: u32 = 16;

/// Objects of a round.
pub struct RoundObjects {
    pub id: u64,
    pub area: Area,
    cqs: [Arc<Cq>; 2],
    channel: Arc<CompChannel>,
    pub qps: Vec<Arc<Qp>>,
    seed: u64,
}

impl RoundObjects {
    /// Makes the objects.
    ///
    /// # Errors
    /// The refusal of the device, in words.
    pub fn new(world: &World, seed: u64) -> Result<Self> {
        let mut dice = Dice(seed);
        // Never zero, so that written words differ from the initial ones.
        let id = dice.roll(u64::MAX) | 1 << 63;
        let area = Area::new(&world.pd, QPS, KINDS[dice.roll(3) as usize], id)?;
        let channel = CompChannel::new(&world.context).map_err(failed("channel"))?;
        let polled = Cq::new(&world.context, 256, None, 0).map_err(failed("CQ"))?;
        let slept = Cq::new(&world.context, 256, Some(&channel), 0).map_err(failed("CQ"))?;
        let cqs = [polled, slept];
        let qps =
            (0..QPS).map(|n| world.qp(&cqs[n % 2], &cqs[n % 2], DEPTH)).collect::<Result<_>>()?;
        Ok(RoundObjects { id, area, cqs, channel, qps, seed })
    }

    /// The line for the other end: id, memory, and queue pairs.
    pub fn line(&self) -> String {
        let Remote { va, rkey } = self.area.remote();
        let mut all = vec![self.id, va, rkey.into()];
        all.extend(self.qps.iter().map(|qp| u64::from(qp.number())));
        line_of(&all)
    }

    /// Connects to the end that printed `line`, calls `connected`, and runs the traffic until the
    /// other end is dead.
    ///
    /// # Errors
    /// A wrong result.
    pub fn run(
        &self,
        world: &World,
        line: &str,
        connected: impl FnOnce(),
    ) -> Result<(Peer, Tally)> {
        let all: Vec<u64> = numbers(line)?;
        let [id, va, rkey, dests @ ..] = &all[..] else {
            return Err(format!("no line of an end: {line:?}"));
        };
        let area = Remote { va: *va, rkey: u32::try_from(*rkey).map_err(failed("key"))? };
        let peer = Peer { id: *id, area };
        let channels = [None, Some(self.channel.clone())];
        let mut sides = Vec::new();
        for (n, (cq, channel)) in self.cqs.iter().zip(channels).enumerate() {
            let seed = self.seed ^ n as u64;
            sides.push(Traffic::new(&self.area, self.id, peer, cq.clone(), channel, seed));
        }
        for (place, (qp, dest)) in self.qps.iter().zip(dests).enumerate() {
            let dest = u32::try_from(*dest).map_err(failed("number"))?;
            sides[place % 2].connect(world, qp.clone(), place, dest)?;
        }
        connected();
        let results: Vec<Result<Tally>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                sides.into_iter().map(|side| scope.spawn(move || side.run())).collect();
            threads
                .into_iter()
                .map(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into())))
                .collect()
        });
        let mut sum = Tally::default();
        for tally in results {
            sum += tally?;
        }
        Ok((peer, sum))
    }

    /// Destroys all objects and verifies the memory. `peer` is the id of the only permitted writer.
    ///
    /// # Errors
    /// A failed destroy, or a wrong write.
    pub fn end(self, peer: u64) -> Result<()> {
        self.qps.iter().try_for_each(|qp| qp.destroy()).map_err(failed("destroy a queue pair"))?;
        self.cqs.iter().try_for_each(Cq::destroy).map_err(failed("destroy a CQ"))?;
        self.channel.destroy().map_err(failed("destroy a channel"))?;
        self.area.verify(self.id, peer)?;
        self.area.end()?;
        // Without a registration the memory no longer changes.
        self.area.verify(self.id, peer)
    }
}
