//! Completion queues.
use crate::adapter::Adapter;
use crate::dispatch::Notified;
use crate::flags::{NotifyType, ObjectType, OperationType};
use crate::object::{Lifecycle, RequestOutcome, complete_creation};
use crate::requests::Requests;
use crate::results::{NdkResult, NdkResultEx, status_of_completion};
use crate::status::{NtStatus, status_of};
use adverb_device::Cq as DeviceCq;
use adverb_device::engine::cq::arm::ArmKind;
use adverb_device::engine::{Completion, WcFlags, WcOpcode, WcStatus};
use adverb_device::{Sink, device};
use adverb_sync::{Mutex, RwLock};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

pub(crate) type Notification = Box<dyn Fn(NtStatus) + Send + Sync>;

/// A completion queue.
///
/// The consumer must serialise its calls of [`Cq::get_results`], [`Cq::get_results_ex`] and
/// [`Cq::arm`] on one queue.
#[derive(Clone)]
pub struct Cq(Arc<CqInner>);

struct CqInner {
    lifecycle: Arc<Lifecycle>,
    adapter: Adapter,
    device: Arc<DeviceCq>,
    notification: Notification,
    cookie: usize,
    sizes: Mutex<Sizes>,
    /// The queue may receive hidden completions: the second halves of reads that invalidate.
    has_halves: AtomicBool,
    /// The queue pairs that complete here, by number. Includes closed queue pairs as long as their
    /// completions may still be in this queue.
    qps: RwLock<HashMap<u32, Completer>>,
    /// Some of these queue pairs are closed.
    has_closed: AtomicBool,
}

/// The capacity of a queue.
struct Sizes {
    /// The depth that the consumer asked for.
    depth: u32,
    /// Extra entries of the device's queue for the second halves of reads that invalidate, by queue
    /// pair number.
    headroom: HashMap<u32, u32>,
}

impl Sizes {
    /// The depth of the device's queue. At the device's limit there are no extra entries: hidden
    /// completions do not fill a queue of this depth.
    fn device_depth(&self, max: u32) -> u32 {
        self.headroom.values().fold(self.depth, |sum, n| sum.saturating_add(*n)).min(max)
    }
}

/// A queue pair, as its completion queues see it.
pub(crate) trait Completing: Send + Sync {
    /// A request failed, here or at the peer: the connection has ended.
    fn failed(&self);
}

struct Completer {
    requests: Arc<Requests>,
    qp: Weak<dyn Completing>,
}

/// `MAXULONG`: this part of the moderation is not used.
const NO_LIMIT: u32 = u32::MAX;

impl Adapter {
    /// Creates a completion queue of `depth` entries. `notification` is called with the queue's
    /// status, once for each satisfied [`Cq::arm`]. Calls for a queue never overlap (NDK-3).
    ///
    /// # Errors
    /// In line or through `completion`: `INVALID_PARAMETER` for a depth of 0 or beyond the
    /// adapter's limit, `INSUFFICIENT_RESOURCES`, `DELETE_PENDING`.
    pub fn create_cq(
        &self,
        depth: u32,
        notification: impl Fn(NtStatus) + Send + Sync + 'static,
        completion: impl FnOnce(Result<Cq, NtStatus>) + Send + 'static,
    ) -> Result<RequestOutcome<Cq>, NtStatus> {
        // Hold the adapter first. A queue that was made and then refused would keep the adapter
        // from closing.
        let hold = self.hold()?;
        let made = Cq::create(self, depth, Box::new(notification));
        complete_creation(hold, made, Cq::lifecycle, completion)
    }
}

