//! The result of a run, and captures of its packets.
use std::fmt;

/// A violation, with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Index of the action; one past the last action is the winding up.
    pub action: usize,
    /// Number of the world's event.
    pub step: u64,
    /// Virtual time in nanoseconds.
    pub at: u64,
    /// What was found, and what was expected.
    pub why: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "action {}, event {}, {} ns: {}", self.action, self.step, self.at, self.why)
    }
}

/// Packets of a run, each with the time when the network received it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Capture {
    pub(crate) packets: Vec<(u64, Vec<u8>)>,
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Hash of all events of the run: equal runs have equal hashes.
    pub hash: u64,
    /// The violation; `None` is a pass.
    pub failure: Option<Failure>,
    /// Events of the world.
    pub events: u64,
    /// Packets handed to the network.
    pub packets: u64,
    /// Completions.
    pub completions: u64,
    /// A line for each event, if the world was traced.
    pub trace: Vec<String>,
    pub(crate) capture: Capture,
}

impl Report {
    /// The packets of a captured world as a pcapng file, for Wireshark.
    #[must_use]
    pub fn pcapng(&self) -> Vec<u8> {
        let mut out = Vec::new();
        // Section header: byte order, version 1.0, length unknown.
        let mut section = Vec::new();
        section.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
        section.extend_from_slice(&[1, 0, 0, 0]);
        section.extend_from_slice(&u64::MAX.to_le_bytes());
        block(&mut out, 0x0a0d_0d0a, &section);
        // Interface: IPv4 without a link layer (228), no limit, times in nanoseconds (option 9).
        let mut interface = vec![228, 0, 0, 0, 0, 0, 0, 0];
        interface.extend_from_slice(&[9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        block(&mut out, 1, &interface);
        for (at, packet) in &self.capture.packets {
            let mut body = vec![0; 4];
            body.extend_from_slice(&((at >> 32) as u32).to_le_bytes());
            body.extend_from_slice(&(*at as u32).to_le_bytes());
            for _ in 0..2 {
                body.extend_from_slice(&(packet.len() as u32).to_le_bytes());
            }
            body.extend_from_slice(packet);
            block(&mut out, 6, &body);
        }
        out
    }
}

fn block(out: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let len = (12 + body.len().next_multiple_of(4)) as u32;
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(body);
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend_from_slice(&len.to_le_bytes());
}
