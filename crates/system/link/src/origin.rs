//! The origin of packets: a packet from this machine counts only if it comes from the own user's
//! port.
//!
//! Any program of this machine may send to the port from an address of the machine, with a valid
//! ICRC. But no other user's program can send from the port itself while this process holds the
//! port at all addresses ([`crate::everywhere`]). So a packet with a source address of this machine
//! is accepted only if this process has a socket at the address, and the source port is the link's.

pub(crate) mod kind;

use std::net::SocketAddr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use adverb_os::OwnAddresses;
use adverb_os::sys;

use crate::address::AddressSocket;
use crate::buffers::RxBuffers;
use crate::packet::each;
use crate::stats::add;
use crate::types::LocalPorts;
use crate::udp::{Sockets, UdpLink};
use kind::{LastOrigin, Origin};

/// The most reads of one socket before a new socket counts.
const MOST_READ: usize = 1024;
/// How long a concurrent receiving thread is waited for then.
const RECEIVER_WAIT: Duration = Duration::from_millis(20);

impl UdpLink {
    /// The addresses of this machine.
    pub fn own_addresses(&self) -> &OwnAddresses {
        &self.own_addresses
    }

    /// As [`UdpLink::origin_of`], remembered for the next packet from the same source.
    #[inline]
    pub(crate) fn origin(
        &self,
        sockets: &Sockets,
        last: &mut LastOrigin,
        src: SocketAddr,
    ) -> Origin {
        let version = self.own_addresses.version();
        if let Some((of, at, origin)) = last.0
            && at == version
            && (of == src || self.is_of_other_host(of, origin) && of.ip() == src.ip())
        {
            return origin;
        }
        let origin = self.origin_of(sockets, src);
        last.0 = Some((src, version, origin));
        origin
    }

    /// Whether the judged source is another host's, whose packets have any port.
    #[inline]
    fn is_of_other_host(&self, of: SocketAddr, origin: Origin) -> bool {
        origin == Origin::Good && of.port() != self.config.port
    }

    pub(crate) fn origin_of(&self, sockets: &Sockets, src: SocketAddr) -> Origin {
        if self.config.local_ports == LocalPorts::Any {
            return Origin::Good;
        }
        let mut here = sockets.at(src.ip()).peekable();
        let is_own = here.peek().is_some() || self.own_addresses.contains(src.ip());
        match is_own {
            false => Origin::Good,
            true if src.port() != self.config.port => Origin::Forged,
            // The scope of a link-local address counts, too.
            true if here.any(|socket| socket.local == src && socket.vouches.load(Acquire)) => {
                Origin::Good
            }
            true => Origin::Unproven,
        }
    }

    /// Makes packets from the port at this socket's address count from now on. The other sockets
    /// may still contain packets sent from there while another user had the port. Such packets are
    /// read first, and judged by the old state.
    pub(crate) fn vouch(&self, new: &AddressSocket) {
        let sockets = self.sockets();
        let mut buffers = RxBuffers::new(1);
        for socket in sockets.addresses.iter().flatten().filter(|socket| socket.index != new.index)
        {
            let keep = &mut each(|packet| self.pending.keep(&packet, &self.counters));
            for _ in 0..MOST_READ {
                // A concurrent receiver reads the same queue, so wait until it is done.
                drop(socket.receiving.try_lock_for(RECEIVER_WAIT));
                match sys::poll(&[socket.fd.raw()], libc::POLLIN, Duration::ZERO) {
                    Ok(1) => self.recv_address(socket, &mut buffers, 64, keep),
                    Ok(_) => break,
                    Err(error) => {
                        self.local.errors().note("poll a UDP socket", &error);
                        break;
                    }
                };
            }
            drop(socket.receiving.try_lock_for(RECEIVER_WAIT));
        }
        new.vouches.store(true, Release);
        self.own_addresses.renew();
    }

    /// Counts packets with a false or unproven source, and logs some of them.
    pub(crate) fn drop_local(&self, src: SocketAddr, packets: u64) {
        let before = self.counters.rx_drop_local_port.load(Relaxed);
        add(&self.counters.rx_drop_local_port, packets);
        // Whenever the count has doubled.
        if before == 0 || (before + packets).ilog2() > before.ilog2() {
            let port = self.config.port;
            let why = if src.port() == port {
                "this process has no socket there"
            } else {
                "the packet is from another port"
            };
            log::warn!(
                "dropped a packet from {src}, an address of this machine: {why}, so any user may have sent it (port {port}; \
                 rx_drop_local_port={})",
                before + packets
            );
        }
    }
}
