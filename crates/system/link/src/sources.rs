//! The source ports of packets to other hosts.
//!
//! Switches and receiving NICs choose a path or a queue by a hash of addresses and ports (ECMP,
//! RSS). With one source port, all packets between two hosts take one path and one queue. So a
//! packet to another host leaves from one of a few sending sockets of its local address. The queue
//! pair chooses the socket, and always the same socket, because packets of one queue pair must not
//! overtake each other.
//!
//! Packets to this host leave from the link's own port, which proves their sender
//! ([`crate::origin`]). So do packets to multicast groups, because the kernel also gives them to
//! this host.
//!
//! A sending socket receives nothing. Peers send to the link's port, whatever the source port of
//! the packets that they received. The socket is not connected and does not ask for
//! `IP_RECVERR`. So ICMP errors do not fail its sends.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use adverb_os::sys::{self, Fd, FdTable, RawAddr};

use crate::bare::bare_socket;
use crate::looped;
use crate::stats::{Counters, add};
use crate::types::SourcePort;

/// The number of sending sockets of a local address.
const SOCKETS: usize = 8;
/// The range of RoCEv2 source ports (annex A17): 0xc000 to 0xffff.
const FIRST: u16 = 0xc000;
/// How many ports a sending socket tries before it does without.
const ATTEMPTS: u32 = 32;
/// The send buffer of each socket, in bytes.
pub(crate) const SEND_BUFFER: usize = 4 << 20;

/// The sending sockets of one local address, each opened at its first use.
#[derive(Default)]
pub(crate) struct Sources([OnceLock<Option<SendingSocket>>; SOCKETS]);

/// A socket that only sends, with a source port of its own.
struct SendingSocket {
    /// The bound address and port.
    local: SocketAddr,
    fd: Fd,
}

impl Sources {
    /// The sending socket for queue pairs that prefer this port. Opens the socket at `local`'s
    /// address if needed. The socket has the preferred port of its first queue pair if that port is
    /// free. A socket that could not be opened once is never tried again, so that its queue pairs
    /// keep their port.
    pub(crate) fn choose(
        &self,
        table: &Arc<FdTable>,
        local: &SocketAddr,
        preferred: u16,
        counters: &Counters,
    ) -> SourcePort {
        let index = index_of(preferred);
        let socket = self.0[index].get_or_init(|| {
            let opened = open(table, local, preferred);
            add(&counters.tx_no_source_port, u64::from(opened.is_none()));
            opened
        });
        SourcePort(if socket.is_some() { index as u8 + 1 } else { 0 })
    }

    /// The socket and the address of a source port; `None` for the link's own.
    #[inline]
    pub(crate) fn get(&self, port: SourcePort) -> Option<(&Fd, &SocketAddr)> {
        let index = usize::from(port.0).checked_sub(1)?;
        let socket = self.0.get(index)?.get()?.as_ref()?;
        Some((&socket.fd, &socket.local))
    }
}

/// The sending socket of a port. A multiplicative hash, because the preferred ports of a program
/// may differ in few bits.
fn index_of(preferred: u16) -> usize {
    usize::from(preferred.wrapping_mul(0x9e37) >> 13)
}

fn open(table: &Arc<FdTable>, local: &SocketAddr, preferred: u16) -> Option<SendingSocket> {
    let failed = |doing: &str, error: &dyn std::fmt::Display| {
        log::debug!("{local}: no further source port: cannot {doing}: {error}");
    };
    let fd =
        bare_socket(table, local.ip()).inspect_err(|error| failed("open a socket", error)).ok()?;
    sys::attach_filter(&fd, &looped::NOTHING)
        .inspect_err(|error| failed("set up a socket", error))
        .ok()?;
    sys::grow_buffer(&fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SEND_BUFFER);
    let mut local = *local;
    for attempt in 0..ATTEMPTS {
        local.set_port(candidate(preferred, attempt));
        match sys::bind(&fd, &RawAddr::inet(&local)) {
            Ok(()) => return Some(SendingSocket { local, fd }),
            // Another socket of this host has the port.
            Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => {}
            Err(error) => {
                log::debug!("{local}: no further source port: cannot bind: {error}");
                return None;
            }
        }
    }
    log::debug!("{local}: no further source port: {ATTEMPTS} ports are in use");
    None
}

/// The ports to try: the preferred port, then ports that differ between processes. Queue pairs of
/// several processes may prefer the same port.
fn candidate(preferred: u16, attempt: u32) -> u16 {
    let step = attempt.wrapping_mul(std::process::id().wrapping_mul(0x9e37_79b9) | 1);
    FIRST | preferred.wrapping_add((step ^ step >> 16) as u16)
}

#[cfg(all(test, not(loom)))]
mod tests;
