//! Captures as Wireshark reads them, packet by packet. Each is compared with Adverb's parse of the
//! same bytes.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use adverb_wire::icrc::{self, IpMeta, UdpMeta};
use adverb_wire::{Headers, Syndrome, Transport};

use crate::process::{output_of, which};

/// Protocols that Wireshark guesses for the payload of a SEND. These dissectors also accept short
/// messages of other content.
const GUESSES: [&str; 9] = [
    "smc",
    "smb_direct",
    "rpcordma",
    "nvme-rdma",
    "lnet",
    "iser",
    "infiniband.eoib",
    "infiniband_sdp",
    "fcoib",
];

/// Text in the comment of a packet that crossed shared memory. A request that the initiator
/// performs without a packet has this text, too.
const NEAR: &str = "shared memory";

/// Severity of an expert's warning; an error has a higher value.
const EXPERT_WARNING: u64 = 0x0060_0000;

/// The fields requested for each packet, in the order of the parser below.
const FIELDS: [&str; 17] = [
    "frame.number",
    "frame.comment",
    "frame.p2p_dir",
    "_ws.malformed",
    "_ws.expert.severity",
    "ip.checksum.status",
    "udp.checksum.status",
    "ip.src",
    "ip.dst",
    "ip.id",
    "udp.srcport",
    "udp.dstport",
    "udp.payload",
    "infiniband.bth.opcode",
    "infiniband.bth.psn",
    "infiniband.bth.destqp",
    "infiniband.aeth.syndrome",
];

/// A packet of a capture.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The packet's comment in the capture.
    pub comment: String,
    /// Whether the capturing process sent the packet.
    pub sent: bool,
    /// The UDP source port.
    pub src_port: u16,
    /// BTH through ICRC.
    pub bytes: Vec<u8>,
    /// Adverb's parse of the headers.
    pub headers: Headers,
}

/// The content of a capture.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The packets in the order of the file.
    pub packets: Vec<Seen>,
    /// Packets recorded as damaged on request; these are not in `packets`.
    pub damaged: usize,
}

/// Reads a capture of packets over IPv4. Each packet must be well-formed for Wireshark, with right
/// checksums. Wireshark and Adverb must agree on opcode, PSN, queue pair and syndrome, and the ICRC
/// must be right by Adverb's computation. Packets of shared memory have neither a UDP checksum nor
/// an ICRC.
///
/// # Errors
/// The mistake, with the number of the packet.
pub fn capture(file: &Path) -> Result<Reading, String> {
    let text = fields(file)?;
    let (damaged, whole): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|l| l.contains("one bit flipped"));
    let read = |line| read(line).map_err(|why| format!("{}: {why}\n{line}", file.display()));
    let packets = whole.into_iter().map(read).collect::<Result<_, _>>()?;
    Ok(Reading { packets, damaged: damaged.len() })
}

/// The output of `tshark`, which fails when the file is cut short or damaged.
fn fields(file: &Path) -> Result<String, String> {
    let mut command = Command::new(which("tshark")?);
    command.arg("-r").arg(file).args(["-T", "fields", "-E", "separator=/t", "-E", "occurrence=a"]);
    command.args(["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]);
    command.args(GUESSES.iter().flat_map(|name| ["--disable-protocol", name]));
    command.args(FIELDS.iter().flat_map(|name| ["-e", name]));
    output_of(&mut command, &format!("tshark of {}", file.display()))
}

fn read(line: &str) -> Result<Seen, String> {
    let f: Vec<&str> = line.split('\t').collect();
    let f: [&str; FIELDS.len()] = f.try_into().map_err(|_| "fields are missing".to_string())?;
    let [number, comment, direction, malformed, severity, ip_sum, udp_sum, rest @ ..] = f;
    let [src, dst, id, src_port, dst_port, payload, opcode, psn, dest_qpn, syndrome] = rest;
    // Wireshark counts a comment as an expert's remark, too.
    let error = severity.split(',').filter_map(unsigned).any(|severity| severity >= EXPERT_WARNING);
    if !malformed.is_empty() || error {
        return Err(format!("packet {number} is malformed ({malformed} {severity})"));
    }
    // Packets of shared memory have no ICRC, and 0 as the UDP checksum, which Wireshark reports as
    // status 3.
    let near = comment.contains(NEAR);
    if (ip_sum, udp_sum) != ("1", if near { "3" } else { "1" }) {
        return Err(format!("packet {number} has a wrong checksum (IP {ip_sum}, UDP {udp_sum})"));
    }
    let bytes = unhex(payload).ok_or_else(|| format!("packet {number} has no payload"))?;
    let (covered, icrc) = bytes.split_last_chunk::<4>().ok_or("a packet shorter than its ICRC")?;
    let (headers, _) = Headers::parse(covered).map_err(|e| format!("packet {number}: {e}"))?;
    let ours = [
        u64::from(headers.bth.opcode.as_u8()),
        u64::from(headers.bth.psn.get()),
        u64::from(headers.bth.dest_qpn),
    ];
    let theirs = [opcode, psn, dest_qpn].map(unsigned);
    if theirs != ours.map(Some) {
        return Err(format!(
            "packet {number}: opcode, PSN, queue pair are {ours:x?}, Wireshark says {theirs:x?}"
        ));
    }
    // Wireshark parses no AETH on XRC.
    let looked_for = headers.bth.opcode.transport() != Transport::Xrc;
    let ours = headers.aeth.filter(|_| looked_for).map(|aeth| u64::from(aeth.syndrome.as_u8()));
    if ours != unsigned(syndrome) {
        return Err(format!(
            "packet {number}: the syndrome is {ours:x?}, Wireshark says {syndrome}"
        ));
    }
    let ip = IpMeta::V4 {
        src: v4(src)?,
        dst: v4(dst)?,
        id: number_of("ip.id", id)? as u16,
        dont_fragment: true,
    };
    let udp = UdpMeta {
        src_port: number_of("udp.srcport", src_port)? as u16,
        dst_port: number_of("udp.dstport", dst_port)? as u16,
        len: 8 + bytes.len() as u16,
    };
    if near && *icrc != [0; 4] {
        return Err(format!("packet {number} of shared memory has an ICRC"));
    }
    if !near && icrc::icrc(&ip, &udp, covered).to_le_bytes() != *icrc {
        return Err(format!("packet {number} has a wrong ICRC"));
    }
    let sent = match direction {
        "0" => true,
        "1" => false,
        _ => return Err(format!("packet {number} has no direction")),
    };
    Ok(Seen { comment: comment.to_string(), sent, src_port: udp.src_port, headers, bytes })
}

impl Seen {
    /// The syndrome, if the packet has an AETH.
    pub fn syndrome(&self) -> Option<Syndrome> {
        self.headers.aeth.map(|aeth| aeth.syndrome)
    }
}

fn v4(text: &str) -> Result<[u8; 4], String> {
    match text.parse() {
        Ok(IpAddr::V4(ip)) => Ok(ip.octets()),
        _ => Err(format!("{text:?} is no IPv4 address")),
    }
}

fn number_of(name: &str, text: &str) -> Result<u64, String> {
    unsigned(text).ok_or_else(|| format!("{name} is {text:?}"))
}

fn unsigned(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    (rest.is_empty() && !pairs.is_empty()).then(|| pairs.iter().map(|[a, b]| a << 4 | b).collect())
}
