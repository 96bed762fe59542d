//! A ring between an honest side and a hostile side, which writes any word of the segment at any
//! moment (TRU-3).
use crate::input::Input;
use adverb_shm::{Broken, Consumer, Producer, Pushed};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Offset of the consumer's progress in the control page.
const CONSUMED: u64 = 64;
/// Offset of the cells, their number, and their size in bytes.
const DATA: u64 = 4096;
const COUNT: u64 = 4096;
const CELL: u64 = 64;
/// Number of words in the segment.
const WORDS: u64 = (DATA + COUNT * CELL) / 8;
/// Limit of steps in one run.
const STEPS: usize = 400;
/// Limit of the peer's writes during one call of the honest side.
const WITHIN: usize = 3;

/// The segment of the hostile side, with the words of the control page that this side has written.
struct Hostile<'a> {
    file: &'a File,
    control: [u64; (DATA / 8) as usize],
    /// The largest number of cells reported as read by any side.
    claimed: u64,
    /// The cell that the other side looks at next, as far as known.
    near: u64,
}

impl Hostile<'_> {
    fn put(&mut self, word: u64, value: u64) {
        let word = word % WORDS;
        self.file.write_all_at(&value.to_ne_bytes(), word * 8).expect("a word of the segment");
        if let Some(kept) = self.control.get_mut(word as usize) {
            *kept = value;
        }
        if word * 8 == CONSUMED {
            self.claimed = self.claimed.max(value);
        }
    }

    /// Writes one word, chosen by the input.
    fn write(&mut self, input: &mut Input<'_>) {
        match input.below(8) {
            // A header in the cell where the consumer looks next.
            0..=2 => {
                let cell = self.near.wrapping_add(input.below(4) as u64) % COUNT;
                self.put((DATA + cell * CELL) / 8, header(input));
            }
            // A header at the beginning, where a skip leads, or at the end.
            3 => {
                let cell = if input.flag() { 0 } else { COUNT - 1 - input.below(4) as u64 };
                self.put((DATA + cell * CELL) / 8, header(input));
            }
            // Progress near the possible values, or any progress.
            4 => self
                .put(CONSUMED / 8, self.near.wrapping_add(input.below(16) as u64).wrapping_sub(8)),
            5 => self.put(CONSUMED / 8, input.u64()),
            6 => self.put(u64::from(input.u16()), input.u64()),
            _ => self.put(u64::from(input.u8()), input.u64()),
        }
    }

    fn some(&mut self, input: &mut Input<'_>) {
        for _ in 0..input.below(WITHIN + 1) {
            self.write(input);
        }
    }

    fn read(&self, word: u64) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, word * 8).expect("a word of the segment");
        u64::from_ne_bytes(bytes)
    }
}

/// A nearly valid header word.
fn header(input: &mut Input<'_>) -> u64 {
    let kind = input.pick(&[1_u64, 1, 1, 1, 2, 2, 0, 3]);
    let max = Producer::MAX_BODY as u64;
    let len = match input.below(6) {
        0 => max,
        1 => max + 1,
        2 => u64::from(input.u16()),
        3 => u64::from(u32::MAX),
        4 => u64::from(input.u8()) * 1024,
        _ => u64::from(input.u8()),
    };
    kind << 56 | (u64::from(input.u8()) << 32) | len
}

/// Length of a record of the honest producer.
fn length(input: &mut Input<'_>) -> usize {
    match input.below(5) {
        0 => usize::from(input.u16()),
        1 => Producer::MAX_BODY - input.below(3),
        2 => Producer::MAX_BODY + 1,
        _ => usize::from(input.u8()),
    }
}

/// An honest side of a ring, and whether the ring was found broken.
struct Side<T> {
    end: T,
    broken: bool,
}

