//! Connectors.
use super::conn_id::{ConnId, Pair, Waker};
use super::endpoint::{Endpoint, remote_failure, with_scope};
use super::handshake::{Actions, Handshake};
use super::link::Link;
use super::message::{Message, Offer, ReadLimits, Reason};
use super::shared_endpoint::SharedEndpoint;
use super::worker::Worker;
use super::{ConnectionData, DisconnectEvent};
use crate::adapter::Adapter;
use crate::flags::ObjectType;
use crate::info::{MAX_CALLEE_DATA, MAX_CALLER_DATA};
use crate::object::{Completion, Hold, Lifecycle, RequestOutcome, complete_creation};
use crate::qp::Qp;
use crate::status::NtStatus;
use adverb_device::engine::QpState;
use adverb_sync::Mutex;
use adverb_ucma::Signal;
use adverb_ucma::ids::Id;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Instant;

mod drive;

/// One end of a connection. The consumer makes a connector to connect, and a listener makes a
/// connector for each requested connection.
///
/// The queue pair takes receives from its creation on. It takes initiator requests after
/// [`Connector::complete_connect`] or the completion of [`Connector::accept`] has succeeded. The
/// queue pair cannot be closed while it is connecting or connected.
#[derive(Clone)]
pub struct Connector(pub(super) Arc<ConnectorInner>);

pub(super) struct ConnectorInner {
    me: Weak<ConnectorInner>,
    adapter: Adapter,
    lifecycle: Arc<Lifecycle>,
    link: Mutex<Link>,
}

/// The pending request that completes later, with its completion. The function that starts the
/// request takes the value.
type Asked = Option<(Hold, Completion<()>)>;

impl Adapter {
    /// Creates a connector.
    ///
    /// # Errors
    /// `DELETE_PENDING`, `INSUFFICIENT_RESOURCES`; in line or through `completion`.
    pub fn create_connector(
        &self,
        completion: impl FnOnce(Result<Connector, NtStatus>) + Send + 'static,
    ) -> Result<RequestOutcome<Connector>, NtStatus> {
        let made = self.hold().map(|hold| {
            let handshake = Handshake::new(ReadLimits::default());
            Connector::new(self, vec![hold], Link::new(handshake))
        });
        complete_creation(self.hold()?, made, Connector::lifecycle, completion)
    }
}

impl Connector {
    fn new(adapter: &Adapter, antecedents: Vec<Hold>, link: Link) -> Self {
        let lifecycle = adapter.new_lifecycle(ObjectType::Connector, antecedents);
        let adapter = adapter.clone();
        Connector(Arc::new_cyclic(|me| ConnectorInner {
            me: me.clone(),
            adapter,
            lifecycle,
            link: Mutex::new(link),
        }))
    }

    /// The connector of a requested connection. Takes over the id and its token. `antecedents` are
    /// the adapter and the listener.
    pub(super) fn requested(
        adapter: &Adapter,
        antecedents: Vec<Hold>,
        conn_id: ConnId,
        request: Offer,
        endpoint: Arc<Endpoint>,
    ) -> Self {
        let mut handshake = Handshake::incoming(allowed(adapter));
        // The only action of this message is the connect event, which the caller delivers.
        handshake.message(Message::Request(request), &mut Actions::new());
        let (worker, token) = (conn_id.worker.clone(), conn_id.token);
        let mut link = Link::new(handshake);
        link.peer_address = conn_id.id.peer_addr();
        link.conn_id = Some(conn_id);
        link.endpoint = Some(endpoint);
        let connector = Connector::new(adapter, antecedents, link);
        worker.enter(token, connector.0.clone());
        connector
    }

    /// Requests a connection of `qp` from `source` to `destination`. Port 0 of `source` means any
    /// ephemeral port. The request is always pending unless it fails in line. It completes when the
    /// peer has accepted. Then the consumer calls [`Connector::complete_connect`] or
    /// [`Connector::reject`]. After a failed attempt, the connector may try again.
    ///
    /// # Errors
    /// In line or through `completion`:
    ///
    /// - `CONNECTION_REFUSED`: no listener, or the peer refused. [`Connector::get_connection_data`]
    ///   has the peer's private data.
    /// - `IO_TIMEOUT`, `NETWORK_UNREACHABLE`, `HOST_UNREACHABLE`.
    /// - `SHARING_VIOLATION`, `INVALID_ADDRESS`, `TOO_MANY_ADDRESSES`: for the local address.
    /// - `ADDRESS_ALREADY_EXISTS`: for the combination of both addresses.
    /// - `CONNECTION_ACTIVE`: the connector or the queue pair is connected or connecting.
    /// - `CONNECTION_INVALID`: the queue pair was flushed.
    /// - `INVALID_PARAMETER`: more private data than [`MAX_CALLER_DATA`], addresses of two
    ///   families, or a queue pair of another adapter.
    /// - `INSUFFICIENT_RESOURCES`, `DELETE_PENDING`.
    /// - `CANCELLED`: the connector is closed meanwhile.
    pub fn connect(
        &self,
        qp: &Qp,
        source: SocketAddr,
        destination: SocketAddr,
        reads: ReadLimits,
        private_data: &[u8],
        completion: impl FnOnce(Result<(), NtStatus>) + Send + 'static,
    ) -> Result<RequestOutcome, NtStatus> {
        let hold = self.0.lifecycle.hold()?;
        begin(hold, Box::new(completion), |asked| {
            self.0.check_call(qp, source, destination, private_data)?;
            let asker = Asker::new(&self.0.adapter)?;
            let context = self.0.adapter.context();
            let (endpoint, id) =
                Endpoint::open(context, source, Some(destination), false, &asker.signal)?;
            let endpoint = Arc::new(endpoint);
            let call = Call { endpoint, id, asker, shared: None, destination, reads, private_data };
            self.0.call(qp, call, asked)
        })
    }

