//! A ring compared with a queue, and under hostile peers.
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use proptest::prelude::*;

use super::protocol::{CELL, Cells, Pushed, Reader, Writer, max_body};
use super::shared::{DATA, Shared};
use crate::{Broken, Consumer, Producer, ShmError};

/// Small, so that records reach the end of the ring often.
const CELLS: u64 = 16;
type Small = Shared<CELLS>;

fn small() -> (Writer<Small>, Reader<Small>, File) {
    let (shared, fd) = Small::create().unwrap();
    let writer = Writer::new(Small::open(&fd).unwrap());
    (writer, Reader::new(shared), File::from(fd))
}

fn bytes(number: u32, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number as usize * 31 + at * 7) as u8).collect()
}

fn push(writer: &mut Writer<impl Cells>, number: u32, len: usize) -> Result<Pushed, Broken> {
    writer.push(number, len, |body| {
        body.copy_from_slice(&bytes(number, len));
        true
    })
}

#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    /// `fill` writes bytes resembling headers into half of the body, and gives up.
    Refuse(usize),
    Take,
    Release,
}

fn step() -> impl Strategy<Value = Step> {
    let len = || prop_oneof![3 => 0..=56usize, 2 => 57..=300usize, 1 => 0..=max_body(CELLS)];
    prop_oneof![
        4 => len().prop_map(Step::Push),
        1 => len().prop_map(Step::Refuse),
        4 => Just(Step::Take),
        1 => Just(Step::Release),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_ring_is_a_queue(steps in proptest::collection::vec(step(), 1..200)) {
        let (mut writer, mut reader, _) = small();
        let mut model = VecDeque::new();
        let mut number = 0;
        for step in steps {
            match step {
                Step::Push(len) => {
                    number += 1;
                    let room = writer.has_room(len).unwrap();
                    let pushed = push(&mut writer, number, len).unwrap();
                    prop_assert_eq!(pushed, if room { Pushed::Done } else { Pushed::Full });
                    if room {
                        model.push_back((number, bytes(number, len)));
                    }
                }
                Step::Refuse(len) => {
                    let lure = |body: &mut [u8]| {
                        let end = body.len() / 2;
                        body[..end].fill(1);
                        false
                    };
                    let room = writer.has_room(len).unwrap();
                    let pushed = writer.push(1, len, lure).unwrap();
                    prop_assert_eq!(pushed, if room { Pushed::Refused } else { Pushed::Full });
                }
                Step::Take => {
                    prop_assert_eq!(reader.is_empty(), model.is_empty());
                    let mut seen = Vec::new();
                    let taken = reader
                        .take_and_look(|tag, body, mut behind| {
                            while let Some(next) = behind.next(|tag, body| (tag, body.to_vec())) {
                                seen.push(next);
                            }
                            (tag, body.to_vec())
                        })
                        .unwrap();
                    prop_assert!(seen.iter().eq(model.iter().skip(1)), "what lies behind: {:?}", seen);
                    let found_nothing = taken.is_none();
                    prop_assert_eq!(taken, model.pop_front());
                    // Finding nothing publishes the position, so the longest record fits.
                    prop_assert!(!found_nothing || writer.has_room(max_body(CELLS)).unwrap());
                }
                Step::Release => reader.release(),
            }
        }
        for expected in model {
            prop_assert_eq!(reader.take(|tag, body| (tag, body.to_vec())).unwrap(), Some(expected));
        }
        prop_assert_eq!(reader.take(|_, _| ()), Ok(None));
    }

    /// Any header word gives a record within the ring, or an error that stays.
    #[test]
    fn any_header_is_a_record_or_breaks_the_ring(
        kind in prop_oneof![0..4u64, any::<u8>().prop_map(u64::from)],
        tag in 0..1u64 << 24,
        len in prop_oneof![0..2048u64, any::<u32>().prop_map(u64::from)],
        second in any::<u64>(),
        lead in 0..CELLS as usize,
    ) {
        let (mut writer, mut reader, file) = small();
        for _ in 0..lead {
            prop_assert_eq!(push(&mut writer, 1, 8), Ok(Pushed::Done));
            prop_assert_eq!(reader.take(|_, _| ()), Ok(Some(())));
            reader.release();
        }
        let header = kind << 56 | tag << 32 | len;
        file.write_all_at(&second.to_ne_bytes(), DATA as u64).unwrap();
        file.write_all_at(&header.to_ne_bytes(), (DATA + lead * CELL) as u64).unwrap();
        let result = reader.take(|tag, body| (tag, body.len()));
        match result {
            Ok(None) => prop_assert_eq!(header, 0),
            Ok(Some((seen, seen_len))) if kind == 1 => {
                prop_assert_eq!((u64::from(seen), seen_len as u64), (tag, len));
                prop_assert!(lead * CELL + 8 + seen_len <= CELLS as usize * CELL);
            }
            Ok(Some((_, len))) => prop_assert!(kind == 2 && len <= max_body(CELLS)),
            Err(Broken) => prop_assert_eq!(reader.take(|_, _| ()), Err(Broken)),
        }
    }

    /// Whatever position the consumer publishes, the producer overwrites only cells up to this
    /// position.
    #[test]
    fn any_progress_is_possible_or_breaks_the_ring(
        progress in prop_oneof![0..40u64, any::<u64>()],
        lengths in proptest::collection::vec(0..200usize, 1..12),
    ) {
        let (mut writer, _reader, file) = small();
        let mut pushed = 0;
        while push(&mut writer, 1, 8) == Ok(Pushed::Done) {
            pushed += 1;
        }
        prop_assert_eq!(pushed, CELLS - 1);
        file.write_all_at(&progress.to_ne_bytes(), 64).unwrap();
        let mut cells = 0;
        for len in lengths {
            match push(&mut writer, 2, len) {
                Ok(Pushed::Done) => cells += (len as u64 + 8).div_ceil(CELL as u64),
                Ok(_) => {}
                Err(Broken) => {
                    prop_assert!(progress > pushed, "{} was possible", progress);
                    prop_assert_eq!(push(&mut writer, 2, 8), Err(Broken));
                    return Ok(());
                }
            }
        }
        prop_assert!(progress <= pushed && cells <= progress);
    }
}

#[test]
fn what_no_ring_holds_is_refused() {
    let (consumer, fd) = Consumer::create().unwrap();
    let mut producer = Producer::open(fd).unwrap();
    let never = |_: &mut [u8]| panic!("nothing to fill");
    assert_eq!(producer.push(0, Producer::MAX_BODY + 1, never), Ok(Pushed::Refused));
    assert_eq!(producer.push(1 << 24, 8, never), Ok(Pushed::Refused));
    assert!(!producer.has_room(Producer::MAX_BODY + 1).unwrap());
    assert!(producer.has_room(Producer::MAX_BODY).unwrap());
    assert!(consumer.is_empty());
    const { assert!(Producer::MAX_BODY >= 66 << 10) };
}

/// A panic in `fill` leaves the ring unchanged, as a `fill` that returns false does.
#[test]
fn a_panic_while_filling_leaves_nothing_behind() {
    let (mut writer, mut reader, _) = small();
    let fill = |body: &mut [u8]| {
        body.fill(1);
        panic!("on purpose")
    };
    let caught =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| writer.push(1, 300, fill)));
    assert!(caught.is_err());
    assert_eq!(push(&mut writer, 2, 8), Ok(Pushed::Done));
    assert_eq!(reader.take(|tag, _| tag), Ok(Some(2)));
    assert_eq!(reader.take(|tag, _| tag), Ok(None));
}

