//! Queue pairs.
use crate::comp_counter::{Attached, CompCounter};
use crate::context::{AsyncEvent, Context, Element};
use crate::cq::Cq;
use crate::error::Error;
use crate::event_queue::Acks;
use crate::faults::{Call, QpFaults};
use crate::interfaces::ip_of;
use crate::lanes::{Peer, Seen};
use crate::multicast::Attachment;
use crate::node::{Backlog, KeptFrames, Stash, scope_of};
use crate::pd::{Pd, Xrcd};
use crate::raw::{Port, Role};
use crate::srq::Srq;
use adverb_engine::{
    AddressVector, AttrMask, Cause, Completion, PathMtu, Payload, PostError, QpAttr, QpCap, QpConfig,
    QpEvent, QpState, QpType, RecvWr, Rendezvous, SendWr, Time, WcStatus,
};
use adverb_link::Route;
use adverb_link::shm::QpEntry;
use adverb_sync::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What a queue pair is created with.
#[derive(Clone, Debug)]
pub struct QpInit {
    /// Transport.
    pub qp_type: QpType,
    /// Sizes wanted; the device gives at least these.
    pub cap: QpCap,
    /// Every send completes.
    pub signal_all: bool,
    /// CQ of sends; needed but on XRC targets.
    pub send_cq: Option<Arc<Cq>>,
    /// CQ of receives; needed but on XRC.
    pub recv_cq: Option<Arc<Cq>>,
    /// Receives come from here.
    pub srq: Option<Arc<Srq>>,
    /// XRC domain, on XRC targets.
    pub xrcd: Option<Arc<Xrcd>>,
}

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
/// A chain is sent at once when so many requests or bytes wait.
const BATCH: usize = 32;
const BATCH_BYTES: usize = 16 << 10;
/// A datagram queue pair that posts again within this time posts a burst.
const BURST: Duration = Duration::from_micros(10);

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

    /// Changes attributes and state.
    ///
    /// # Errors
    /// EINVAL naming the attribute and the rule; EADDRINUSE and the like if the local address
    /// cannot be opened. Nothing was changed then.
    pub fn modify(&self, attr: &QpAttr, mask: AttrMask) -> Result<(), Error> {
        let node = self.context.node();
        node.check_alive()?;
        node.fault_call(Call::ModifyQp)?;
        if matches!(self.raw, Some(Role::Spread { .. })) {
            let text = "a queue pair that spreads frames over work queues has no state";
            return Err(Error::unsupported(text));
        }
        // Open what packets will arrive on before any can.
        if mask.contains(AttrMask::AV) {
            self.context.open_gid(&attr.av.sgid)?;
            if self.qp_type != QpType::Ud {
                let scope = scope_of(&attr.av.dgid, self.context.device().interface().index);
                node.hear(ip_of(&attr.av.dgid), scope)?;
            }
        }
        if self.qp_type == QpType::Ud && mask.contains(AttrMask::STATE) && attr.state == QpState::Init {
            self.context.open_all()?;
        }
        let peer = self.choose_path(attr, mask);
        if mask.contains(AttrMask::STATE) && matches!(attr.state, QpState::Err | QpState::Reset) {
            self.part_in_peace();
        }
        let limits = self.context.limits_now();
        let result = node.with_tx(|tx| {
            let mut inner = self.inner.lock();
            inner.engine.modify(attr, mask, &limits, node.now(), &mut tx.effects)?;
            if mask.contains(AttrMask::STATE) && attr.state == QpState::Reset {
                self.purge();
                inner.part();
                // What of its earlier life still waits to leave does not leave in the next one.
                inner.backlog.clear();
                inner.rendezvous.clear();
            }
            if let Some(peer) = peer {
                inner.engine.leave_network(peer.mtu());
                inner.long = true;
                inner.peer = Some(peer);
            }
            self.publish(&mut inner);
            node.pump(self, &mut inner, tx);
            Ok(())
        });
        self.settle(attr, mask);
        result
    }

    /// The peer's process, if the queue pair gets connected now and needs no network for it.
    fn choose_path(&self, attr: &QpAttr, mask: AttrMask) -> Option<Arc<Peer>> {
        let connects = mask.contains(AttrMask::STATE | AttrMask::AV | AttrMask::DEST_QPN)
            && attr.state == QpState::Rtr
            && self.qp_type.is_reliable();
        if !connects {
            return None;
        }
        let peer = self.context.node().peer_of(ip_of(&attr.av.dgid), attr.dest_qpn)?;
        peer.connect(self);
        Some(peer)
    }

    /// Lets peers on this host see what they may do with it.
    fn publish(&self, inner: &mut QpInner) {
        let Some(lanes) = &self.context.node().lanes else { return };
        let attr = inner.engine.attr();
        let peer = inner.peer.as_ref().filter(|peer| {
            matches!(attr.state, QpState::Rtr | QpState::Rts | QpState::Sqd)
                && self.qp_type.is_reliable()
                && !peer.is_gone()
        });
        let Some(peer) = peer else { return self.unpublish(inner) };
        // Of an XRC connection nothing is performed but by packets; that it stands is said all the
        // same.
        let counted = inner.attached.as_ref().is_some_and(|a| a.counts_remote());
        let access = if self.qp_type == QpType::Rc && !counted { attr.access.bits() } else { 0 };
        let entry = QpEntry {
            qpn: self.number,
            peer_qpn: attr.dest_qpn,
            peer_nonce: peer.nonce(),
            pd: self.pd.as_ref().map_or(0, |pd| pd.id().0),
            access,
            ready: true,
        };
        // Whoever looks while it is rewritten finds none.
        if inner.shown.as_ref() == Some(&entry) {
            return;
        }
        let _turn = lanes.publishing.lock();
        inner.shown = lanes.published.set_qp(&entry).then_some(entry);
    }

    /// Peers do nothing with it any more; those who do it now are waited for by [`Qp::settle`].
    pub(crate) fn unpublish(&self, inner: &mut QpInner) {
        if let Some(lanes) = self.context.node().lanes.as_ref().filter(|_| inner.is_shown()) {
            let _turn = lanes.publishing.lock();
            lanes.published.remove_qp(self.number);
            inner.shown = None;
        }
    }

    /// Takes it back if the queue pair has failed. Before its program hears of that and uses its
    /// memory for something else.
    #[inline]
    pub(crate) fn publish_failure(&self, inner: &mut QpInner) {
        if inner.is_shown() && inner.engine.state() == QpState::Err {
            self.unpublish(inner);
        }
    }

    /// Before an end: says what is still to be said. An ACK that waits would be lost with the
    /// state, and the peer's request would fail although it was served; a payload that the peer has
    /// still to fetch would be lost, where a network had carried it.
    fn part_in_peace(&self) {
        let node = self.context.node();
        let peer = node.with_tx(|tx| {
            let mut inner = self.inner.lock();
            node.pump(self, &mut inner, tx);
            inner.peer.clone().filter(|_| inner.is_shown())
        });
        if let Some(peer) = peer {
            crate::lanes::let_fetch(&peer, SETTLE);
        }
    }

    /// After an end: waits until no peer is at work through it any more.
    fn settle(&self, attr: &QpAttr, mask: AttrMask) {
        if mask.contains(AttrMask::STATE)
            && matches!(attr.state, QpState::Err | QpState::Reset)
            && let Some(lanes) = &self.context.node().lanes
        {
            lanes.settle(SETTLE);
        }
    }

    fn purge(&self) {
        for cq in [&self.send_cq, &self.recv_cq].into_iter().flatten() {
            cq.purge(self.number);
        }
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

    /// Starts a chain of send requests that is handed over at once (DEF-2).
    ///
    /// # Errors
    /// EIO in a child of `fork`: the queue pair is its parent's.
    pub fn send_chain(&self) -> Result<SendChain<'_>, Error> {
        self.context.node().check_alive()?;
        Ok(SendChain { qp: self, inner: Some(self.inner.lock()) })
    }

    /// Queues a send request without handing it over: [`Qp::commit_sends`] does,
    /// [`Qp::abort_sends`] forgets it.
    ///
    /// # Errors
    /// ENOMEM when the queue is full, EINVAL for a bad request, EIO in a child of `fork`; it is not
    /// queued then.
    pub fn stage_send(&self, wr: &SendWr<'_>) -> Result<(), Error> {
        self.context.node().check_alive()?;
        self.stage(&mut self.inner.lock(), wr)
    }

    /// Hands over everything staged.
    pub fn commit_sends(&self) {
        if self.context.node().is_stale() {
            return;
        }
        self.commit(&mut self.inner.lock());
    }

    /// Queues requests, all of them or none, and hands over everything staged unless `more` are to
    /// follow (DEF-2). On a refusal what was staged before is handed over first (DEF-4). Unlike in
    /// verbs, a queue pair in ERR takes none.
    ///
    /// # Errors
    /// ENOMEM when the queue is full, EINVAL for a bad request or in ERR, EIO in a child of `fork`.
    pub fn post_sends(&self, wrs: &[SendWr<'_>], more: bool) -> Result<(), Error> {
        self.context.node().check_alive()?;
        let mut inner = self.inner.lock();
        let result = self.stage_all(&mut inner, wrs);
        if result.is_err() || !more {
            self.commit(&mut inner);
        }
        result
    }

    /// Forgets everything staged.
    pub fn abort_sends(&self) {
        if self.context.node().is_stale() {
            return;
        }
        self.inner.lock().engine.abort_sends();
    }

    /// Hands over what is staged. It goes out at once, unless the program is in the middle of a
    /// burst: while it polls (so that it, or the background thread within a millisecond, comes by
    /// again) and packets of this queue pair are on their way anyway, requests wait for its next
    /// poll or for [`BATCH`] of them, and leave in one run.
    fn commit(&self, inner: &mut QpInner) {
        let node = self.context.node();
        if node.is_stale() {
            // In a child of `fork` there is neither a socket nor a lane.
            return;
        }
        node.with_tx(|tx| {
            let n = inner.engine.commit_sends(&mut tx.effects);
            self.hunt_committed();
            inner.handovers.0 += u64::from(n > 0);
            inner.handovers.1 += n as u64;
            inner.waiting.0 += n;
            if inner.faults.is_some() {
                node.inject_messages(self, inner, n as u64, &mut tx.effects);
            }
            let small = inner.waiting.0 < BATCH && inner.waiting.1 < BATCH_BYTES;
            if small
                && inner.peer.is_none()
                && tx.effects.is_empty()
                && node.program_polls()
                && self.in_burst(inner, node.now())
            {
                node.pump_soon(self);
            } else {
                node.pump(self, inner, tx);
            }
        });
    }

    fn in_burst(&self, inner: &QpInner, now: Time) -> bool {
        if self.qp_type.is_reliable() {
            inner.engine.has_unacknowledged()
        } else {
            now.since(inner.pumped) < BURST
        }
    }

    /// Queues a receive.
    ///
    /// # Errors
    /// ENOMEM when the queue is full, EINVAL for a bad request; it is not queued then.
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), Error> {
        let node = self.context.node();
        node.check_alive()?;
        node.with_tx(|tx| {
            let mut inner = self.inner.lock();
            inner.engine.post_recv(wr, &mut tx.effects)?;
            node.deliver(self, &mut inner, &mut tx.effects);
            if self.raw.is_some() {
                node.give_kept_frames(self, &mut inner, tx);
            }
            Ok(())
        })
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

    /// Ends the queue pair (or one handle on an XRC target). Work not completed is forgotten,
    /// completions of it are removed from its CQs. Waits until its asynchronous events were
    /// acknowledged.
    ///
    /// # Errors
    /// EINVAL if it was destroyed already.
    pub fn destroy(&self) -> Result<(), Error> {
        self.end(|| self.purge())
    }

    /// As [`Qp::destroy`], but completions stay in its CQs, to be polled (DEF-5). Its number may be
    /// that of another queue pair by then.
    ///
    /// # Errors
    /// EINVAL if it was destroyed already.
    pub fn retire(&self) -> Result<(), Error> {
        self.end(|| ())
    }

    fn end(&self, clean: impl FnOnce()) -> Result<(), Error> {
        let node = self.context.node();
        if node.is_stale() {
            return Ok(());
        }
        match self.handles.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)) {
            Ok(1) => {}
            Ok(_) => return Ok(()),
            Err(_) => return Err(Error::invalid("qp", "the queue pair was destroyed already")),
        }
        self.detach_all();
        // What lies in rings was sent to a queue pair that lived: a NIC would have taken it by now,
        // and said so.
        node.take_what_came();
        self.part_in_peace();
        node.remove_qp(self.number);
        node.with_tx(|tx| {
            let mut inner = self.inner.lock();
            node.pump(self, &mut inner, tx);
            log::debug!("queue pair {:#08x} ends: {:?}", self.number, inner.engine.counters());
            node.keep_counters(&inner);
            let reset = QpAttr { state: QpState::Reset, ..QpAttr::default() };
            // Any state may go to RESET.
            let _ = inner.engine.modify(
                &reset,
                AttrMask::STATE,
                self.context.limits(),
                node.now(),
                &mut tx.effects,
            );
            tx.effects.completions.clear();
            tx.effects.events.clear();
            tx.effects.counted.clear();
            tx.effects.rendezvous.clear();
            inner.rendezvous.clear();
            inner.attached = None;
            self.publish(&mut inner);
            inner.part();
        });
        if let Some(lanes) = &node.lanes {
            lanes.settle(SETTLE);
        }
        clean();
        node.keys.write().release_qp(self.number);
        self.context.forget(|e| matches!(e, Element::Qp(qp) if std::ptr::eq(&raw const **qp, self)));
        self.async_acks.wait_all(|| format!("queue pair {:#08x}", self.number));
        self.each_use(|uses| uses.remove());
        Ok(())
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

