//! Listeners.
use super::connector::Connector;
use super::endpoint::{Endpoint, local_failure};
use super::handshake::REQUEST_TIMEOUT;
use super::link::vetted;
use super::message::{Message, Offer, Reason};
use super::sockets::{Interest, Sockets, Source};
use super::stream::{Incoming, Stream};
use crate::adapter::Adapter;
use crate::flags::ObjectType;
use crate::object::{Life, Outcome, complete_creation};
use crate::status::NtStatus;
use adverb_device::Errno;
use adverb_sync::Mutex;
use nix::sys::socket::{Backlog, listen};
use std::fmt;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Streams whose request has not come, and connect events whose callback has not returned, at most each: beyond, callers
/// are refused.
const BACKLOG: usize = 1024;
/// Streams taken at a time, before others have their turn.
const BATCH: usize = 64;
/// How long no streams are taken after the system had no descriptor for one.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// Takes connections asked for at an address.
#[derive(Clone)]
pub struct Listener(Arc<ListenerInner>);

struct ListenerInner {
    me: Weak<ListenerInner>,
    adapter: Adapter,
    life: Arc<Life>,
    on_connect: Box<dyn Fn(Connector) + Send + Sync>,
    paused: AtomicBool,
    state: Mutex<Listening>,
    /// Streams without a request.
    incoming: AtomicUsize,
    /// Connect events to be delivered.
    events: AtomicUsize,
}

#[derive(Default)]
struct Listening {
    /// Released when the listener and its connectors are closed.
    endpoint: Option<Arc<Endpoint>>,
    socket: Option<Listened>,
}

struct Listened {
    sockets: Arc<Sockets>,
    token: u64,
    listener: TcpListener,
}

impl Adapter {
    /// Creates a listener. `on_connect` is called with a connector for each connection asked for, which the consumer accepts
    /// or rejects, and closes in any case.
    ///
    /// # Errors
    /// `DELETE_PENDING`, `INSUFFICIENT_RESOURCES`; in line or through `completion`.
    pub fn create_listener(
        &self,
        on_connect: impl Fn(Connector) + Send + Sync + 'static,
        completion: impl FnOnce(Result<Listener, NtStatus>) + Send + 'static,
    ) -> Result<Outcome<Listener>, NtStatus> {
        // First: a listener made without it would hold an adapter that is closing already.
        let creation = self.hold()?;
        let made = self.hold().map(|hold| {
            let life = self.new_life(ObjectType::Listener, vec![hold]);
            let inner = Arc::new_cyclic(|me| ListenerInner {
                me: me.clone(),
                adapter: self.clone(),
                life,
                on_connect: Box::new(on_connect),
                paused: AtomicBool::new(false),
                state: Mutex::default(),
                incoming: AtomicUsize::new(0),
                events: AtomicUsize::new(0),
            });
            inner.life.keep(inner.clone());
            Listener(inner)
        });
        complete_creation(creation, made, |l| &l.0.life, completion)
    }
}

impl Listener {
    /// Listens at an address of the adapter, with port 0 at one of its free ephemeral ports.
    ///
    /// # Errors
    /// `INVALID_ADDRESS` if the address is none of the adapter's, `SHARING_VIOLATION` if the port is taken,
    /// `TOO_MANY_ADDRESSES` if all ephemeral ports are, `ACCESS_DENIED` for a privileged port, `INVALID_DEVICE_STATE` if it
    /// listens already, `INSUFFICIENT_RESOURCES`, `DELETE_PENDING`; in line or through `completion`.
    pub fn listen(
        &self,
        address: SocketAddr,
        completion: impl FnOnce(Result<(), NtStatus>) + Send + 'static,
    ) -> Result<Outcome, NtStatus> {
        let hold = self.0.life.hold()?;
        hold.complete(self.0.listen(address), completion)
    }

    /// The address it listens at, with the port chosen if none was given.
    ///
    /// # Errors
    /// `INVALID_DEVICE_STATE` if it does not listen.
    pub fn get_local_address(&self) -> Result<SocketAddr, NtStatus> {
        let state = self.0.state.lock();
        state.endpoint.as_ref().map(|e| e.address()).ok_or(NtStatus::INVALID_DEVICE_STATE)
    }