impl Side<Consumer> {
    fn take(&mut self, hostile: &mut Hostile<'_>, input: &mut Input<'_>) {
        let mut calls = 0;
        let taken = self.end.take(|tag, body| {
            calls += 1;
            assert!(
                tag < 1 << 24 && body.len() <= Producer::MAX_BODY,
                "tag {tag}, {} bytes",
                body.len()
            );
            hostile.some(input);
            // All bytes of the record can be read, even after the writes.
            std::hint::black_box(body.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
            body.len() as u64
        });
        assert!(calls <= 1);
        assert!(!self.broken || taken == Err(Broken), "a broken ring gave {taken:?}");
        self.broken |= taken == Err(Broken);
        if let Ok(Some(len)) = taken {
            hostile.near = hostile.near.wrapping_add((len + 8).div_ceil(CELL));
        }
    }
}

impl Side<Producer> {
    fn push(&mut self, hostile: &mut Hostile<'_>, input: &mut Input<'_>) {
        let (tag, len) = (u32::from(input.u8()), length(input));
        let gives_up = input.below(8) == 0;
        let before = self.end.position();
        let pushed = self.end.push(tag, len, |body| {
            assert_eq!(body.len(), len);
            hostile.some(input);
            body.fill(tag as u8);
            !gives_up
        });
        let moved = self.end.position() - before;
        match pushed {
            Ok(Pushed::Done) => {
                assert!(!gives_up && len <= Producer::MAX_BODY);
                assert!(moved >= (len as u64 + 8).div_ceil(CELL) && moved <= COUNT);
            }
            Ok(_) | Err(Broken) => assert_eq!(moved, 0),
        }
        // A record that is too long is refused without a look at the ring.
        assert!(!self.broken || pushed == Err(Broken) || len > Producer::MAX_BODY);
        self.broken |= pushed == Err(Broken);
        // The producer overwrites no cell before the other side reports it as read.
        assert!(self.end.position() <= hostile.claimed.saturating_add(COUNT));
        hostile.near = self.end.position();
    }

    fn ask(&mut self, input: &mut Input<'_>) {
        let position = self.end.position().saturating_sub(u64::from(input.u8()));
        let (len, read) = (length(input), self.end.is_read());
        let has_read = self.end.has_read(position);
        assert!(!self.broken || !read);
        match self.end.has_room(len) {
            Ok(room) => assert!(!room || len <= Producer::MAX_BODY),
            Err(Broken) => {
                self.broken = true;
                assert!(!self.end.is_read() && self.end.has_read(self.end.position()));
            }
        }
        assert!(
            !self.broken || !has_read || self.end.has_read(position),
            "what was read stays read"
        );
    }
}

/// A ring with bytes from the input, read by a consumer and filled by a producer.
///
/// # Panics
/// An honest side misbehaves because of the peer.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (consumer, fd) = Consumer::create().expect("a ring");
    let file = File::from(fd.try_clone().expect("a descriptor"));
    let mut hostile =
        Hostile { file: &file, control: [0; (DATA / 8) as usize], claimed: 0, near: 0 };
    hostile.control[0] = hostile.read(0);
    let mut consumer = Side { end: consumer, broken: false };
    let mut producer = Side { end: Producer::open(fd).expect("the same ring"), broken: false };
    // The honest sides. All words of the other side come from the input.
    let (takes, puts) = input.pick(&[(true, false), (false, true), (true, true)]);
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        match input.below(8) {
            0 | 1 => hostile.write(&mut input),
            2 | 3 if takes => consumer.take(&mut hostile, &mut input),
            4 if takes => {
                consumer.end.is_empty();
                consumer.end.release();
            }
            2..=5 if puts => producer.push(&mut hostile, &mut input),
            6 if puts => producer.ask(&mut input),
            _ => hostile.some(&mut input),
        }
        // Both sides wrote only their own words: the consumer one of the control page, the producer
        // none.
        let consumed = hostile.read(CONSUMED / 8);
        hostile.claimed = hostile.claimed.max(consumed);
        hostile.control[(CONSUMED / 8) as usize] = consumed;
    }
    let mut control = [0; DATA as usize];
    file.read_exact_at(&mut control, 0).expect("the control page");
    for (word, (bytes, kept)) in control.chunks_exact(8).zip(hostile.control).enumerate() {
        assert_eq!(bytes, kept.to_ne_bytes(), "word {word} of the control page");
    }
}