impl Qp {
    fn stage(&self, inner: &mut QpInner, wr: &SendWr<'_>) -> Result<(), Error> {
        self.hunt_stage(&inner.engine)?;
        inner.engine.stage_send(wr)?;
        self.hunt_staged(wr.wr_id);
        inner.waiting.1 += match wr.data {
            Payload::Sges(sges) => sges.iter().map(|s| s.length as usize).sum(),
            Payload::Inline(parts) => parts.iter().map(|p| p.len()).sum::<usize>(),
        };
        Ok(())
    }

    /// Stages all requests or none of them. Only everything staged can be taken back, so with more
    /// than one request what was staged before is handed over first.
    fn stage_all(&self, inner: &mut QpInner, wrs: &[SendWr<'_>]) -> Result<(), Error> {
        let state = inner.engine.state();
        if state == QpState::Err {
            return Err(PostError::Invalid(Cause::WrongState { op: "post send", state }).into());
        }
        if wrs.len() > 1 && inner.engine.staged_sends() > 0 {
            self.commit(inner);
        }
        for (i, wr) in wrs.iter().enumerate() {
            if let Err(e) = self.stage(inner, wr) {
                if i > 0 {
                    inner.engine.abort_sends();
                }
                return Err(e);
            }
        }
        Ok(())
    }
}

/// A chain of send requests under the queue pair's lock. Dropped without [`SendChain::commit`],
/// what was staged is forgotten.
pub struct SendChain<'a> {
    qp: &'a Qp,
    inner: Option<MutexGuard<'a, QpInner>>,
}

