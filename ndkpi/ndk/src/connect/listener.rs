//! Listeners.
use super::conn_id::{ConnId, Waker, offer_of};
use super::connector::Connector;
use super::endpoint::{Endpoint, local_failure};
use super::message::Reason;
use super::worker::{Source, Worker};
use crate::adapter::Adapter;
use crate::flags::ObjectType;
use crate::object::{Lifecycle, RequestOutcome, complete_creation};
use crate::status::NtStatus;
use adverb_sync::Mutex;
use adverb_ucma::Signal;
use adverb_ucma::ids::{Event, Id, Request};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Maximum number of requests that the worker has not processed, and of connect events whose
/// callback has not returned. Beyond this number, initiators wait, or are refused.
const BACKLOG: u32 = 1024;

/// Accepts connections at an address.
#[derive(Clone)]
pub struct Listener(Arc<ListenerInner>);

struct ListenerInner {
    me: Weak<ListenerInner>,
    adapter: Adapter,
    lifecycle: Arc<Lifecycle>,
    on_connect: Box<dyn Fn(Connector) + Send + Sync>,
    paused: AtomicBool,
    state: Mutex<Listening>,
    /// Number of connect events that are still to be delivered.
    events: AtomicUsize,
}

#[derive(Default)]
struct Listening {
    /// Released when the listener and its connectors are closed.
    endpoint: Option<Arc<Endpoint>>,
    listened: Option<Listened>,
}

struct Listened {
    worker: Arc<Worker>,
    token: u64,
    id: Id,
}

impl Adapter {
    /// Creates a listener. `on_connect` is called with a connector for each requested connection.
    /// The consumer accepts or rejects the connection, and closes the connector in any case.
    ///
    /// # Errors
    /// `DELETE_PENDING`, `INSUFFICIENT_RESOURCES`; in line or through `completion`.
    pub fn create_listener(
        &self,
        on_connect: impl Fn(Connector) + Send + Sync + 'static,
        completion: impl FnOnce(Result<Listener, NtStatus>) + Send + 'static,
    ) -> Result<RequestOutcome<Listener>, NtStatus> {
        // Hold the adapter first. Otherwise the new listener could hold an adapter that is already
        // closing.
        let creation = self.hold()?;
        let made = self.hold().map(|hold| {
            let lifecycle = self.new_lifecycle(ObjectType::Listener, vec![hold]);
            let inner = Arc::new_cyclic(|me| ListenerInner {
                me: me.clone(),
                adapter: self.clone(),
                lifecycle,
                on_connect: Box::new(on_connect),
                paused: AtomicBool::new(false),
                state: Mutex::default(),
                events: AtomicUsize::new(0),
            });
            inner.lifecycle.keep(inner.clone());
            Listener(inner)
        });
        complete_creation(creation, made, Listener::lifecycle, completion)
    }
}

impl Listener {
    /// Listens at an address of the adapter. With port 0, listens at a free ephemeral port of the
    /// address.
    ///
    /// # Errors
    /// In line or through `completion`: `INVALID_ADDRESS` if the address is no address of the
    /// adapter, `SHARING_VIOLATION` if the port is taken, `TOO_MANY_ADDRESSES` if all ephemeral
    /// ports are taken, `INVALID_DEVICE_STATE` if the listener already listens,
    /// `INSUFFICIENT_RESOURCES`, `DELETE_PENDING`.
    pub fn listen(
        &self,
        address: SocketAddr,
        completion: impl FnOnce(Result<(), NtStatus>) + Send + 'static,
    ) -> Result<RequestOutcome, NtStatus> {
        let hold = self.0.lifecycle.hold()?;
        hold.complete(self.0.listen(address), completion)
    }

    /// The address at which the listener listens, with the chosen port if no port was given.
    ///
    /// # Errors
    /// `INVALID_DEVICE_STATE` if the listener does not listen.
    pub fn get_local_address(&self) -> Result<SocketAddr, NtStatus> {
        let state = self.0.state.lock();
        state.endpoint.as_ref().map(|e| e.address()).ok_or(NtStatus::INVALID_DEVICE_STATE)
    }

    /// With `pause`, there are no connect events, and requests are refused as if there were no
    /// listener (`NdkControlConnectEvents`). Without `pause`, connect events come again.
    pub fn control_connect_events(&self, pause: bool) {
        self.0.paused.store(pause, Ordering::SeqCst);
    }

    /// Closes the listener. From now on, no connection is accepted. The close is pending until the
    /// connectors of the listener's connections are closed and its callbacks have returned. Then
    /// the address is free.
    ///
    /// # Errors
    /// `DELETE_PENDING` for a second close.
    pub fn close(
        &self,
        completion: impl FnOnce() + Send + 'static,
    ) -> Result<RequestOutcome, NtStatus> {
        let me = self.0.clone();
        let outcome = self.0.lifecycle.close(
            move || {
                me.stop();
                drop(me.state.lock().endpoint.take());
            },
            completion,
        )?;
        self.0.stop();
        Ok(outcome)
    }