impl Cq {
    pub(crate) fn create(
        adapter: &Adapter,
        depth: u32,
        notification: Notification,
    ) -> Result<Cq, NtStatus> {
        let hold = adapter.hold()?;
        let dispatcher = &adapter.0.dispatcher;
        let sink = Sink::Channel(dispatcher.channel().clone());
        let vector = device::COMP_VECTORS - 1;
        let device = DeviceCq::with_sink(adapter.context(), depth, sink, vector)
            .map_err(|e| status_of(&e))?;
        let lifecycle = adapter.new_lifecycle(ObjectType::Cq, vec![hold]);
        let inner = Arc::new_cyclic(|me: &Weak<CqInner>| {
            let cookie = dispatcher.register(me.clone());
            device.set_cookie(cookie);
            CqInner {
                lifecycle,
                adapter: adapter.clone(),
                device,
                notification,
                cookie,
                sizes: Mutex::new(Sizes { depth, headroom: HashMap::new() }),
                has_halves: AtomicBool::new(false),
                qps: RwLock::default(),
                has_closed: AtomicBool::new(false),
            }
        });
        inner.lifecycle.keep(inner.clone());
        Ok(Cq(inner))
    }

    /// Asks for a single call of the notification callback (NDK-1). A second arm before the first
    /// is satisfied joins the first: the wider of the two types counts. A completion added since
    /// the last callback satisfies the arm at once (NDK-2).
    pub fn arm(&self, notify: NotifyType) {
        let kind = match notify {
            NotifyType::Errors => ArmKind::Errors,
            NotifyType::Any => ArmKind::Next,
            NotifyType::Solicited => ArmKind::Solicited,
        };
        if let Err(e) = self.0.device.arm_fresh(kind) {
            log::warn!("a completion queue cannot be armed: {e}");
        }
    }

    /// Takes up to `results.len()` results, oldest first. Returns their number, or 0 if there are
    /// none. The rest of `results` stays unchanged.
    pub fn get_results(&self, results: &mut [NdkResult]) -> usize {
        self.0.take(results.len(), |i, result| results[i] = result.into())
    }

    /// Like [`Cq::get_results`], with the types of the requests.
    pub fn get_results_ex(&self, results: &mut [NdkResultEx]) -> usize {
        self.0.take(results.len(), |i, result| results[i] = result)
    }

    /// Takes up to `max` results into a vector.
    #[must_use]
    pub fn drain(&self, max: usize) -> Vec<NdkResultEx> {
        let mut results = Vec::new();
        self.0.take(max, |_, result| results.push(result));
        results
    }

    /// Changes the capacity of the queue.
    ///
    /// # Errors
    /// In line or through `completion`: `INVALID_PARAMETER` for a depth of 0, beyond the adapter's
    /// limit, or below the number of waiting completions; `DELETE_PENDING`.
    pub fn resize(
        &self,
        depth: u32,
        completion: impl FnOnce(Result<(), NtStatus>) + Send + 'static,
    ) -> Result<RequestOutcome, NtStatus> {
        let hold = self.0.lifecycle.hold()?;
        hold.complete(self.0.resize(depth), completion)
    }

    /// Delays notifications until `count` completions that satisfy the arm were added, or until
    /// `interval` microseconds after the first of them. `u32::MAX` (`MAXULONG`) disables a part,
    /// and so does a count beyond the queue's depth. An interval of 0, or a count of 0 or 1, ends
    /// the moderation.
    ///
    /// # Errors
    /// `INVALID_PARAMETER_MIX` if both parts are disabled.
    pub fn control_interrupt_moderation(&self, interval: u32, count: u32) -> Result<(), NtStatus> {
        let no_count = count == NO_LIMIT || count > self.0.sizes.lock().depth;
        let (count, period) = match interval {
            NO_LIMIT if no_count => return Err(NtStatus::INVALID_PARAMETER_MIX),
            0 => (0, Duration::ZERO),
            _ if count <= 1 => (0, Duration::ZERO),
            NO_LIMIT => (count, Duration::ZERO),
            _ if no_count => (0, Duration::from_micros(interval.into())),
            _ => (count, Duration::from_micros(interval.into())),
        };
        self.0.device.moderate(count, period).map_err(|e| status_of(&e))
    }

