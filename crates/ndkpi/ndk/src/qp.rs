//! Queue pairs.
use crate::adapter::AdapterInner;
use crate::cq::{Completing, Cq};
use crate::dispatch::Notified;
use crate::flags::ObjectType;
use crate::object::{Life, Outcome, complete_creation};
use crate::pd::Pd;
use crate::requests::Requests;
use crate::srq::Srq;
use crate::status::{NtStatus, status_of};
use adverb_device::engine::{Access, AttrMask, QpAttr, QpCap, QpState, QpType};
use adverb_device::{AsyncEvent, Qp as DeviceQp, QpInit};
use adverb_sync::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Weak};

mod path;
mod post;

pub(crate) use path::PeerPath;
pub use post::Invalidated;

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpSizes {
    /// Receives queued at a time.
    pub receive_queue_depth: u32,
    /// Initiator requests outstanding at a time: posted, and their completions not read yet; silent
    /// ones until they have left the device's queue.
    pub initiator_queue_depth: u32,
    /// Entries of a receive.
    pub max_receive_request_sge: u32,
    /// Entries of an initiator request.
    pub max_initiator_request_sge: u32,
    /// Bytes of an inline request.
    pub inline_data_size: u32,
}

/// A queue pair.
///
/// The consumer serialises its initiator requests, and its receives; [`Qp::flush`] and the close of
/// the connector may run beside them (NDK-4). Initiator requests need a connection, receives do
/// not.
///
/// Requests with [`OpFlags::DEFER`](crate::OpFlags::DEFER) are staged and handed over by the first
/// request without it, by one that fails in line, or by flush, disconnect and close, which cancel
/// them with completions (DEF-1 … DEF-6).
#[derive(Clone)]
pub struct Qp(pub(crate) Arc<QpInner>);

pub(crate) struct QpInner {
    life: Arc<Life>,
    adapter: Arc<AdapterInner>,
    pd: Pd,
    device: Arc<DeviceQp>,
    requests: Arc<Requests>,
    receive_cq: Cq,
    initiator_cq: Cq,
    sizes: QpSizes,
    has_srq: bool,
    link: AtomicU8,
    /// Told once when the connection fails.
    on_fault: Mutex<Option<Fault>>,
    /// The initiator queue has room in its completion queue for both halves of each read that
    /// invalidates.
    room_for_halves: AtomicBool,
    cookie: usize,
}

type Fault = Box<dyn FnOnce() + Send>;

/// States of the connection.
const UNCONNECTED: u8 = 0;
const CONNECTED: u8 = 1;
const ENDED: u8 = 2;

impl Pd {
    /// Creates a queue pair; `qp_context` is in all its results.
    ///
    /// # Errors
    /// `INVALID_PARAMETER` for sizes beyond the adapter's or queues of another adapter,
    /// `INSUFFICIENT_RESOURCES`, `DELETE_PENDING`; in line or through `completion`.
    pub fn create_qp(
        &self,
        receive_cq: &Cq,
        initiator_cq: &Cq,
        qp_context: u64,
        sizes: QpSizes,
        completion: impl FnOnce(Result<Qp, NtStatus>) + Send + 'static,
    ) -> Result<Outcome<Qp>, NtStatus> {
        let hold = self.hold()?;
        let made = Qp::create(self, receive_cq, initiator_cq, None, qp_context, sizes);
        complete_creation(hold, made, Qp::life, completion)
    }

    /// Creates a queue pair that receives from `srq`; the receive sizes in `sizes` are not looked
    /// at.
    ///
    /// # Errors
    /// As [`Pd::create_qp`].
    pub fn create_qp_with_srq(
        &self,
        receive_cq: &Cq,
        initiator_cq: &Cq,
        srq: &Srq,
        qp_context: u64,
        sizes: QpSizes,
        completion: impl FnOnce(Result<Qp, NtStatus>) + Send + 'static,
    ) -> Result<Outcome<Qp>, NtStatus> {
        let hold = self.hold()?;
        let made = Qp::create(self, receive_cq, initiator_cq, Some(srq), qp_context, sizes);
        complete_creation(hold, made, Qp::life, completion)
    }
}

