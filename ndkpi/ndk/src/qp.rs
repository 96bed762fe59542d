//! Queue pairs.
use crate::adapter::AdapterInner;
use crate::cq::{Completing, Cq};
use crate::dispatch::Notified;
use crate::flags::ObjectType;
use crate::object::{Lifecycle, RequestOutcome, complete_creation};
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
    /// Maximum number of queued receives.
    pub receive_queue_depth: u32,
    /// Maximum number of outstanding initiator requests. A request is outstanding until its
    /// completion is read. A silent request is outstanding until it has left the device's queue.
    pub initiator_queue_depth: u32,
    /// Maximum number of entries of a receive.
    pub max_receive_request_sge: u32,
    /// Maximum number of entries of an initiator request.
    pub max_initiator_request_sge: u32,
    /// Maximum size of an inline request, in bytes.
    pub inline_data_size: u32,
}

/// A queue pair.
///
/// The consumer must serialise its initiator requests, and its receives. [`Qp::flush`] and the
/// close of the connector may run at the same time (NDK-4). Initiator requests need a connection.
/// Receives do not.
///
/// Requests with [`OpFlags::DEFER`](crate::OpFlags::DEFER) are staged. They are committed by the
/// first request without the flag, or by a request that fails in line. Flush, disconnect and close
/// also commit them, and cancel them with completions (DEF-1 … DEF-6).
#[derive(Clone)]
pub struct Qp(pub(crate) Arc<QpInner>);

pub(crate) struct QpInner {
    lifecycle: Arc<Lifecycle>,
    adapter: Arc<AdapterInner>,
    pd: Pd,
    device: Arc<DeviceQp>,
    requests: Arc<Requests>,
    receive_cq: Cq,
    initiator_cq: Cq,
    sizes: QpSizes,
    has_srq: bool,
    link: AtomicU8,
    /// Called once when the connection fails.
    on_fault: Mutex<Option<Fault>>,
    /// The completion queue of initiator requests has room for both halves of each read that
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
    /// Creates a queue pair. All its results contain `qp_context`.
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
    ) -> Result<RequestOutcome<Qp>, NtStatus> {
        let hold = self.hold()?;
        let made = Qp::create(self, receive_cq, initiator_cq, None, qp_context, sizes);
        complete_creation(hold, made, Qp::lifecycle, completion)
    }

    /// Creates a queue pair that receives from `srq`. The receive sizes in `sizes` are ignored.
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
    ) -> Result<RequestOutcome<Qp>, NtStatus> {
        let hold = self.hold()?;
        let made = Qp::create(self, receive_cq, initiator_cq, Some(srq), qp_context, sizes);
        complete_creation(hold, made, Qp::lifecycle, completion)
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
        let others =
            [Some(receive_cq.adapter()), Some(initiator_cq.adapter()), srq.map(Srq::adapter)];
        if others.into_iter().flatten().any(|a| !Arc::ptr_eq(&a.0, &pd.adapter().0)) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        if sizes.initiator_queue_depth > info.max_initiator_queue_depth {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let mut antecedents =
            vec![pd.hold()?, receive_cq.lifecycle().hold()?, initiator_cq.lifecycle().hold()?];
        if let Some(srq) = srq {
            antecedents.push(srq.lifecycle().hold()?);
        }
        // A read that invalidates takes two entries of the device's queue.
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
        let requests =
            Arc::new(Requests::new(qp_context, sizes.initiator_queue_depth, device_depth));
        let dispatcher = &pd.adapter().0.dispatcher;
        let inner = Arc::new_cyclic(|me: &Weak<QpInner>| {
            let cookie = dispatcher.register(me.clone());
            device.set_cookie(cookie);
            for cq in [receive_cq, initiator_cq] {
                cq.attach(device.number(), &requests, me.clone());
            }
            QpInner {
                lifecycle: pd.adapter().new_lifecycle(ObjectType::Qp, antecedents),
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
        inner.lifecycle.keep(inner.clone());
        Ok(Qp(inner))
    }

    /// Cancels all receives and initiator requests, including deferred requests: they complete with
    /// `CANCELLED`. The connection cannot be used any more.
    pub fn flush(&self) {
        self.0.end_link();
    }

    /// Closes the queue pair. Queued requests are cancelled, and their completions can still be
    /// read from the completion queues. The close is pending while a connector uses the queue pair.
    ///
    /// # Errors
    /// `DELETE_PENDING` for a second close.
    pub fn close(
        &self,
        completion: impl FnOnce() + Send + 'static,
    ) -> Result<RequestOutcome, NtStatus> {
        if !self.0.lifecycle.is_closing() {
            self.0.end_link();
        }
        let me = self.clone();
        self.0.lifecycle.close(move || me.0.teardown(), completion)
    }

    pub(crate) fn lifecycle(&self) -> &Arc<Lifecycle> {
        &self.0.lifecycle
    }
    /// The device's queue pair, for connectors.
    pub(crate) fn device(&self) -> &Arc<DeviceQp> {
        &self.0.device
    }

    /// Marks the queue pair as connected: from now on, initiator requests are accepted. `on_fault`
    /// is called once when the connection fails on this side. `on_fault` may run inside a call of
    /// the consumer, so it only notes the failure.
    ///
    /// # Errors
    /// `CONNECTION_INVALID` if the queue pair was connected before, flushed or closed.
    pub(crate) fn connected(
        &self,
        on_fault: impl FnOnce() + Send + 'static,
    ) -> Result<(), NtStatus> {
        // Under the lock, so that a failure right after the exchange finds `on_fault`.
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

    /// Does the queue pair receive from a shared receive queue?
    pub(crate) fn has_srq(&self) -> bool {
        self.0.has_srq
    }

    /// Ends the connection: everything queued is cancelled, and `on_fault` is not called any more.
    pub(crate) fn disconnected(&self) {
        *self.0.on_fault.lock() = None;
        self.0.end_link();
    }
}

/// Makes a queue pair of the device that accepts receives. Its number is not used by any completion
/// that is still in the completion queues.
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
    /// Commits deferred requests and moves to the error state, which cancels everything.
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
            .field("lifecycle", &self.0.lifecycle)
            .finish_non_exhaustive()
    }
}
