//! The ring by model checking: loom runs the interleavings of a producer and a consumer, with what
//! the memory model allows, on the code that production uses. Only the memory is a model: few
//! cells, whose bodies loom watches, so that a body that is written while it is read fails.
//!
//! Each test names changes of the code that make it fail; each of these was made and seen to fail.
//! Run by `make loom`.
use super::protocol::{CELL, Cells, HEADER, Pushed, Reader, Writer};
use crate::sync::AtomicU64;
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Looks like the header of a record of no bytes, which it is not.
const LURE: u64 = 1 << 56;

/// A ring's memory; both ends hold it, as processes do.
struct Model {
    headers: Vec<AtomicU64>,
    /// What of a record lies in each cell: its length and its first byte.
    bodies: Vec<UnsafeCell<(usize, u8)>>,
    consumed: AtomicU64,
}

impl Model {
    fn new(count: usize) -> Arc<Self> {
        Arc::new(Model {
            headers: (0..count).map(|_| AtomicU64::new(0)).collect(),
            bodies: (0..count).map(|_| UnsafeCell::new((0, 0))).collect(),
            consumed: AtomicU64::new(0),
        })
    }

    fn cells(len: usize) -> usize {
        (len + HEADER).div_ceil(CELL)
    }
}

impl Cells for Arc<Model> {
    fn count(&self) -> u64 {
        self.headers.len() as u64
    }

    fn header(&self, index: u64) -> &AtomicU64 {
        &self.headers[index as usize]
    }

    fn consumed(&self) -> &AtomicU64 {
        &self.consumed
    }

    fn write<R>(&mut self, index: u64, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut bytes = vec![0; len];
        let result = fill(&mut bytes);
        for at in index as usize..index as usize + Model::cells(len) {
            self.bodies[at].with_mut(|body| {
                // SAFETY: loom fails the test if anybody else is there.
                unsafe { *body = (len, bytes[0]) }
            });
            if at != index as usize {
                self.headers[at].store(LURE, Relaxed);
            }
        }
        result
    }

    fn read<R>(&self, index: u64, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        let mut bytes = vec![0; len];
        for at in index as usize..index as usize + Model::cells(len) {
            self.bodies[at].with(|body| {
                // SAFETY: loom fails the test if anybody writes there.
                let (length, byte) = unsafe { *body };
                assert_eq!(length, len, "a cell of another record");
                bytes.fill(byte);
            });
        }
        f(&bytes)
    }
}

/// Pushes records of these lengths, numbered, while another thread takes them.
fn crosses(cells: usize, lengths: &'static [usize]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(move || {
        let memory = Model::new(cells);
        let mut writer = Writer::new(memory.clone());
        let mut reader = Reader::new(memory);
        let producer = thread::spawn(move || {
            for (number, &len) in lengths.iter().enumerate() {
                let fill = |bytes: &mut [u8]| {
                    bytes.fill(number as u8);
                    true
                };
                while writer.push(number as u32 + 1, len, fill) != Ok(Pushed::Done) {
                    thread::yield_now();
                }
            }
        });
        for (number, &len) in lengths.iter().enumerate() {
            let seen = loop {
                match reader.take(|tag, body, _| (tag, body.to_vec())).expect("nobody breaks it") {
                    Some(seen) => break seen,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(seen, (number as u32 + 1, vec![number as u8; len]));
        }
        assert_eq!(reader.take(|_, _, _| ()), Ok(None), "a record that nobody pushed");
        producer.join().unwrap();
        assert!(reader.is_empty());
    });
}

/// Short records around a ring that is full again and again.
///
/// Fails if the header is stored relaxed; if it is read relaxed; if `consumed` is stored relaxed
/// before the body was read; if the header behind a record is not cleared.
#[test]
fn loom_ring_short_records_fill_it_and_go_round() {
    crosses(4, &[8, 8, 8, 8, 8]);
}

/// Records of two cells leave bytes like headers behind, and a skip before the end.
///
/// Fails if the header behind a record is not cleared; if the skip is stored before the record it
/// leads to, or relaxed.
#[test]
fn loom_ring_a_skip_leads_to_a_record() {
    crosses(8, &[100, 8, 100, 8, 100, 8]);
}

/// Cells cleared in advance do not reach into what the consumer still reads.
///
/// Fails if as many are cleared as there is no room for.
#[test]
fn loom_ring_clears_in_advance_only_what_is_free() {
    crosses(16, &[8, 400, 8, 300, 8]);
}
