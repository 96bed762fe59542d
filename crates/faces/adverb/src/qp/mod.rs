//! Queue pairs.
use crate::ah;
use crate::cq::Cq;
use crate::data::Slices;
use crate::device::Context;
use crate::error::Result;
use crate::handle::{End, Handle};
use crate::pd::Pd;
use crate::sites;
use crate::srq::Srq;
use crate::xrc::Xrcd;
use adverb_device::device::PORT;
use adverb_device::engine::{Access, AttrMask, QpAttr, QpState, QpType, RecvWr};
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

/// A queue pair (IBTA 10.2.4, `ibv_create_qp(3)`). Cheap to clone; destroyed with its last handle.
/// Any number of threads may post.
///
/// Made by [`Pd::create_qp`], it is in INIT, so that receives can be posted at once;
/// [`Qp::connect_to`] or the functions in [`connect`](crate::connect) connect it. A UD queue pair
/// is ready to send when it is made.
///
/// Work that is under way when the queue pair is destroyed is forgotten and makes no completion.
#[derive(Clone, Debug)]
pub struct Qp(Handle<QpInner>);

#[derive(Debug)]
pub struct QpInner {
    qp: Arc<adverb_device::Qp>,
    context: Context,
    send_cq: Option<Cq>,
    recv_cq: Option<Cq>,
    pd: Option<Pd>,
    srq: Option<Srq>,
    _xrcd: Option<Xrcd>,
    settings: Settings,
    /// Index of its GID.
    gid_index: AtomicU8,
    /// Number of the first packet it sends, chosen at random.
    first_psn: AtomicU32,
}

impl End for QpInner {
    const WHAT: &'static str = "the queue pair";
    fn end(&mut self) -> Result<(), adverb_device::Error> {
        self.qp.destroy()
    }
}

/// A packet sequence number that an attacker cannot guess.
fn random_psn() -> u32 {
    // Without any entropy the number is a constant, which is legal.
    getrandom::u32().unwrap_or(0x00ad_0ad0) & 0x00ff_ffff
}

