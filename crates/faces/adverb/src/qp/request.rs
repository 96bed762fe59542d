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

/// A send request that is not posted yet: made by [`Qp::send`] and its kin, completed by the
/// methods here, posted by [`Request::post`]. Dropped before, nothing happens.
#[derive(Debug)]
#[must_use = "nothing is posted before post()"]
pub struct Request<'t, 'd> {
    target: Target<'t, 'd>,
    wr: Wr<'d>,
}

/// Where a request goes.
#[derive(Debug)]
pub(super) enum Target<'t, 'd> {
    Qp(&'t Qp),
    Batch(&'t mut Batch<'d>),
}

impl<'t, 'd> Request<'t, 'd> {
    pub(super) fn new(target: Target<'t, 'd>, op: Op<'d>, data: Data<'d>) -> Self {
        Request { target, wr: Wr::new(op, data) }
    }

    fn flag(mut self, flag: SendFlags, on: bool) -> Self {
        self.wr.flags.set(flag, on);
        self
    }

    /// The id that its completion carries (0).
    pub fn id(mut self, wr_id: u64) -> Self {
        self.wr.wr_id = wr_id;
        self
    }

    /// Does its success make a completion (yes)? A failure always does. A silent request leaves its
    /// place in the send queue when a later one completes, so at least one in a queue's length must
    /// not be silent.
    pub fn signaled(self, yes: bool) -> Self {
        self.flag(SendFlags::SIGNALED, yes)
    }

    /// Asks for an event at a peer that waits for solicited completions. Means something on
    /// sends and on writes with immediate data.
    pub fn solicited(self) -> Self {
        self.flag(SendFlags::SOLICITED, true)
    }

    /// Waits until all reads and atomics posted before have completed (IBTA 10.8.3.3).
    pub fn fence(self) -> Self {
        self.flag(SendFlags::FENCE, true)
    }

    /// Copies the data when the request is posted, so that the buffer may be used again at once. At
    /// most what the queue pair was made for
    /// ([`QpBuilder::max_inline`](crate::QpBuilder::max_inline)). Plain bytes are always inline.
    pub fn inline(self) -> Self {
        self.flag(SendFlags::INLINE, true)
    }

    /// Where a datagram goes: address, queue pair number, Q_Key (with its top bit set, the queue
    /// pair's own is sent instead; IBTA 10.2.5).
    pub fn to(mut self, ah: &Ah, qp_number: u32, qkey: u32) -> Self {
        self.wr.send_to(ah, qp_number, qkey);
        self
    }

    /// The peer's shared receive queue, on XRC ([`Srq::number`](crate::Srq::number)).
    pub fn srq(mut self, number: u32) -> Self {
        self.wr.use_srq(number);
        self
    }

    /// Posts it (`ibv_post_send(3)`), or adds it to its batch. On a connection that has failed it
    /// is accepted and completes with `WrFlushErr`.
    ///
    /// # Errors
    /// [`Error::NotConnected`], [`Error::QueueFull`], [`Error::RemoteTooShort`],
    /// [`Error::Destination`]; EINVAL with the cause for what the transport or the queue pair does
    /// not allow. Nothing was posted then.
    #[track_caller]
    pub fn post(self) -> Result<()> {
        let wr = self.wr;
        match self.target {
            Target::Qp(qp) => {
                let (at, cq) = (Location::caller(), qp.raw_send_cq());
                sites::posted(qp.raw(), cq, at, || wr.post(qp), Error::errno, |refused| refused)
            }
            Target::Batch(batch) => {
                batch.push(wr);
                Ok(())
            }
        }
    }

    /// As [`Request::post`], but a full queue is waited for, at most so long: until a request has
    /// completed. Completions of the queue pair are another thread's to poll meanwhile. A batch has
    /// room for any number of requests.
    ///
    /// # Errors
    /// As [`Request::post`]; [`Error::QueueFull`] if no place came free in time.
    #[track_caller]
    pub fn post_within(self, patience: Duration) -> Result<()> {
        let qp = match self.target {
            Target::Qp(qp) => qp,
            Target::Batch(batch) => {
                batch.push(self.wr);
                return Ok(());
            }
        };
        let (at, cq, start) = (Location::caller(), qp.raw_send_cq(), Instant::now());
        loop {
            match sites::posted(qp.raw(), cq, at, || self.wr.post(qp), Error::errno, |refused| refused) {
                Err(Error::QueueFull { .. }) if start.elapsed() < patience => std::thread::sleep(PAUSE),
                posted => return posted,
            }
        }
    }
}

/// Between two looks at a full queue: about what a small request takes.
const PAUSE: Duration = Duration::from_micros(20);
