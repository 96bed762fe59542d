//! Packets that this machine sends to itself, told by the kernel's own word on how they came: what
//! no program can forge.

use std::net::{IpAddr, Ipv6Addr};

use adverb_os::sys::{self, Fd, Insn};

use crate::LinkError;
use crate::types::{Config, LocalPorts};

/// Index of the loopback interface, in every network namespace (`LOOPBACK_IFINDEX`).
const LOOPBACK: u32 = 1;
/// `PACKET_LOOPBACK` (linux/if_packet.h): a copy of what this machine sent to a group.
const LOOPED: u32 = 5;
/// `SKF_AD_OFF` with `SKF_AD_PKTTYPE` and `SKF_AD_IFINDEX` (linux/filter.h).
const PACKET_TYPE: u32 = 0xffff_f000 + 4;
const INTERFACE: u32 = 0xffff_f000 + 8;
/// `SKF_NET_OFF`: from here on offsets count from the IP header. Behind it the source of IPv6.
const SOURCE: u32 = 0xfff0_0000 + 8;

/// A program that lets nothing in.
pub(crate) const NOTHING: [Insn; 1] = [Insn(RETURN, 0, 0, 0)];
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Has a socket drop what a program of this machine sent from another port, whatever source it
/// names: with `IPV6_FREEBIND` that of another machine. What names the socket's own address is left
/// to [`crate::origin`], which says so.
///
/// IPv4 lets nobody without a right send from other machines' addresses.
pub(crate) fn only_from_port(fd: &Fd, own: IpAddr, config: &Config) -> Result<(), LinkError> {
    let (IpAddr::V6(own), LocalPorts::Own) = (own, config.local_ports) else { return Ok(()) };
    sys::attach_filter(fd, &from_port(own, config.port))
        .map_err(|error| LinkError::from_io("set up a UDP socket", error))
}

/// Packet data begins at the UDP header.
fn from_port(own: Ipv6Addr, port: u16) -> [Insn; 16] {
    const WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
    const IF_EQ: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let octets = own.octets();
    let word = |i: usize| u32::from_be_bytes([octets[i], octets[i + 1], octets[i + 2], octets[i + 3]]);
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
