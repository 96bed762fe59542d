//! Adapters.
use crate::connect::Network;
use crate::dispatch::{Dispatcher, PendingMode, in_callback};
use crate::flags::ObjectType;
use crate::info::AdapterInfo;
use crate::lam::{Lam, Lams};
use crate::mdl::Mdl;
use crate::object::{Hold, Lifecycle, RequestOutcome};
use crate::status::NtStatus;
use crate::version::Version;
use adverb_device::{Context, Device};
use std::sync::Arc;

/// The options with which an adapter is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Config {
    /// Which requests complete through their callbacks.
    pub pending: PendingMode,
    /// The NDKPI version that the consumer uses.
    pub version: Version,
}

/// An adapter: an open device with the threads that run its callbacks.
#[derive(Clone, Debug)]
pub struct Adapter(pub(crate) Arc<AdapterInner>);

#[derive(Debug)]
pub(crate) struct AdapterInner {
    pub(crate) context: Arc<Context>,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) lams: Lams,
    /// The worker for connections.
    pub(crate) network: Network,
}

impl Adapter {
    /// Opens an adapter on a device.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES` if the system has no descriptors or threads left, or if the device
    /// cannot be opened.
    pub fn open(device: &Arc<Device>, config: Config) -> Result<Adapter, NtStatus> {
        let context = device.open().map_err(|e| {
            log::error!("adapter {}: {e}", device.name());
            NtStatus::INSUFFICIENT_RESOURCES
        })?;
        let dispatcher = Dispatcher::start(&context, config.pending, config.version)?;
        let lifecycle = Lifecycle::new(ObjectType::Adapter, &dispatcher, Vec::new());
        Ok(Adapter(Arc::new(AdapterInner {
            context,
            dispatcher,
            lifecycle,
            lams: Lams::default(),
            network: Network::default(),
        })))
    }

    /// The open device.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.0.context
    }

    /// Limits and properties (`NdkQueryAdapterInfo`).
    #[must_use]
    pub fn query_info(&self) -> AdapterInfo {
        AdapterInfo::of(&self.0.context, self.lifecycle().version())
    }

    /// Maps the first `length` bytes of `mdl` for the adapter, and returns the logical addresses of
    /// the pages. The memory stays mapped until [`Adapter::release_lam`].
    ///
    /// # Errors
    /// `INVALID_PARAMETER` if the list is shorter or not contiguous, `DELETE_PENDING`; in line or
    /// through `completion`.
    pub fn build_lam(
        &self,
        mdl: &Mdl,
        length: u64,
        completion: impl FnOnce(Result<Lam, NtStatus>) + Send + 'static,
    ) -> Result<RequestOutcome<Lam>, NtStatus> {
        let hold = self.hold()?;
        let lam = self.0.lams.build(mdl, length);
        hold.complete(lam, completion)
    }

    /// Ends a mapping. Its logical addresses give no access any more. Requests that use them must
    /// have completed.
    pub fn release_lam(&self, lam: &Lam) {
        self.0.lams.release(lam);
    }

    /// Closes the adapter. Waits until all objects of the adapter are closed and all callbacks have
    /// returned.
    ///
    /// # Errors
    /// `POSSIBLE_DEADLOCK` from inside a callback, because the close would wait for that callback.
    /// `DELETE_PENDING` for a second close. After an error, the adapter is not closed.
    pub fn close(&self) -> Result<(), NtStatus> {
        if in_callback() {
            log::error!(
                "an adapter is closed from inside a callback, which it would wait for: refused"
            );
            return Err(NtStatus::POSSIBLE_DEADLOCK);
        }
        self.0.lifecycle.close_and_wait()?;
        self.0.network.stop();
        self.0.dispatcher.stop();
        self.0.lams.clear();
        Ok(())
    }

    pub(crate) fn lifecycle(&self) -> &Arc<Lifecycle> {
        &self.0.lifecycle
    }

    pub(crate) fn hold(&self) -> Result<Hold, NtStatus> {
        self.0.lifecycle.hold()
    }

    pub(crate) fn new_lifecycle(&self, kind: ObjectType, antecedents: Vec<Hold>) -> Arc<Lifecycle> {
        Lifecycle::new(kind, &self.0.dispatcher, antecedents)
    }
}

impl Drop for AdapterInner {
    /// Stops the threads of an adapter that was never closed, when the handle of its last object is
    /// dropped.
    fn drop(&mut self) {
        self.network.stop();
        self.dispatcher.stop();
    }
}