    /// With `pause` there are no connect events, and connections asked for are refused as if nobody listened
    /// (`NdkControlConnectEvents`); without, there are again.
    pub fn control_connect_events(&self, pause: bool) {
        self.0.paused.store(pause, Ordering::SeqCst);
    }

    /// Closes it: no connection is taken any more, at once. Pending until the connectors of its connections are closed and
    /// its callbacks have returned; its address is free then.
    ///
    /// # Errors
    /// `DELETE_PENDING` for a second close.
    pub fn close(&self, completion: impl FnOnce() + Send + 'static) -> Result<Outcome, NtStatus> {
        let me = self.0.clone();
        let outcome = self.0.life.close(
            move || {
                me.stop();
                drop(me.state.lock().endpoint.take());
            },
            completion,
        )?;
        self.0.stop();
        Ok(outcome)
    }
}

impl ListenerInner {
    fn listen(&self, address: SocketAddr) -> Result<(), NtStatus> {
        let me = self.me.upgrade().ok_or(NtStatus::DELETE_PENDING)?;
        let sockets = self.adapter.0.network.get()?;
        let mut state = self.state.lock();
        if self.life.is_closing() {
            return Err(NtStatus::DELETE_PENDING);
        }
        if state.endpoint.is_some() {
            return Err(NtStatus::INVALID_DEVICE_STATE);
        }
        let (endpoint, socket) = Endpoint::open(self.adapter.context(), address, None)?;
        listen(&socket, Backlog::MAXCONN).map_err(local_failure)?;
        let listener = TcpListener::from(socket);
        let token = sockets.add(me);
        if let Err(e) = sockets.watch(token, &listener, Interest::Read) {
            sockets.remove(token);
            return Err(local_failure(e));
        }
        state.endpoint = Some(Arc::new(endpoint));
        state.socket = Some(Listened { sockets, token, listener });
        Ok(())
    }

    /// Takes no streams any more; those that wait in the kernel are reset.
    fn stop(&self) {
        let listened = self.state.lock().socket.take();
        if let Some(listened) = listened {
            drop(listened.listener);
            listened.sockets.remove(listened.token);
        }
    }

    /// Must a request be refused as if nobody listened?
    fn deaf(&self) -> bool {
        self.paused.load(Ordering::SeqCst) || self.life.is_closing()
    }

    /// Takes the next stream; `None` when there is none now.
    fn take(&self, token: u64) -> Option<(Arc<Sockets>, TcpStream, SocketAddr)> {
        let state = self.state.lock();
        let listened = state.socket.as_ref().filter(|l| l.token == token)?;
        loop {
            match listened.listener.accept() {
                Ok((stream, peer)) => return Some((listened.sockets.clone(), stream, peer)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return None,
                // The caller is gone, or its stream failed in the queue: errors of accept(2) that are the stream's.
                Err(e) if is_of_stream(&e) => {}
                Err(e) => {
                    log::warn!("connections must wait: {e}");
                    listened.sockets.rewatch(token, &listened.listener, Interest::Nothing);
                    listened.sockets.schedule(token, Some(Instant::now() + EXHAUSTED));
                    return None;
                }
            }
        }
    }

    /// Waits for the request on a stream.
    fn greet(&self, sockets: &Arc<Sockets>, socket: TcpStream, peer: SocketAddr) {
        if self.incoming.fetch_add(1, Ordering::Relaxed) >= BACKLOG {
            self.incoming.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let caller = Arc::new(Caller { listener: self.me.clone(), peer, stream: Mutex::new(None) });
        let token = sockets.add(caller.clone());
        match Stream::accepted(sockets, token, socket) {
            Ok(stream) => {
                *caller.stream.lock() = Some(stream);
                sockets.schedule(token, Some(Instant::now() + REQUEST_TIMEOUT));
            }
            Err(status) => {
                log::warn!("a connection cannot be taken: {status}");
                sockets.remove(token);
            }
        }
    }

    /// A request has come.
    fn requested(&self, stream: Stream, request: Offer, peer: SocketAddr) {
        let endpoint = self.state.lock().endpoint.clone();
        let (Some(endpoint), false) = (endpoint, self.deaf()) else {
            return refuse(stream, Reason::NoListener);
        };
        if self.events.load(Ordering::Relaxed) >= BACKLOG {
            return refuse(stream, Reason::Busy);
        }
        let holds = (self.adapter.hold(), self.life.hold(), self.life.hold());
        let (Ok(adapter), Ok(listener), Ok(event)) = holds else { return refuse(stream, Reason::NoListener) };
        let antecedents = vec![adapter, listener];
        let Some(me) = self.me.upgrade() else { return refuse(stream, Reason::NoListener) };
        let connector = Connector::requested(&self.adapter, antecedents, stream, request, endpoint, peer);
        self.events.fetch_add(1, Ordering::Relaxed);
        self.adapter.0.dispatcher.run(move || {
            me.events.fetch_sub(1, Ordering::Relaxed);
            // Paused or closed since: the consumer expects no event any more.
            if me.deaf() {
                connector.refuse();
                // Nobody else has it, so this is the first close.
                let _ = connector.close(|| ());
            } else {
                (me.on_connect)(connector);
            }
            drop(event);
        });
    }
}

/// Network errors already pending on a new stream are reported by accept(2), which says to go on.
fn is_of_stream(error: &std::io::Error) -> bool {
    let errno = error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw);
    matches!(
        errno,
        Errno::EINTR
            | Errno::ECONNABORTED
            | Errno::ENETDOWN
            | Errno::EPROTO
            | Errno::ENOPROTOOPT
            | Errno::EHOSTDOWN
            | Errno::ENONET
            | Errno::EHOSTUNREACH
            | Errno::EOPNOTSUPP
            | Errno::ENETUNREACH
    )
}

impl Source for ListenerInner {
    fn ready(&self, token: u64) {
        for _ in 0..BATCH {
            let Some((sockets, stream, peer)) = self.take(token) else { return };
            self.greet(&sockets, stream, peer);
        }
    }

