//! Packet sockets: whole Ethernet frames of an interface.
use super::datagram::{Control, for_each_control, receive_message, send_message};
use super::raw::{message_header, part, part_mut, set_value, socket};
use super::{Fd, FdTable, check, check_len, set_option};
use libc::{c_int, c_uchar, socklen_t};
use std::io;
use std::mem::{self, size_of};
use std::ptr;
use std::sync::Arc;

/// Bytes of both addresses of a frame; the VLAN tag follows them.
const ADDRESSES: usize = 12;
/// The type of a VLAN tag if the kernel does not report the type.
const VLAN: u16 = 0x8100;

/// A received frame; the bytes are in the caller's buffer.
pub struct Framed {
    pub len: usize,
    /// The interface sends this frame.
    pub leaving: bool,
    /// The VLAN tag removed by the kernel: its type and its value.
    vlan: Option<(u16, u16)>,
}

impl Framed {
    /// The frame as on the wire.
    pub fn bytes(&self, buffer: &[u8]) -> Vec<u8> {
        let bytes = &buffer[..self.len];
        match self.vlan {
            Some((kind, tag)) if bytes.len() >= ADDRESSES => {
                let (addresses, rest) = bytes.split_at(ADDRESSES);
                [addresses, &kind.to_be_bytes(), &tag.to_be_bytes(), rest].concat()
            }
            _ => bytes.to_vec(),
        }
    }
}

/// A socket that receives and sends the frames of an interface, including frames to other stations.
pub fn packet_socket(table: &Arc<FdTable>, interface: u32) -> io::Result<Fd> {
    // Protocol 0, so that the socket receives nothing of any interface before the bind.
    let fd = table.register(socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?)?;
    set_option(&fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
    let all = libc::packet_mreq {
        mr_ifindex: interface as c_int,
        mr_type: libc::PACKET_MR_PROMISC as _,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_value(fd.raw(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &all)?;
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = interface as c_int;
    let size = size_of::<libc::sockaddr_ll>() as socklen_t;
    // SAFETY: `address` has `size` bytes.
    check(unsafe { libc::bind(fd.raw(), ptr::from_ref(&address).cast(), size) })?;
    Ok(fd)
}

/// Sends a frame without waiting.
pub fn send_frame(fd: &Fd, frame: &[u8]) -> io::Result<usize> {
    let mut parts = [part(frame)];
    let header = message_header(&mut parts);
    // SAFETY: the part lives through the call; the kernel only reads it.
    check_len(unsafe { send_message(fd.own_lately(), &header) })
}

/// Receives a frame without waiting. `Ok(None)`: a frame did not fit and was dropped.
pub fn recv_frame(fd: &Fd, buffer: &mut [u8]) -> io::Result<Option<Framed>> {
    let mut control = Control([0; 128]);
    let mut parts = [part_mut(buffer)];
    // SAFETY: all zeros is a valid address.
    let mut from: libc::sockaddr_ll = unsafe { mem::zeroed() };
    let mut header = message_header(&mut parts);
    header.msg_name = (&raw mut from).cast();
    header.msg_namelen = size_of::<libc::sockaddr_ll>() as socklen_t;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = size_of::<Control>() as _;
    // SAFETY: address, part and ancillary buffer are writable and live through the call.
    let len = check_len(unsafe { receive_message(fd.own_lately(), &mut header, 0) })?;
    let mut vlan = None;
    for_each_control(&header, |level, kind, data| {
        if (level, kind) == (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
            vlan = tag_of(data);
        }
    });
    let leaving = from.sll_pkttype == libc::PACKET_OUTGOING as c_uchar;
    let whole = header.msg_flags & libc::MSG_TRUNC == 0;
    Ok(whole.then_some(Framed { len, leaving, vlan }))
}

/// The VLAN tag of a `struct tpacket_auxdata`: status, length, captured length, two offsets, tag,
/// type of the tag.
fn tag_of(data: &[u8]) -> Option<(u16, u16)> {
    let status = u32::from_ne_bytes(*data.first_chunk()?);
    let half = |at: usize| data.get(at..)?.first_chunk().map(|b| u16::from_ne_bytes(*b));
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let known = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    Some((half(18).filter(|_| known).unwrap_or(VLAN), half(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_that_the_kernel_took_out_is_put_back() {
        let mut data = Vec::new();
        let status = libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID;
        [status, 60, 60].iter().for_each(|word| data.extend(word.to_ne_bytes()));
        [0_u16, 14, 0x6005, 0x88a8].iter().for_each(|half| data.extend(half.to_ne_bytes()));
        let vlan = tag_of(&data);
        assert_eq!(vlan, Some((0x88a8, 0x6005)));
        let frame: Vec<u8> = (0..20).collect();
        let framed = Framed { len: 16, leaving: false, vlan };
        let bytes = framed.bytes(&frame);
        assert_eq!(bytes[..12], frame[..12]);
        assert_eq!(bytes[12..16], [0x88, 0xa8, 0x60, 0x05]);
        assert_eq!(bytes[16..], frame[12..16]);
        data[..4].fill(0);
        assert_eq!(tag_of(&data), None);
    }
}