#[test]
fn only_a_sealed_ring_is_opened() {
    let open = |fd: OwnedFd| Producer::open(fd).err();
    let unsealed = crate::segment::create(4096).unwrap();
    assert!(matches!(open(unsealed), Some(ShmError::NotSealed { .. })));
    let null = File::open("/dev/null").unwrap();
    assert!(matches!(open(null.into()), Some(ShmError::NotSealed { found: 0, .. })));
    let (_, fd) = Small::create().unwrap();
    assert!(matches!(open(fd), Some(ShmError::WrongSize { .. })));
    let (_, fd) = crate::Published::create().unwrap();
    assert!(matches!(open(fd), Some(ShmError::WrongSize { .. })));
    let (_consumer, fd) = Consumer::create().unwrap();
    let file = File::from(fd);
    file.write_all_at(b"ADVRING\x02", 0).unwrap();
    assert!(matches!(open(file.into()), Some(ShmError::WrongFormat { .. })));
}

/// No process with the descriptor can shrink the file and so make an access fail.
#[test]
fn a_ring_keeps_its_size() {
    let (_consumer, fd) = Consumer::create().unwrap();
    let file = File::from(fd);
    let len = file.metadata().unwrap().len();
    for other in [0, 4096, len - 1, len + 1] {
        assert_eq!(file.set_len(other).unwrap_err().raw_os_error(), Some(libc::EPERM));
    }
    // All pages are allocated; `blocks` counts units of 512 bytes.
    assert!(std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap()) * 512 >= len);
}

