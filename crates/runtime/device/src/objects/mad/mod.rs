//! The interface for MADs: queue pair 1 of every device of this machine, for the connection manager
//! of this process.
//!
//! The connection manager is `adverb_cm`, which has no clock, socket or thread. This module gives
//! it a clock, a transport and a thread. A [`MadHandler`] is called with arriving MADs, and
//! [`MadInterface::send`] takes departing MADs. MADs travel as unreliable datagrams on UDP port
//! 4791, as with Linux and NICs. A MAD to a process of this host crosses no network if other
//! packets to this process cross none.
//!
//! Several processes of a user share the port. The answer to a MAD of this process brings back the
//! communication id of this process. The upper [`PREFIX_BITS`] bits of the id name the process. A
//! request names a service id, which a process claims ([`MadInterface::claim`]). A process hands a
//! MAD for another process on. If a MAD is for no process, the receiving process answers it.
mod binding;
mod wait;

pub use crate::node::{Arrival, MAD_LEN, MadHandler};
pub use adverb_cm::Path;
pub use adverb_os::{ask_neighbour, neighbour_is_known};
pub use binding::{Binding, binding_of, binding_toward};
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
/// The MAD interface of this process. After the drop no new call of the handler begins; calls under
/// way end.
#[derive(Debug)]
pub struct MadInterface {
    node: Arc<Node>,
}

impl MadInterface {
    /// Opens the interface.
    ///
    /// # Errors
    /// EBUSY if the process has the interface open; errors of the kernel for sockets and threads.
    pub fn open(handler: Arc<dyn MadHandler>) -> Result<MadInterface, Error> {
        let node = Node::get()?;
        node.mads.set_handler(&node, handler)?;
        Ok(MadInterface { node })
    }

    /// Was the interface opened in the parent before a `fork`? The child opens its own.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.node.is_stale()
    }

    /// Does the device call [`MadHandler::interfaces_changed`]? Not where the kernel sends no
    /// notifications.
    #[must_use]
    pub fn hears_of_interfaces(&self) -> bool {
        self.node.hears_of_interfaces()
    }

    /// The clock of all times of this interface.
    #[must_use]
    pub fn now(&self) -> Time {
        self.node.now()
    }

    /// The parameters for the endpoint of this process: its prefix, and random first numbers.
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

    /// Sends a MAD without waiting and without a callback. The MAD may be lost, as on a network.
    ///
    /// # Errors
    /// EADDRNOTAVAIL and the like if the local address cannot be used. The MAD is lost then.
    pub fn send(&self, path: &Path, mad: &[u8; MAD_LEN]) -> Result<(), Error> {
        self.node.check_alive()?;
        if self.node.faults.as_ref().is_some_and(|faults| faults.loses_mad(mad)) {
            return Ok(());
        }
        if self.node.is_cut_off(path.local) {
            return Ok(());
        }
        // An answer from an address of this machine is accepted only where this process has a
        // socket.
        if self.node.is_own_address(path.remote) {
            self.node.mads.hear_from(&self.node, path)?;
        }
        self.node.mads.send(&self.node, path, mad)
    }

    /// Answers the reason if an injected fault refuses a request for a connection that has come.
    #[must_use]
    pub fn refuses(&self) -> Option<adverb_cm::RejectReason> {
        self.node.faults.as_ref()?.refuses()
    }

    /// Asks for a call of [`MadHandler::timeout`] at this time, or a little later.
    pub fn wake_at(&self, at: Time) {
        if !self.is_stale() {
            self.node.mads.keep_deadline(&self.node, at);
        }
    }

    /// Binds a service id at a local address, or at all addresses, among the processes of this
    /// user. [`adverb_cm::ip::service_id`] makes the service id of a port. Only `shared` claims may
    /// share a service id. Opens the UDP port there.
    ///
    /// # Errors
    /// EADDRINUSE if another claim conflicts: both claims have the same address, or either claim is
    /// for all addresses.
    pub fn claim(
        &self,
        service_id: u64,
        local: Option<IpAddr>,
        shared: bool,
    ) -> Result<Claim, Error> {
        self.node.check_alive()?;
        self.node.mads.open(&self.node, local)?;
        if local.is_some() {
            // Requests may come from any address of this machine. An address that cannot be opened
            // belongs to another user.
            let _ = self.node.mads.open(&self.node, None);
        }
        let bound = self.node.link().claim_service(service_id, local, shared)?;
        Ok(Claim { node: self.node.clone(), bound, listening: Ranked::default() })
    }

    /// Asks for a call of [`MadHandler::peer_ended`] when the process of this host that made this
    /// communication id ends. `false`: no process of this user has the id.
    #[must_use]
    pub fn watch_peer(&self, remote_id: u32) -> bool {
        !self.is_stale() && self.node.mads.watch_peer(&self.node, remote_id)
    }

    /// Is this an address of this machine?
    #[must_use]
    pub fn is_local(&self, ip: IpAddr) -> bool {
        self.node.is_own_address(ip)
    }

    /// Reserves the number of a queue pair until the hold is dropped, so that no new queue pair
    /// gets the number. Packets of the old connection may still be on their way.
    #[must_use]
    pub fn reserve_qpn(&self, qpn: u32) -> QpnReservation {
        self.node.registry.qps.reserve(qpn);
        QpnReservation { node: self.node.clone(), qpn }
    }
}

impl Drop for MadInterface {
    fn drop(&mut self) {
        if !self.is_stale() {
            self.node.mads.unset_handler();
        }
    }
}

/// A service id bound by this process; freed by the drop.
#[derive(Debug)]
pub struct Claim {
    node: Arc<Node>,
    bound: ServiceClaim,
    listening: Ranked<Option<ServiceIndex>, ranks::MadClaim>,
}

impl Claim {
    /// From now on this process receives requests for the service. A second call changes nothing.
    ///
    /// # Errors
    /// EADDRINUSE if another holder of the shared claim listens already.
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
        self.bound.service
    }

    /// The address of the claim; `None` for all addresses.
    #[must_use]
    pub fn local(&self) -> Option<IpAddr> {
        self.bound.at
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

/// Reserves a queue pair number.
#[derive(Debug)]
pub struct QpnReservation {
    node: Arc<Node>,
    qpn: u32,
}

impl QpnReservation {
    /// The number.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.qpn
    }
}

impl Drop for QpnReservation {
    fn drop(&mut self) {
        if !self.node.is_stale() {
            self.node.registry.qps.release(self.qpn);
        }
    }
}
