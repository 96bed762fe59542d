//! Queue pairs.
use crate::acks::Acks;
use crate::async_event::Subject;
use crate::error::Error;
use crate::faults::Call;
use crate::node::{FramePort, QueuePair, inject};
use crate::objects::comp_counter::CompCounter;
use crate::objects::context::Context;
use crate::objects::cq::Cq;
use crate::objects::multicast::Attachment;
use crate::objects::pd::{Pd, Xrcd};
use crate::objects::raw::{Port, Role};
use crate::objects::srq::Srq;
use crate::ranks;
use adverb_engine::{QpAttr, QpConfig, QpState, QpType};
use adverb_sync::Ranked;
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

mod init;
mod kept;
mod modify;
mod owner;
mod post;

pub use crate::node::{PlainData, PlainOp, PlainPost};
use init::{BOTH, check_init, check_needed};
pub use init::{QpInit, ud_max_message};
pub use post::SendChain;

/// A queue pair.
pub type Qp = QueuePair<QpObject>;

/// The parameters of a queue pair, and its state for the program beside its queues.
#[derive(Debug)]
pub struct QpObject {
    me: Weak<Qp>,
    context: Arc<Context>,
    pd: Option<Arc<Pd>>,
    send_cq: Option<Arc<Cq>>,
    recv_cq: Option<Arc<Cq>>,
    srq: Option<Arc<Srq>>,
    xrcd: Option<Arc<Xrcd>>,
    /// The XRC shared receive queue that last had no receive for a message; 0 for none.
    dry: AtomicU32,
    async_acks: Acks,
    /// A word for the face.
    cookie: AtomicUsize,
    /// Number of handles: one, and one more for each `ibv_open_qp` of an XRC target.
    handles: AtomicUsize,
    /// Multicast groups to which the queue pair is attached.
    pub(crate) attachments: Ranked<Vec<Attachment>, ranks::Attachments>,
    /// The queue pair does not receive its own packets to a group.
    blocks_own: AtomicBool,
    /// The role of a raw packet queue pair.
    pub(crate) role: Option<Role>,
    /// Number of flows to this queue pair.
    pub(crate) flows: AtomicUsize,
}

impl Qp {
    /// Makes a queue pair in RESET.
    ///
    /// # Errors
    /// EINVAL naming the bad or missing argument, ENOMEM when all numbers are in use.
    pub fn new(
        context: &Arc<Context>,
        pd: Option<&Arc<Pd>>,
        init: &QpInit,
    ) -> Result<Arc<Self>, Error> {
        context.fault_call(Call::CreateQp)?;
        if init.qp_type != QpType::RawPacket {
            return Qp::with_role(context, pd, init, None);
        }
        check_needed(pd, init, BOTH)?;
        Qp::with_role(context, pd, init, Some(Role::Pair(Port::of(context)?)))
    }