    /// Closes the queue. The close is pending while queue pairs use the queue or its callback runs.
    ///
    /// # Errors
    /// `DELETE_PENDING` for a second close.
    pub fn close(
        &self,
        completion: impl FnOnce() + Send + 'static,
    ) -> Result<RequestOutcome, NtStatus> {
        let me = self.clone();
        self.0.lifecycle.close(move || me.0.teardown(), completion)
    }

    pub(crate) fn lifecycle(&self) -> &Arc<Lifecycle> {
        &self.0.lifecycle
    }
    pub(crate) fn device(&self) -> &Arc<DeviceCq> {
        &self.0.device
    }
    pub(crate) fn adapter(&self) -> &Adapter {
        &self.0.adapter
    }
    /// Makes room for `more` completions of a queue pair that the consumer does not see. The room
    /// stays until the queue pair is forgotten.
    pub(crate) fn add_headroom(&self, qpn: u32, more: u32) -> Result<(), NtStatus> {
        let mut sizes = self.0.sizes.lock();
        let before = sizes.headroom.insert(qpn, more);
        if let Err(status) = self.0.apply(&sizes) {
            match before {
                Some(before) => sizes.headroom.insert(qpn, before),
                None => sizes.headroom.remove(&qpn),
            };
            return Err(status);
        }
        self.0.has_halves.store(true, Ordering::Relaxed);
        Ok(())
    }
    /// Notes that a queue pair of this queue was closed. The queue pair is forgotten when none of
    /// its completions is left.
    pub(crate) fn detach(&self) {
        self.0.has_closed.store(true, Ordering::SeqCst);
    }
    /// May completions of a queue pair with this number still be in the queue?
    pub(crate) fn knows(&self, qpn: u32) -> bool {
        self.0.qps.read().contains_key(&qpn)
    }
    /// Adds a queue pair that completes here.
    pub(crate) fn attach(&self, qpn: u32, requests: &Arc<Requests>, qp: Weak<dyn Completing>) {
        let completer = Completer { requests: requests.clone(), qp };
        self.0.qps.write().insert(qpn, completer);
    }
}

impl CqInner {
    fn take(&self, max: usize, mut put: impl FnMut(usize, NdkResultEx)) -> usize {
        let mut taken = 0;
        let mut failed = Vec::new();
        let qps = self.qps.read();
        let mut completion = |completion: Completion| {
            let completer = qps.get(&completion.qpn);
            if completion.status != WcStatus::Success {
                failed.extend(completer.map(|c| c.qp.clone()));
            }
            if let Some(result) = result_of(completer, &completion) {
                put(taken, result);
                taken += 1;
                return 1;
            }
            0
        };
        let mut left = max;
        loop {
            let (mut seen, mut shown) = (0, 0);
            // An overrun queue is empty. The overrun is reported by the callback, not by a result.
            let _ = self.device.poll(left, |c| {
                seen += 1;
                shown += completion(c);
            });
            left -= shown;
            if seen == shown {
                break;
            }
        }
        // Remove hidden completions at the front. Otherwise an arm would find a new completion in a
        // queue that has none for the consumer.
        while left == 0 && self.front_is_hidden(&qps) {
            let _ = self.device.poll(1, |c| _ = completion(c));
        }
        drop(qps);
        if taken == 0 {
            self.forget_closed();
        }
        // After the lock is released, because the lock of a queue pair is taken before the lock of
        // a queue.
        failed.dedup_by(|a, b| a.ptr_eq(b));
        for qp in failed.iter().filter_map(Weak::upgrade) {
            qp.failed();
        }
        taken
    }

    /// Is the oldest completion hidden from the consumer? Only reads that invalidate have hidden
    /// completions.
    fn front_is_hidden(&self, qps: &HashMap<u32, Completer>) -> bool {
        let mut hidden = false;
        if self.has_halves.load(Ordering::Relaxed) {
            self.device.peek(1, |c| {
                hidden =
                    !is_receive(c) && qps.get(&c.qpn).is_some_and(|q| q.requests.hides(c.wr_id));
            });
        }
        hidden
    }