    /// Descriptors may be had again.
    fn due(&self, token: u64, _: Instant) {
        let state = self.state.lock();
        if let Some(listened) = state.socket.as_ref().filter(|l| l.token == token) {
            listened.sockets.rewatch(token, &listened.listener, Interest::Read);
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.0.state.lock().endpoint.as_ref().map(|e| e.address());
        f.debug_struct("Listener")
            .field("address", &address)
            .field("life", &self.0.life)
            .finish_non_exhaustive()
    }
}

/// A stream whose request has not come. It does not keep the listener.
struct Caller {
    listener: Weak<ListenerInner>,
    peer: SocketAddr,
    stream: Mutex<Option<Stream>>,
}

impl Caller {
    fn end(&self, token: u64) {
        let stream = self.stream.lock().take();
        if let Some(stream) = stream {
            stream.sockets().remove(token);
        }
    }
}

impl Source for Caller {
    fn ready(&self, token: u64) {
        let mut slot = self.stream.lock();
        let Some(mut stream) = slot.take() else { return };
        let request = match stream.receive() {
            Incoming::Nothing => {
                *slot = Some(stream);
                return;
            }
            Incoming::Message(Message::Request(offer)) => {
                vetted(Message::Request(offer), Some(self.peer)).ok_or(Some(Reason::Malformed))
            }
            Incoming::Message(_) => Err(Some(Reason::Malformed)),
            Incoming::Malformed(malformed) => {
                log::warn!("{} asks for a connection: {malformed}", self.peer);
                Err(Some(malformed.reason()))
            }
            Incoming::Closed | Incoming::Failed(_) => Err(None),
        };
        drop(slot);
        match (request, self.listener.upgrade()) {
            (Ok(Message::Request(offer)), Some(listener)) => listener.requested(stream, offer, self.peer),
            (Err(Some(reason)), _) => refuse(stream, reason),
            (Ok(_), _) => refuse(stream, Reason::NoListener),
            (Err(None), _) => stream.sockets().remove(token),
        }
    }

    fn due(&self, token: u64, _: Instant) {
        log::debug!("{} asked for no connection in time", self.peer);
        self.end(token);
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.upgrade() {
            listener.incoming.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Answers and closes. An answer that the socket does not take at once is not worth waiting for.
fn refuse(mut stream: Stream, reason: Reason) {
    stream.send(&Message::Reject(reason, Vec::new()));
    stream.sockets().remove(stream.token());
}
