//! Queue pairs.
use crate::comp_counter::{Attached, CompCounter};
use crate::context::{AsyncEvent, Context, Element};
use crate::cq::Cq;
use crate::error::Error;
use crate::event_queue::Acks;
use crate::faults::{Call, QpFaults};
use crate::lanes::{Peer, Seen};
use crate::multicast::Attachment;
use crate::node::{Backlog, KeptFrames, Stash};
use crate::pd::{Pd, Xrcd};
use crate::raw::{Port, Role};
use crate::srq::Srq;
use adverb_engine::{
    AddressVector, Cause, Completion, QpAttr, QpConfig, QpEvent, QpState, QpType, Rendezvous, Time, WcStatus,
};
use adverb_link::Route;
use adverb_link::shm::QpEntry;
use adverb_sync::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

mod init;
mod modify;
mod post;
mod publish;

pub use init::{QpInit, ud_max_message};
use init::{check_init, check_needed};
pub use post::SendChain;

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    me: Weak<Qp>,
    context: Arc<Context>,
    number: u32,
    qp_type: QpType,
    pd: Option<Arc<Pd>>,
    pub(crate) send_cq: Option<Arc<Cq>>,
    pub(crate) recv_cq: Option<Arc<Cq>>,
    pub(crate) srq: Option<Arc<Srq>>,
    pub(crate) xrcd: Option<Arc<Xrcd>>,
    pub(crate) inner: Mutex<QpInner>,
    /// Its entry in the timer queue; `u64::MAX` without one. Changed under the lock of `inner`.
    pub(crate) timer_at: AtomicU64,
    /// Listed among those that wait for the next poll.
    pub(crate) pending: AtomicBool,
    /// Already listed among those that the current batch of packets touched.
    pub(crate) touched: AtomicBool,
    pub(crate) async_acks: Acks,
    cookie: AtomicUsize,
    /// Handles: one, and one more for each `ibv_open_qp` of an XRC target.
    handles: AtomicUsize,
    /// Multicast groups it is attached to.
    pub(crate) attachments: Mutex<Vec<Attachment>>,
    /// What it is, of raw packet queue pairs.
    pub(crate) raw: Option<Role>,
    /// Flows that name it.
    pub(crate) flows: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct QpInner {
    pub(crate) engine: adverb_engine::Qp,
    /// The route of the address vector used last.
    pub(crate) route: Option<(AddressVector, Route)>,
    /// Packets for other processes of this host that wait for these to take earlier ones (UC, UD).
    pub(crate) backlog: Backlog,
    /// Packets of other processes of this host that came before their receive (UC, UD).
    pub(crate) stash: Stash,
    /// Frames that came before their receive.
    pub(crate) frames: KeptFrames,
    /// The last request came from its process directly: the answer goes the same way.
    pub(crate) direct: bool,
    /// Requests handed over and not yet looked at, and their bytes: see [`Qp::commit`].
    pub(crate) waiting: (usize, usize),
    /// Chains of requests handed over, and requests in them (DEF-8).
    pub(crate) handovers: (u64, u64),
    /// When it was pumped last.
    pub(crate) pumped: Time,
    /// The process of its peer, if that needs no network.
    pub(crate) peer: Option<Arc<Peer>>,
    /// A packet of its peer came through a lane.
    pub(crate) heard: bool,
    /// Its messages are cut by the MTU of that lane.
    pub(crate) long: bool,
    /// As what peers on this host see it; they may use it then, and payloads that it only points
    /// at.
    shown: Option<QpEntry>,
    /// What it saw of the peer's tables.
    pub(crate) seen: Seen,
    /// What is to befall it on request.
    pub(crate) faults: Option<QpFaults>,
    /// Its completion counters.
    pub(crate) attached: Option<Box<Attached>>,
    /// What its tag matching SRQ has to read for peers, and has not begun with.
    pub(crate) rendezvous: VecDeque<Rendezvous>,
}

