//! Shared receive queues.
use crate::adapter::Adapter;
use crate::dispatch::Notified;
use crate::flags::ObjectType;
use crate::object::{Lifecycle, RequestOutcome, complete_creation};
use crate::pd::Pd;
use crate::sge::{SgList, Sge};
use crate::status::{NtStatus, status_of};
use adverb_device::engine::RecvWr;
use adverb_device::{AsyncEvent, Srq as DeviceSrq};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// The notification callback of a shared receive queue. Its argument is the queue's status.
pub type SrqNotification = Box<dyn Fn(NtStatus) + Send + Sync>;

/// A shared receive queue. The consumer must serialise its calls of [`Srq::receive`].
#[derive(Clone)]
pub struct Srq(Arc<SrqInner>);

struct SrqInner {
    lifecycle: Arc<Lifecycle>,
    pd: Pd,
    device: Arc<DeviceSrq>,
    notification: Option<SrqNotification>,
    max_sge: u32,
    /// A notification is requested and has not come yet.
    armed: AtomicBool,
    /// The notification comes if fewer receives than this are left.
    threshold: AtomicU32,
    cookie: usize,
    me: Weak<SrqInner>,
}

impl Pd {
    /// Creates a shared receive queue of `depth` receives of up to `max_receive_request_sge`
    /// entries. `notification` is called once when fewer than `notify_threshold` receives are left.
    /// [`Srq::modify`] requests the next call.
    ///
    /// # Errors
    /// `INVALID_PARAMETER` for sizes beyond the adapter's or a threshold above the depth,
    /// `DELETE_PENDING`; in line or through `completion`.
    pub fn create_srq(
        &self,
        depth: u32,
        max_receive_request_sge: u32,
        notify_threshold: u32,
        notification: Option<SrqNotification>,
        completion: impl FnOnce(Result<Srq, NtStatus>) + Send + 'static,
    ) -> Result<RequestOutcome<Srq>, NtStatus> {
        let hold = self.hold()?;
        let made =
            Srq::create(self, depth, max_receive_request_sge, notify_threshold, notification);
        complete_creation(hold, made, Srq::lifecycle, completion)
    }
}

impl Srq {
    pub(crate) fn create(
        pd: &Pd,
        depth: u32,
        max_sge: u32,
        threshold: u32,
        notification: Option<SrqNotification>,
    ) -> Result<Srq, NtStatus> {
        let hold = pd.hold()?;
        let device = DeviceSrq::new(pd.device(), depth, max_sge, threshold, None)
            .map_err(|e| status_of(&e))?;
        let dispatcher = pd.adapter().0.dispatcher.clone();
        let lifecycle = pd.adapter().new_lifecycle(ObjectType::Srq, vec![hold]);
        let inner = Arc::new_cyclic(|me: &Weak<SrqInner>| {
            let cookie = dispatcher.register(me.clone());
            device.set_cookie(cookie);
            SrqInner {
                lifecycle,
                pd: pd.clone(),
                device,
                notification,
                max_sge,
                armed: AtomicBool::new(threshold > 0),
                threshold: AtomicU32::new(threshold),
                cookie,
                me: me.clone(),
            }
        });
        inner.lifecycle.keep(inner.clone());
        Ok(Srq(inner))
    }

    /// Changes the depth (0 keeps the depth), and requests a notification when fewer than
    /// `notify_threshold` receives are left (0 keeps the earlier request). If fewer receives are
    /// already left, the notification comes at once.
    ///
    /// # Errors
    /// In line or through `completion`: `INVALID_PARAMETER` for a depth beyond the adapter's limit
    /// or below the number of queued receives, or for a threshold above the depth;
    /// `DELETE_PENDING`. After an error, nothing has changed.
    pub fn modify(
        &self,
        depth: u32,
        notify_threshold: u32,
        completion: impl FnOnce(Result<(), NtStatus>) + Send + 'static,
    ) -> Result<RequestOutcome, NtStatus> {
        let hold = self.0.lifecycle.hold()?;
        hold.complete(self.0.modify(depth, notify_threshold), completion)
    }

    /// Queues a receive.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES` if the queue is full, `INVALID_PARAMETER` for too many entries,
    /// `ACCESS_VIOLATION` for a logical address that is not mapped. After an error, the receive is
    /// not queued.
    pub fn receive(&self, request_context: u64, sgl: &[Sge<'_>]) -> Result<(), NtStatus> {
        let pd = &self.0.pd;
        let privileged = pd.get_privileged_memory_region_token();
        let list = SgList::new(sgl, self.0.max_sge, pd.device(), privileged, &pd.adapter().0.lams)?;
        let wr = RecvWr { wr_id: request_context, sges: list.entries() };
        self.0.device.post_recv(&wr).map_err(|e| status_of(&e))
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
    pub(crate) fn device(&self) -> &Arc<DeviceSrq> {
        &self.0.device
    }
    pub(crate) fn adapter(&self) -> &Adapter {
        self.0.pd.adapter()
    }
}

impl SrqInner {
    fn modify(&self, depth: u32, threshold: u32) -> Result<(), NtStatus> {
        let wanted = |n: u32| (n > 0).then_some(n);
        // Before the device can report that the limit is reached.
        let before = (self.armed.load(Ordering::SeqCst), self.threshold.load(Ordering::SeqCst));
        if threshold > 0 {
            self.threshold.store(threshold, Ordering::SeqCst);
            self.armed.store(true, Ordering::SeqCst);
        }
        if let Err(e) = self.device.modify(wanted(depth), wanted(threshold)) {
            self.armed.store(before.0, Ordering::SeqCst);
            self.threshold.store(before.1, Ordering::SeqCst);
            return Err(status_of(&e));
        }
        if threshold > 0 && self.device.len() < threshold as usize {
            self.notify();
        }
        Ok(())
    }

    /// Calls the callback on a thread of the adapter, if a notification is requested.
    fn notify(&self) {
        if !self.armed.swap(false, Ordering::SeqCst) || self.notification.is_none() {
            return;
        }
        let (Ok(hold), Some(me)) = (self.lifecycle.hold(), self.me.upgrade()) else { return };
        hold.complete_later(Ok(()), move |_| {
            if let Some(notification) = &me.notification
                && !me.lifecycle.is_closing()
            {
                notification(NtStatus::SUCCESS);
            }
        });
    }

    fn teardown(&self) {
        self.pd.adapter().0.dispatcher.unregister(self.cookie);
        if let Err(e) = self.device.destroy() {
            log::error!("a shared receive queue does not end: {e}");
        }
    }
}

impl Notified for SrqInner {
    fn async_event(&self, event: AsyncEvent) {
        let (_, _, limit) = self.device.attributes();
        // If a limit is set, the queue was armed again meanwhile, and a new event will come.
        if event == AsyncEvent::SrqLimitReached && limit == 0 {
            self.notify();
        }
    }
}

impl fmt::Debug for Srq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Srq").field("lifecycle", &self.0.lifecycle).finish_non_exhaustive()
    }
}
