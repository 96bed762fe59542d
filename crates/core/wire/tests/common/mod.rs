//! A minimal pcap reader: little-endian, Ethernet, IPv4 without options, UDP.
use adverb_wire::icrc::{IpMeta, UdpMeta};
use std::path::PathBuf;

pub struct Captured {
    pub name: String,
    pub ip: IpMeta,
    pub udp: UdpMeta,
    /// The bytes from the BTH through the pad.
    pub datagram: Vec<u8>,
    pub icrc: [u8; 4],
}

fn be16(b: &[u8]) -> u16 {
    u16::from_be_bytes([b[0], b[1]])
}

fn packet(name: String, frame: &[u8]) -> Captured {
    let ip = &frame[14..14 + usize::from(be16(&frame[16..]))];
    assert_eq!((ip[0], ip[9]), (0x45, 17), "{name}: IPv4 and UDP");
    let udp = &ip[20..];
    let (body, icrc) = udp[8..].split_last_chunk().expect("an ICRC");
    Captured {
        name,
        ip: IpMeta::V4 {
            src: ip[12..16].try_into().unwrap(),
            dst: ip[16..20].try_into().unwrap(),
            id: be16(&ip[4..]),
            dont_fragment: ip[6] & 0x40 != 0,
        },
        udp: UdpMeta { src_port: be16(udp), dst_port: be16(&udp[2..]), len: be16(&udp[4..]) },
        datagram: body.to_vec(),
        icrc: *icrc,
    }
}

/// All packets of all captures in the directory `golden`.
pub fn captured() -> Vec<Captured> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "pcap") {
            continue;
        }
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(&bytes[..4], [0xd4, 0xc3, 0xb2, 0xa1], "{file}: little-endian pcap");
        let mut rest = &bytes[24..];
        let mut n = 1;
        while let Some((header, tail)) = rest.split_first_chunk::<16>() {
            let len = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
            all.push(packet(format!("{file} #{n}"), &tail[..len]));
            rest = &tail[len..];
            n += 1;
        }
    }
    all
}