    /// As [`Qp::new`]; the role decides what a raw packet queue pair needs.
    pub(crate) fn with_role(
        context: &Arc<Context>,
        pd: Option<&Arc<Pd>>,
        init: &QpInit,
        role: Option<Role>,
    ) -> Result<Arc<Self>, Error> {
        context.node().check_alive()?;
        let mut cap = check_init(context, pd, init)?;
        let tag_cq = init.srq.as_ref().and_then(|srq| srq.tag_cq());
        if tag_cq.is_some() {
            crate::node::make_room(init.qp_type, &mut cap)?;
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
        let port = match &role {
            Some(Role::Pair(port)) => Some(port.clone() as Arc<dyn FramePort>),
            _ => None,
        };
        let qp = context.node().add_qp(|qpn| {
            let engine = adverb_engine::Qp::new(QpConfig { qpn, ..config })?
                .with_reorder_memory(&context.node().early)
                .with_frames(longest);
            let own = |me: &Weak<Qp>| QpObject {
                me: me.clone(),
                context: context.clone(),
                pd: pd.cloned(),
                send_cq: init.send_cq.clone(),
                recv_cq: tag_cq.cloned().or_else(|| init.recv_cq.clone()),
                srq: init.srq.clone(),
                xrcd: init.xrcd.clone(),
                dry: AtomicU32::new(0),
                async_acks: Acks::default(),
                cookie: AtomicUsize::new(0),
                handles: AtomicUsize::new(1),
                attachments: Ranked::default(),
                blocks_own: AtomicBool::new(false),
                role,
                flows: AtomicUsize::new(0),
            };
            let faults = inject::of_qp(context.node(), qpn);
            Ok(Arc::new_cyclic(|me| QueuePair::of(engine, faults, port, own(me))))
        })?;
        qp.each_use(|uses| uses.add());
        Ok(qp)
    }

    /// The queue pair no longer receives its own packets to a multicast group
    /// (`IBV_QP_CREATE_BLOCK_SELF_MCAST_LB`).
    pub fn block_own_multicast(&self) {
        self.own.blocks_own.store(true, Ordering::Relaxed);
    }

    /// Opens another handle on an XRC target of the same domain (`ibv_open_qp`).
    ///
    /// # Errors
    /// EINVAL if there is no such target.
    pub fn open(xrcd: &Arc<Xrcd>, number: u32) -> Result<Arc<Self>, Error> {
        let node = xrcd.context().node();
        node.check_alive()?;
        node.qp(number)
            .filter(|qp| qp.qp_type() == QpType::XrcRecv)
            .and_then(|qp| (&qp.own as &dyn Any).downcast_ref::<QpObject>()?.me.upgrade())
            .filter(|qp| qp.own.xrcd.as_ref().is_some_and(|x| Xrcd::same(x, xrcd)))
            .inspect(|qp| {
                qp.own.handles.fetch_add(1, Ordering::SeqCst);
            })
            .ok_or_else(|| {
                Error::invalid(
                    format!("qp_num is {number:#x}"),
                    "no XRC target of this domain has this number",
                )
            })
    }

    fn each_use(&self, f: impl Fn(&crate::uses::Uses)) {
        if let Some(pd) = &self.own.pd {
            f(&pd.uses);
        }
        for cq in [&self.own.send_cq, &self.own.recv_cq].into_iter().flatten() {
            f(&cq.uses);
        }
        if let Some(srq) = &self.own.srq {
            f(&srq.uses);
        }
        if let Some(xrcd) = &self.own.xrcd {
            f(&xrcd.uses);
        }
        if let Some(Role::Spread { over, .. }) = &self.own.role {
            f(over.uses());
        }
    }

    /// The protection domain.
    #[must_use]
    pub fn pd(&self) -> Option<&Arc<Pd>> {
        self.own.pd.as_ref()
    }
    /// The completion queue of requests.
    #[must_use]
    pub fn send_cq(&self) -> Option<&Arc<Cq>> {
        self.own.send_cq.as_ref()
    }
    /// The completion queue of receives.
    #[must_use]
    pub fn recv_cq(&self) -> Option<&Arc<Cq>> {
        self.own.recv_cq.as_ref()
    }
    /// The context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.own.context
    }
    /// The word of the face.
    #[must_use]
    pub fn cookie(&self) -> usize {
        self.own.cookie.load(Ordering::Acquire)
    }
    /// Sets the word of the face.
    pub fn set_cookie(&self, cookie: usize) {
        self.own.cookie.store(cookie, Ordering::Release);
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
    /// The state.
    #[must_use]
    pub fn state(&self) -> QpState {
        self.inner.lock().engine.state()
    }
    /// The engine's counters of the queue pair.
    #[must_use]
    pub fn counters(&self) -> adverb_engine::qp::Counters {
        *self.inner.lock().engine.counters()
    }
    /// The engine's internal state, for a simulator.
    #[cfg(feature = "sim")]
    #[must_use]
    pub fn inside(&self) -> adverb_engine::qp::Inside {
        self.inner.lock().engine.inside()
    }

    /// Attaches a completion counter until the queue pair is destroyed. `ops` has the bits of the
    /// operations to count (`ibv_qp_attach_comp_cntr_op`).
    ///
    /// # Errors
    /// EINVAL in another state than RESET and INIT, ENOTSUP for unknown operations, EBUSY for
    /// operations that already have a counter.
    pub fn attach_counter(&self, counter: &Arc<CompCounter>, ops: u32) -> Result<(), Error> {
        self.own.context.node().check_alive()?;
        let mut inner = self.inner.lock();
        let state = inner.engine.state();
        if !matches!(state, QpState::Reset | QpState::Init) {
            let what = format!("the queue pair is in {state:?}");
            return Err(Error::invalid(what, "RESET or INIT is needed"));
        }
        inner.attached.get_or_insert_default().attach(&counter.counts, ops)?;
        inner.engine.count();
        Ok(())
    }
}

impl Subject for Qp {
    fn async_acks(&self) -> &Acks {
        &self.own.async_acks
    }
}