impl Qp {
    /// Where its sends complete.
    fn raw_send_cq(&self) -> Option<&Arc<adverb_device::Cq>> {
        self.0.send_cq.as_ref().map(Cq::raw)
    }
    /// Its number (24 bits).
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.qp.number()
    }
    /// Its transport.
    #[must_use]
    pub fn qp_type(&self) -> QpType {
        self.0.qp.qp_type()
    }
    /// Its state (IBTA 10.3.1).
    #[must_use]
    pub fn state(&self) -> QpState {
        self.0.qp.state()
    }
    /// State and attributes (`ibv_query_qp(3)`).
    #[must_use]
    pub fn attributes(&self) -> QpAttr {
        self.0.qp.query()
    }
    /// The open device.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.0.context
    }
    /// Its protection domain; the receiving half of XRC has none.
    #[must_use]
    pub fn pd(&self) -> Option<&Pd> {
        self.0.pd.as_ref()
    }
    /// Where sends complete; the receiving half of XRC sends nothing.
    #[must_use]
    pub fn send_cq(&self) -> Option<&Cq> {
        self.0.send_cq.as_ref()
    }
    /// Where receives complete; none for XRC.
    #[must_use]
    pub fn recv_cq(&self) -> Option<&Cq> {
        self.0.recv_cq.as_ref()
    }
    /// Where its receives come from, if they are shared.
    #[must_use]
    pub fn srq(&self) -> Option<&Srq> {
        self.0.srq.as_ref()
    }

    /// What a peer must know to connect to it, or (UD) to send to it. It is the same until
    /// [`Qp::reset`] or [`Qp::set_gid_index`].
    ///
    /// # Errors
    /// [`Error::NoAddress`](crate::Error::NoAddress) if the device has no address.
    pub fn info(&self) -> Result<QpInfo> {
        let settings = &self.0.settings;
        let (limits, port_mtu) = (self.0.context.limits(), self.0.context.raw().port_mtu());
        Ok(QpInfo {
            qp_type: self.qp_type(),
            number: self.number(),
            first_psn: self.0.first_psn.load(Ordering::Relaxed),
            gid: self.0.context.gid(self.0.gid_index.load(Ordering::Relaxed))?,
            path_mtu: settings.path_mtu.map_or(port_mtu, |m| m.min(port_mtu)),
            reads_out: settings.reads_out.min(limits.max_rd_atomic),
            reads_in: settings.reads_in.min(limits.max_rd_atomic),
            qkey: settings.qkey,
        })
    }

    /// Chooses the local GID, before it is connected.
    ///
    /// # Errors
    /// EINVAL beyond the GID table, [`Error::NoAddress`](crate::Error::NoAddress) for an empty
    /// entry.
    pub fn set_gid_index(&self, index: u8) -> Result<()> {
        self.0.context.gid(index)?;
        self.0.gid_index.store(index, Ordering::Relaxed);
        Ok(())
    }

    /// Connects it to the queue pair that `peer` describes: INIT, RTR, RTS (`ibv_modify_qp(3)`,
    /// IBTA 10.3.1). The peer does the same with [`Qp::info`] of this one; packets sent before both
    /// have are sent again. The smaller path MTU of the two counts, and reads in flight are as many
    /// as either side takes.
    ///
    /// # Errors
    /// [`ConnectError::Type`](crate::connect::ConnectError::Type) for a queue pair of another kind,
    /// EINVAL naming the attribute for one that is connected, or for addresses of different
    /// families, EADDRINUSE and the like if UDP port 4791 cannot be had. After a failure
    /// [`Qp::reset`] makes it fit to try again.
    pub fn connect_to(&self, peer: &QpInfo) -> Result<()> {
        self.join(&self.info()?, peer, &self.0.settings)
    }

    /// As [`Qp::connect_to`], with what a connection manager has agreed on.
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

    /// Retries of the transport and after RNR that it was made with.
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
        for (attr, mask) in settings.connecting(own, peer, av) {
            self.0.qp.modify(&attr, mask)?;
        }
        Ok(())
    }

    /// RESET to INIT.
    fn to_init(&self) -> Result<()> {
        let settings = &self.0.settings;
        let (attr, mask) = settings.init(self.qp_type());
        Ok(self.0.qp.modify(&attr, mask)?)
    }

    /// INIT to RTS, for datagrams.
    fn activate_ud(&self) -> Result<()> {
        let psn = self.0.first_psn.load(Ordering::Relaxed);
        for (attr, mask) in Settings::activating_ud(psn) {
            self.0.qp.modify(&attr, mask)?;
        }
        Ok(())
    }

    /// Changes attributes one by one, for what the calls above do not offer (`ibv_modify_qp(3)`).
    /// Paths are made by [`Qp::connect_to`].
    ///
    /// # Errors
    /// EINVAL naming the attribute and the rule; nothing was changed then.
    pub fn modify(&self, attr: &QpAttr, mask: AttrMask) -> Result<()> {
        Ok(self.0.qp.modify(attr, mask)?)
    }

    /// Moves it to the error state: requests under way complete with `WrFlushErr`, and so do those
    /// posted afterwards.
    ///
    /// # Errors
    /// EIO in a child of `fork`.
    pub fn disconnect(&self) -> Result<()> {
        self.modify(&QpAttr { state: QpState::Err, ..QpAttr::default() }, AttrMask::STATE)
    }

    /// Forgets all requests and their completions, and begins anew in INIT (UD: RTS) with a new
    /// first packet number, ready to be connected again.
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

    /// Starts a batch: requests that are handed to the device together (`ibv_wr_start(3)`).
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self)
    }

    /// Destroys it now.
    ///
    /// # Errors
    /// [`Error::Busy`](crate::Error::Busy) if other handles of it exist; it goes with the last of
    /// them.
    pub fn destroy(self) -> Result<()> {
        self.0.destroy()
    }

    pub(crate) fn raw(&self) -> &Arc<adverb_device::Qp> {
        &self.0.qp
    }
}

/// The same queue pair?
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
    /// The id that its completion carries (0).
    pub fn id(mut self, wr_id: u64) -> Self {
        self.wr_id = wr_id;
        self
    }

    /// Queues it.
    ///
    /// # Errors
    /// [`Error::QueueFull`](crate::Error::QueueFull); EINVAL for too many pieces, or for a queue
    /// pair with a shared receive queue. It is not queued then.
    #[track_caller]
    pub fn post(self) -> Result<()> {
        let (wr_id, cq) = (self.wr_id, self.qp.0.recv_cq.as_ref().map(Cq::raw));
        sites::received(cq, Location::caller(), || {
            self.slices.with_sges(|sges| Ok(self.qp.raw().post_recv(&RecvWr { wr_id, sges })?))
        })
    }
}

/// All that peers may do, as far as the keys of the memory let them.
const ALL_REMOTE: Access = Access::REMOTE_READ
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::FLUSH_GLOBAL)
    .union(Access::FLUSH_PERSISTENT);
/// The port of the device.
const THE_PORT: u8 = PORT;
