//! Blocks of a capture file (pcapng, draft-ietf-opsawg-pcapng): a section, one interface, packets.
//! Little-endian; the section header says so.

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
/// A packet begins with its IP header.
const LINKTYPE_RAW: u16 = 101;

const OPT_COMMENT: u16 = 1;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;

/// First bytes of every file.
pub(super) const MAGIC: [u8; 4] = SECTION.to_le_bytes();

/// Which way a packet went, as `epb_flags` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Received = 1,
    Sent = 2,
}

/// Appends a block, its body by `fill`.
fn block(out: &mut Vec<u8>, kind: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    fill(out);
    let len = (out.len() - start + 4) as u32;
    out[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&len.to_le_bytes());
}

fn pad(out: &mut Vec<u8>, len: usize) {
    out.resize(out.len() + len.wrapping_neg() % 4, 0);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    pad(out, value.len());
}

fn end_of_options(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0; 4]);
}

/// What a file begins with: a section of unknown length and its one interface, times in
/// nanoseconds.
pub(super) fn start(out: &mut Vec<u8>, program: &str, comment: &str) {
    block(out, SECTION, |out| {
        out.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
        out.extend_from_slice(&1u16.to_le_bytes());
        out.extend_from_slice(&0u16.to_le_bytes());
        out.extend_from_slice(&u64::MAX.to_le_bytes());
        option(out, SHB_USERAPPL, program.as_bytes());
        option(out, OPT_COMMENT, comment.as_bytes());
        end_of_options(out);
    });
    block(out, INTERFACE, |out| {
        out.extend_from_slice(&LINKTYPE_RAW.to_le_bytes());
        // Reserved, then no limit to a packet's length.
        out.extend_from_slice(&[0; 2 + 4]);
        option(out, IF_NAME, b"adverb");
        option(out, IF_TSRESOL, &[9]);
        end_of_options(out);
    });
}

/// One packet; `time` in nanoseconds since 1970, the IP packet by `fill`, which leaves `missing`
/// bytes of it out.
pub(super) fn packet(
    out: &mut Vec<u8>,
    time: u64,
    direction: Direction,
    comment: &str,
    missing: usize,
    fill: impl FnOnce(&mut Vec<u8>),
) {
    block(out, ENHANCED_PACKET, |out| {
        out.extend_from_slice(&0u32.to_le_bytes());
        out.extend_from_slice(&((time >> 32) as u32).to_le_bytes());
        out.extend_from_slice(&(time as u32).to_le_bytes());
        let lengths = out.len();
        out.extend_from_slice(&[0; 8]);
        let start = out.len();
        fill(out);
        let len = out.len() - start;
        out[lengths..lengths + 4].copy_from_slice(&(len as u32).to_le_bytes());
        out[lengths + 4..lengths + 8].copy_from_slice(&((len + missing) as u32).to_le_bytes());
        pad(out, len);
        option(out, OPT_COMMENT, comment.as_bytes());
        option(out, EPB_FLAGS, &(direction as u32).to_le_bytes());
        end_of_options(out);
    });
}