    /// Like [`Connector::connect`], from the address of a shared endpoint. The close of the
    /// endpoint is pending until the connector is closed.
    ///
    /// # Errors
    /// As [`Connector::connect`]; `ADDRESS_ALREADY_EXISTS` if a connection between the endpoint and
    /// `destination` exists.
    pub fn connect_with_shared_endpoint(
        &self,
        qp: &Qp,
        endpoint: &SharedEndpoint,
        destination: SocketAddr,
        reads: ReadLimits,
        private_data: &[u8],
        completion: impl FnOnce(Result<(), NtStatus>) + Send + 'static,
    ) -> Result<RequestOutcome, NtStatus> {
        let hold = self.0.lifecycle.hold()?;
        begin(hold, Box::new(completion), |asked| {
            let (shared, endpoint) = endpoint.share(&self.0.adapter)?;
            self.0.check_call(qp, endpoint.address(), destination, private_data)?;
            let asker = Asker::new(&self.0.adapter)?;
            let id = Endpoint::id(&asker.signal)?;
            let call = Call {
                endpoint,
                id,
                asker,
                shared: Some(shared),
                destination,
                reads,
                private_data,
            };
            self.0.call(qp, call, asked)
        })
    }

    /// Completes the connection after the peer has accepted. `on_disconnect` is called once when
    /// the peer disconnects or is lost, unless this side disconnects first.
    ///
    /// # Errors
    /// In line or through `completion`: `CONNECTION_ABORTED` if the accepting side has given up
    /// meanwhile, `CONNECTION_INVALID` if the queue pair is not connecting or was flushed,
    /// `DELETE_PENDING`.
    pub fn complete_connect(
        &self,
        on_disconnect: Option<DisconnectEvent>,
        completion: impl FnOnce(Result<(), NtStatus>) + Send + 'static,
    ) -> Result<RequestOutcome, NtStatus> {
        let hold = self.0.lifecycle.hold()?;
        self.0.drive(|link, out| {
            let result = link.establish(out);
            if result.is_ok() {
                link.on_disconnect = on_disconnect;
            }
            // Complete while the lock is held, so that no disconnect event overtakes the
            // completion.
            hold.complete(result, completion)
        })
    }

    /// Accepts the connection of a listener's connect event. The request is always pending unless
    /// it fails in line. It completes when the initiator has completed the connection.
    /// `on_disconnect` works as in [`Connector::complete_connect`].
    ///
    /// # Errors
    /// In line or through `completion`:
    ///
    /// - `CONNECTION_ABORTED`: the initiator has given up.
    /// - `IO_TIMEOUT`: the initiator does not complete the connection.
    /// - `CONNECTION_INVALID`: there is no request to accept, or the queue pair was flushed.
    /// - `CONNECTION_ACTIVE`: the queue pair is connected.
    /// - `INVALID_PARAMETER`: more private data than [`MAX_CALLEE_DATA`], or a queue pair of
    ///   another adapter.
    /// - `DELETE_PENDING`.
    /// - `CANCELLED`: the connector is closed meanwhile.
    pub fn accept(
        &self,
        qp: &Qp,
        reads: ReadLimits,
        private_data: &[u8],
        on_disconnect: Option<DisconnectEvent>,
        completion: impl FnOnce(Result<(), NtStatus>) + Send + 'static,
    ) -> Result<RequestOutcome, NtStatus> {
        let hold = self.0.lifecycle.hold()?;
        begin(hold, Box::new(completion), |asked| {
            check_data(private_data, MAX_CALLEE_DATA)?;
            self.0.drive(|link, out| {
                link.handshake.check_requested()?;
                let qp_hold = self.0.check_qp(qp)?;
                link.qp = Some((qp.clone(), qp_hold));
                let limits = link.handshake.accept_limits(reads);
                let answered = link.answer(limits, private_data, out);
                match answered {
                    Ok(()) => {
                        link.on_disconnect = on_disconnect;
                        link.pending = asked.take();
                    }
                    Err(_) => link.qp = None,
                }
                answered
            })
        })
    }

