//! Published tables with a hostile owner, which writes any word at any moment, and a peer that
//! reads the tables (TRU-3).
use crate::input::Input;
use adverb_shm::fuzzing::HostileOwner;
use adverb_shm::{EntrySeen, KeyEntry, PeerTables, Published, QpEntry};
use std::time::Duration;

/// Limit of steps in one run.
const STEPS: usize = 300;
/// How often the end of the process is asked for before it comes.
const ASKED: u32 = 8;

fn number(input: &mut Input<'_>) -> u32 {
    // Few different numbers, so that the same number repeats; some share a bucket or index.
    match input.below(4) {
        0 => input.u32(),
        1 => u32::from(input.u8()) << 14 | 5,
        _ => u32::from(input.u8() & 7) << 8,
    }
}

fn value(input: &mut Input<'_>) -> u64 {
    match input.below(5) {
        0 => 0,
        1 => u64::MAX - u64::from(input.u8()),
        2 => u64::from(input.u8()),
        3 => 1 << 63 | u64::from(input.u8()),
        _ => input.u64(),
    }
}

fn key_entry(input: &mut Input<'_>) -> KeyEntry {
    let key = number(input);
    KeyEntry {
        key,
        pd: input.u32(),
        access: input.u32(),
        va: value(input),
        len: value(input),
        addr: value(input),
        how: input.u8(),
        qpn: number(input),
    }
}

fn qp_entry(input: &mut Input<'_>) -> QpEntry {
    QpEntry {
        qpn: number(input),
        peer_qpn: number(input),
        peer_nonce: input.u64(),
        epoch: input.u32(),
        pd: input.u32(),
        access: input.u32(),
        ready: input.flag(),
    }
}

/// Writes a word, near the peer's next look or anywhere.
fn write(owner: HostileOwner<'_>, input: &mut Input<'_>) {
    let word = match input.below(8) {
        0 | 1 => owner.key(number(input)).start + input.below(64),
        2 => owner.qp(number(input)).start + input.below(8),
        3 => owner.hazard(usize::from(input.u8())),
        4 => owner.used(),
        5 => owner.sleeping(),
        6 => usize::from(input.u8()),
        _ => input.u32() as usize,
    };
    owner.write(word, value(input));
}

/// Entries seen by the peer.
#[derive(Default)]
struct Known {
    keys: Vec<(u32, EntrySeen)>,
    qps: Vec<(u32, EntrySeen)>,
}

fn look(peer: &PeerTables, known: &mut Known, input: &mut Input<'_>) {
    let asked = number(input);
    if input.flag() {
        if let Some((entry, seen)) = peer.key(asked) {
            assert_eq!(entry.key, asked);
            assert!(peer.is_unchanged(&seen), "changed with nobody writing");
            assert_eq!(peer.key(asked), Some((entry, seen)), "another with nobody writing");
            known.keys.push((asked, seen));
        }
    } else if let Some((entry, seen)) = peer.qp(asked) {
        assert_eq!(entry.qpn, asked);
        assert!(peer.is_unchanged(&seen), "changed with nobody writing");
        assert_eq!(peer.qp(asked), Some((entry, seen)), "another with nobody writing");
        known.qps.push((asked, seen));
    }
    // An entry seen once may be compared at any later time.
    let keys = known.keys.iter().filter(|(_, seen)| peer.is_unchanged(seen)).count();
    let qps = known.qps.iter().filter(|(_, seen)| peer.is_unchanged(seen)).count();
    std::hint::black_box((keys, qps));
}

/// Waits for the owner's threads, while the owner writes. The wait ends with the owner's process,
/// even if no mark ever disappears.
fn wait(owner: HostileOwner<'_>, peer: &PeerTables, input: &mut Input<'_>) {
    let patience = if input.flag() { Duration::MAX } else { Duration::ZERO };
    let (mut asked, ends_at) = (0, input.below(ASKED as usize) as u32);
    let quiet = peer.wait_quiet(patience, || {
        asked += 1;
        write(owner, input);
        asked > ends_at
    });
    assert!(asked <= ends_at + 1, "asked again after the end");
    assert!(!quiet || asked <= ends_at, "quiet though the wait was ended");
    assert!(patience == Duration::MAX || asked == 0, "waited without patience");
}

/// Tables written by the input, honestly and by force, and a peer that uses them.
///
/// # Panics
/// The peer gets an entry with another number, or a seen entry does not hold.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let input = &mut input;
    let (published, fd) = Published::create().expect("tables");
    let again = fd.try_clone().expect("a descriptor");
    let peer = PeerTables::open(fd).expect("tables as they are made");
    let owner = HostileOwner(&published);
    let mut known = Known::default();
    let identity = peer.identity();
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        match input.below(10) {
            0..=2 => write(owner, input),
            3 => drop(published.set_key(&key_entry(input))),
            4 => drop(published.set_qp(&qp_entry(input))),
            5 if input.flag() => drop(published.remove_key(number(input))),
            5 => {
                published.remove_qp(number(input));
                published.set_failure(number(input), [number(input).into(); 5]);
            }
            6 => wait(owner, &peer, input),
            7 => drop(published.set_sleeping(input.flag()) ^ peer.sleeping()),
            _ => look(&peer, &mut known, input),
        }
    }
    assert_eq!(peer.identity(), identity, "read once, when they were opened");
    // A later open of these tables finds any identity, or fails.
    if let Ok(late) = PeerTables::open(again) {
        look(&late, &mut Known::default(), input);
    }
}
