//! What fuzzing calls: what sockets would bring, without them.

use std::net::{IpAddr, SocketAddr};

use crate::buffers::RxBuffers;
use crate::connection::Sender;
use crate::error::LinkError;
use crate::message::{self, Hello, Message};
use crate::origin_kind::Origin;
use crate::packet::Sink;
use crate::steer::Probe;
use crate::types::{AddrIndex, Config, LocalPorts};
use crate::udp::UdpLink;
use adverb_os::sys::Received;

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
        let local_ports = LocalPorts::Any;
        let mut link = UdpLink::new(Config { port: 0, steer: false, local_ports, ..config })?;
        link.user = crate::user::LinkUser::stranger(NOBODY);
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
        let (solver, misdirected) = buffers.parts();
        self.link.take_datagram(&sockets, socket, &meta, Origin::Good, bytes, solver, misdirected, sink)
            + self.link.release_held(sink)
    }

    /// A message comes from another process of the user.
    pub fn message(&self, bytes: &[u8], sink: Sink<'_>) -> usize {
        let sockets = self.link.sockets();
        self.link.take_message(
            &sockets,
            bytes,
            Sender { pid: 0, fds: Vec::new(), transit: adverb_os::Transit::begin() },
            sink,
        )
    }
}

/// Reads a message between processes and writes it again, as far as it is one.
#[must_use]
pub fn message_again(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(match message::parse(bytes)? {
        Message::Packets { envelope, direct, packets } => {
            let mut out = message::packets_header(&envelope, direct);
            out.extend_from_slice(packets);
            out
        }
        Message::Frame { interface, bytes } => [&message::frame_header(interface)[..], bytes].concat(),
        Message::Refresh { ip } => message::refresh(ip),
        Message::Answer { nonce, index, slots } => message::answer(nonce, index, &slots),
        Message::Hello(hello) => hello.emit(),
    })
}

/// Reads a probe and writes it again.
#[must_use]
pub fn probe_again(bytes: &[u8]) -> Option<Vec<u8>> {
    Probe::parse(bytes).map(|probe| probe.encode())
}

/// The bytes of a greeting.
#[must_use]
pub fn greeting(hello: &Hello) -> Vec<u8> {
    hello.emit()
}

/// Reads a greeting whose kind was looked at, with as many bytes in front as it takes to have
/// looked.
#[must_use]
pub fn parse_greeting(bytes: &[u8]) -> Option<Hello> {
    Hello::parse(bytes)
}