    /// Refuses a connection: the connection of a listener's connect event, or the connection that
    /// the peer has accepted.
    ///
    /// # Errors
    /// `CONNECTION_ABORTED` if the peer has given up, `CONNECTION_INVALID` if there is nothing to
    /// refuse, `INVALID_PARAMETER` for more private data than [`MAX_CALLEE_DATA`],
    /// `DELETE_PENDING`.
    pub fn reject(&self, private_data: &[u8]) -> Result<(), NtStatus> {
        let _hold = self.0.lifecycle.hold()?;
        check_data(private_data, MAX_CALLEE_DATA)?;
        self.0.drive(|link, out| {
            link.handshake.reject(Reason::CONSUMER_DEFINED, private_data.to_vec(), out)
        })
    }

    /// Refuses with the reason that is sent if there is no listener.
    pub(super) fn refuse(&self) {
        // An initiator that has given up needs no answer.
        let _ = self
            .0
            .drive(|link, out| link.handshake.reject(Reason::INVALID_SERVICE_ID, Vec::new(), out));
    }

    /// The effective read limits, and the private data of the peer's connect, accept or reject.
    ///
    /// # Errors
    /// `CONNECTION_INVALID` as long as no message of the peer has arrived.
    pub fn get_connection_data(&self) -> Result<ConnectionData, NtStatus> {
        let link = self.0.link.lock();
        let (reads, data) = link.handshake.connection_data().ok_or(NtStatus::CONNECTION_INVALID)?;
        Ok(ConnectionData { reads, private_data: data.to_vec() })
    }

    /// The address of this end. For a connection of a listener, this is the listener's address.
    ///
    /// # Errors
    /// `CONNECTION_INVALID` if the connector is not connecting or connected.
    pub fn get_local_address(&self) -> Result<SocketAddr, NtStatus> {
        self.0
            .link
            .lock()
            .endpoint
            .as_ref()
            .map(|e| e.address())
            .ok_or(NtStatus::CONNECTION_INVALID)
    }

    /// The peer's address.
    ///
    /// # Errors
    /// `CONNECTION_INVALID` if the connector is not connecting or connected.
    pub fn get_peer_address(&self) -> Result<SocketAddr, NtStatus> {
        self.0.link.lock().peer_address.ok_or(NtStatus::CONNECTION_INVALID)
    }

    /// Ends the connection. First, deferred requests are committed, and the peer is told. When the
    /// peer has answered, the requests outstanding on this side are cancelled. If the peer has
    /// already left, the disconnect is done in line.
    ///
    /// # Errors
    /// In line or through `completion`: `CONNECTION_INVALID` if there is no connection,
    /// `IO_TIMEOUT` if the peer does not answer (the connection has ended all the same),
    /// `DELETE_PENDING`; `CANCELLED` if the connector is closed meanwhile.
    pub fn disconnect(
        &self,
        completion: impl FnOnce(Result<(), NtStatus>) + Send + 'static,
    ) -> Result<RequestOutcome, NtStatus> {
        let hold = self.0.lifecycle.hold()?;
        let mut asked: Asked = Some((hold, Box::new(completion)));
        let done = self.0.drive(|link, out| {
            let done = link.handshake.disconnect(Instant::now(), out)?;
            if !done {
                link.commit();
                link.pending = asked.take();
            }
            Ok(done)
        });
        match asked {
            Some((hold, completion)) => hold.complete(done.map(|_| ()), completion),
            None => Ok(RequestOutcome::Pending),
        }
    }

    /// Closes the connector. A pending request completes with `CANCELLED`. A connection ends
    /// without a disconnect, and the peer's disconnect event has the reason `PeerLost`. Requests
    /// outstanding on the queue pair are cancelled.
    ///
    /// # Errors
    /// `DELETE_PENDING` for a second close.
    pub fn close(
        &self,
        completion: impl FnOnce() + Send + 'static,
    ) -> Result<RequestOutcome, NtStatus> {
        let me = self.clone();
        let outcome = self.0.lifecycle.close(move || me.0.teardown(), completion)?;
        self.0.abort();
        Ok(outcome)
    }

    pub(crate) fn lifecycle(&self) -> &Arc<Lifecycle> {
        &self.0.lifecycle
    }
}

