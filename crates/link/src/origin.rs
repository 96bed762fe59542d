//! Where packets come from: those of this machine count only if they come from the port that the
//! own user holds.
//!
//! Any program of this machine may send to the port from an address of the machine, with a right
//! ICRC. What it cannot do is to send from the port itself while this process holds that everywhere
//! ([`crate::everywhere`]). So a packet whose source is an address of this machine is taken only if
//! this process has a socket there, and the packet comes from its port.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

use adverb_sync::Mutex;

use crate::address::AddressSocket;
use crate::buffers::RxBuffers;
use crate::owner::{self, Ranges};
use crate::packet::RxPacket;
use crate::stats::add;
use crate::sys;
use crate::types::LocalPorts;
use crate::udp::{Sockets, UdpLink};

/// How long the list of the machine's own addresses is believed.
const FRESH: Duration = Duration::from_secs(1);

/// Reads of one socket at most, before a new one counts.
const MOST_READ: usize = 1024;
/// How long a thread that receives is waited for then.
const RECEIVER_WAIT: Duration = Duration::from_millis(20);

/// What a source address says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From another machine, or from the own user's port of this one.
    Good,
    /// From the port at an address of this machine at which this process has no socket: whose it is
    /// it cannot say. A process that has one there can.
    Unproven,
    /// From this machine, and not from the port.
    Forged,
}

/// The origin of packets from the source seen last, and the version of the tables that said so.
#[derive(Debug, Default)]
pub(crate) struct LastOrigin(Option<(SocketAddr, u64, Origin)>);

/// The machine's own addresses.
#[derive(Default)]
pub(crate) struct OwnAddresses {
    known: Mutex<(Option<Instant>, Ranges)>,
    /// Changes with the list, and with the sockets.
    pub(crate) version: AtomicU64,
}

impl OwnAddresses {
    fn contains(&self, ip: IpAddr) -> bool {
        if ip.is_loopback() {
            return true;
        }
        let mut known = self.known.lock();
        if known.0.is_none_or(|at| at.elapsed() > FRESH) {
            // Without an answer what was known stays; the addresses of the sockets are known in any
            // case.
            let ranges = owner::local_ranges().unwrap_or_else(|error| {
                log::debug!("the kernel does not say which addresses this machine has: {error}");
                std::mem::take(&mut known.1)
            });
            if ranges != known.1 {
                self.version.fetch_add(1, Relaxed);
            }
            *known = (Some(Instant::now()), ranges);
        }
        owner::within(&known.1, ip)
    }
}

impl UdpLink {
    /// Is it an address of this machine? The answer may be a second old.
    pub fn is_own_address(&self, ip: IpAddr) -> bool {
        self.own_addresses.contains(ip)
    }

    /// They have changed: the next question is asked anew.
    pub fn own_addresses_changed(&self) {
        self.own_addresses.known.lock().0 = None;
    }

    /// As [`UdpLink::origin_of`], remembered for the next packet from the same source.
    #[inline]
    pub(crate) fn origin(&self, sockets: &Sockets, last: &mut LastOrigin, src: SocketAddr) -> Origin {
        let version = self.own_addresses.version.load(Relaxed);
        if let Some((of, at, origin)) = last.0
            && of == src
            && at == version
        {
            return origin;
        }
        let origin = self.origin_of(sockets, src);
        last.0 = Some((src, version, origin));
        origin
    }

    pub(crate) fn origin_of(&self, sockets: &Sockets, src: SocketAddr) -> Origin {
        if self.config.local_ports == LocalPorts::Any {
            return Origin::Good;
        }
        let mut here =
            sockets.addresses.iter().flatten().filter(|socket| socket.local.ip() == src.ip()).peekable();
        let is_own = here.peek().is_some() || self.is_own_address(src.ip());
        match is_own {
            false => Origin::Good,
            true if src.port() != self.config.port => Origin::Forged,
            // Of link-local addresses the scope counts, too.
            true if here.any(|socket| socket.local == src && socket.vouches.load(Acquire)) => Origin::Good,
            true => Origin::Unproven,
        }
    }

    /// From now on packets from the port at this socket's address count. What came from there while
    /// another user had the port may still wait in the other sockets: it is read first, and judged
    /// as it was.
    pub(crate) fn vouch(&self, new: &AddressSocket) {
        let sockets = self.sockets();
        let mut buffers = RxBuffers::new(1);
        for socket in sockets.addresses.iter().flatten().filter(|socket| socket.index != new.index) {
            let keep = &mut |packet: RxPacket<'_>| self.keep(&packet);
            for _ in 0..MOST_READ {
                // Whoever receives there just now reads the same queue, and is waited for.
                drop(socket.receiving.try_lock_for(RECEIVER_WAIT));
                let waits = sys::poll(&[socket.fd.raw()], libc::POLLIN, Duration::ZERO);
                if !matches!(waits, Ok(1))
                    || self.recv_address(&sockets, socket, &mut buffers, 64, keep).is_err()
                {
                    break;
                }
            }
            drop(socket.receiving.try_lock_for(RECEIVER_WAIT));
        }
        new.vouches.store(true, Release);
        self.own_addresses.version.fetch_add(1, Relaxed);
    }

    /// Counts packets that are not what they say, and names them now and then.
    pub(crate) fn drop_local(&self, src: SocketAddr, packets: u64) {
        let before = self.counters.rx_drop_local_port.load(Relaxed);
        add(&self.counters.rx_drop_local_port, packets);
        // Each time there are twice as many.
        if before == 0 || (before + packets).ilog2() > before.ilog2() {
            let port = self.config.port;
            let why = if src.port() == port {
                "this process has no socket there"
            } else {
                "it is not from the port"
            };
            log::warn!(
                "dropped a packet from {src}, an address of this machine: {why}, so any user may have sent it (port {port}; \
                 rx_drop_local_port={})",
                before + packets
            );
        }
    }
}