impl SendChain<'_> {
    /// Queues one.
    ///
    /// # Errors
    /// ENOMEM when the queue is full, EINVAL for a bad request; it is not queued then, earlier ones
    /// stay.
    pub fn stage(&mut self, wr: &SendWr<'_>) -> Result<(), Error> {
        match &mut self.inner {
            Some(inner) => self.qp.stage(inner, wr),
            None => Ok(()),
        }
    }
    /// Hands the chain over.
    pub fn commit(mut self) {
        if let Some(mut inner) = self.inner.take() {
            self.qp.commit(&mut inner);
        }
    }
}

impl Drop for SendChain<'_> {
    fn drop(&mut self) {
        if let Some(inner) = &mut self.inner {
            inner.engine.abort_sends();
        }
    }
}

/// What a queue pair with both queues cannot do without.
fn check_needed(pd: Option<&Arc<Pd>>, init: &QpInit) -> Result<(), Error> {
    let given =
        [("pd", pd.is_some()), ("send_cq", init.send_cq.is_some()), ("recv_cq", init.recv_cq.is_some())];
    match given.iter().find(|(_, given)| !given) {
        Some((what, _)) => Err(Error::invalid(what, format!("a {:?} queue pair needs it", init.qp_type))),
        None => Ok(()),
    }
}

