//! Local addresses: the UDP port there, and waiting for the end of IPv6 duplicate address
//! detection.
//!
//! A new IPv6 address of this machine is in the GID table at once, as in the kernel's GID table. No
//! socket can be bound to the address until the kernel has asked the link for another host with the
//! same address. Detection takes one to two seconds. A call that needs the address waits here.
pub(super) mod table;

use self::table::Addresses;
use super::core::Node;
use crate::error::Error;
use crate::interfaces::{self, Interface};
use adverb_link::{AddrIndex, LinkError, UdpLink};
use adverb_os::{Detection, InterfaceNews, unusable_addresses};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Longest wait of a call. With the kernel's defaults, detection takes two seconds at most.
const LONGEST: Duration = Duration::from_secs(5);
/// Interval in milliseconds at which the kernel is asked again, without news of a change.
const PACE: u16 = 100;

impl Addresses {
    /// Opens port 4791 at a local address, once, so that packets for the address arrive here. The
    /// caller logs an error.
    pub(crate) fn open(&self, node: &Node, ip: IpAddr, scope_id: u32) -> Result<AddrIndex, Error> {
        self.try_open(node, ip, scope_id)?.map_err(Error::from)
    }

    /// As [`Addresses::open`] for a usable address. `None` during IPv6 duplicate address
    /// detection: the address is opened when the kernel reports the end of detection. `None` also
    /// if the address has gone since it was listed, for example because detection has failed.
    pub(crate) fn open_if_usable(
        &self,
        node: &Node,
        ip: IpAddr,
        scope_id: u32,
    ) -> Result<Option<AddrIndex>, Error> {
        match self.try_open(node, ip, scope_id)? {
            Ok(index) => Ok(Some(index)),
            Err(LinkError::Tentative { .. } | LinkError::NoSuchAddress { .. }) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn try_open(
        &self,
        node: &Node,
        ip: IpAddr,
        scope_id: u32,
    ) -> Result<Result<AddrIndex, LinkError>, Error> {
        if !node.mads.has_handler() {
            node.registry.qps.before_first(|| node.link.follow_user())?;
        }
        let mut open = self.0.lock();
        if let Some((.., index)) = open.iter().find(|(i, s, _)| *i == ip && *s == scope_id) {
            return Ok(Ok(*index));
        }
        let index = match node.link.add_address(ip, scope_id) {
            Ok(index) => index,
            Err(e) => return Ok(Err(e)),
        };
        open.push((ip, scope_id, index));
        drop(open);
        if ip.is_ipv6() {
            // For a group over IPv6, no route names the interface. Over IPv4, the source address
            // decides.
            let has =
                |i: &Interface| i.addresses.contains(&ip) && (scope_id == 0 || i.index == scope_id);
            if let Some(interface) = interfaces::usable()?.into_iter().find(has) {
                node.link.multicast_from(index, interface.index);
            }
        }
        node.watch()?;
        Ok(Ok(index))
    }

    /// Opens the port at a peer's address, if the address is this machine's own. The peer's packets
    /// count only if they come from the port at this address. While this process has a socket
    /// there, only processes of this user share the port. The caller logs an error.
    ///
    /// # Errors
    /// EADDRINUSE if another user has the port there. No process of this user can then be the peer.
    pub(crate) fn hear(&self, node: &Node, ip: IpAddr, scope_id: u32) -> Result<(), Error> {
        if !node.is_own_address(ip) {
            return Ok(());
        }
        let opened = self.try_open(node, ip, scope_id);
        let failed: &dyn std::fmt::Display = match &opened {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(e @ LinkError::PortTaken { .. })) => {
                let text =
                    format!("the peer's address {ip} is this machine's, but not this user's: {e}");
                return Err(Error::new(Errno::EADDRINUSE, text));
            }
            Ok(Err(e)) => e,
            Err(e) => e,
        };
        log::warn!("packets from {ip}, an address of this machine, will be dropped: {failed}");
        Ok(())
    }

    /// Waits for the end of detection for these addresses of this machine, at interfaces that are
    /// up and have a carrier. Without a carrier, detection does not begin. The caller holds no
    /// lock.
    pub(crate) fn await_usable(&self, node: &Node, addresses: &[IpAddr]) {
        // The answer may be a second old.
        let is_tentative =
            |link: &UdpLink| addresses.iter().any(|ip| link.own_addresses().is_tentative(*ip));
        if !node.link.udp().is_some_and(is_tentative) {
            return;
        }
        log::info!(
            "a call waits for the end of IPv6 duplicate address detection for one of {addresses:?}"
        );
        let until = Instant::now() + LONGEST;
        let news = InterfaceNews::new().ok();
        while is_under_way(addresses) && Instant::now() < until {
            match news.as_ref().and_then(|news| Some((news, news.fd()?))) {
                Some((news, fd)) => {
                    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
                    // An error counts as no news.
                    if poll(&mut fds, PollTimeout::from(PACE)).is_ok() {
                        news.take();
                    }
                }
                None => std::thread::sleep(Duration::from_millis(PACE.into())),
            }
        }
        node.link.own_addresses_changed();
    }
}

fn is_under_way(addresses: &[IpAddr]) -> bool {
    let (Ok(unusable), Ok(interfaces)) = (unusable_addresses(), interfaces::all()) else {
        return false;
    };
    let up = |index: u32| interfaces.iter().any(|i: &Interface| i.index == index && i.up);
    unusable.iter().any(|(index, ip, detection)| {
        *detection == Detection::Tentative && addresses.contains(&IpAddr::V6(*ip)) && up(*index)
    })
}
