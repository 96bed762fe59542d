//! Shared endpoints.
use super::endpoint::Endpoint;
use crate::adapter::Adapter;
use crate::flags::ObjectType;
use crate::object::{Hold, Life, Outcome, complete_creation};
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
    life: Arc<Life>,
    address: SocketAddr,
    /// Until it is closed; the id keeps the port from programs that know nothing of endpoints.
    claim: Mutex<Option<(Arc<Endpoint>, Id)>>,
}

/// The id of an endpoint has no events.
struct Nobody;

impl Tokens for Nobody {
    fn give(&self) {}
    fn take(&self) {}
}

impl Adapter {
    /// Creates a shared endpoint on an address of the adapter, with port 0 on one of its free
    /// ephemeral ports.
    ///
    /// # Errors
    /// `INVALID_ADDRESS` if the address is none of the adapter's, `SHARING_VIOLATION` if the port
    /// is taken, `TOO_MANY_ADDRESSES` if all ephemeral ports are, `INSUFFICIENT_RESOURCES`,
    /// `DELETE_PENDING`; in line or through `completion`.
    pub fn create_shared_endpoint(
        &self,
        address: SocketAddr,
        completion: impl FnOnce(Result<SharedEndpoint, NtStatus>) + Send + 'static,
    ) -> Result<Outcome<SharedEndpoint>, NtStatus> {
        complete_creation(
            self.hold()?,
            SharedEndpoint::create(self, address),
            SharedEndpoint::life,
            completion,
        )
    }
}

impl SharedEndpoint {
    fn create(adapter: &Adapter, address: SocketAddr) -> Result<Self, NtStatus> {
        let hold = adapter.hold()?;
        let nobody: Signal = Arc::new(Nobody);
        let (endpoint, id) = Endpoint::open(adapter.context(), address, None, true, &nobody)?;
        let life = adapter.new_life(ObjectType::SharedEndpoint, vec![hold]);
        let (adapter, address) = (adapter.clone(), endpoint.address());
        let claim = Mutex::new(Some((Arc::new(endpoint), id)));
        let inner = Arc::new(SharedEndpointInner { adapter, life, address, claim });
        inner.life.keep(inner.clone());
        Ok(SharedEndpoint(inner))
    }

    /// Its address, with the port chosen if none was given.
    #[must_use]
    pub fn get_local_address(&self) -> SocketAddr {
        self.0.address
    }

    /// Closes it: pending until the connectors connected over it are closed. Its address is free
    /// then.
    ///
    /// # Errors
    /// `DELETE_PENDING` for a second close.
    pub fn close(&self, completion: impl FnOnce() + Send + 'static) -> Result<Outcome, NtStatus> {
        let me = self.0.clone();
        self.0.life.close(move || drop(me.claim.lock().take()), completion)
    }

    pub(crate) fn life(&self) -> &Arc<Life> {
        &self.0.life
    }

    /// The endpoint for one more connection of `adapter`, and what keeps it open.
    pub(super) fn share(&self, adapter: &Adapter) -> Result<(Hold, Arc<Endpoint>), NtStatus> {
        if !Arc::ptr_eq(&self.0.adapter.0, &adapter.0) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let hold = self.0.life.hold()?;
        let claim = self.0.claim.lock();
        let (endpoint, _) = claim.as_ref().ok_or(NtStatus::DELETE_PENDING)?;
        Ok((hold, endpoint.clone()))
    }
}
