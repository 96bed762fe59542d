//! Queue pairs.
use crate::ah;
use crate::cq::Cq;
use crate::data::Slices;
use crate::device::Context;
use crate::error::Result;
use crate::handle::{Handle, ends};
use crate::pd::Pd;
use crate::sites;
use crate::srq::Srq;
use crate::xrc::Xrcd;
use adverb_device::engine::{AttrMask, QpAttr, QpState, QpType, RecvWr};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

mod async_qp;
mod batch;
mod builder;
mod info;
mod places;
mod request;
mod settings;
mod verbs;
mod wr;

pub use async_qp::{AsyncQp, AsyncRequest, Performing, Posted, Posting};
pub use batch::{Batch, BatchError};
pub use builder::QpBuilder;
pub use info::{InfoError, QpInfo};
pub use request::Request;
pub(crate) use settings::Settings;
pub use wr::Placement;

/// A queue pair (IBTA 10.2.4, `ibv_create_qp(3)`). A queue pair is cheap to clone, and is destroyed
/// with its last handle. Any number of threads may post.
///
/// [`Pd::create_qp`] makes a queue pair in state INIT, so receives can be posted at once.
/// [`Qp::connect_to`] or the functions in [`connect`](crate::connect) connect the queue pair. A UD
/// queue pair is ready to send when it is made.
///
/// If requests are under way when the queue pair is destroyed, they are dropped and make no
/// completion.
#[derive(Clone, Debug)]
pub struct Qp(pub(crate) Handle<QpInner>);

#[derive(Debug)]
pub struct QpInner {
    pub(crate) qp: Arc<adverb_device::Qp>,
    context: Context,
    send_cq: Option<Cq>,
    recv_cq: Option<Cq>,
    pd: Option<Pd>,
    srq: Option<Srq>,
    _xrcd: Option<Xrcd>,
    settings: Settings,
    /// The index of the local GID.
    gid_index: AtomicU8,
    /// The PSN of the first packet to send, chosen at random.
    first_psn: AtomicU32,
}

ends!(QpInner = "the queue pair" by qp.destroy);

/// The transitions from INIT to RTS.
const TO_RTS: [(QpState, QpState); 2] =
    [(QpState::Init, QpState::Rtr), (QpState::Rtr, QpState::Rts)];

/// A packet sequence number that an attacker cannot guess.
fn random_psn() -> u32 {
    // Without a source of entropy the number is a constant, which the protocol allows.
    getrandom::u32().unwrap_or(0x00ad_0ad0) & 0x00ff_ffff
}

