//! Posting threads. Each stream of requests fills one CQ, or two CQs with sends and receives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use adverb_bench::Result;
use adverb_bench::world::{World, receive, request};
use adverb_device::engine::keys::MwType;
use adverb_device::engine::{Access, SendFlags, SendOp, SendWr, Sge};
use adverb_device::{Cq, Mw, Qp};

use super::track::{Board, Traffic, WINDOW};

/// Depth of each queue.
const DEPTH: u32 = 32;
/// Messages with a multiple of this number ask for a solicited event.
const SOLICITED_EVERY: u64 = 3;
const BYTES: usize = 8;

/// Requests of one kind.
pub struct Stream {
    kind: Kind,
    /// Numbers on the board: the CQ of the requests, and the CQ of the receives. Without receives
    /// both are the same.
    cq: usize,
    recv_cq: usize,
}

enum Kind {
    /// Messages between two connected queue pairs.
    Wire { from: Arc<Qp>, to: Arc<Qp>, out: Sge, back: Sge },
    /// A window of type 1 is bound again and again, by a queue pair connected to itself.
    Bind { qp: Arc<Qp>, mw: Arc<Mw>, mr: u32, addr: u64 },
    /// Requests posted in ERR.
    Flush { qp: Arc<Qp> },
}

/// The streams that fill the CQs of the board. The two ends of a message belong to different
/// channels.
pub fn streams(world: &World, board: &Board) -> Result<Vec<Stream>> {
    let mut streams = Vec::new();
    let receivers: Vec<usize> =
        board.tracks.iter().filter(|t| t.traffic == Traffic::Recv).map(|t| t.index).collect();
    for track in &board.tracks {
        let cq = track.index;
        let (kind, recv_cq) = match track.traffic {
            Traffic::Recv => continue,
            Traffic::Bind => (bind(world, &track.cq)?, cq),
            Traffic::Flush => (flush(world, &track.cq)?, cq),
            Traffic::Send => {
                let place = streams
                    .iter()
                    .filter(|s: &&Stream| matches!(s.kind, Kind::Wire { .. }))
                    .count();
                // Same pace, next channel.
                let of_a_channel =
                    receivers.len() / (board.tracks.last().map_or(0, |t| t.channel) + 1);
                let recv_cq = receivers[(place + of_a_channel) % receivers.len()];
                (wire(world, &track.cq, &board.tracks[recv_cq].cq)?, recv_cq)
            }
        };
        streams.push(Stream { kind, cq, recv_cq });
    }
    Ok(streams)
}

fn wire(world: &World, send_cq: &Arc<Cq>, recv_cq: &Arc<Cq>) -> Result<Kind> {
    let (from, to) = (world.qp(send_cq, send_cq, DEPTH)?, world.qp(recv_cq, recv_cq, DEPTH)?);
    world.connect(&from, to.number())?;
    world.connect(&to, from.number())?;
    Ok(Kind::Wire { from, to, out: world.buffer.sge(0, BYTES), back: world.buffer.sge(64, BYTES) })
}

fn bind(world: &World, cq: &Arc<Cq>) -> Result<Kind> {
    let qp = world.qp(cq, cq, DEPTH)?;
    world.connect(&qp, qp.number())?;
    let mw = world.pd.alloc_mw(MwType::Type1).map_err(|e| format!("window: {e}"))?;
    Ok(Kind::Bind { qp, mw, mr: world.buffer.key(), addr: world.buffer.addr() })
}

fn flush(world: &World, cq: &Arc<Cq>) -> Result<Kind> {
    let qp = world.qp(cq, cq, DEPTH)?;
    world.to_error(&qp)?;
    Ok(Kind::Flush { qp })
}

/// Distributes the streams to some threads.
pub fn parts(streams: Vec<Stream>, threads: usize) -> Vec<Vec<Stream>> {
    let mut parts: Vec<Vec<Stream>> = (0..threads).map(|_| Vec::new()).collect();
    for (n, stream) in streams.into_iter().enumerate() {
        parts[n % threads].push(stream);
    }
    parts
}

