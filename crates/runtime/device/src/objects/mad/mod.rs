//! The door for MADs: queue pair 1 of every device of this process's machine, for one connection
//! manager.
//!
//! The connection manager itself is `adverb_cm`, which has no clock, socket or thread. Here are its
//! clock, its transport and its thread: a [`MadHandler`] is called with what comes, and
//! [`MadDoor::send`] takes what leaves. MADs travel as unreliable datagrams on UDP port 4791, as
//! those of Linux and of NICs do; to a process of this host they go without the network where other
//! packets do.
//!
//! Several processes of a user share the port. What answers a MAD of ours brings back our
//! communication id, whose upper [`PREFIX_BITS`] bits name the process; a request names a service
//! id, which a process claims ([`MadDoor::claim`]). A MAD that arrives at another process is handed
//! on; for whom nobody is there, whoever received it answers.
mod place;
mod wait;

pub use crate::node::{Arrival, MAD_LEN, MadHandler};
pub use adverb_cm::Path;
pub use adverb_os::{ask_neighbour, neighbour_is_known};
pub use place::{Place, place_of, place_toward};
pub use wait::Wait;

use crate::error::Error;
use crate::node::Node;
use crate::ranks;
use adverb_engine::Time;
use adverb_local::{ServiceClaim, ServiceIndex};
use adverb_sync::Ranked;
use std::net::IpAddr;
use std::sync::Arc;

/// Bits of the prefix of communication ids.
pub const PREFIX_BITS: u8 = adverb_local::SLOT_BITS as u8;
/// The door of this process. Dropped, nothing is called any more but what is under way.
#[derive(Debug)]
pub struct MadDoor {
    node: Arc<Node>,
}

impl MadDoor {
    /// Opens it.
    ///
    /// # Errors
    /// EBUSY if the process has one open; what the kernel refused of sockets and threads.
    pub fn open(handler: Arc<dyn MadHandler>) -> Result<MadDoor, Error> {
        let node = Node::get()?;
        node.mads.set_handler(&node, handler)?;
        Ok(MadDoor { node })
    }

    /// Was it opened before a `fork`, in the parent? The child opens one of its own.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.node.is_stale()
    }

    /// Is [`MadHandler::interfaces_changed`] called? Not where the kernel does not tell.
    #[must_use]
    pub fn hears_of_interfaces(&self) -> bool {
        self.node.hears_of_interfaces()
    }

    /// The clock of all times here.
    #[must_use]
    pub fn now(&self) -> Time {
        self.node.now()
    }

    /// What to make the endpoint of this process with: its prefix, and random first numbers.
    #[must_use]
    pub fn config(&self) -> adverb_cm::Config {
        adverb_cm::Config {
            prefix: self.node.mads.prefix(&self.node),
            prefix_bits: PREFIX_BITS,
            first: crate::node::random_u32(),
            transaction: crate::node::random_u32(),
            ..adverb_cm::Config::default()
        }
    }

    /// Sends a MAD; waits for nothing and calls nobody. It may be lost, as on a network.
    ///
    /// # Errors
    /// EADDRNOTAVAIL and the like if the local address cannot be used; the MAD is lost then.
    pub fn send(&self, path: &Path, mad: &[u8; MAD_LEN]) -> Result<(), Error> {
        self.node.check_alive()?;
        if self.node.faults.as_ref().is_some_and(|faults| faults.loses_mad(mad)) {
            return Ok(());
        }
        // An answer from an address of this machine counts where this process has a socket there.
        if self.node.is_own_address(path.remote) {
            self.node.mads.hear_from(&self.node, path)?;
        }
        self.node.mads.send(&self.node, path, mad)
    }

    /// A request for a connection has come: why it is refused, if a fault on request says so.
    #[must_use]
    pub fn refuses(&self) -> Option<adverb_cm::RejectReason> {
        self.node.faults.as_ref()?.refuses()
    }

    /// Has [`MadHandler::timeout`] called at this time, or little later.
    pub fn wake_at(&self, at: Time) {
        if !self.is_stale() {
            self.node.mads.keep_deadline(&self.node, at);
        }
    }

    /// Binds a service id ([`adverb_cm::ip::service_id`] makes that of a port) at a local address,
    /// or at all of them, among the processes of this user. Only `shared` claims share one. Opens
    /// the UDP port there.
    ///
    /// # Errors
    /// EADDRINUSE if another claim is in the way: of the same address, or one of the two is of all.
    /// EADDRNOTAVAIL if the address is not this machine's.
    pub fn claim(&self, service_id: u64, local: Option<IpAddr>, shared: bool) -> Result<Claim, Error> {
        self.node.check_alive()?;
        self.node.mads.open(&self.node, local)?;
        if local.is_some() {
            // Requests may come from any address of this machine; one that cannot be had is another
            // user's.
            let _ = self.node.mads.open(&self.node, None);
        }
        let bound = self
            .node
            .link()
            .claim_service(service_id, local, shared)
            .map_err(crate::node::quiet_from_local)?;
        Ok(Claim { node: self.node.clone(), bound, listening: Ranked::default() })
    }

    /// Has [`MadHandler::peer_gone`] called when the process of this host ends that gave out this
    /// communication id. `false`: no process of this user has it.
    #[must_use]
    pub fn watch_peer(&self, remote_id: u32) -> bool {
        !self.is_stale() && self.node.mads.watch_peer(&self.node, remote_id)
    }

    /// Is it an address of this machine?
    #[must_use]
    pub fn is_local(&self, ip: IpAddr) -> bool {
        self.node.is_own_address(ip)
    }

    /// Keeps the number of a queue pair from being given to a new one until the hold is dropped, as
    /// packets of the old connection may still be on their way.
    #[must_use]
    pub fn hold_qpn(&self, qpn: u32) -> QpnHold {
        self.node.registry.reserve_qpn(qpn);
        QpnHold { node: self.node.clone(), qpn }
    }
}

impl Drop for MadDoor {
    fn drop(&mut self) {
        if !self.is_stale() {
            self.node.mads.unset_handler();
        }
    }
}

/// A service id bound by this process; free when dropped.
#[derive(Debug)]
pub struct Claim {
    node: Arc<Node>,
    bound: ServiceClaim,
    listening: Ranked<Option<ServiceIndex>, ranks::MadClaim>,
}

impl Claim {
    /// From now on requests for the service come to this process. Once is enough.
    ///
    /// # Errors
    /// EADDRINUSE if somebody who shares the claim listens already.
    pub fn listen(&self) -> Result<(), Error> {
        self.node.check_alive()?;
        let mut listening = self.listening.lock();
        if listening.is_none() {
            *listening = Some(self.node.mads.listen(&self.node, &self.bound)?);
        }
        Ok(())
    }

    /// The service id.
    #[must_use]
    pub fn service_id(&self) -> u64 {
        self.bound.service()
    }

    /// The address it is bound at; `None`: all.
    #[must_use]
    pub fn local(&self) -> Option<IpAddr> {
        self.bound.at()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(index) = self.listening.get_mut().take()
            && !self.node.is_stale()
        {
            self.node.mads.stop_listening(&self.node, index);
        }
    }
}

/// Keeps a queue pair number from being used again.
#[derive(Debug)]
pub struct QpnHold {
    node: Arc<Node>,
    qpn: u32,
}

impl QpnHold {
    /// The number.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.qpn
    }
}

impl Drop for QpnHold {
    fn drop(&mut self) {
        if !self.node.is_stale() {
            self.node.registry.release_qpn(self.qpn);
        }
    }
}
