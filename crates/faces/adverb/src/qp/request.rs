//! Send requests.
use super::wr::{Op, Wr};
use super::{Batch, Qp};
use crate::ah::Ah;
use crate::data::Data;
use crate::error::{Error, Result};
use crate::sites;
use adverb_device::engine::SendFlags;
use std::panic::Location;
use std::time::{Duration, Instant};

/// A send request that is not posted yet. [`Qp::send`] and the other operations make the request,
/// the methods here complete it, and [`Request::post`] posts it. A request that is dropped before
/// does nothing.
#[derive(Debug)]
#[must_use = "nothing is posted before post()"]
pub struct Request<'t, 'd> {
    target: RequestTarget<'t, 'd>,
    wr: Wr<'d>,
}

/// Where a request goes.
#[derive(Debug)]
pub(super) enum RequestTarget<'t, 'd> {
    Qp(&'t Qp),
    Batch(&'t mut Batch<'d>),
}

impl<'t, 'd> Request<'t, 'd> {
    pub(super) fn new(target: RequestTarget<'t, 'd>, op: Op<'d>, data: Data<'d>) -> Self {
        Request { target, wr: Wr::new(op, data) }
    }

    fn flag(mut self, flag: SendFlags, on: bool) -> Self {
        self.wr.flags.set(flag, on);
        self
    }

    /// Sets the id that the completion carries (0).
    pub fn id(mut self, wr_id: u64) -> Self {
        self.wr.wr_id = wr_id;
        self
    }

    /// Sets whether success makes a completion (yes). A failure always makes a completion. An
    /// unsignaled request leaves its place in the send queue only when a later request completes.
    /// So at least one request in a queue's length must be signaled.
    pub fn signaled(self, yes: bool) -> Self {
        self.flag(SendFlags::SIGNALED, yes)
    }

    /// Asks for an event at a peer that waits for solicited completions. The flag has an effect on
    /// sends and on writes with immediate data.
    pub fn solicited(self) -> Self {
        self.flag(SendFlags::SOLICITED, true)
    }

    /// Makes the request wait until all earlier reads and atomics have completed (IBTA 10.8.3.3).
    pub fn fence(self) -> Self {
        self.flag(SendFlags::FENCE, true)
    }

    /// Copies the data when the request is posted, so the program may reuse the buffer at once. The
    /// length is limited by [`QpBuilder::max_inline`](crate::QpBuilder::max_inline). Plain bytes
    /// are always inline.
    pub fn inline(self) -> Self {
        self.flag(SendFlags::INLINE, true)
    }

    /// Sets the destination of a datagram: address, queue pair number and Q_Key. If the top bit of
    /// the Q_Key is set, the queue pair's own Q_Key is sent instead (IBTA 10.2.5).
    pub fn to(mut self, ah: &Ah, qp_number: u32, qkey: u32) -> Self {
        self.wr.send_to(ah, qp_number, qkey);
        self
    }

    /// Sets the peer's shared receive queue, on XRC ([`Srq::number`](crate::Srq::number)).
    pub fn srq(mut self, number: u32) -> Self {
        self.wr.srq = number;
        self
    }

    /// Posts the request (`ibv_post_send(3)`), or adds it to its batch. On a connection that has
    /// failed, the request is accepted and completes with `WrFlushErr`.
    ///
    /// # Errors
    /// [`Error::NotConnected`], [`Error::QueueFull`], [`Error::RemoteTooShort`],
    /// [`Error::Destination`]. EINVAL with the cause if the transport or the queue pair does not
    /// allow the request. Then nothing was posted.
    #[track_caller]
    pub fn post(self) -> Result<()> {
        self.post_at(Duration::ZERO, Location::caller())
    }

    /// As [`Request::post`], but waits while the queue is full, for at most `patience`. A place
    /// becomes free when a request has completed. Another thread must poll the completions of the
    /// queue pair meanwhile. A batch has room for any number of requests.
    ///
    /// # Errors
    /// As [`Request::post`]; [`Error::QueueFull`] if no place became free in time.
    #[track_caller]
    pub fn post_within(self, patience: Duration) -> Result<()> {
        self.post_at(patience, Location::caller())
    }

    fn post_at(self, patience: Duration, at: &'static Location<'static>) -> Result<()> {
        let qp = match self.target {
            RequestTarget::Qp(qp) => qp,
            RequestTarget::Batch(batch) => {
                batch.push(self.wr);
                return Ok(());
            }
        };
        let post = || self.wr.post(self.wr.wr_id, qp);
        let mut start = None;
        loop {
            let (raw, cq) = (qp.lower(), qp.raw_send_cq());
            match sites::posted(raw, cq, at, post, Error::errno, |refused| refused) {
                Err(Error::QueueFull { .. })
                    if !patience.is_zero()
                        && start.get_or_insert_with(Instant::now).elapsed() < patience =>
                {
                    std::thread::sleep(PAUSE);
                }
                posted => return posted,
            }
        }
    }
}

/// The pause between two attempts at a full queue: about the time of a small request.
const PAUSE: Duration = Duration::from_micros(20);
