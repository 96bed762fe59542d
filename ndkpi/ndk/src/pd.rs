//! Protection domains.
use crate::adapter::Adapter;
use crate::flags::ObjectType;
use crate::object::{Hold, Lifecycle, RequestOutcome, complete_creation};
use crate::status::{NtStatus, status_of};
use adverb_device::{Mr as DeviceMr, Pd as DevicePd};
use std::sync::Arc;

/// A protection domain.
#[derive(Clone, Debug)]
pub struct Pd(Arc<PdInner>);

#[derive(Debug)]
struct PdInner {
    lifecycle: Arc<Lifecycle>,
    adapter: Adapter,
    device: Arc<DevicePd>,
    /// A region that gives no access. Its key is the privileged token, because no other region can
    /// have the same key.
    privileged: Arc<DeviceMr>,
}

impl Adapter {
    /// Creates a protection domain.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES`, `DELETE_PENDING`; in line or through `completion`.
    pub fn create_pd(
        &self,
        completion: impl FnOnce(Result<Pd, NtStatus>) + Send + 'static,
    ) -> Result<RequestOutcome<Pd>, NtStatus> {
        complete_creation(self.hold()?, Pd::create(self), Pd::lifecycle, completion)
    }
}

impl Pd {
    pub(crate) fn create(adapter: &Adapter) -> Result<Pd, NtStatus> {
        let hold = adapter.hold()?;
        let device = DevicePd::new(adapter.context()).map_err(|e| status_of(&e))?;
        let privileged = device.alloc_null_mr().map_err(|e| status_of(&e))?;
        let lifecycle = adapter.new_lifecycle(ObjectType::Pd, vec![hold]);
        let inner = Arc::new(PdInner { lifecycle, adapter: adapter.clone(), device, privileged });
        inner.lifecycle.keep(inner.clone());
        Ok(Pd(inner))
    }

    /// The privileged token. Entries of requests use it with logical addresses of a
    /// [`Lam`](crate::Lam). It allows local reads and writes, and no access by a peer.
    #[must_use]
    pub fn get_privileged_memory_region_token(&self) -> u32 {
        self.0.privileged.key()
    }

    /// Closes the protection domain. The close is pending while objects of the protection domain
    /// are open.
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
    pub(crate) fn hold(&self) -> Result<Hold, NtStatus> {
        self.0.lifecycle.hold()
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