/// How long peers at work in memory of this process are waited for, when a queue pair or a region
/// ends.
pub(crate) const SETTLE: Duration = Duration::from_secs(5);
impl Qp {
    /// Makes a queue pair in RESET.
    ///
    /// # Errors
    /// EINVAL naming the bad or missing argument, ENOMEM when numbers are used up.
    pub fn new(context: &Arc<Context>, pd: Option<&Arc<Pd>>, init: &QpInit) -> Result<Arc<Self>, Error> {
        context.node().check_alive()?;
        context.node().fault_call(Call::CreateQp)?;
        if init.qp_type != QpType::RawPacket {
            return Qp::with_role(context, pd, init, None);
        }
        check_needed(pd, init)?;
        Qp::with_role(context, pd, init, Some(Role::Pair(Port::of(context)?)))
    }

    /// As [`Qp::new`]; what raw packet queue pairs need depends on their role.
    pub(crate) fn with_role(
        context: &Arc<Context>,
        pd: Option<&Arc<Pd>>,
        init: &QpInit,
        raw: Option<Role>,
    ) -> Result<Arc<Self>, Error> {
        context.node().check_alive()?;
        let mut cap = check_init(context, pd, init)?;
        let tag_cq = init.srq.as_ref().and_then(|srq| srq.tag_cq());
        if tag_cq.is_some() {
            crate::rendezvous::make_room(init.qp_type, &mut cap)?;
        }
        let config = QpConfig {
            qpn: 0,
            qp_type: init.qp_type,
            pd: pd.map_or(adverb_engine::PdId(0), |p| p.id()),
            cap,
            signal_all: init.signal_all,
            uses_srq: init.srq.is_some(),
            port_mtu: context.port_mtu(),
            max_inflight: QpConfig::MAX_INFLIGHT,
            counted: false,
        };
        let longest = Port::longest(context);
        let qp = context.node().add_qp(|qpn| {
            Arc::new_cyclic(|me| Qp {
                me: me.clone(),
                context: context.clone(),
                number: qpn,
                qp_type: init.qp_type,
                pd: pd.cloned(),
                send_cq: init.send_cq.clone(),
                recv_cq: tag_cq.cloned().or_else(|| init.recv_cq.clone()),
                srq: init.srq.clone(),
                xrcd: init.xrcd.clone(),
                inner: Mutex::new(QpInner {
                    engine: adverb_engine::Qp::new(QpConfig { qpn, ..config })
                        .with_reorder_memory(&context.node().early)
                        .with_frames(longest),
                    route: None,
                    backlog: Backlog::default(),
                    stash: Stash::default(),
                    frames: KeptFrames::default(),
                    direct: false,
                    waiting: (0, 0),
                    handovers: (0, 0),
                    pumped: Time::ZERO,
                    peer: None,
                    heard: false,
                    long: false,
                    shown: None,
                    seen: Seen::default(),
                    faults: context.node().qp_faults(qpn),
                    attached: None,
                    rendezvous: VecDeque::new(),
                }),
                timer_at: AtomicU64::new(u64::MAX),
                pending: AtomicBool::new(false),
                touched: AtomicBool::new(false),
                async_acks: Acks::default(),
                cookie: AtomicUsize::new(0),
                handles: AtomicUsize::new(1),
                attachments: Mutex::default(),
                raw,
                flows: AtomicUsize::new(0),
            })
        })?;
        qp.each_use(|uses| uses.add());
        Ok(qp)
    }

    /// Another handle on an XRC target of the same domain (`ibv_open_qp`).
    ///
    /// # Errors
    /// EINVAL if there is no such target.
    pub fn open(xrcd: &Arc<Xrcd>, number: u32) -> Result<Arc<Self>, Error> {
        let node = xrcd.context().node();
        node.check_alive()?;
        node.qp(number)
            .filter(|qp| qp.qp_type == QpType::XrcRecv)
            .filter(|qp| qp.xrcd.as_ref().is_some_and(|x| Xrcd::same(x, xrcd)))
            .inspect(|qp| {
                qp.handles.fetch_add(1, Ordering::SeqCst);
            })
            .ok_or_else(|| {
                Error::invalid(
                    format!("qp_num is {number:#x}"),
                    "no XRC target of this domain has that number",
                )
            })
    }