impl Qp {
    /// The completion queue of sends.
    fn raw_send_cq(&self) -> Option<&Arc<adverb_device::Cq>> {
        self.0.send_cq.as_ref().map(Cq::lower)
    }
    /// The queue pair number (24 bits).
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.qp.number()
    }
    /// The transport.
    #[must_use]
    pub fn qp_type(&self) -> QpType {
        self.0.qp.qp_type()
    }
    /// The state (IBTA 10.3.1).
    #[must_use]
    pub fn state(&self) -> QpState {
        self.0.qp.state()
    }
    /// The state and the attributes (`ibv_query_qp(3)`).
    #[must_use]
    pub fn attributes(&self) -> QpAttr {
        self.0.qp.query()
    }
    /// The open device.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.0.context
    }
    /// The protection domain. The receiving half of XRC has none.
    #[must_use]
    pub fn pd(&self) -> Option<&Pd> {
        self.0.pd.as_ref()
    }
    /// The completion queue of sends. The receiving half of XRC sends nothing and has none.
    #[must_use]
    pub fn send_cq(&self) -> Option<&Cq> {
        self.0.send_cq.as_ref()
    }
    /// The completion queue of receives. XRC queue pairs have none.
    #[must_use]
    pub fn recv_cq(&self) -> Option<&Cq> {
        self.0.recv_cq.as_ref()
    }
    /// The shared receive queue, if receives come from a shared queue.
    #[must_use]
    pub fn srq(&self) -> Option<&Srq> {
        self.0.srq.as_ref()
    }

    /// What a peer must know to connect to this queue pair, or (UD) to send to it. The value stays
    /// the same until [`Qp::reset`] or [`Qp::set_gid_index`].
    ///
    /// # Errors
    /// [`Error::NoAddress`](crate::Error::NoAddress) if the device has no address.
    pub fn info(&self) -> Result<QpInfo> {
        let settings = &self.0.settings;
        let limits = self.0.context.limits();
        let gid_index = self.0.gid_index.load(Ordering::Relaxed);
        let port_mtu = self.0.context.lower().gid_entry(gid_index.into()).path_mtu();
        Ok(QpInfo {
            qp_type: self.qp_type(),
            number: self.number(),
            first_psn: self.0.first_psn.load(Ordering::Relaxed),
            gid: self.0.context.gid(gid_index)?,
            path_mtu: settings.path_mtu.map_or(port_mtu, |m| m.min(port_mtu)),
            reads_out: settings.reads_out.min(limits.max_rd_atomic),
            reads_in: settings.reads_in.min(limits.max_rd_atomic),
            qkey: settings.qkey,
        })
    }

    /// Chooses the local GID. Call this before the queue pair is connected.
    ///
    /// # Errors
    /// EINVAL beyond the GID table, [`Error::NoAddress`](crate::Error::NoAddress) for an empty
    /// entry.
    pub fn set_gid_index(&self, index: u8) -> Result<()> {
        self.0.context.gid(index)?;
        self.0.gid_index.store(index, Ordering::Relaxed);
        Ok(())
    }

    /// Connects the queue pair to the queue pair that `peer` describes: INIT, RTR, RTS
    /// (`ibv_modify_qp(3)`, IBTA 10.3.1). The peer does the same with [`Qp::info`] of this queue
    /// pair. Packets that leave before both sides are connected are sent again. The connection uses
    /// the smaller path MTU of the two sides, and the smaller number of reads in flight.
    ///
    /// # Errors
    /// - [`ConnectError::Type`](crate::connect::ConnectError::Type) for a queue pair of another
    ///   type.
    /// - EINVAL if the queue pair is connected already, or if the addresses have different
    ///   families. The error names the attribute.
    /// - EADDRINUSE and similar errors if UDP port 4791 cannot be bound.
    ///
    /// After a failure, [`Qp::reset`] makes the queue pair ready for another attempt.
    pub fn connect_to(&self, peer: &QpInfo) -> Result<()> {
        self.join(&self.info()?, peer, &self.0.settings)
    }

    /// As [`Qp::connect_to`], with the values that the connection manager negotiated.
    pub(crate) fn connect_as(
        &self,
        sq_psn: u32,
        peer: &QpInfo,
        retry_count: u8,
        rnr_retry: u8,
    ) -> Result<()> {
        let own = QpInfo { first_psn: sq_psn, ..self.info()? };
        self.join(&own, peer, &Settings { retry_count, rnr_retry, ..self.0.settings.clone() })
    }

    /// The retry counts that the queue pair was made with: of the transport, and after RNR.
    pub(crate) fn retries(&self) -> (u8, u8) {
        (self.0.settings.retry_count, self.0.settings.rnr_retry)
    }

    fn join(&self, own: &QpInfo, peer: &QpInfo, settings: &Settings) -> Result<()> {
        if !own.connects_to(peer) {
            let (own, peer) = (own.qp_type, peer.qp_type);
            return Err(crate::connect::ConnectError::Type { own, peer }.into());
        }
        if self.state() == QpState::Reset {
            self.to_init()?;
        }
        let index = self.0.gid_index.load(Ordering::Relaxed);
        let av = ah::path(&self.0.context, index, peer.gid)?;
        let attr = settings.connecting(own, peer, av);
        TO_RTS.into_iter().try_for_each(|step| self.step(step, attr))
    }

    /// Moves the queue pair from one state to another, with those of the attributes that this
    /// transition needs.
    fn step(&self, (from, state): (QpState, QpState), attr: QpAttr) -> Result<()> {
        let mask = AttrMask::needed(self.qp_type(), from, state);
        self.modify(&QpAttr { state, ..attr }, mask)
    }

    /// Moves the queue pair from RESET to INIT.
    fn to_init(&self) -> Result<()> {
        self.step((QpState::Reset, QpState::Init), self.0.settings.init())
    }

    /// Moves a UD queue pair from INIT to RTS.
    fn activate_ud(&self) -> Result<()> {
        let sq_psn = self.0.first_psn.load(Ordering::Relaxed);
        let attr = QpAttr { sq_psn, ..QpAttr::default() };
        TO_RTS.into_iter().try_for_each(|step| self.step(step, attr))
    }

    /// Changes single attributes, for what the other calls do not offer (`ibv_modify_qp(3)`).
    /// [`Qp::connect_to`] makes paths.
    ///
    /// # Errors
    /// EINVAL with the name of the attribute and the rule; then nothing was changed.
    pub fn modify(&self, attr: &QpAttr, mask: AttrMask) -> Result<()> {
        Ok(self.0.qp.modify(attr, mask)?)
    }

    /// Moves the queue pair to the error state. Requests under way complete with `WrFlushErr`, and
    /// so do requests that are posted afterwards.
    ///
    /// # Errors
    /// EIO in a child of `fork`.
    pub fn disconnect(&self) -> Result<()> {
        self.modify(&QpAttr { state: QpState::Err, ..QpAttr::default() }, AttrMask::STATE)
    }

    /// Drops all requests and their completions. The queue pair is then in INIT (UD: RTS) with a
    /// new first PSN, ready to be connected again.
    ///
    /// # Errors
    /// EIO in a child of `fork`.
    pub fn reset(&self) -> Result<()> {
        self.modify(&QpAttr { state: QpState::Reset, ..QpAttr::default() }, AttrMask::STATE)?;
        self.0.first_psn.store(random_psn(), Ordering::Relaxed);
        self.to_init()?;
        if self.qp_type() == QpType::Ud { self.activate_ud() } else { Ok(()) }
    }

    /// Starts a receive into registered memory (`ibv_post_recv(3)`). On UD the first 40 bytes are
    /// the GRH ([`GRH_LEN`](crate::GRH_LEN)).
    pub fn recv<'a>(&'a self, slices: impl Into<Slices<'a>>) -> Recv<'a> {
        Recv { qp: self, slices: slices.into(), wr_id: 0 }
    }

    /// Starts a batch: requests that the device gets together (`ibv_wr_start(3)`).
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self)
    }

    /// Destroys the queue pair now.
    ///
    /// # Errors
    /// [`Error::Busy`](crate::Error::Busy) if other handles of the queue pair exist. The queue pair
    /// then ends with the last handle.
    pub fn destroy(self) -> Result<()> {
        self.0.destroy()
    }
}

/// Two handles are equal if they name the same queue pair.
impl PartialEq for Qp {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}
impl Eq for Qp {}

/// A receive that is not posted yet.
#[derive(Debug)]
#[must_use = "nothing is posted before post()"]
pub struct Recv<'a> {
    qp: &'a Qp,
    slices: Slices<'a>,
    wr_id: u64,
}

impl Recv<'_> {
    /// Sets the id that the completion carries (0).
    pub fn id(mut self, wr_id: u64) -> Self {
        self.wr_id = wr_id;
        self
    }

    /// Posts the receive.
    ///
    /// # Errors
    /// [`Error::QueueFull`](crate::Error::QueueFull); EINVAL for too many pieces, or for a queue
    /// pair with a shared receive queue. Then the receive is not queued.
    #[track_caller]
    pub fn post(self) -> Result<()> {
        let (wr_id, cq) = (self.wr_id, self.qp.0.recv_cq.as_ref().map(Cq::lower));
        sites::received(cq, Location::caller(), || {
            self.slices.with_sges(|sges| Ok(self.qp.lower().post_recv(&RecvWr { wr_id, sges })?))
        })
    }
}
