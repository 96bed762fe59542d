//! Shared endpoints.
use super::endpoint::Endpoint;
use crate::adapter::Adapter;
use crate::flags::ObjectType;
use crate::object::{Hold, Lifecycle, RequestOutcome, complete_creation};
use crate::status::NtStatus;
use adverb_sync::Mutex;
use adverb_ucma::ids::Id;
use adverb_ucma::{Signal, Tokens};
use std::net::SocketAddr;
use std::sync::Arc;

/// A local address for several outgoing connections to different peers.
#[derive(Clone, Debug)]
pub struct SharedEndpoint(Arc<SharedEndpointInner>);

#[derive(Debug)]
struct SharedEndpointInner {
    adapter: Adapter,
    lifecycle: Arc<Lifecycle>,
    address: SocketAddr,
    /// `None` after the close. The id keeps the port from programs that use the connection manager
    /// without endpoints.
    claim: Mutex<Option<(Arc<Endpoint>, Id)>>,
}

/// Receives no events: the id of a shared endpoint has none.
struct Nobody;

impl Tokens for Nobody {
    fn give(&self) {}
    fn take(&self) {}
}

impl Adapter {
    /// Creates a shared endpoint at an address of the adapter. With port 0, the endpoint gets a
    /// free ephemeral port of the address.
    ///
    /// # Errors
    /// `INVALID_ADDRESS` if the address is no address of the adapter, `SHARING_VIOLATION` if the
    /// port is taken, `TOO_MANY_ADDRESSES` if all ephemeral ports are taken,
    /// `INSUFFICIENT_RESOURCES`, `DELETE_PENDING`; in line or through `completion`.
    pub fn create_shared_endpoint(
        &self,
        address: SocketAddr,
        completion: impl FnOnce(Result<SharedEndpoint, NtStatus>) + Send + 'static,
    ) -> Result<RequestOutcome<SharedEndpoint>, NtStatus> {
        complete_creation(
            self.hold()?,
            SharedEndpoint::create(self, address),
            SharedEndpoint::lifecycle,
            completion,
        )
    }
}

impl SharedEndpoint {
    fn create(adapter: &Adapter, address: SocketAddr) -> Result<Self, NtStatus> {
        let hold = adapter.hold()?;
        let nobody: Signal = Arc::new(Nobody);
        let (endpoint, id) = Endpoint::open(adapter.context(), address, None, true, &nobody)?;
        let lifecycle = adapter.new_lifecycle(ObjectType::SharedEndpoint, vec![hold]);
        let (adapter, address) = (adapter.clone(), endpoint.address());
        let claim = Mutex::new(Some((Arc::new(endpoint), id)));
        let inner = Arc::new(SharedEndpointInner { adapter, lifecycle, address, claim });
        inner.lifecycle.keep(inner.clone());
        Ok(SharedEndpoint(inner))
    }

    /// The endpoint's address, with the chosen port if no port was given.
    #[must_use]
    pub fn get_local_address(&self) -> SocketAddr {
        self.0.address
    }

    /// Closes the endpoint. The close is pending until the connectors of the endpoint's connections
    /// are closed. Then the address is free.
    ///
    /// # Errors
    /// `DELETE_PENDING` for a second close.
    pub fn close(
        &self,
        completion: impl FnOnce() + Send + 'static,
    ) -> Result<RequestOutcome, NtStatus> {
        let me = self.0.clone();
        self.0.lifecycle.close(move || drop(me.claim.lock().take()), completion)
    }

    pub(crate) fn lifecycle(&self) -> &Arc<Lifecycle> {
        &self.0.lifecycle
    }

    /// The endpoint for another connection of `adapter`, and a hold that keeps the endpoint open.
    pub(super) fn share(&self, adapter: &Adapter) -> Result<(Hold, Arc<Endpoint>), NtStatus> {
        if !Arc::ptr_eq(&self.0.adapter.0, &adapter.0) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let hold = self.0.lifecycle.hold()?;
        let claim = self.0.claim.lock();
        let (endpoint, _) = claim.as_ref().ok_or(NtStatus::DELETE_PENDING)?;
        Ok((hold, endpoint.clone()))
    }
}
