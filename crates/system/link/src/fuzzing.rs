//! For fuzzing: packets and messages as sockets would bring them, without sockets.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};

use adverb_local::fuzzing;
use adverb_os::sys::Received;

use crate::buffers::RxBuffers;
use crate::datagram::Datagram;
use crate::origin::kind::Origin;
use crate::packet::Sink;
use crate::steer::SteeringTest;
use crate::types::{AddrIndex, Config, LocalPorts};
use crate::udp::UdpLink;

/// A user without processes: packets forwarded by a fuzzed link reach no process.
const NOBODY: u32 = u32::MAX;

/// A link that is given bytes instead of receiving them.
#[derive(Debug)]
pub struct Fed {
    link: UdpLink,
}

impl Fed {
    /// A link with sockets at these addresses, which does not measure steering.
    ///
    /// # Errors
    /// As [`adverb_local::Local::new`] and [`UdpLink::add_address`].
    pub fn new(config: Config, addresses: &[IpAddr]) -> Result<Fed, Box<dyn Error>> {
        let local_ports = LocalPorts::Any;
        let local = fuzzing::stranger(0, NOBODY)?;
        let link = UdpLink::new(Config { port: 0, steer: false, local_ports, ..config }, local);
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

    /// The user of the steering tests that the link answers.
    #[must_use]
    pub fn uid(&self) -> u32 {
        NOBODY
    }

    /// Handles a UDP datagram of packets of `stride` bytes for the address.
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
        let meta = Received {
            src,
            len,
            stride: stride.max(1),
            truncated: false,
            traffic_class: 0,
            hop_limit: 64,
        };
        let RxBuffers { solver, misdirected, .. } = buffers;
        let (link, origin) = (&self.link, Origin::Good);
        Datagram { link, socket, meta: &meta, origin, bytes }.take(solver, misdirected, sink)
            + self.link.tap.release_delayed(sink)
    }

    /// Handles a message from another process of the user.
    pub fn message(&self, bytes: &[u8], sink: Sink<'_>) -> usize {
        let sockets = self.link.sockets();
        fuzzing::message(&self.link.local, bytes, &mut |arrived| {
            self.link.take_arrived(&sockets, arrived, sink)
        })
    }
}

/// Parses a steering test and writes it again.
#[must_use]
pub fn steering_test_again(bytes: &[u8]) -> Option<Vec<u8>> {
    SteeringTest::parse(bytes).map(|test| test.encode())
}
