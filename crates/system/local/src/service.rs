//! Services of queue pair 1: which process of a user gets a MAD that names no queue pair.
//!
//! Queue pair 1 belongs to no process. A reply contains the communication id of our MAD, and the
//! upper bits of this id are the slot of its owner. A request names a service, and the server
//! listens at an abstract `AF_UNIX` name of this service. As with slots, such a name ends with its
//! process, and proves nothing by itself: see [`crate::delivery`].

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use adverb_os::owner;
use adverb_os::sys::{self, Fd, RawAddr};

use crate::connection::{Connection, SERVICE, TO_SERVICE, ToService, Untold, has_ended};
use crate::error::LocalError;
use crate::local::Local;
use crate::message;
use crate::packet::{Delivery, LocalPacket};
use crate::slot::{BACKLOG, MAX_SLOT, MIN_SLOT, Slot, slot_of_name};
use crate::stats::add;

/// The largest number of connections to service listeners. Beyond it, the connection idle for the
/// longest time ends.
const MOST_ASKED: usize = 64;

/// A service id bound among the processes of this user in this network namespace. Dropping the
/// claim frees the service id.
pub struct ServiceClaim {
    /// The service id.
    pub service: u64,
    /// The address of the claim; `None`: all addresses.
    pub at: Option<IpAddr>,
    /// Bound to the name of the claim, and not used otherwise.
    _name: Fd,
}

impl std::fmt::Debug for ServiceClaim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ServiceClaim({:#x} at {})", self.service, place(self.at))
    }
}

/// The identity of a service that this process listens for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServiceIndex(u64);

/// The address part of a name.
fn place(at: Option<IpAddr>) -> String {
    at.map_or_else(|| "any".to_owned(), |ip| ip.to_string())
}

/// The common prefix of the names of all claims of a service.
fn claims_of(uid: u32, service: u64) -> String {
    format!("adverb-{uid}-port-{service:x}-")
}

/// The name of the listener for a service at an address, or at all addresses.
fn listener_name(uid: u32, service: u64, at: Option<IpAddr>) -> String {
    format!("adverb-{uid}-cm-{service:x}-{}", place(at))
}

/// Parses the name of a claim behind the common prefix: its address, and whether it is shared.
fn parse_claim(rest: &str) -> Option<(Option<IpAddr>, bool)> {
    let (at, shared) = rest.split_once('+').map_or((rest, false), |(at, _)| (at, true));
    if at == "any" { Some((None, shared)) } else { Some((Some(at.parse().ok()?), shared)) }
}

impl Local {
    /// Binds a service at one address, or at all addresses. Several claims may have the same
    /// address only if all of them are `shared`. A claim for all addresses conflicts with each
    /// address.
    ///
    /// # Errors
    /// [`LocalError::ServiceTaken`] if another claim conflicts, of this process or of another;
    /// otherwise an error of the system.
    pub fn claim_service(
        &self,
        service: u64,
        at: Option<IpAddr>,
        shared: bool,
    ) -> Result<ServiceClaim, LocalError> {
        self.check_user()?;
        let common = claims_of(self.uid(), service);
        let mut name = format!("{common}{}", place(at));
        if shared {
            let slot = self.slots().first().copied().unwrap_or_default();
            let number = self.services.next.fetch_add(1, Relaxed);
            name.push_str(&format!("+{slot}-{number}"));
        }
        let fd = self.service_socket("bind a service", &name, service, at)?;
        // After the bind, later claims see this claim, and this claim sees the earlier ones.
        let mut holder = None;
        owner::each_name(|held, uid| {
            let other = held.strip_prefix(&common).filter(|_| held != name).and_then(parse_claim);
            if let Some((there, also_shared)) = other
                && (there == at || there.is_none() || at.is_none())
                && !(shared && also_shared)
            {
                holder = Some(uid);
            }
        });
        match holder {
            Some(_) => Err(LocalError::ServiceTaken { service, at, holder }),
            None => Ok(ServiceClaim { service, at, _name: fd }),
        }
    }