    pub(crate) fn lifecycle(&self) -> &Arc<Lifecycle> {
        &self.0.lifecycle
    }
}

impl ListenerInner {
    fn listen(&self, address: SocketAddr) -> Result<(), NtStatus> {
        let me = self.me.upgrade().ok_or(NtStatus::DELETE_PENDING)?;
        let worker = self.adapter.0.network.get()?;
        let mut state = self.state.lock();
        if self.lifecycle.is_closing() {
            return Err(NtStatus::DELETE_PENDING);
        }
        if state.endpoint.is_some() {
            return Err(NtStatus::INVALID_DEVICE_STATE);
        }
        let token = worker.reserve();
        let signal: Signal = Arc::new(Waker { worker: worker.clone(), token });
        let listens = Endpoint::open(self.adapter.context(), address, None, false, &signal)
            .and_then(|(endpoint, id)| {
                id.listen(BACKLOG).map(|()| (endpoint, id)).map_err(local_failure)
            });
        let (endpoint, id) = listens.inspect_err(|_| worker.remove(token))?;
        state.endpoint = Some(Arc::new(endpoint));
        state.listened = Some(Listened { worker: worker.clone(), token, id });
        drop(state);
        worker.enter(token, me);
        Ok(())
    }

    /// Stops listening. Waiting requests are refused.
    fn stop(&self) {
        let listened = self.state.lock().listened.take();
        if let Some(Listened { worker, token, id }) = listened {
            drop(id);
            worker.remove(token);
        }
    }

    /// Must a request be refused as if there were no listener?
    fn refuses_all(&self) -> bool {
        self.paused.load(Ordering::SeqCst) || self.lifecycle.is_closing()
    }

    /// Takes the next request as a new id. `None` if no request is waiting.
    fn take(&self, token: u64) -> Option<(ConnId, Request)> {
        let state = self.state.lock();
        let listened = state.listened.as_ref().filter(|l| l.token == token)?;
        loop {
            let Event::Request(request) = listened.id.next_event()? else { continue };
            let worker = listened.worker.clone();
            let token = worker.reserve();
            let waker = Arc::new(Waker { worker: worker.clone(), token });
            match listened.id.take(&request, waker) {
                Ok(id) => return Some((ConnId { worker, token, id, _pair: None }, request)),
                Err(e) => {
                    log::warn!("a connection cannot be taken: {e}");
                    worker.remove(token);
                }
            }
        }
    }

    /// Handles a request.
    fn requested(&self, conn_id: ConnId, request: Request) {
        let endpoint = self.state.lock().endpoint.clone();
        let nobody = Reason::INVALID_SERVICE_ID;
        let (Some(endpoint), false) = (endpoint, self.refuses_all()) else {
            return refuse(&conn_id, nobody);
        };
        if self.events.load(Ordering::Relaxed) >= BACKLOG as usize {
            return refuse(&conn_id, Reason::NO_RESOURCES);
        }
        let holds = (self.adapter.hold(), self.lifecycle.hold(), self.lifecycle.hold());
        let (Ok(adapter), Ok(listener), Ok(event)) = holds else { return refuse(&conn_id, nobody) };
        let antecedents = vec![adapter, listener];
        let Some(me) = self.me.upgrade() else { return refuse(&conn_id, nobody) };
        let connector = Connector::requested(
            &self.adapter,
            antecedents,
            conn_id,
            offer_of(request.offer),
            endpoint,
        );
        self.events.fetch_add(1, Ordering::Relaxed);
        self.adapter.0.dispatcher.run(move || {
            me.events.fetch_sub(1, Ordering::Relaxed);
            // Paused or closed meanwhile: the consumer expects no event any more.
            if me.refuses_all() {
                connector.refuse();
                // No other code has the connector, so this is the first close.
                let _ = connector.close(|| ());
            } else {
                (me.on_connect)(connector);
            }
            drop(event);
        });
    }
}

impl Source for ListenerInner {
    fn ready(&self, token: u64) {
        while let Some((conn_id, request)) = self.take(token) {
            self.requested(conn_id, request);
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.0.state.lock().endpoint.as_ref().map(|e| e.address());
        f.debug_struct("Listener")
            .field("address", &address)
            .field("lifecycle", &self.0.lifecycle)
            .finish_non_exhaustive()
    }
}

/// Refuses a request without making a connector.
fn refuse(conn_id: &ConnId, reason: Reason) {
    // If the initiator has given up, no answer is needed.
    let _ = conn_id.id.reject(reason, &[]);
    conn_id.worker.remove(conn_id.token);
}