    fn each_use(&self, f: impl Fn(&crate::uses::Uses)) {
        if let Some(pd) = &self.pd {
            f(&pd.uses);
        }
        for cq in [&self.send_cq, &self.recv_cq].into_iter().flatten() {
            f(&cq.uses);
        }
        if let Some(srq) = &self.srq {
            f(&srq.uses);
        }
        if let Some(xrcd) = &self.xrcd {
            f(&xrcd.uses);
        }
        if let Some(Role::Spread { table, .. }) = &self.raw {
            f(table.uses());
        }
    }

    /// A reference to itself; none while it is being dropped.
    pub(crate) fn me(&self) -> Option<Arc<Qp>> {
        self.me.upgrade()
    }
    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }
    /// Its transport.
    #[must_use]
    pub fn qp_type(&self) -> QpType {
        self.qp_type
    }
    /// Its protection domain.
    #[must_use]
    pub fn pd(&self) -> Option<&Arc<Pd>> {
        self.pd.as_ref()
    }
    /// The context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
    /// The face's own word.
    #[must_use]
    pub fn cookie(&self) -> usize {
        self.cookie.load(Ordering::Acquire)
    }
    /// Sets the face's own word.
    pub fn set_cookie(&self, cookie: usize) {
        self.cookie.store(cookie, Ordering::Release);
    }

    /// State and attributes.
    #[must_use]
    pub fn query(&self) -> QpAttr {
        self.inner.lock().engine.query()
    }
    /// Does every send complete?
    #[must_use]
    pub fn signals_all(&self) -> bool {
        self.inner.lock().engine.config().signal_all
    }
    /// Its state.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.inner.lock().engine.state()
    }
    /// What the engine counted for it.
    #[must_use]
    pub fn counters(&self) -> adverb_engine::qp::Counters {
        *self.inner.lock().engine.counters()
    }

    /// Has operations of it counted, those whose bits are in `ops` (`ibv_qp_attach_comp_cntr_op`),
    /// until it is destroyed.
    ///
    /// # Errors
    /// EINVAL in another state than RESET and INIT, ENOTSUP for operations that are not known,
    /// EBUSY for those that have a counter.
    pub fn attach_counter(&self, counter: &Arc<CompCounter>, ops: u32) -> Result<(), Error> {
        self.context.node().check_alive()?;
        let mut inner = self.inner.lock();
        let state = inner.engine.state();
        if !matches!(state, QpState::Reset | QpState::Init) {
            return Err(Error::invalid(format!("the queue pair is in {state:?}"), "RESET or INIT is needed"));
        }
        inner.attached.get_or_insert_default().attach(counter, ops)?;
        inner.engine.count();
        Ok(())
    }

    pub(crate) fn raise(&self, event: QpEvent) {
        let kind = match event {
            QpEvent::Fatal(_) => AsyncEvent::QpFatal,
            QpEvent::ReqErr(_) => AsyncEvent::QpReqErr,
            QpEvent::AccessErr(_) => AsyncEvent::QpAccessErr,
            QpEvent::CommEst => AsyncEvent::CommEst,
            QpEvent::SqDrained => AsyncEvent::SqDrained,
            QpEvent::LastWqeReached => AsyncEvent::QpLastWqeReached,
        };
        if let Some(me) = self.me.upgrade() {
            self.context.raise(kind, Element::Qp(me));
        }
    }

    pub(crate) fn log_failure(&self, completion: &Completion, cause: &Cause) {
        let level =
            if completion.status == WcStatus::WrFlushErr { log::Level::Debug } else { log::Level::Warn };
        log::log!(
            level,
            "queue pair {:#08x}: {:?} completes with {:?} (wr_id {:#x}): {cause}",
            self.number,
            completion.opcode,
            completion.status,
            completion.wr_id
        );
    }
}

impl QpInner {
    /// Peers on this host see it.
    pub(crate) fn is_shown(&self) -> bool {
        self.shown.is_some()
    }

    /// Nothing of a peer is kept: neither its memory, nor what its tables said, which the next
    /// one's may number alike, nor packets that came before their receive.
    fn part(&mut self) {
        self.stash.clear();
        self.frames.clear();
        self.peer = None;
        self.heard = false;
        self.long = false;
        self.seen = Seen::default();
    }
}