impl Qp {
    pub(crate) fn create(
        pd: &Pd,
        receive_cq: &Cq,
        initiator_cq: &Cq,
        srq: Option<&Srq>,
        qp_context: u64,
        mut sizes: QpSizes,
    ) -> Result<Qp, NtStatus> {
        if srq.is_some() {
            (sizes.receive_queue_depth, sizes.max_receive_request_sge) = (0, 0);
        }
        let info = pd.adapter().query_info();
        let others = [Some(receive_cq.adapter()), Some(initiator_cq.adapter()), srq.map(Srq::adapter)];
        if others.into_iter().flatten().any(|a| !Arc::ptr_eq(&a.0, &pd.adapter().0)) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        if sizes.initiator_queue_depth > info.max_initiator_queue_depth {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let mut antecedents = vec![pd.hold()?, receive_cq.life().hold()?, initiator_cq.life().hold()?];
        if let Some(srq) = srq {
            antecedents.push(srq.life().hold()?);
        }
        // A read that invalidates takes two places.
        let device_depth = sizes.initiator_queue_depth * 2;
        let init = QpInit {
            qp_type: QpType::Rc,
            cap: QpCap {
                max_send_wr: device_depth,
                max_recv_wr: sizes.receive_queue_depth,
                max_send_sge: sizes.max_initiator_request_sge,
                max_recv_sge: sizes.max_receive_request_sge,
                max_inline_data: sizes.inline_data_size,
            },
            signal_all: false,
            send_cq: Some(initiator_cq.device().clone()),
            recv_cq: Some(receive_cq.device().clone()),
            srq: srq.map(|s| s.device().clone()),
            xrcd: None,
        };
        let device = new_device_qp(pd, &init, &[receive_cq, initiator_cq])?;
        let requests = Arc::new(Requests::new(qp_context, sizes.initiator_queue_depth, device_depth));
        let dispatcher = &pd.adapter().0.dispatcher;
        let inner = Arc::new_cyclic(|me: &Weak<QpInner>| {
            let cookie = dispatcher.register(me.clone());
            device.set_cookie(cookie);
            for cq in [receive_cq, initiator_cq] {
                cq.attach(device.number(), &requests, me.clone());
            }
            QpInner {
                life: pd.adapter().new_life(ObjectType::Qp, antecedents),
                adapter: pd.adapter().0.clone(),
                pd: pd.clone(),
                device,
                requests,
                receive_cq: receive_cq.clone(),
                initiator_cq: initiator_cq.clone(),
                sizes,
                has_srq: srq.is_some(),
                link: AtomicU8::new(UNCONNECTED),
                on_fault: Mutex::new(None),
                room_for_halves: AtomicBool::new(false),
                cookie,
            }
        });
        inner.life.keep(inner.clone());
        Ok(Qp(inner))
    }

    /// Cancels all receives and initiator requests, deferred ones too: they complete with
    /// `CANCELLED`. The connection is of no use any more.
    pub fn flush(&self) {
        self.0.end_link();
    }

    /// Closes it: what is queued is cancelled, and can still be read from the completion queues.
    /// Pending while a connector uses it.
    ///
    /// # Errors
    /// `DELETE_PENDING` for a second close.
    pub fn close(&self, completion: impl FnOnce() + Send + 'static) -> Result<Outcome, NtStatus> {
        if !self.0.life.is_closing() {
            self.0.end_link();
        }
        let me = self.clone();
        self.0.life.close(move || me.0.teardown(), completion)
    }

    pub(crate) fn life(&self) -> &Arc<Life> {
        &self.0.life
    }
    /// The device's queue pair, for connectors.
    pub(crate) fn device(&self) -> &Arc<DeviceQp> {
        &self.0.device
    }

    /// It is connected: initiator requests are taken from now on. `on_fault` is called once when
    /// the connection fails on this side; it may run inside a call of the consumer's and only notes
    /// the fact.
    ///
    /// # Errors
    /// `CONNECTION_INVALID` if it was connected before, flushed or closed.
    pub(crate) fn connected(&self, on_fault: impl FnOnce() + Send + 'static) -> Result<(), NtStatus> {
        // Under the lock, so that a failure right after finds whom to tell.
        let mut told = self.0.on_fault.lock();
        let link = &self.0.link;
        match link.compare_exchange(UNCONNECTED, CONNECTED, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => {
                *told = Some(Box::new(on_fault));
                Ok(())
            }
            Err(_) => Err(NtStatus::CONNECTION_INVALID),
        }
    }

    /// Do its receives come from a shared receive queue?
    pub(crate) fn has_srq(&self) -> bool {
        self.0.has_srq
    }

    /// The connection ended: everything queued is cancelled, and `on_fault` is not called any more.
    pub(crate) fn disconnected(&self) {
        *self.0.on_fault.lock() = None;
        self.0.end_link();
    }
}

/// A queue pair of the device that takes receives, with a number of which nothing is left in the
/// completion queues.
fn new_device_qp(pd: &Pd, init: &QpInit, cqs: &[&Cq]) -> Result<Arc<DeviceQp>, NtStatus> {
    let context = pd.adapter().context();
    let mut spare = Vec::new();
    let device = loop {
        let made = DeviceQp::new(context, Some(pd.device()), init).map_err(|e| status_of(&e))?;
        if !cqs.iter().any(|cq| cq.knows(made.number())) {
            break made;
        }
        spare.push(made);
    };
    for qp in spare {
        qp.destroy().map_err(|e| status_of(&e))?;
    }
    let attr = QpAttr {
        state: QpState::Init,
        port_num: adverb_device::device::PORT,
        access: Access::REMOTE_READ | Access::REMOTE_WRITE,
        ..QpAttr::default()
    };
    let mask = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
    if let Err(e) = device.modify(&attr, mask) {
        device.destroy().map_err(|e| status_of(&e))?;
        return Err(status_of(&e));
    }
    Ok(device)
}

impl QpInner {
    /// Hands over what was deferred and moves to the error state, which cancels everything.
    fn end_link(&self) {
        self.link.store(ENDED, Ordering::SeqCst);
        self.device.commit_sends();
        let attr = QpAttr { state: QpState::Err, ..QpAttr::default() };
        if let Err(e) = self.device.modify(&attr, AttrMask::STATE) {
            log::error!("queue pair {:#08x} cannot be flushed: {e}", self.device.number());
        }
    }

    fn teardown(&self) {
        self.adapter.dispatcher.unregister(self.cookie);
        if let Err(e) = self.device.retire() {
            log::error!("a queue pair does not end: {e}");
        }
        self.requests.closed.store(true, Ordering::SeqCst);
        self.receive_cq.detach();
        self.initiator_cq.detach();
    }
}

impl Completing for QpInner {
    fn failed(&self) {
        if self.link.swap(ENDED, Ordering::SeqCst) != CONNECTED {
            return;
        }
        // What was deferred is cancelled with the rest (DEF-5).
        self.device.commit_sends();
        let fault = self.on_fault.lock().take();
        if let Some(fault) = fault {
            fault();
        }
    }
}

impl Notified for QpInner {
    fn async_event(&self, event: AsyncEvent) {
        if matches!(event, AsyncEvent::QpFatal | AsyncEvent::QpReqErr | AsyncEvent::QpAccessErr) {
            self.failed();
        }
    }
}

impl fmt::Debug for Qp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qp")
            .field("number", &format_args!("{:#08x}", self.0.device.number()))
            .field("life", &self.0.life)
            .finish_non_exhaustive()
    }
}
