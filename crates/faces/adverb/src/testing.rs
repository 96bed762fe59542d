//! An RDMA fabric for tests: two connected ends in one process, over the loopback device. No
//! hardware, no root, no daemon; any number of tests may run at a time.
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

pub use hunt::{Found, Hunt, Survived, World, hunt};

/// How long an [`End`] waits for a completion.
pub const HANG_LIMIT: Duration = Duration::from_secs(20);

/// One end: a queue pair and all it needs, each end with its own.
#[derive(Clone, Debug)]
pub struct End {
    /// The loopback device, opened.
    pub context: Context,
    /// Protection domain.
    pub pd: Pd,
    /// Channel of the completion queue's events.
    pub channel: CompChannel,
    /// Where sends and receives complete; 1024 entries.
    pub cq: Cq,
    /// The queue pair.
    pub qp: Qp,
}

impl End {
    /// An end whose queue pair is made as `build` says and not connected.
    ///
    /// # Errors
    /// What the device refuses.
    pub fn new(build: impl Fn(QpBuilder<'_>) -> QpBuilder<'_>) -> Result<Self> {
        let context = Device::loopback()?.open()?;
        let pd = context.create_pd()?;
        let channel = context.create_channel()?;
        let cq = context.create_cq().entries(1024).channel(&channel).build()?;
        let qp = build(pd.create_qp().cq(&cq)).build()?;
        Ok(End { context, pd, channel, cq, qp })
    }

    /// A zeroed buffer of `len` bytes with all rights.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn buffer(&self, len: usize) -> Result<Buffer> {
        self.pd.create_buffer(len).rights(Rights::ALL).build()
    }

    /// The next completion of this end, which must be a success; waits for it by polling, at most
    /// [`HANG_LIMIT`].
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
/// What the device refuses: without a loopback interface, or when another user's process has UDP
/// port 4791.
pub fn pair() -> Result<(End, End)> {
    pair_with(|qp| qp)
}

/// Two ends whose queue pairs are made as `build` says, connected to each other (UD: left as they
/// are).
///
/// ```
/// let (a, b) = adverb::testing::pair_with(|qp| qp.uc().max_inline(64))?;
/// # assert_eq!((a.qp.qp_type(), b.qp.qp_type()), (adverb::QpType::Uc, adverb::QpType::Uc));
/// # Ok::<(), adverb::Error>(())
/// ```
///
/// # Errors
/// What the device refuses.
pub fn pair_with(build: impl Fn(QpBuilder<'_>) -> QpBuilder<'_>) -> Result<(End, End)> {
    let (a, b) = (End::new(&build)?, End::new(&build)?);
    if a.qp.qp_type() != crate::QpType::Ud {
        a.qp.connect_to(&b.qp.info()?)?;
        b.qp.connect_to(&a.qp.info()?)?;
    }
    Ok((a, b))
}
