//! Recognises packets that this machine sends to itself by the kernel's own information, which no
//! program can forge.

use std::net::{IpAddr, Ipv6Addr};

use adverb_os::sys::{self, Fd, Insn};

use crate::LinkError;
use crate::types::{Config, LocalPorts};

/// The index of the loopback interface in every network namespace (`LOOPBACK_IFINDEX`).
const LOOPBACK: u32 = 1;
/// `PACKET_LOOPBACK` (linux/if_packet.h): a copy of a packet sent by this machine to a group.
const LOOPED: u32 = 5;
/// `SKF_AD_OFF` with `SKF_AD_PKTTYPE` and `SKF_AD_IFINDEX` (linux/filter.h).
const PACKET_TYPE: u32 = 0xffff_f000 + 4;
const INTERFACE: u32 = 0xffff_f000 + 8;
/// `SKF_NET_OFF`: from this value on, offsets count from the IP header. At offset 8 is the IPv6
/// source.
const SOURCE: u32 = 0xfff0_0000 + 8;

/// A program that drops all packets.
pub(crate) const NOTHING: [Insn; 1] = [Insn(RETURN, 0, 0, 0)];
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Makes a socket drop packets that a program of this machine sent from another port, whatever
/// their source address. With `IPV6_FREEBIND` the source may be another machine's address. Packets
/// with the socket's own address as source pass this filter: [`crate::origin`] judges and counts
/// them.
///
/// IPv4 needs no filter: sending from other machines' addresses requires a privilege.
pub(crate) fn only_from_port(fd: &Fd, own: IpAddr, config: &Config) -> Result<(), LinkError> {
    let (IpAddr::V6(own), LocalPorts::Own) = (own, config.local_ports) else { return Ok(()) };
    sys::attach_filter(fd, &from_port(own, config.port))
        .map_err(|error| LinkError::from_io("set up a UDP socket", error))
}

/// The packet data begins at the UDP header.
fn from_port(own: Ipv6Addr, port: u16) -> [Insn; 16] {
    const WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
    const IF_EQ: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let octets = own.octets();
    let word =
        |i: usize| u32::from_be_bytes([octets[i], octets[i + 1], octets[i + 2], octets[i + 3]]);
    [
        Insn(WORD, 0, 0, INTERFACE),
        Insn(IF_EQ, 2, 0, LOOPBACK),
        Insn(WORD, 0, 0, PACKET_TYPE),
        Insn(IF_EQ, 0, 11, LOOPED),
        Insn(HALF, 0, 0, 0),
        Insn(IF_EQ, 9, 0, u32::from(port)),
        Insn(WORD, 0, 0, SOURCE),
        Insn(IF_EQ, 0, 6, word(0)),
        Insn(WORD, 0, 0, SOURCE + 4),
        Insn(IF_EQ, 0, 4, word(4)),
        Insn(WORD, 0, 0, SOURCE + 8),
        Insn(IF_EQ, 0, 2, word(8)),
        Insn(WORD, 0, 0, SOURCE + 12),
        Insn(IF_EQ, 1, 0, word(12)),
        Insn(RETURN, 0, 0, 0),
        Insn(RETURN, 0, 0, u32::MAX),
    ]
}
