//! A door for fuzzing: what sockets would bring, without them.

use std::net::{IpAddr, SocketAddr};

use crate::error::LinkError;
use crate::recv::{RxBuffers, Sink};
use crate::slot::{self, Message};
use crate::steer::Probe;
use crate::sys::Received;
use crate::types::{AddrIndex, Config};
use crate::udp::UdpLink;

/// A user that no process runs as: what a fuzzed link hands on reaches nobody.
const NOBODY: u32 = u32::MAX;

/// A link that is given bytes instead of receiving them.
#[derive(Debug)]
pub struct Fed {
    link: UdpLink,
}

impl Fed {
    /// A link with sockets at these addresses that does not measure steering.
    ///
    /// # Errors
    /// As [`UdpLink::add_address`].
    pub fn new(config: Config, addresses: &[IpAddr]) -> Result<Fed, LinkError> {
        let mut link = UdpLink::new(Config { port: 0, steer: false, ..config })?;
        link.uid = NOBODY;
        for ip in addresses {
            link.add_address(*ip, 0)?;
        }
        Ok(Fed { link })
    }

    /// The link.
    #[must_use]
    pub fn link(&self) -> &UdpLink {
        &self.link
    }

    /// The user whose probes it answers.
    #[must_use]
    pub fn uid(&self) -> u32 {
        NOBODY
    }

    /// A UDP datagram of packets of `stride` bytes comes to the address.
    pub fn datagram(
        &self,
        to: AddrIndex,
        src: SocketAddr,
        stride: usize,
        bytes: &[u8],
        buffers: &mut RxBuffers,
        sink: Sink<'_>,
    ) -> usize {
        let sockets = self.link.sockets();
        let Some(socket) = sockets.get(to) else { return 0 };
        let len = bytes.len();
        let meta =
            Received { src, len, stride: stride.max(1), truncated: false, traffic_class: 0, hop_limit: 64 };
        let (solver, foreign) = buffers.parts();
        self.link.take_datagram(&sockets, socket, &meta, bytes, solver, foreign, sink)
            + self.link.release_held(sink)
    }

    /// A message comes over the hand-over socket.
    pub fn message(&self, bytes: &[u8], sink: Sink<'_>) -> usize {
        let sockets = self.link.sockets();
        let Some(claim) = sockets.claims.first() else { return 0 };
        self.link.take_message(&sockets, claim, bytes, 0, Vec::new(), sink)
    }
}

/// Reads a message between processes and writes it again, as far as it is one.
#[must_use]
pub fn message_again(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(match slot::parse(bytes)? {
        Message::Packets { envelope, packets } => {
            let mut out = slot::packets_header(&envelope);
            out.extend_from_slice(packets);
            out
        }
        Message::Nudge { ip } => slot::nudge(ip),
        Message::Answer { nonce, index, slots } => slot::answer(nonce, index, &slots),
        Message::Hello(hello) => hello.emit(),
    })
}

/// Reads a probe and writes it again.
#[must_use]
pub fn probe_again(bytes: &[u8]) -> Option<Vec<u8>> {
    Probe::parse(bytes).map(|probe| probe.encode())
}
