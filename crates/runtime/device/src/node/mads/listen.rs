//! The UDP port at the addresses for requests.
use super::state::Mads;
use crate::error::Error;
use crate::interfaces::{self, gid_of};
use crate::node::carriers::udp::scope_of;
use crate::node::core::Node;
use crate::selection::selection;
use nix::errno::Errno;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

impl Mads {
    /// Opens the UDP port at a local address, or at all local addresses, so that requests arrive.
    /// For all addresses, later addresses are opened when they come: see
    /// [`Mads::open_new_addresses`].
    ///
    /// # Errors
    /// EADDRNOTAVAIL: no interface that is up has the address, or duplicate address detection is
    /// under way. ENODEV: there is no address at all. Otherwise the error of opening a socket.
    pub(crate) fn open(&self, node: &Node, local: Option<IpAddr>) -> Result<(), Error> {
        let (open, refused) = self.open_ports(node, local)?;
        // Several addresses are refused for the same reason.
        if let Some(e) = &refused {
            log::error!("{e}");
        }
        match (open, refused, local) {
            (true, ..) => Ok(()),
            (false, Some(e), _) => Err(e),
            (false, None, Some(ip)) => Err(Error::new(
                Errno::EADDRNOTAVAIL,
                format!("no active interface of this machine has the address {ip}"),
            )),
            (false, None, None) => Err(Error::new(
                Errno::ENODEV,
                "no interface of this machine is up and has an address".to_owned(),
            )),
        }
    }

    /// Returns the first error, and whether the port is, or will soon be, open at one address at
    /// least.
    fn open_ports(
        &self,
        node: &Node,
        local: Option<IpAddr>,
    ) -> Result<(bool, Option<Error>), Error> {
        if local.is_none() {
            self.everywhere.store(true, Ordering::Relaxed);
        }
        let unlisted: Vec<IpAddr> = selection().unlisted_addresses().collect();
        let (mut open, mut refused) = (false, None);
        for interface in interfaces::usable()? {
            let mut addresses = match local {
                Some(local) => vec![local],
                None => [&interface.addresses[..], &unlisted].concat(),
            };
            addresses.retain(|ip| interface.has(ip));
            for ip in addresses {
                let scope = scope_of(&gid_of(&ip), interface.index);
                let opened = match local {
                    Some(_) => node.addresses.open(node, ip, scope).map(drop),
                    None => node.addresses.open_if_usable(node, ip, scope).map(drop),
                };
                match opened {
                    Ok(()) => open = true,
                    Err(e) => refused = refused.or(Some(e)),
                }
            }
        }
        Ok((open, refused))
    }

    /// Interfaces have changed. Opens the port at new addresses, if requests have to arrive at all
    /// addresses.
    pub(crate) fn open_new_addresses(&self, node: &Node) {
        if self.everywhere.load(Ordering::Relaxed)
            && let Some(e) = self.open_ports(node, None).map_or_else(Some, |(_, refused)| refused)
        {
            log::info!("no requests arrive at a new address: {e}");
        }
    }
}
