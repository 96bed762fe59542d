//! The ring under a model checker. Loom runs the interleavings of a producer and a consumer with
//! all effects of the memory model, on the production code. Only the memory is a model: few cells,
//! with bodies watched by loom. So a body written during a read fails the test.
//!
//! Each test names changes of the code that make the test fail. Each of these changes was made and
//! seen to fail. Run by `make loom`.
use super::protocol::{CELL, Cells, HEADER, Pushed, Reader, Writer};
use crate::sync::AtomicU64;
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Old bytes resembling the header of an empty record.
const LURE: u64 = 1 << 56;

/// The memory of a ring. Both ends hold it, as two processes do.
struct Model {
    headers: Vec<AtomicU64>,
    /// The content of each cell: the record's length and its first byte.
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
                // SAFETY: loom fails the test if another thread accesses the cell.
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
                // SAFETY: loom fails the test if another thread writes the cell.
                let (length, byte) = unsafe { *body };
                assert_eq!(length, len, "a cell of another record");
                bytes.fill(byte);
            });
        }
        f(&bytes)
    }
}

/// Pushes numbered records of these lengths while another thread takes them.
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
                match reader.take(|tag, body| (tag, body.to_vec())).expect("nobody breaks it") {
                    Some(seen) => break seen,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(seen, (number as u32 + 1, vec![number as u8; len]));
        }
        assert_eq!(reader.take(|_, _| ()), Ok(None), "a record without a push");
        producer.join().unwrap();
        assert!(reader.is_empty());
    });
}

/// Short records pass through a ring that is full again and again.
///
/// Fails if the header is stored relaxed; if the header is read relaxed; if `consumed` is stored
/// relaxed before the body is read; if the header behind a record is not cleared.
#[test]
fn loom_ring_short_records_fill_it_and_go_round() {
    crosses(4, &[8, 8, 8, 8, 8]);
}

/// Records of two cells leave bytes resembling headers behind, and a skip before the end.
///
/// Fails if the header behind a record is not cleared; if the skip is stored before the record
/// behind it, or relaxed.
#[test]
fn loom_ring_a_skip_leads_to_a_record() {
    crosses(8, &[100, 8, 100, 8, 100, 8]);
}

/// Clearing cells in advance does not touch cells that the consumer still reads.
///
/// Fails if more cells are cleared than are free.
#[test]
fn loom_ring_clears_in_advance_only_what_is_free() {
    crosses(16, &[8, 400, 8, 300, 8]);
}