/// The parameters of a connect, besides the queue pair.
struct Call<'a> {
    endpoint: Arc<Endpoint>,
    id: Id,
    asker: Asker,
    /// A hold on the shared endpoint, if a shared endpoint is used.
    shared: Option<Hold>,
    destination: SocketAddr,
    reads: ReadLimits,
    private_data: &'a [u8],
}

/// A token reserved among the worker's sources. It is returned unless the connect starts.
struct Asker {
    worker: Arc<Worker>,
    token: u64,
    signal: Signal,
    going: bool,
}

impl Asker {
    fn new(adapter: &Adapter) -> Result<Self, NtStatus> {
        let worker = adapter.0.network.get()?;
        let token = worker.reserve();
        let signal = Arc::new(Waker { worker: worker.clone(), token });
        Ok(Asker { worker, token, signal, going: false })
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        if !self.going {
            self.worker.remove(self.token);
        }
    }
}

/// Begins a request that is pending unless it fails in line. If `start` succeeds, it takes the
/// value of `asked`.
fn begin(
    hold: Hold,
    completion: Completion<()>,
    start: impl FnOnce(&mut Asked) -> Result<(), NtStatus>,
) -> Result<RequestOutcome, NtStatus> {
    let mut asked: Asked = Some((hold, completion));
    let started = start(&mut asked);
    match asked {
        Some((hold, completion)) => hold.complete(started, completion),
        None => Ok(RequestOutcome::Pending),
    }
}

fn check_data(private_data: &[u8], limit: u32) -> Result<(), NtStatus> {
    if private_data.len() > limit as usize { Err(NtStatus::INVALID_PARAMETER) } else { Ok(()) }
}

/// The read limits of the adapter.
fn allowed(adapter: &Adapter) -> ReadLimits {
    let info = adapter.query_info();
    ReadLimits { inbound: info.max_inbound_read_limit, outbound: info.max_outbound_read_limit }
}

impl ConnectorInner {
    /// Checks that the queue pair is of this adapter and was never connected. Returns a hold on the
    /// queue pair.
    fn check_qp(&self, qp: &Qp) -> Result<Hold, NtStatus> {
        if !Arc::ptr_eq(qp.device().context(), self.adapter.context()) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        match qp.device().state() {
            QpState::Init => qp.lifecycle().hold(),
            QpState::Err => Err(NtStatus::CONNECTION_INVALID),
            _ => Err(NtStatus::CONNECTION_ACTIVE),
        }
    }

    fn check_call(
        &self,
        qp: &Qp,
        source: SocketAddr,
        destination: SocketAddr,
        private_data: &[u8],
    ) -> Result<(), NtStatus> {
        check_data(private_data, MAX_CALLER_DATA)?;
        self.check_qp(qp)?;
        if source.is_ipv4() != destination.is_ipv4() || destination.ip().is_unspecified() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        // An endpoint is used either to connect or to listen, so no listener can be at the
        // connector's own endpoint.
        if source == destination {
            return Err(NtStatus::CONNECTION_REFUSED);
        }
        Ok(())
    }

    fn call(&self, qp: &Qp, call: Call<'_>, asked: &mut Asked) -> Result<(), NtStatus> {
        let me = self.me.upgrade().ok_or(NtStatus::DELETE_PENDING)?;
        let qp_hold = self.check_qp(qp)?;
        let Call { endpoint, id, mut asker, shared, destination, reads, private_data } = call;
        let first = self.adapter.context().device().interface().index;
        let interface = match endpoint.address() {
            SocketAddr::V6(own) if own.scope_id() != 0 => own.scope_id(),
            _ => first,
        };
        let peer = with_scope(destination, interface);
        let cap = allowed(&self.adapter);
        let limits = ReadLimits {
            inbound: reads.inbound.min(cap.inbound),
            outbound: reads.outbound.min(cap.outbound),
        };
        self.drive(|link, out| {
            link.handshake.check_idle()?;
            let pair = Pair::take(&endpoint, peer)?;
            id.resolve(Some(endpoint.address()), peer).map_err(remote_failure)?;
            link.handshake.connect(limits, Instant::now())?;
            let (worker, token) = (asker.worker.clone(), asker.token);
            worker.enter(token, me);
            asker.going = true;
            link.conn_id = Some(ConnId { worker, token, id, _pair: Some(pair) });
            link.endpoint = Some(endpoint);
            link.peer_address = Some(peer);
            link.shared = shared;
            link.qp = Some((qp.clone(), qp_hold));
            link.pending = asked.take();
            link.handshake.dialed(Offer { limits, private_data: private_data.to_vec() }, out);
            Ok(())
        })
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = self.0.link.lock();
        f.debug_struct("Connector")
            .field("state", &link.handshake.state())
            .field("peer", &link.peer_address)
            .field("lifecycle", &self.0.lifecycle)
            .finish_non_exhaustive()
    }
}
