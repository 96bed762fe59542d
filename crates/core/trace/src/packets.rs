//! Packets of the link as records.
use crate::{Record, now, record, thread};
use std::net::SocketAddr;

/// The base transport header.
const BTH: usize = 12;
const ACKNOWLEDGE: u8 = 0x11;
/// The upper three bits of the opcodes of datagrams.
const DATAGRAM: u8 = 3;

/// Records a packet (without its ICRC) that was sent or received, if this process is traced.
#[inline]
pub fn packet(sent: bool, src: SocketAddr, dst: SocketAddr, bytes: &[u8], note: &str) {
    if crate::on() {
        packet_at(now(), sent, src, dst, bytes, note);
    }
}

/// As [`packet`], with the time `t` of an earlier packet.
pub fn packet_at(t: u64, sent: bool, src: SocketAddr, dst: SocketAddr, bytes: &[u8], note: &str) {
    packet_of(t, sent, src, dst, bytes, bytes.len(), note);
}

/// As [`packet_at`], for a packet of `len` bytes that begins with `headers`.
pub fn packet_of(
    t: u64,
    sent: bool,
    src: SocketAddr,
    dst: SocketAddr,
    headers: &[u8],
    len: usize,
    note: &str,
) {
    if !crate::on() {
        return;
    }
    let Some((header, rest)) = headers.split_at_checked(BTH) else { return };
    let opcode = header[0];
    let word = |at: &[u8]| u32::from_be_bytes([0, at[0], at[1], at[2]]);
    let from = (opcode >> 5 == DATAGRAM).then(|| rest.get(5..8).map(word)).flatten();
    let syndrome = (opcode & 0x1f == ACKNOWLEDGE).then(|| rest.first().copied()).flatten();
    record(&Record::Packet {
        t,
        tid: thread(),
        sent,
        src: src.ip().to_canonical().to_string(),
        dst: dst.ip().to_canonical().to_string(),
        opcode,
        qp: word(&header[5..8]),
        psn: word(&header[9..12]),
        from,
        syndrome,
        bytes: len,
        note: note.to_owned().into(),
    });
}