    fn resize(&self, depth: u32) -> Result<(), NtStatus> {
        if depth == 0 || depth > self.max_depth() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let mut sizes = self.sizes.lock();
        let before = std::mem::replace(&mut sizes.depth, depth);
        self.apply(&sizes).inspect_err(|_| sizes.depth = before)
    }

    fn max_depth(&self) -> u32 {
        self.adapter.context().limits().max_cqe
    }

    /// Resizes the device's queue according to `sizes`.
    fn apply(&self, sizes: &Sizes) -> Result<(), NtStatus> {
        self.device
            .resize(sizes.device_depth(self.max_depth()))
            .map(|_| ())
            .map_err(|e| status_of(&e))
    }

    /// Forgets closed queue pairs if the queue is empty. Then none of their completions is left.
    fn forget_closed(&self) {
        if !self.has_closed.load(Ordering::SeqCst) {
            return;
        }
        let mut qps = self.qps.write();
        // Clear the flag before checking the queue. A queue pair that is closed from here on sets
        // the flag again.
        self.has_closed.store(false, Ordering::SeqCst);
        let closed: Vec<u32> = qps
            .iter()
            .filter(|(_, c)| c.requests.closed.load(Ordering::SeqCst))
            .map(|(n, _)| *n)
            .collect();
        if !self.device.is_empty() {
            self.has_closed.store(true, Ordering::SeqCst);
            return;
        }
        closed.iter().for_each(|qpn| _ = qps.remove(qpn));
        drop(qps);
        let mut sizes = self.sizes.lock();
        let roomy = sizes.headroom.len();
        sizes.headroom.retain(|qpn, _| !closed.contains(qpn));
        // The resize fails only if many completions were added meanwhile. Then the next resize
        // takes the room back.
        if sizes.headroom.len() < roomy && self.apply(&sizes).is_err() {
            log::debug!("a completion queue keeps the room of closed queue pairs");
        }
    }

    fn teardown(&self) {
        self.adapter.0.dispatcher.unregister(self.cookie);
        if let Err(e) = self.device.destroy() {
            log::error!("a completion queue does not end: {e}");
        }
    }
}

fn is_receive(completion: &Completion) -> bool {
    matches!(completion.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm)
}

/// The provider's error code. In a successful completion, other fields share the place of the
/// cause, so the code is 0.
fn provider_code(completion: &Completion) -> u32 {
    if completion.status == WcStatus::Success { 0 } else { completion.vendor_err }
}

/// The result of a completion. `None` if the consumer must not see the completion.
fn result_of(completer: Option<&Completer>, completion: &Completion) -> Option<NdkResultEx> {
    let receive = is_receive(completion);
    let mut result = NdkResultEx {
        status: status_of_completion(completion.status, receive),
        bytes_transferred: 0,
        qp_context: completer.map_or(0, |c| c.requests.qp_context),
        request_context: completion.wr_id,
        operation: OperationType::Receive,
        provider_error_code: provider_code(completion),
        type_specific_completion_output: 0,
    };
    if receive {
        result.bytes_transferred = completion.byte_len;
        if completion.flags.contains(WcFlags::WITH_INV) {
            result.operation = OperationType::ReceiveAndInvalidate;
            result.type_specific_completion_output = completion.imm.into();
        }
    } else {
        (result.request_context, result.operation) =
            completer?.requests.completed(completion.wr_id)?;
    }
    Some(result)
}

impl Notified for CqInner {
    fn cq_event(&self) {
        // No callback begins once a close has begun.
        let Ok(running) = self.lifecycle.hold() else { return };
        self.device.mark_notified();
        let broken = self.device.is_broken();
        (self.notification)(if broken { NtStatus::BUFFER_OVERFLOW } else { NtStatus::SUCCESS });
        drop(running);
    }
}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cq").field("lifecycle", &self.0.lifecycle).finish_non_exhaustive()
    }
}
