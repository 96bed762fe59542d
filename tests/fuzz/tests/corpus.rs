//! The targets over the committed corpus and over random inputs: random bytes, and slightly spoiled
//! corpus files. The targets include TRU-3: greetings, rings, tables and descriptors of a hostile
//! peer of the same user.
use adverb_fuzz::TARGETS;
use std::panic::catch_unwind;
use std::path::PathBuf;

/// Number of random inputs for each target; `ADVERB_FUZZ_INPUTS` sets another number.
const DRAWN: u64 = 20_000;
/// The same for targets that create and map files, or nodes, in every run.
const DRAWN_OF_FILES: u64 = 4_000;

/// Random numbers (SplitMix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    fn below(&mut self, n: usize) -> usize {
        (self.roll() % n.max(1) as u64) as usize
    }
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let files = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut files: Vec<_> = files.map(|f| f.unwrap().path()).collect();
    files.sort();
    files.iter().map(|f| std::fs::read(f).unwrap()).collect()
}

/// Runs a target; after a panic the message shows the bytes.
fn judge(name: &str, run: fn(&[u8]), bytes: &[u8]) {
    if catch_unwind(|| run(bytes)).is_err() {
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        panic!("{name} fails with these bytes: {hex}");
    }
}

fn spoiled(dice: &mut Dice, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = corpus[dice.below(corpus.len())].clone();
    for _ in 0..=dice.below(4) {
        let at = dice.below(bytes.len());
        match dice.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, dice.roll() as u8),
            2 => bytes.extend_from_slice(&corpus[dice.below(corpus.len())]),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= dice.roll() as u8;
                }
            }
        }
    }
    bytes
}

fn replay(name: &str) {
    let (_, run) = *TARGETS.iter().find(|(n, _)| *n == name).expect("a target");
    let corpus = corpus(name);
    assert!(corpus.len() > 3, "{name}: {} files in the corpus", corpus.len());
    for bytes in &corpus {
        judge(name, run, bytes);
    }
    let usual =
        if ["ring", "tables", "segments", "runs"].contains(&name) { DRAWN_OF_FILES } else { DRAWN };
    let drawn = std::env::var("ADVERB_FUZZ_INPUTS").map_or(usual, |n| n.parse().expect("a number"));
    let mut dice = Dice(1);
    for _ in 0..drawn {
        let bytes = if dice.below(4) == 0 {
            (0..dice.below(300)).map(|_| dice.roll() as u8).collect()
        } else {
            spoiled(&mut dice, &corpus)
        };
        judge(name, run, &bytes);
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(#[test] fn $name() { replay(stringify!($name)); })*
        #[test]
        fn every_target_is_replayed() {
            assert_eq!([$(stringify!($name)),*].as_slice(), TARGETS.iter().map(|(n, _)| *n).collect::<Vec<_>>());
        }
    };
}

targets! { wire handle_packet runs datagram hand_over fault_spec cm greeting ring tables segments snapshot }