    /// A socket that holds a name of the service.
    fn service_socket(
        &self,
        doing: &'static str,
        name: &str,
        service: u64,
        at: Option<IpAddr>,
    ) -> Result<Fd, LocalError> {
        let fail = |error| LocalError::from_io(doing, error);
        let fd = sys::message_socket(&self.fds).map_err(fail)?;
        match sys::bind(&fd, &RawAddr::abstract_name(name)) {
            Ok(()) => Ok(fd),
            Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => {
                let holder = owner::holders(|held| held == name).into_keys().next();
                Err(LocalError::ServiceTaken { service, at, holder })
            }
            Err(error) => Err(fail(error)),
        }
    }

    /// Takes MADs for a service from other processes of this user from now on.
    ///
    /// # Errors
    /// [`LocalError::ServiceTaken`] if another process listens for the service there; otherwise an
    /// error of the system.
    pub fn listen_for(&self, claim: &ServiceClaim) -> Result<ServiceIndex, LocalError> {
        const DOING: &str = "listen for a service";
        self.check_user()?;
        let fail = |error| LocalError::from_io(DOING, error);
        let (service, at) = (claim.service, claim.at);
        let name = listener_name(self.uid(), service, at);
        let fd = Arc::new(self.service_socket(DOING, &name, service, at)?);
        sys::listen(&fd, BACKLOG).map_err(fail)?;
        let token = SERVICE | self.services.next.fetch_add(1, Relaxed);
        self.services.listening.lock().push((token, fd.clone()));
        sys::watch(&self.incoming.any, &fd, token).map_err(fail)?;
        Ok(ServiceIndex(token))
    }

    /// Stops listening for a service. A client with a connection learns this with its next request,
    /// and looks for another listener.
    pub fn stop_listening(&self, index: ServiceIndex) {
        let mut listening = self.services.listening.lock();
        let Some(at) = listening.iter().position(|(token, _)| *token == index.0) else { return };
        let (_, fd) = listening.swap_remove(at);
        drop(listening);
        sys::unwatch(self.incoming.any.own(), fd.own());
        let mut taking = self.incoming.taking.lock();
        for taken in taking.connections.values_mut().filter(|taken| taken.service == Some(index.0))
        {
            taken.leaving = true;
            sys::break_off(&taken.fd);
        }
    }

    /// Gives a MAD to the process listening for a service at an address, or at all addresses.
    pub fn tell_service(&self, service: u64, at: IpAddr, packet: &LocalPacket<'_>) -> Delivery {
        for at in [Some(at), None] {
            match self.ask(listener_name(self.uid(), service, at), packet) {
                Ok(()) => {
                    add(&self.counters.forwarded_out, 1);
                    return Delivery::Done;
                }
                Err(Untold::Full) => return Delivery::Full,
                Err(_) => {}
            }
        }
        Delivery::NoOwner
    }

