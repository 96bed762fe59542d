//! Regions that are deregistered while posted requests use them.
//!
//! A send fails if the device still needs the region, so the report comes at once. A receive fails
//! only if a message comes. A program that takes down a connection may deregister first and destroy
//! the queue pair then: no message comes any more, and the order is harmless. So the report of a
//! receive comes when the queue pair is used further, or is left to the peer at the end.
use crate::queues::Request;
use crate::regions::Deregistered;
use crate::{Code, CodeAddress, Ledger, Region};

impl Ledger {
    /// A region was registered.
    pub fn registered(&mut self, region: Region) {
        self.orphaned.remove(&region.lkey);
        self.regions.add(region);
    }

    /// A region is about to be deregistered.
    pub fn deregistering(&mut self, lkey: u32, place: CodeAddress) {
        let Some(region) = self.regions.get(lkey) else { return };
        // A queue pair in the error state no longer uses the region, even if the program has not
        // polled.
        let running = self.qps.iter().filter(|(_, qp)| !qp.told && !qp.stopped);
        let users = running.filter_map(|(n, qp)| Some((*n, qp.sends.user_of(lkey)?)));
        if let Some((number, request)) = users.min_by_key(|(n, _)| *n) {
            let places =
                [("deregistered", place), ("posted", request.place), ("registered", region.place)];
            self.reporter.say(Code::RegionInUse, &places, || {
                format!(
                    "the region with key {lkey:#x} is deregistered while the request with wr_id \
                     {:#x} on queue pair {number:#x} uses the region: the completion was not \
                     polled, so the device may still need the region, and the request fails",
                    request.wr_id
                )
            });
        }
        let orphaned = Deregistered { registered: region.place, deregistered: place };
        self.regions.note(lkey, orphaned);
        self.orphaned.insert(lkey, orphaned);
        if self.all_orphans().all(|(of, ..)| of != lkey) {
            self.orphaned.remove(&lkey);
        }
    }

    /// A region was deregistered.
    pub fn deregistered(&mut self, lkey: u32) {
        self.regions.remove(lkey);
    }

    /// Posted receives whose region was deregistered: the key, the number of the queue pair (`None`
    /// for a shared receive queue) and of the queue.
    fn all_orphans(&self) -> impl Iterator<Item = (u32, Option<u32>, u32, Request)> + '_ {
        // A queue pair without a size of the send queue may have completions that are never polled.
        let pairs = self.qps.iter().filter(|(_, qp)| !qp.told && !qp.stopped && qp.of.max_send > 0);
        let pairs = pairs.map(|(n, qp)| (Some(*n), *n, &qp.receives));
        let shared = self.srqs.iter().map(|(n, srq)| (None, *n, &srq.receives));
        self.orphaned.keys().flat_map(move |lkey| {
            let all = pairs.clone().chain(shared.clone());
            all.filter_map(move |(qp, number, receives)| {
                let request = receives.iter().find(|r| r.uses(*lkey))?;
                Some((*lkey, qp, number, request.clone()))
            })
        })
    }

    /// The program goes on to use a queue pair.
    pub(crate) fn goes_on(&mut self, number: u32, in_error: bool) {
        if !in_error && !self.orphaned.is_empty() {
            self.orphans_of(|queue_pair, _| queue_pair == Some(number));
        }
    }

    /// The program goes on to use a shared receive queue.
    pub(crate) fn shared_goes_on(&mut self, number: u32) {
        if !self.orphaned.is_empty() {
            self.orphans_of(|queue_pair, shared| queue_pair.is_none() && shared == number);
        }
    }

    /// The process ends, and peers can still send to these receives.
    pub(crate) fn orphans_left(&mut self) {
        self.orphans_of(|_, _| true);
    }

    fn orphans_of(&mut self, is_used: impl Fn(Option<u32>, u32) -> bool) {
        let all =
            self.all_orphans().filter(|(_, queue_pair, number, _)| is_used(*queue_pair, *number));
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|(lkey, _, number, _)| (*lkey, *number));
        for (lkey, queue_pair, number, request) in all {
            let queue = match queue_pair {
                Some(number) => format!("queue pair {number:#x}"),
                None => format!("shared receive queue {number}"),
            };
            self.orphan(lkey, &request, &format!("is posted on {queue}"));
        }
    }

    /// A message has come to a receive, and the receive has failed.
    pub(crate) fn orphan_used(&mut self, request: &Request) {
        let lkey = self.orphaned.keys().copied().find(|lkey| request.uses(*lkey));
        if let Some(lkey) = lkey {
            self.orphan(lkey, request, "was posted, and a message came");
        }
    }

    fn orphan(&mut self, lkey: u32, request: &Request, state: &str) {
        let Some(Deregistered { registered, deregistered }) = self.orphaned.get(&lkey).copied()
        else {
            return;
        };
        let places =
            [("deregistered", deregistered), ("posted", request.place), ("registered", registered)];
        self.reporter.say(Code::RegionInUse, &places, || {
            format!(
                "the region with key {lkey:#x} was deregistered while the receive with wr_id {:#x} \
                 {state}: the next message there fails, and the queue pair with it; destroy or \
                 reset the queue pair first, or move it to ERR and poll the flushed receives",
                request.wr_id
            )
        });
    }
}
