//! Protection domains.
use crate::adapter::{Adapter, status_of};
use crate::cq::Cq;
use crate::flags::ObjectType;
use crate::mr::Mr;
use crate::mw::Mw;
use crate::object::{Hold, Life, Outcome, complete_creation};
use crate::qp::{Qp, QpSizes};
use crate::srq::{Srq, SrqNotification};
use crate::status::NtStatus;
use adverb_device::{Mr as DeviceMr, Pd as DevicePd};
use std::sync::Arc;

/// A protection domain.
#[derive(Clone, Debug)]
pub struct Pd(Arc<PdInner>);

#[derive(Debug)]
struct PdInner {
    life: Arc<Life>,
    adapter: Adapter,
    device: Arc<DevicePd>,
    /// A region that opens nothing: its key, which nobody else can have, is the privileged token.
    privileged: Arc<DeviceMr>,
}

impl Pd {
    pub(crate) fn create(adapter: &Adapter) -> Result<Pd, NtStatus> {
        let hold = adapter.hold()?;
        let device = DevicePd::new(adapter.context()).map_err(|e| status_of(&e))?;
        let privileged = device.alloc_null_mr().map_err(|e| status_of(&e))?;
        let life = adapter.new_life(ObjectType::Pd, vec![hold]);
        let inner = Arc::new(PdInner { life, adapter: adapter.clone(), device, privileged });
        inner.life.keep(inner.clone());
        Ok(Pd(inner))
    }

    /// Creates a memory region: for [`Mr::register`], or with `fast_register` for
    /// [`Mr::initialize_fast_register`] and [`Qp::fast_register`].
    ///
    /// # Errors
    /// `DELETE_PENDING`; in line or through `completion`.
    pub fn create_mr(
        &self,
        fast_register: bool,
        completion: impl FnOnce(Result<Mr, NtStatus>) + Send + 'static,
    ) -> Result<Outcome<Mr>, NtStatus> {
        complete_creation(self.hold()?, Mr::create(self, fast_register), Mr::life, completion)
    }

    /// Creates a memory window.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES`, `DELETE_PENDING`; in line or through `completion`.
    pub fn create_mw(
        &self,
        completion: impl FnOnce(Result<Mw, NtStatus>) + Send + 'static,
    ) -> Result<Outcome<Mw>, NtStatus> {
        complete_creation(self.hold()?, Mw::create(self), Mw::life, completion)
    }

    /// Creates a shared receive queue of `depth` receives of up to `max_receive_request_sge`
    /// entries. `notification` is called once when fewer than `notify_threshold` receives are left;
    /// [`Srq::modify`] asks for the next call.
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
    ) -> Result<Outcome<Srq>, NtStatus> {
        let hold = self.hold()?;
        let made = Srq::create(self, depth, max_receive_request_sge, notify_threshold, notification);
        complete_creation(hold, made, Srq::life, completion)
    }

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

    /// The token with which entries of requests name logical addresses of a [`Lam`](crate::Lam),
    /// readable and writable locally, never by a peer.
    #[must_use]
    pub fn get_privileged_memory_region_token(&self) -> u32 {
        self.0.privileged.key()
    }

    /// Closes it: pending while objects of it are open.
    ///
    /// # Errors
    /// `DELETE_PENDING` for a second close.
    pub fn close(&self, completion: impl FnOnce() + Send + 'static) -> Result<Outcome, NtStatus> {
        let me = self.clone();
        self.0.life.close(move || me.0.teardown(), completion)
    }

    pub(crate) fn life(&self) -> &Arc<Life> {
        &self.0.life
    }
    pub(crate) fn hold(&self) -> Result<Hold, NtStatus> {
        self.0.life.hold()
    }
    pub(crate) fn adapter(&self) -> &Adapter {
        &self.0.adapter
    }
    pub(crate) fn device(&self) -> &Arc<DevicePd> {
        &self.0.device
    }
}

impl PdInner {
    fn teardown(&self) {
        self.adapter.0.lams.forget(&self.device);
        if let Err(e) = self.privileged.dereg().and_then(|()| self.device.dealloc()) {
            log::error!("a protection domain does not end: {e}");
        }
    }
}
