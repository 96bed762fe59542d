//! The record of a run, the result of a run, and captures of its packets.
use crate::rng::mix;
use crate::verdict::{Check, Violation};
use adverb_engine::Time;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The record that a world keeps of its events.
#[derive(Debug, Default)]
pub(crate) struct Record {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Record {
    /// Keeps the configuration, and from now on a line of text for every event.
    pub(crate) fn trace(&mut self, config: &impl Debug) {
        self.lines = Some(vec![format!("{config:#?}")]);
    }

    pub(crate) fn note(&mut self, now: Time, words: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>12} {}", now.0, words()));
        }
    }

    pub(crate) fn mix(&mut self, now: Time, value: u64) {
        self.hash = mix(self.hash ^ value).wrapping_add(now.0);
    }

    pub(crate) fn mix_bytes(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.hash = mix(self.hash ^ u64::from_le_bytes(word));
        }
    }

    /// The report of a run that has ended now.
    pub(crate) fn report(&mut self, result: Check, counts: &[(&'static str, u64)]) -> Report {
        Report {
            hash: self.hash,
            failure: result.err().map(|Violation(why)| why),
            counts: counts.to_vec(),
            trace: self.lines.take().unwrap_or_default(),
            packets: Vec::new(),
        }
    }
}

/// Runs a world. A panic of the tested code is a violation like any other.
pub(crate) fn caught(run: impl FnOnce() -> Check) -> Check {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Err(Violation(format!("panic: {}", words.unwrap_or_default())))
    })
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Hash of all events of the run: equal runs have equal hashes.
    pub hash: u64,
    /// The violation, with its time; `None` is a pass.
    pub failure: Option<String>,
    /// What happened in the world, by name.
    pub counts: Vec<(&'static str, u64)>,
    /// The configuration, and a line for each event, if the world was traced.
    pub trace: Vec<String>,
    /// Packets of a captured world, each with the time when the network received it.
    pub(crate) packets: Vec<(u64, Vec<u8>)>,
}

impl Report {
    /// How often something happened.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        self.counts.iter().find(|(of, _)| *of == name).map_or(0, |(_, count)| *count)
    }

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
        for (at, packet) in &self.packets {
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
