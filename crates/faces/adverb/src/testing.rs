//! An RDMA fabric for tests: two connected ends in one process, over the loopback device. No
//! hardware, no root, no daemon. Any number of tests may run at the same time.
//!
//! ```
//! let (a, b) = adverb::testing::pair()?;
//! let inbox = b.buffer(64)?;
//! b.qp.recv(&inbox).post()?;
//! a.qp.send("over the fabric").post()?;
//! let got = b.completion()?;
//! assert_eq!(inbox.to_vec(..got.byte_len())?, b"over the fabric");
//! # Ok::<(), adverb::Error>(())
//! ```
use crate::buffer::{Buffer, Rights};
use crate::completion::Completion;
use crate::cq::CompChannel;
use crate::cq::Cq;
use crate::device::{Context, Device};
use crate::error::Result;
use crate::pd::Pd;
use crate::qp::{Qp, QpBuilder};
use std::time::Duration;

mod hunt;

pub use hunt::{Again, Found, Hunt, Survived, World, hunt};

/// How long an [`Endpoint`] waits for a completion.
pub const HANG_LIMIT: Duration = Duration::from_secs(20);

/// One end: a queue pair and all objects that it needs. Each end has its own objects.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The loopback device, opened.
    pub context: Context,
    /// The protection domain.
    pub pd: Pd,
    /// The channel of the completion queue's events.
    pub channel: CompChannel,
    /// The completion queue of sends and receives, with 1024 entries.
    pub cq: Cq,
    /// The queue pair.
    pub qp: Qp,
}

impl Endpoint {
    /// An end with an unconnected queue pair. `build` sets up the queue pair.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn new(build: impl Fn(QpBuilder<'_>) -> QpBuilder<'_>) -> Result<Self> {
        let context = Device::loopback()?.open()?;
        let pd = context.create_pd()?;
        let channel = context.create_channel()?;
        let cq = context.create_cq().entries(1024).channel(&channel).build()?;
        let qp = build(pd.create_qp().cq(&cq)).build()?;
        Ok(Endpoint { context, pd, channel, cq, qp })
    }

    /// A zeroed buffer of `len` bytes with all rights.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn buffer(&self, len: usize) -> Result<Buffer> {
        self.pd.create_buffer(len).rights(Rights::ALL).build()
    }

    /// Polls until the next completion of this end, for at most [`HANG_LIMIT`]. The request must
    /// have succeeded.
    ///
    /// # Errors
    /// [`Error::Failed`](crate::Error::Failed), [`Error::TimedOut`](crate::Error::TimedOut).
    #[track_caller]
    pub fn completion(&self) -> Result<Completion> {
        self.cq.wait(HANG_LIMIT)?.ok()
    }
}

/// Two ends, reliably connected.
///
/// # Errors
/// The errors of the device: for example, there is no loopback interface, or a process of another
/// user has UDP port 4791.
pub fn pair() -> Result<(Endpoint, Endpoint)> {
    pair_with(|qp| qp)
}

/// Two ends, connected to each other (UD: not connected). `build` sets up the queue pairs.
///
/// ```
/// let (a, b) = adverb::testing::pair_with(|qp| qp.uc().max_inline(64))?;
/// # assert_eq!((a.qp.qp_type(), b.qp.qp_type()), (adverb::QpType::Uc, adverb::QpType::Uc));
/// # Ok::<(), adverb::Error>(())
/// ```
///
/// # Errors
/// The errors of the device.
pub fn pair_with(build: impl Fn(QpBuilder<'_>) -> QpBuilder<'_>) -> Result<(Endpoint, Endpoint)> {
    let (a, b) = (Endpoint::new(&build)?, Endpoint::new(&build)?);
    if a.qp.qp_type() != crate::QpType::Ud {
        a.qp.connect_to(&b.qp.info()?)?;
        b.qp.connect_to(&a.qp.info()?)?;
    }
    Ok((a, b))
}
