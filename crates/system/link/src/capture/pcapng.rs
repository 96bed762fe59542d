//! Blocks of a capture file (pcapng, draft-ietf-opsawg-pcapng): a section, one interface, packets.
//! Little-endian, as stated in the section header.

use super::frame::Frame;

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

/// The first bytes of every file.
pub(super) const MAGIC: [u8; 4] = SECTION.to_le_bytes();

/// The direction of a packet, as in `epb_flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Received = 1,
    Sent = 2,
}

/// Appends a block; `fill` writes its body.
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

/// The beginning of a file: a section of unknown length, and its one interface with times in
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
        // Reserved, then no limit on the length of packets.
        out.extend_from_slice(&[0; 2 + 4]);
        option(out, IF_NAME, b"adverb");
        option(out, IF_TSRESOL, &[9]);
        end_of_options(out);
    });
}

/// Appends one packet. `time` is in nanoseconds since 1970; `fill` writes the payload. The parts
/// are assembled before the buffer grows, which takes a fraction of the time.
pub(super) fn packet(
    out: &mut Vec<u8>,
    time: u64,
    direction: Direction,
    comment: &str,
    packet: &Frame<'_>,
    fill: impl FnOnce(&mut [u8]),
) {
    const FIXED: usize = 28;
    let comment = &comment.as_bytes()[..comment.len().min(usize::from(u16::MAX))];
    let frame = packet.len();
    let in_block = frame.next_multiple_of(4);
    let len = FIXED + in_block + 4 + comment.len().next_multiple_of(4) + 8 + 4 + 4;
    let word = |value: usize| (value as u32).to_le_bytes();

    let mut head = [0_u8; FIXED + Frame::LONGEST_HEAD];
    head[..4].copy_from_slice(&ENHANCED_PACKET.to_le_bytes());
    head[4..8].copy_from_slice(&word(len));
    head[12..16].copy_from_slice(&((time >> 32) as u32).to_le_bytes());
    head[16..20].copy_from_slice(&(time as u32).to_le_bytes());
    head[20..24].copy_from_slice(&word(frame));
    head[24..28].copy_from_slice(&word(frame + packet.missing));
    let end = FIXED + packet.head(&mut head[FIXED..]);

    let mut option = [0; 4];
    option[..2].copy_from_slice(&OPT_COMMENT.to_le_bytes());
    option[2..].copy_from_slice(&(comment.len() as u16).to_le_bytes());
    let mut tail = [0_u8; 16];
    tail[..2].copy_from_slice(&EPB_FLAGS.to_le_bytes());
    tail[2..4].copy_from_slice(&4_u16.to_le_bytes());
    tail[4..8].copy_from_slice(&word(direction as usize));
    tail[12..].copy_from_slice(&word(len));

    let start = out.len();
    out.reserve(len);
    out.extend_from_slice(&head[..end]);
    out.resize(start + FIXED + in_block, 0);
    fill(&mut out[start + end..start + end + packet.payload]);
    packet.sum(&mut out[start + FIXED..start + FIXED + frame]);
    out.extend_from_slice(&option);
    out.extend_from_slice(comment);
    pad(out, comment.len());
    out.extend_from_slice(&tail);
}