/// TRU-3: a broken ring stays broken for its producer, whatever the consumer writes later.
#[test]
fn a_broken_ring_is_broken_for_good() {
    let (mut writer, _reader, file) = small();
    assert_eq!(push(&mut writer, 1, 8), Ok(Pushed::Done));
    let behind = writer.position();
    file.write_all_at(&u64::MAX.to_ne_bytes(), 64).unwrap();
    assert!(!writer.is_read());
    for progress in [0, behind] {
        file.write_all_at(&progress.to_ne_bytes(), 64).unwrap();
        assert!(!writer.is_read(), "progress {progress}");
        assert!(writer.has_read(behind), "who broke the ring reads nothing more");
        assert_eq!(writer.has_room(8), Err(Broken));
        assert_eq!(push(&mut writer, 2, 8), Err(Broken));
    }
}

/// Cells with another value in a control word at every look, as if a peer wrote between any two
/// instructions.
struct Fickle {
    words: Vec<AtomicU64>,
    body: Vec<u8>,
    values: std::cell::RefCell<VecDeque<u64>>,
    looks: std::rc::Rc<std::cell::Cell<u32>>,
}

impl Fickle {
    fn word(&self, at: usize) -> &AtomicU64 {
        self.looks.set(self.looks.get() + 1);
        if let Some(value) = self.values.borrow_mut().pop_front() {
            self.words[at].store(value, Relaxed);
        }
        &self.words[at]
    }
}

impl Cells for Fickle {
    fn count(&self) -> u64 {
        CELLS
    }
    fn header(&self, index: u64) -> &AtomicU64 {
        assert!(index < CELLS);
        self.word(index as usize)
    }
    fn consumed(&self) -> &AtomicU64 {
        self.word(CELLS as usize)
    }
    fn write<R>(&mut self, index: u64, len: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        let start = index as usize * CELL + 8;
        fill(&mut self.body[start..start + len])
    }
    fn read<R>(&self, index: u64, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        let start = index as usize * CELL + 8;
        f(&self.body[start..start + len])
    }
}

/// Such cells, and the number of looks at their words.
fn fickle(values: Vec<u64>) -> (Fickle, std::rc::Rc<std::cell::Cell<u32>>) {
    let looks = std::rc::Rc::new(std::cell::Cell::new(0));
    let cells = Fickle {
        words: (0..=CELLS).map(|_| AtomicU64::new(0)).collect(),
        body: vec![0; CELLS as usize * CELL],
        values: std::cell::RefCell::new(values.into()),
        looks: looks.clone(),
    };
    (cells, looks)
}

fn header() -> impl Strategy<Value = u64> {
    let kind = prop_oneof![8 => Just(1u64), 3 => Just(2), 1 => any::<u8>().prop_map(u64::from)];
    let len = prop_oneof![4 => 0..600u64, 1 => any::<u32>().prop_map(u64::from)];
    (kind, 0..1u64 << 24, len).prop_map(|(kind, tag, len)| kind << 56 | tag << 32 | len)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// TRU-3: each word is read once. The words change between any two looks. The reader takes only
    /// records within the ring, with at most two looks for each, or finds the ring broken for good.
    #[test]
    fn words_that_change_between_two_looks_break_nothing(
        values in proptest::collection::vec(prop_oneof![9 => header(), 1 => Just(0)], 1..60),
    ) {
        let (cells, looks) = fickle(values);
        let mut reader = Reader::new(cells);
        let mut broken = false;
        for _ in 0..60 {
            looks.set(0);
            match reader.take(|tag, body| (tag, body.len())) {
                Ok(Some((tag, len))) => prop_assert!(!broken && tag < 1 << 24 && len <= max_body(CELLS)),
                Ok(None) => prop_assert!(!broken),
                Err(Broken) => broken = true,
            }
            // Two looks at headers; the store of the consumer's position is the third.
            prop_assert!(looks.get() <= 3, "{} looks", looks.get());
        }
    }

    /// TRU-3: the same for a producer, with another consumer position at every look.
    #[test]
    fn progress_that_changes_between_two_looks_breaks_nothing(
        values in proptest::collection::vec(prop_oneof![8 => 0..40u64, 1 => any::<u64>()], 0..60),
        lengths in proptest::collection::vec(0..=max_body(CELLS), 1..40),
    ) {
        let (cells, looks) = fickle(values);
        let mut writer = Writer::new(cells);
        let mut broken = false;
        for len in lengths {
            looks.set(0);
            let pushed = push(&mut writer, 1, len);
            prop_assert!(!broken || pushed == Err(Broken));
            prop_assert!(looks.get() <= 12, "{} looks", looks.get());
            writer.is_read();
            broken = writer.has_room(0).is_err();
            if broken {
                prop_assert!(!writer.is_read() && writer.has_read(writer.position()));
            }
        }
    }
}