    /// Sends a MAD to the process listening at a name. Costs two system calls if a connection
    /// exists and has room. Otherwise the MAD goes over a new connection, which is kept if there is
    /// no other.
    ///
    /// If this process has a connection for MADs to a slot of the same process, the MAD goes over
    /// that connection: a server takes the MADs of one client in the order of sending.
    fn ask(&self, name: String, packet: &LocalPacket<'_>) -> Result<(), Untold> {
        let (header, packet) = message_of(packet);
        let parts: [&[u8]; 2] = [&header, &packet];
        let known = self.services.asked.read().get(&name).cloned();
        if let Some(known) = &known {
            known.used.store(self.outgoing.clock.fetch_add(1, Relaxed), Relaxed);
            if !has_ended(&known.fd)
                && let Some(slot) = self.slot_of(known.pid)
            {
                return self.tell(slot, &parts, &[]).map(drop);
            }
            let sent = loop {
                match sys::send_local(&known.fd, &parts, &[]) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    sent => break sent,
                }
            };
            match sent.map_err(|error| error.raw_os_error()) {
                Ok(_) => return Ok(()),
                Err(Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM)) => {}
                Err(_) => self.forget_asked(|asked| Arc::ptr_eq(asked, known)),
            }
        }
        let (fd, pid) = self.prove_process(&name)?;
        if let Some(slot) = self.slot_of(pid) {
            self.tell(slot, &parts, &[])?;
        } else {
            sys::send_local(&fd, &parts, &[]).map_err(Untold::Other)?;
        }
        self.keep_asked(name, fd, pid);
        Ok(())
    }

    /// The slot with the connection for MADs of the process.
    fn slot_of(&self, pid: i32) -> Option<Slot> {
        let connections = self.outgoing.connections.read();
        let carries =
            |known: &&Arc<Connection>| known.pid == pid && known.carries_mads.load(Relaxed);
        // 0 stands for all processes of other PID namespaces.
        connections.values().find(carries).filter(|_| pid != 0).map(|known| known.id.slot())
    }

    /// Keeps a connection to the process listening at a name.
    fn keep_asked(&self, name: String, fd: Fd, pid: i32) {
        let mut asked = self.services.asked.write();
        if asked.contains_key(&name) {
            return;
        }
        self.make_room(&mut asked, MOST_ASKED, |asked| (&asked.fd, &asked.used));
        // Nothing arrives on this connection except its end.
        let token = TO_SERVICE | self.services.next.fetch_add(1, Relaxed);
        if sys::watch_for(self.incoming.any.own(), fd.own(), 0, token).is_ok() {
            let used = AtomicU64::new(self.outgoing.clock.fetch_add(1, Relaxed));
            asked.insert(name, Arc::new(ToService { fd, pid, token, used }));
        }
    }

    /// Closes the connections to service listeners that `is_meant` accepts.
    pub(crate) fn forget_asked(&self, is_meant: impl Fn(&Arc<ToService>) -> bool) {
        self.services.asked.write().retain(|_, asked| {
            let goes = is_meant(asked);
            if goes {
                self.unwatch(&asked.fd);
            }
            !goes
        });
    }

    /// Gives a MAD to the owner of a slot.
    pub fn tell_owner(&self, slot: Slot, packet: &LocalPacket<'_>) -> Delivery {
        if !(MIN_SLOT..=MAX_SLOT).contains(&slot) || self.owns(slot) {
            return Delivery::NoOwner;
        }
        let (header, packet) = message_of(packet);
        match self.tell_mads(slot, &[&header, &packet]) {
            Ok(()) => {
                add(&self.counters.forwarded_out, 1);
                Delivery::Done
            }
            Err(Untold::Full) => Delivery::Full,
            Err(_) => Delivery::NoOwner,
        }
    }

    fn tell_mads(&self, slot: Slot, parts: &[&[u8]]) -> Result<(), Untold> {
        // Set before the MAD is sent, so that later MADs take the same connection.
        self.connection_to(slot)?;
        if let Some(connection) = self.outgoing.connections.read().get(&slot) {
            connection.carries_mads.store(true, Relaxed);
        }
        self.tell(slot, parts, &[]).map(drop)
    }

    /// Gives a packet without a destination process to every other process of this user.
    pub fn tell_everybody(&self, packet: &LocalPacket<'_>) {
        let slot_of = slot_of_name(self.uid());
        let mut slots: Vec<Slot> = Vec::new();
        owner::each_name(|name, uid| slots.extend(slot_of(name).filter(|_| uid == self.uid())));
        for slot in slots {
            self.tell_owner(slot, packet);
        }
    }

    /// Makes [`Local::ended`] report the end of a slot's owner. [`Delivery::NoOwner`]: the slot has
    /// no owner.
    pub fn watch_owner(&self, slot: Slot) -> Delivery {
        if !(MIN_SLOT..=MAX_SLOT).contains(&slot) {
            return Delivery::NoOwner;
        }
        match self.connection_to(slot) {
            Ok(()) => Delivery::Done,
            Err(Untold::NoOwner) => Delivery::NoOwner,
            Err(_) => Delivery::Full,
        }
    }
}

fn message_of(packet: &LocalPacket<'_>) -> (Vec<u8>, Vec<u8>) {
    let header = message::packets_header(&packet.envelope, packet.from_sender);
    let mut message = (packet.bytes.len() as u16).to_le_bytes().to_vec();
    message.extend_from_slice(packet.bytes);
    (header, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claims_name_says_where_and_how() {
        assert_eq!(parse_claim("any"), Some((None, false)));
        assert_eq!(parse_claim("any+7-3"), Some((None, true)));
        assert_eq!(parse_claim("10.0.0.1"), Some((Some([10, 0, 0, 1].into()), false)));
        assert_eq!(parse_claim("fe80::1+7-3"), Some((Some("fe80::1".parse().unwrap()), true)));
        assert_eq!(parse_claim("elsewhere"), None);
    }
}
