//! Memory windows.
use crate::flags::ObjectType;
use crate::object::{Lifecycle, RequestOutcome, complete_creation};
use crate::pd::Pd;
use crate::status::{NtStatus, status_of};
use adverb_device::Mw as DeviceMw;
use adverb_device::engine::keys::MwType;
use std::sync::Arc;

/// A memory window. [`Qp::bind`](crate::Qp::bind) binds the window to its queue pair. Before
/// another bind, the window must be invalidated.
#[derive(Clone, Debug)]
pub struct Mw(Arc<MwInner>);

#[derive(Debug)]
struct MwInner {
    lifecycle: Arc<Lifecycle>,
    device: Arc<DeviceMw>,
}

impl Pd {
    /// Creates a memory window.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES`, `DELETE_PENDING`; in line or through `completion`.
    pub fn create_mw(
        &self,
        completion: impl FnOnce(Result<Mw, NtStatus>) + Send + 'static,
    ) -> Result<RequestOutcome<Mw>, NtStatus> {
        complete_creation(self.hold()?, Mw::create(self), Mw::lifecycle, completion)
    }
}

impl Mw {
    pub(crate) fn create(pd: &Pd) -> Result<Mw, NtStatus> {
        let hold = pd.hold()?;
        let device = pd.device().alloc_mw(MwType::Type2).map_err(|e| status_of(&e))?;
        let lifecycle = pd.adapter().new_lifecycle(ObjectType::Mw, vec![hold]);
        let inner = Arc::new(MwInner { lifecycle, device });
        inner.lifecycle.keep(inner.clone());
        Ok(Mw(inner))
    }

    /// The token for the peer's use. Posting a bind changes the token.
    #[must_use]
    pub fn get_remote_token(&self) -> u32 {
        self.0.device.key()
    }

    /// Closes the window and ends its binding.
    ///
    /// # Errors
    /// `DELETE_PENDING` for a second close.
    pub fn close(
        &self,
        completion: impl FnOnce() + Send + 'static,
    ) -> Result<RequestOutcome, NtStatus> {
        let device = self.0.device.clone();
        let teardown = move || {
            if let Err(e) = device.dealloc() {
                log::error!("a memory window does not end: {e}");
            }
        };
        self.0.lifecycle.close(teardown, completion)
    }

    pub(crate) fn lifecycle(&self) -> &Arc<Lifecycle> {
        &self.0.lifecycle
    }
    pub(crate) fn device(&self) -> &Arc<DeviceMw> {
        &self.0.device
    }
}
