//! The end of a world: everything ends, and the device comes to rest.
use super::connect::refused;
use super::net::lock;
use super::threads::Background;
use super::world::World;
use crate::verdict::{Check, ensure};
use std::time::Duration;

/// Longer than all retransmissions with the longest timeout of a world.
const BOUND: Duration = Duration::from_secs(20);

impl World {
    /// From now on the network is whole, and consumers sleep for every completion.
    pub(super) fn wind_up(&mut self) -> Check {
        self.note(|| "winding up".to_owned());
        self.winding_up = true;
        lock(&self.net).calm();
        for node in 0..self.nodes.len() {
            self.rouse(node);
        }
        Ok(())
    }

    /// Checks the world after the last planned step.
    pub(super) fn finish(&mut self) -> Check {
        for end in &self.ends {
            let (id, left) = (end.number, end.left);
            ensure!(left == 0, "end {id} cannot post {left} requests");
            let first = end.outstanding.iter().find(|op| op.signaled);
            ensure!(first.is_none(), "all sleep, and end {id} waits for {first:?}");
            let lost = end.due.iter().find(|m| end.exact && m.is_due());
            ensure!(lost.is_none(), "all sleep, and end {id} has not got {lost:?}");
        }
        ensure!(
            self.now < self.posted + BOUND,
            "it takes until {:?}, and the last post was at {:?}",
            self.now,
            self.posted
        );
        for node in 0..self.nodes.len() {
            self.nothing_was_late(node)?;
            self.tear_down(node)?;
        }
        let begun = self.now;
        self.run_until(|_| false)?;
        ensure!(self.now < begun + BOUND, "the device does not come to rest");
        for node in 0..self.nodes.len() {
            let background = self.nodes[node].background;
            let rests =
                matches!(background, Background::Asleep { until: None, at_sockets: true, .. });
            ensure!(rests, "node {node} does not rest: {background:?}");
        }
        Ok(())
    }

    /// Without loss and stalled threads, no answer is missed.
    fn nothing_was_late(&mut self, node: usize) -> Check {
        let config = &self.config;
        if !config.orderly || config.stalls > 0 || config.breaks > 0 {
            return Ok(());
        }
        let counted = self.nodes[node].node.node().qp_counters();
        if counted.rnr_naks == 0 {
            self.asked += counted.probes;
        }
        ensure!(counted.timeouts == 0, "node {node} missed {} answers", counted.timeouts);
        Ok(())
    }

    fn tear_down(&mut self, node: usize) -> Check {
        self.enter(node);
        for end in self.nodes[node].ends.clone() {
            if let Some(qp) = self.ends[end].qp.take() {
                qp.destroy().map_err(refused("destroy"))?;
            }
        }
        for queue in self.nodes[node].queues.clone() {
            let queue = &mut self.queues[queue];
            queue.cq.ack_events(std::mem::take(&mut queue.unacked));
            queue.cq.destroy().map_err(refused("destroy"))?;
        }
        self.nodes[node].channel.destroy().map_err(refused("destroy"))?;
        self.nodes[node].queues.clear();
        self.judge(node, None)
    }
}