/// Posts as far as there is room, stream by stream, until `producing` is false. Returns the
/// streams.
pub fn produce(streams: Vec<Stream>, producing: &AtomicBool, board: &Board) -> Vec<Stream> {
    let mut turn = 0u64;
    while producing.load(Ordering::Relaxed) {
        let mut any = false;
        for stream in &streams {
            turn += 1;
            // Chains of one to four, for single completions and batches.
            match stream.post(board, 1 + turn % 4) {
                Ok(posted) => any |= posted,
                Err(why) => {
                    board.wrong(|| format!("a producer ended: {why}"));
                    return streams;
                }
            }
        }
        if !any {
            std::thread::yield_now();
        }
    }
    for stream in &streams {
        if let Err(why) = stream.finish(board) {
            board.wrong(|| format!("a producer ended: {why}"));
        }
    }
    streams
}

impl Stream {
    /// Destroys the queue pairs of the stream.
    pub fn destroy(self, board: &Board) {
        let qps = match self.kind {
            Kind::Wire { from, to, .. } => vec![from, to],
            Kind::Bind { qp, .. } | Kind::Flush { qp } => vec![qp],
        };
        for qp in qps {
            if let Err(e) = qp.destroy() {
                board.wrong(|| format!("queue pair: destroy: {e}"));
            }
        }
    }

    fn is_wire(&self) -> bool {
        matches!(self.kind, Kind::Wire { .. })
    }

    fn room(&self, board: &Board) -> u64 {
        board.tracks[self.cq].room().min(board.tracks[self.recv_cq].room())
    }

    /// Posts a chain of at most `most` requests, as far as there is room; `false` without room.
    fn post(&self, board: &Board, most: u64) -> Result<bool> {
        let n = self.room(board).min(most);
        if n > 0 {
            self.chain(board, n, false)?;
        }
        Ok(n > 0)
    }

    /// The last message of a stream asks for a solicited event, because earlier messages may lie in
    /// a CQ with an arm for solicited completions.
    fn finish(&self, board: &Board) -> Result<()> {
        let racing = !board.tracks[self.cq].lockstep;
        if self.is_wire() && racing { self.chain(board, 1, true) } else { Ok(()) }
    }

    /// Posts `n` requests with the next numbers, as one hand-over.
    fn chain(&self, board: &Board, n: u64, last: bool) -> Result<()> {
        let (track, receiver) = (&board.tracks[self.cq], &board.tracks[self.recv_cq]);
        let first = track.posted.load(Ordering::Relaxed);
        // Counted first: a completion may be polled before the call returns.
        track.posted.store(first + n, Ordering::Release);
        if let Kind::Wire { to, back, .. } = &self.kind {
            receiver.posted.store(first + n, Ordering::Release);
            (first..first + n).try_for_each(|wr_id| receive(to, wr_id, &[*back]))?;
        }
        let qp = match &self.kind {
            Kind::Wire { from, .. } => from,
            Kind::Bind { qp, .. } | Kind::Flush { qp } => qp,
        };
        let mut chain = qp.send_chain().map_err(|e| format!("chain: {e}"))?;
        for wr_id in first..first + n {
            let full = wr_id + 1 == receiver.polled.load(Ordering::Acquire) + WINDOW;
            let solicited =
                last || full || receiver.lockstep || wr_id.is_multiple_of(SOLICITED_EVERY);
            self.stage(wr_id, solicited, |wr| chain.stage(wr).map_err(|e| format!("stage: {e}")))?;
        }
        chain.commit();
        Ok(())
    }

    fn stage(
        &self,
        wr_id: u64,
        solicited: bool,
        stage: impl FnOnce(&SendWr<'_>) -> Result<()>,
    ) -> Result<()> {
        let signaled = SendFlags::SIGNALED;
        match &self.kind {
            Kind::Wire { out, .. } => {
                let flags = if solicited { signaled | SendFlags::SOLICITED } else { signaled };
                stage(&request(wr_id, flags, SendOp::Send, &[*out]))
            }
            Kind::Bind { mw, mr, addr, .. } => {
                let bind = mw.bind_request(*mr, *addr, BYTES as u64, Access::REMOTE_READ);
                // The next request of the chain binds the window under this key.
                mw.set_key(bind.new_key);
                stage(&request(wr_id, signaled, SendOp::BindMw(bind), &[]))
            }
            Kind::Flush { .. } => stage(&request(wr_id, signaled, SendOp::Send, &[])),
        }
    }
}