/// Checks what a queue pair is created with and answers the sizes it gets.
fn check_init(context: &Context, pd: Option<&Arc<Pd>>, init: &QpInit) -> Result<QpCap, Error> {
    let limits = context.limits();
    let mut cap = init.cap;
    let missing = |what: &str| Err(Error::invalid(what, format!("a {:?} queue pair needs it", init.qp_type)));
    match init.qp_type {
        QpType::XrcRecv => {
            if init.xrcd.is_none() {
                return missing("xrcd");
            }
            cap = QpCap::default();
        }
        QpType::XrcSend => {
            if pd.is_none() {
                return missing("pd");
            }
            if init.send_cq.is_none() {
                return missing("send_cq");
            }
            cap.max_recv_wr = 0;
            cap.max_recv_sge = 0;
        }
        QpType::RawPacket => {
            if init.srq.is_some() {
                cap.max_recv_wr = 0;
                cap.max_recv_sge = 0;
            }
        }
        QpType::Rc | QpType::Uc | QpType::Ud => {
            check_needed(pd, init)?;
            if init.srq.is_some() {
                cap.max_recv_wr = 0;
                cap.max_recv_sge = 0;
            }
        }
    }
    for (name, value, max) in [
        ("cap.max_send_wr", cap.max_send_wr, limits.max_qp_wr),
        ("cap.max_recv_wr", cap.max_recv_wr, limits.max_qp_wr),
        ("cap.max_send_sge", cap.max_send_sge, limits.max_sge),
        ("cap.max_recv_sge", cap.max_recv_sge, limits.max_sge),
        ("cap.max_inline_data", cap.max_inline_data, limits.max_inline),
    ] {
        if value > max {
            return Err(Error::invalid(format!("{name} is {value}"), format!("at most {max} is possible")));
        }
    }
    Ok(cap)
}

/// The largest message of a UD queue pair of a port.
#[must_use]
pub fn ud_max_message(mtu: PathMtu) -> usize {
    mtu.bytes()
}
