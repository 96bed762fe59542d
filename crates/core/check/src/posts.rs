//! Posted requests, and the mistakes found in posts.
use crate::ledger::{Ledger, Written};
use crate::queues::{Full, Request};
use crate::report::count;
use crate::values::{Piece, Refused};
use crate::{Code, CodeAddress};

/// Limit of remembered `wr_id` values per queue pair.
const NUMBERS: usize = 4096;

impl Ledger {
    /// Requests are about to be posted to a send queue.
    pub fn posting(
        &mut self,
        number: u32,
        requests: &[Request],
        in_error: bool,
        place: CodeAddress,
    ) {
        requests.iter().for_each(|r| self.look_at(number, r));
        self.fences(number, requests, place);
        self.goes_on(number, in_error);
        let Some(qp) = self.qps.get_mut(&number) else { return };
        qp.sent.add(requests);
        let taken = std::mem::take(&mut qp.taken);
        if let (Some(first), Some(before)) = (requests.first(), taken.first())
            && first.at != 0
            && (first.at, first.wr_id, &first.pieces) == (before.at, before.wr_id, &before.pieces)
        {
            self.reporter.say(Code::ChainPostedAgain, &[("posted again", place)], || {
                format!(
                    "a chain is posted again on queue pair {number:#x} although the last call \
                     accepted its first {}: bad_wr points to the first refused request, so post \
                     the chain again from bad_wr on",
                    count(taken.len(), "request")
                )
            });
        }
        self.in_error(number, requests.len(), in_error, place);
        let Some(qp) = self.qps.get_mut(&number) else { return };
        let more = requests.iter().filter(|request| request.signaled).count();
        qp.sends.posted.extend(requests.iter().cloned());
        let cq = qp.of.send_cq;
        self.expect(cq, more, place);
    }

    /// The device has carried out all requests of a queue pair but the last `open`. Takes the
    /// checksums of these requests: returns each request with the locations of its bytes.
    pub fn carried_out(&mut self, number: u32, open: usize) -> Vec<(Vec<(u64, u32)>, Request)> {
        let Some(qp) = self.qps.get_mut(&number) else { return Vec::new() };
        let done = qp.sends.posted.len().saturating_sub(open);
        let summed = qp.sends.posted.iter_mut().take(done).filter(|request| request.sum.is_some());
        let take = |request: &mut Request| {
            let taken = request.clone();
            request.sum = None;
            taken
        };
        let all: Vec<_> = summed.map(take).collect();
        all.into_iter().filter_map(|request| Some((self.bytes_of(&request)?, request))).collect()
    }

    /// Free places of a send queue as a NIC counts them: a polled completion frees its own request
    /// and all earlier requests. `None` if the number is unknown or irrelevant.
    #[must_use]
    pub fn room(&self, number: u32, in_error: bool) -> Option<usize> {
        let qp = self.qps.get(&number).filter(|qp| !in_error && qp.of.max_send > 0)?;
        Some(qp.of.max_send.saturating_sub(qp.sends.posted.len()))
    }

    /// Handles a full send queue. A full queue is not a mistake if the program posts again later.
    /// If no completion can free a place, the mistake is certain at once.
    fn full(&mut self, number: u32, place: CodeAddress) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        if qp.of.max_send == 0 || qp.sends.posted.len() < qp.of.max_send {
            return;
        }
        let max = qp.of.max_send;
        if let Some(last) = qp.sends.posted.iter().rfind(|r| r.signaled) {
            qp.full = Some(Full { place, signaled: last.place, freed: qp.sends.freed.clone() });
            return;
        }
        self.reporter.say(Code::SendQueueNeverFreed, &[("posted", place)], || {
            format!(
                "the send queue of queue pair {number:#x} is full: requests without \
                 IBV_SEND_SIGNALED take all {}, so no completion will ever free a place; signal at \
                 least one request in {max}",
                count(max, "place"),
            )
        });
    }

    /// The process ends. If a send queue was full and the program never posted again, the program
    /// assumed a free place.
    pub(crate) fn given_up(&mut self) {
        let mut all: Vec<_> =
            self.qps.iter().filter_map(|(n, qp)| Some((*n, qp, qp.full.as_ref()?))).collect();
        all.sort_by_key(|(number, ..)| *number);
        for (number, qp, full) in all {
            let polled = qp.of.send_cq.and_then(|cq| self.cqs.get(&cq)).map_or(0, |cq| cq.polled);
            let places =
                [("posted", full.place), ("last signaled", full.signaled), ("last polled", polled)];
            self.reporter.say(Code::SendQueueOverposted, &places, || {
                let list = |before: &str, of: Vec<String>| match of.is_empty() {
                    true => String::new(),
                    false => format!("; {before}: {}", of.join(", ")),
                };
                let max = count(qp.of.max_send, "place");
                let full_now = match qp.of.max_send.saturating_sub(qp.sends.posted.len()) {
                    0 => format!("is full (queue pair {number:#x}, {max})"),
                    free => format!("was full (queue pair {number:#x}, {max}, {free} free now)"),
                };
                format!(
                    "the send queue {full_now}: a post failed with ENOMEM as on NICs, and the \
                     program never posted again{}; a polled completion frees the places of its \
                     request and of all earlier requests{}",
                    list(
                        "refused and not posted again",
                        qp.refused.iter().map(|(r, _)| format!("wr_id {:#x}", r.wr_id)).collect()
                    ),
                    list(
                        "the places freed by the last polled completions, in order",
                        full.freed.iter().map(usize::to_string).collect()
                    ),
                )
            });
        }
    }

    /// The result of the post announced by [`Self::posting`].
    pub fn posted(
        &mut self,
        number: u32,
        requests: &[Request],
        refused: Option<&Refused>,
        place: CodeAddress,
    ) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        let taken = refused.map_or(requests.len(), |r| r.taken.min(requests.len()));
        let left = qp.sends.posted.len().saturating_sub(requests.len() - taken);
        let back = qp.sends.posted.split_off(left).iter().filter(|r| r.signaled).count();
        let send_cq = qp.of.send_cq;
        if taken > 0 {
            qp.full = None;
        }
        self.remember(number, &requests[..taken]);
        self.expect_less(send_cq, back);
        let (Some(refused), Some(qp)) = (refused, self.qps.get_mut(&number)) else { return };
        if refused.full {
            qp.taken = requests[..taken].to_vec();
            // A `wr_id` used before comes from a pool, and the pool lacks it if the request is
            // lost.
            if let Some(first) = requests.get(taken)
                && qp.numbers.contains(&first.wr_id)
                && qp.refused.iter().all(|(r, _)| r.wr_id != first.wr_id)
            {
                qp.refused.push((first.clone(), 0));
            }
            self.full(number, place);
        } else {
            self.refused("ibv_post_send", number, &refused.why, place);
        }
    }

    fn refused(&mut self, call: &str, number: u32, why: &str, place: CodeAddress) {
        self.reporter.say(Code::PostRefused, &[("posted", place)], || {
            format!("{call} on queue pair {number:#x} is refused: {why}")
        });
    }

    /// The program fails or hangs: requests that were refused and not posted again may be missing.
    pub(crate) fn lost_requests(&mut self) {
        for (number, qp) in &self.qps {
            // Without a post since, the report of the full queue says the same.
            let told = |since: usize| since == 0 && qp.full.is_some();
            for (lost, since) in qp.refused.iter().filter(|(_, since)| !told(*since)) {
                self.reporter.say(Code::RequestLost, &[("posted", lost.place)], || {
                    format!(
                        "the request with wr_id {:#x} was refused on the full queue pair \
                         {number:#x} (ENOMEM) and not posted again, while {} posted",
                        lost.wr_id,
                        match since {
                            1 => "1 other request was".to_owned(),
                            n => format!("{n} other requests were"),
                        }
                    )
                });
            }
        }
    }

    /// Requests were accepted. Requests refused earlier may be among them, or may be lost.
    fn remember(&mut self, number: u32, taken: &[Request]) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        let patience = 2 * qp.of.max_send.max(4);
        for request in taken {
            qp.refused.retain(|(r, _)| r.wr_id != request.wr_id);
            if qp.numbers.len() < NUMBERS {
                qp.numbers.insert(request.wr_id);
            }
        }
        qp.refused.iter_mut().for_each(|(_, since)| *since += taken.len());
        for (lost, since) in qp.refused.extract_if(.., |(_, since)| *since >= patience) {
            self.reporter.say(Code::RequestLost, &[("posted", lost.place)], || {
                format!(
                    "the request with wr_id {:#x} was refused on the full queue pair {number:#x} \
                     (ENOMEM) and never posted again, while {since} other requests were posted; \
                     the wr_id had been used before, so the request seems to be lost",
                    lost.wr_id
                )
            });
        }
    }

    /// Receives are about to be posted to a queue pair.
    pub fn receiving(
        &mut self,
        number: u32,
        requests: &[Request],
        in_error: bool,
        place: CodeAddress,
    ) {
        requests.iter().for_each(|r| self.look_at(number, r));
        self.in_error(number, requests.len(), in_error, place);
        self.goes_on(number, in_error);
        let Some(qp) = self.qps.get_mut(&number) else { return };
        qp.received.add(requests);
        qp.receives.extend(requests.iter().cloned());
        let cq = qp.of.recv_cq;
        self.expect(cq, requests.len(), place);
    }

    /// The result of the post announced by [`Self::receiving`].
    pub fn received(
        &mut self,
        number: u32,
        posted: usize,
        refused: Option<&Refused>,
        place: CodeAddress,
    ) {
        let Some(refused) = refused else { return };
        let Some(qp) = self.qps.get_mut(&number) else { return };
        let back = posted.saturating_sub(refused.taken);
        qp.receives.truncate(qp.receives.len().saturating_sub(back));
        let recv_cq = qp.of.recv_cq;
        self.expect_less(recv_cq, back);
        if !refused.full {
            self.refused("ibv_post_recv", number, &refused.why, place);
        }
    }

    /// Receives are about to be posted to a shared receive queue.
    pub fn shared_receiving(&mut self, number: u32, requests: &[Request]) {
        requests.iter().for_each(|r| self.look_at(0, r));
        self.shared_goes_on(number);
        let srq = self.srqs.entry(number).or_default();
        srq.received.add(requests);
        srq.receives.extend(requests.iter().cloned());
    }

    /// The post announced by [`Self::shared_receiving`] has refused these receives.
    pub fn shared_refused(&mut self, number: u32, refused: &[Request]) {
        let Some(srq) = self.srqs.get_mut(&number) else { return };
        for request in refused {
            let own = srq.receives.iter().rposition(|r| r == request);
            own.map(|own| srq.receives.remove(own));
        }
    }

    /// A WRITE is about to be posted.
    pub fn writing(&mut self, to: Piece, place: CodeAddress) {
        self.last_write = Some(Written { to, place });
    }

    /// Looks for requests that use bytes which an earlier read or atomic has yet to write.
    fn fences(&mut self, number: u32, requests: &[Request], place: CodeAddress) {
        let Some(qp) = self.qps.get(&number) else { return };
        for (at, request) in requests.iter().enumerate().filter(|(_, r)| !r.writes && !r.fenced) {
            let earlier = qp.sends.posted.iter().chain(&requests[..at]).filter(|r| r.writes);
            let Some(read) = earlier.clone().find(|read| overlap(read, request)) else { continue };
            let places = [("posted", place), ("read posted", read.place)];
            self.reporter.say(Code::ReadNotFenced, &places, || {
                format!(
                    "the request with wr_id {:#x} on queue pair {number:#x} sends bytes that the earlier READ or atomic with wr_id {:#x} has yet to write: without \
                     IBV_SEND_FENCE the device may send the old bytes; set the flag, or poll the \
                     completion of the READ first",
                    request.wr_id, read.wr_id
                )
            });
        }
    }

    fn in_error(&mut self, number: u32, posts: usize, in_error: bool, place: CodeAddress) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        if !in_error {
            (qp.told, qp.in_error) = (false, 0);
            return;
        }
        qp.in_error += if qp.told { posts } else { 0 };
        let (posts, most) = (qp.in_error, 2 * (qp.of.max_send + qp.of.max_recv));
        if posts > most {
            self.reporter.say(Code::PostedInError, &[("posted", place)], || {
                format!(
                    "{posts} requests were posted in the error state of queue pair {number:#x} \
                     after the program had polled a flushed completion: each request is flushed at \
                     once; do not post again after a failed completion"
                )
            });
        }
    }

    /// Counts possible further completions.
    fn expect(&mut self, number: Option<u32>, more: usize, place: CodeAddress) {
        let Some(number) = number else { return };
        let Some(cq) = self.cqs.get_mut(&number) else { return };
        cq.expected += more;
        let (expected, entries) = (cq.expected, cq.entries);
        if expected > entries {
            self.reporter.say(Code::CqTooSmall, &[("made", cq.made), ("posted", place)], || {
                format!(
                    "CQ {number} has {}, and {expected} posted receives and signaled requests may \
                     complete before the next poll: then the CQ overflows, and the CQ and all its \
                     queue pairs fail; make the CQ larger",
                    if entries == 1 { "1 entry".into() } else { format!("{entries} entries") },
                )
            });
        }
    }

    /// So many completions of a CQ have come, or will not come.
    pub(crate) fn expect_less(&mut self, number: Option<u32>, n: usize) {
        if let Some(cq) = number.and_then(|cq| self.cqs.get_mut(&cq)) {
            cq.expected = cq.expected.saturating_sub(n);
        }
    }

    /// Checks a request by itself.
    fn look_at(&mut self, number: u32, request: &Request) {
        let queue = |n: u32| {
            if n == 0 { "a shared receive queue".into() } else { format!("queue pair {n:#x}") }
        };
        for (i, piece) in request.pieces.iter().enumerate() {
            let region = self.regions.get(piece.lkey);
            match region {
                None if piece.length == 0 => {
                    self.reporter.say(Code::ZeroLengthElement, &[("posted", request.place)], || {
                        format!(
                            "element {i} of a request on {} has length 0 and a key, {:#x}, of no \
                             region: some devices check the key, and on some devices length 0 \
                             means 2^31 bytes; leave the element out",
                            queue(number),
                            piece.lkey
                        )
                    });
                }
                Some(region) if !region.holds(piece) && piece.length > 0 => {
                    let places = [("posted", request.place), ("registered", region.place)];
                    let end = |at: u64, length: u64| at.wrapping_add(length);
                    self.reporter.say(Code::OutsideRegion, &places, || {
                        format!(
                            "element {i} of a request on {} is {:#x}..{:#x}, which exceeds the \
                             region of its key {:#x}, {:#x}..{:#x}: the request will fail with a \
                             local protection error",
                            queue(number),
                            piece.addr,
                            end(piece.addr, piece.length.into()),
                            piece.lkey,
                            region.start,
                            end(region.start, region.length)
                        )
                    });
                }
                _ => {}
            }
            if request.writes {
                self.write_to(*piece);
            }
        }
    }
}

/// Do two requests name the same bytes?
fn overlap(a: &Request, b: &Request) -> bool {
    let end = |piece: &Piece| piece.addr.saturating_add(piece.length.into());
    let meet = |a: &Piece, b: &Piece| a.lkey == b.lkey && a.addr < end(b) && b.addr < end(a);
    a.pieces.iter().any(|a| b.pieces.iter().any(|b| meet(a, b)))
}
