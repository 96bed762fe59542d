//! A hostile process of the same user writes arbitrary data to all memory that it can write: its
//! rings and its own tables. Processes that share memory with the hostile process must not crash or
//! hang. Their traffic with other processes must stay correct in every byte (TRU-3).
//!
//! There are two kinds of hostile process:
//! - The scribbler writes random records and random words.
//! - The forger writes valid records and table entries, but with wrong addresses, lengths or keys.
//!
//! `ADVERB_SCRIBBLERS` sets the number of scribblers, which run in sequence. `ADVERB_SEED` sets the
//! seed of their random numbers.
mod common;
use adverb_device::buffer::Buffer;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{Access, QpState, QpType, SendOp, WcStatus};
use common::party::{Party, listen, meet, stay, tell};
use common::{QpEnd, pattern, until};
use nix::unistd::{Whence, gettid, lseek};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Bytes of a message to and from the well-behaved process.
const SIZE: usize = 20_000;
/// Offsets of the parts of a buffer.
const OUT: usize = 0;
const BACK: usize = 1 << 20;
const READ: usize = 2 << 20;
/// Longer than any step takes without a hang, even on a busy machine.
const HANG_LIMIT: Duration = Duration::from_secs(300);

/// Size of a ring and of the tables, in bytes.
const RING: u64 = 0x4_1000;
const TABLES: u64 = 0x50_5000;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Exchanges a message in each direction, then performs a WRITE and a READ, and checks every byte.
fn exchange(end: &QpEnd, far: Remote, round: u64) {
    let data = pattern(SIZE, round as u8);
    end.put(OUT, &data);
    end.recv(1, &[end.sge(BACK, SIZE)]);
    end.send(2, SendOp::Send, &[end.sge(OUT, SIZE)]);
    let to = Remote { va: far.va + READ as u64, ..far };
    end.send(3, SendOp::Write(to), &[end.sge(OUT, SIZE)]);
    end.send(4, SendOp::Read(to), &[end.sge(READ, SIZE)]);
    let done = end.wait(4);
    assert!(done.iter().all(|c| c.status == WcStatus::Success), "round {round}: {done:?}");
    for at in [BACK, READ] {
        assert!(end.get(at, SIZE) == data, "round {round}: bytes at {at} are wrong");
    }
}

/// Connects this process to a well-behaved process. Returns also the address and key of the other
/// process's memory.
fn with_a_steady_one() -> (QpEnd, Party, Remote) {
    let steady = QpEnd::new(QpType::Rc);
    let mut good = Party::start("the_steady", &[]);
    let (_, far) = good.meet(&steady);
    good.say("go");
    (steady, good, far)
}

/// Starts a hostile process, and connects an end with receives to it.
fn with_a_bad_one(name: &str, variable: (&str, &str), receives: u64) -> (QpEnd, Party, Remote) {
    let mut bad = Party::start(name, &[variable]);
    let end = QpEnd::new(QpType::Rc);
    let (_, remote) = bad.meet(&end);
    (0..receives).for_each(|id| end.recv(id, &[end.sge(0, 4096)]));
    (end, bad, remote)
}

/// Peers of the same user write arbitrary data to shared memory (TRU-3).
#[test]
fn others_are_not_harmed() {
    let (count, seed) = (number("ADVERB_SCRIBBLERS", 6), number("ADVERB_SEED", 1));
    let (steady, good, far) = with_a_steady_one();
    let mut round = 0;
    for i in 0..count {
        let dice = (seed * 1000 + i).to_string();
        let (end, mut bad, remote) = with_a_bad_one("the_scribbler", ("ADVERB_SEED", &dice), 64);
        bad.say(&steady.qp.number().to_string());
        assert_eq!(bad.hear(), "scribbles");
        // The connection to the scribbler may fail. The connection to the well-behaved process must
        // go on.
        let limit = Instant::now() + HANG_LIMIT;
        let (before, mut waiting) = (round, 0);
        // Run at least one round, even if this process did not run while the scribbler was at work.
        while round == before || bad.has_said().is_none() {
            exchange(&steady, far, round);
            round += 1;
            if round % 4 == 0 && waiting < 100 && end.qp.state() == QpState::Rts {
                end.send(1000, SendOp::Send, &[end.sge(0, 256)]);
                end.send(1000, SendOp::Write(remote), &[end.sge(0, 64)]);
                waiting += 2;
            }
            end.cq.poll(64, |c| waiting -= i32::from(c.wr_id == 1000)).unwrap();
            assert!(Instant::now() < limit, "the scribbler {dice} does not end");
        }
        drop(bad);
        exchange(&steady, far, round);
        round += 1;
        end.qp.destroy().unwrap();
    }
    good.finish();
    println!("{round} rounds beside {count} scribblers");
}

/// The variable that says what the forger writes.
const PATTERN: &str = "ADVERB_PATTERN";
/// Length in bytes of the forger's messages with a record that points at existing memory.
const FORGED: usize = 100;

/// TRU-3: the forger writes valid records and entries with false contents:
/// - payload addresses without memory,
/// - keys of memory beyond the end of the file,
/// - permanent hazards,
/// - alternating announcements of sleep.
#[test]
fn what_points_nowhere_harms_nobody() {
    let (steady, good, far) = with_a_steady_one();
    let mut round = 0;
    for pattern in ["references", "keys", "hazards"] {
        let (end, mut bad, remote) = with_a_bad_one("the_forger", (PATTERN, pattern), 64);
        assert_eq!(bad.hear(), "forges");
        let limit = Instant::now() + HANG_LIMIT;
        let (mut waiting, mut forged) = (0, 0);
        let word = Remote { va: remote.va + 64, ..remote };
        let said = loop {
            exchange(&steady, far, round);
            round += 1;
            if waiting < 100 && end.qp.state() == QpState::Rts {
                end.send(1000, SendOp::Write(remote), &[end.sge(0, 64)]);
                end.send(1000, SendOp::Read(remote), &[end.sge(4096, 64)]);
                end.send(1000, SendOp::FetchAdd { remote: word, add: 1 }, &[end.sge(4096, 8)]);
                end.send(1000, SendOp::Send, &[end.sge(0, 64)]);
                waiting += 4;
            }
            end.cq
                .poll(64, |c| {
                    waiting -= i32::from(c.wr_id == 1000);
                    forged += i32::from(c.wr_id < 64 && c.byte_len as usize == FORGED);
                })
                .unwrap();
            if let Some(said) = bad.has_said() {
                break said;
            }
            assert!(Instant::now() < limit, "{pattern}: no end");
        };
        assert_eq!(said, "done");
        assert!(pattern != "references" || forged > 0, "{pattern}: none was taken");
        // A deregistration ends although the forger is alive and some of its hazards name the
        // region and the queue pair.
        if pattern == "hazards" {
            end.pages.mr().dereg().unwrap();
        }
        drop(Buffer::new(&end.pd, 1 << 16, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap());
        exchange(&steady, far, round);
        round += 1;
        end.qp.destroy().unwrap();
        drop(bad);
    }
    exchange(&steady, far, round);
    good.finish();
}

/// TRU-3: a payload in a hole of the sender's file reads as zeros, and the hole stays a hole. If a
/// read filled the hole, the reader would pay for the new memory.
#[test]
fn tru_3_holes_are_read_and_not_filled() {
    let (end, mut bad, _) = with_a_bad_one("the_forger", (PATTERN, "holes"), 0);
    end.put(0, &[7; 4096]);
    (0..64).for_each(|id| end.recv(id, &[end.sge(0, 4096)]));
    assert_eq!(bad.hear(), "forges");
    let (mut taken, limit) = (0, Instant::now() + Duration::from_secs(60));
    let filled = loop {
        end.cq.poll(64, |c| taken += i32::from(c.byte_len as usize == HOLE)).unwrap();
        if let Some(said) = bad.has_said().filter(|said| said != "done") {
            break said;
        }
        assert!(Instant::now() < limit, "no end");
    };
    assert!(taken > 0, "no reference to a hole was taken");
    assert!(end.get(0, HOLE) == [0; HOLE], "a hole is zeros");
    assert_eq!(filled, "0", "pages were filled");
    end.qp.destroy().unwrap();
}

/// TRU-3: the consumer of a ring does not clear records, so a full ring yields records without end.
/// The reading thread must still do all other work. Here the thread must detect the end of the
/// peer, although the program does not poll.
#[test]
fn a_ring_without_end_keeps_nobody() {
    let (end, mut bad, _) = with_a_bad_one("the_forger", (PATTERN, "without end"), 1);
    assert_eq!(bad.hear(), "forges");
    assert_eq!(bad.hear(), "done");
    // The peer has posted no receive, so the message waits.
    end.send(1, SendOp::Send, &[end.sge(0, 64)]);
    drop(bad);
    until("the end of the process is seen", || end.qp.state() == QpState::Err);
}

/// The well-behaved process: returns each received message.
#[test]
#[ignore = "a process of others_are_not_harmed"]
fn the_steady() {
    let end = QpEnd::new(QpType::Rc);
    meet(&end);
    end.recv(0, &[end.sge(OUT, SIZE)]);
    assert_eq!(listen().as_deref(), Some("go"));
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(listen().is_none());
            over.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        while !over.load(std::sync::atomic::Ordering::SeqCst) {
            let mut got = Vec::new();
            end.cq.poll(8, |c| got.push(c)).unwrap();
            for c in got {
                assert_eq!(c.status, WcStatus::Success, "{:?}", c.cause);
                if c.wr_id == 0 {
                    end.send(1, SendOp::Send, &[end.sge(OUT, SIZE)]);
                } else {
                    end.recv(0, &[end.sge(OUT, SIZE)]);
                }
            }
        }
    });
}

/// Start and length of the device's shared memory that this process can write: rings and tables.
/// The length identifies them.
fn shared() -> Vec<(u64, u64)> {
    mapped("rw-s")
}

fn mapped(rights: &str) -> Vec<(u64, u64)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let of_line = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
        let ours = rest.starts_with(rights) && rest.contains("/memfd:adverb ");
        (ours && matches!(to - from, RING | TABLES)).then_some((from, to - from))
    };
    maps.lines().filter_map(of_line).collect()
}

/// A record in the format of a peer's records. The body is almost a packet.
fn record(dice: &mut Dice, targets: &[u32]) -> [u8; 64] {
    let mut cell = [0; 64];
    for word in cell.chunks_mut(8) {
        word.copy_from_slice(&dice.next().to_le_bytes());
    }
    let tag: u64 = [1, 1, 3, 5, 7, 8, 0, 15][dice.below(8) as usize];
    let len: u64 = [12, 16, 28, 41, 56, 20, 0, 1000][dice.below(8) as usize];
    cell[..8].copy_from_slice(&(1_u64 << 56 | tag << 32 | len).to_le_bytes());
    let target = targets[dice.below(targets.len() as u64) as usize];
    // Mostly RC opcodes. Then the flags, the P_Key, the destination QPN, and a PSN near the PSN of
    // the connection.
    let opcodes = if dice.below(4) == 0 { 256 } else { 0x18 };
    cell[8] = dice.below(opcodes) as u8;
    cell[9] = if dice.below(4) == 0 { cell[9] } else { 0x40 };
    cell[10..12].copy_from_slice(&[0xff, 0xff]);
    cell[12..16].copy_from_slice(&target.to_be_bytes());
    let psn = 0x00ff_fff0_u32.wrapping_add(dice.below(64) as u32) & 0x00ff_ffff;
    cell[16..20].copy_from_slice(&(psn | (dice.below(2) as u32) << 31).to_be_bytes());
    cell
}

#[test]
#[ignore = "a process of others_are_not_harmed"]
fn the_scribbler() {
    let mut dice = Dice(number("ADVERB_SEED", 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let end = QpEnd::new(QpType::Rc);
    let (qpn, _) = meet(&end);
    let victim: u32 = listen().unwrap().parse().unwrap();
    assert_eq!(end.perform(SendOp::Send, &[end.sge(0, 64)]), WcStatus::Success);
    let mut places = shared();
    assert!(
        places.iter().any(|p| p.1 == RING) && places.iter().any(|p| p.1 == TABLES),
        "{places:?}"
    );
    let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
    tell("scribbles");
    let end_of_work = Instant::now() + Duration::from_millis(300);
    // A third of the scribblers (`wild == 0`) write only well-formed records to the rings, because
    // the first malformed ring content ends the connection.
    let wild = dice.below(3);
    while Instant::now() < end_of_work {
        for _ in 0..200 {
            let (start, len) = places[dice.below(places.len() as u64) as usize];
            if write(&memory, &mut dice, (start, len), &[qpn, victim], wild).is_err() {
                // The ring is unmapped, because this process broke the ring itself. The tables stay
                // mapped.
                places = shared();
            }
        }
        // The scribbler polls its own queue as well, so its own traffic goes on as far as possible.
        end.cq.poll(8, |_| ()).unwrap();
    }
    tell("done");
    stay();
}

fn write(
    memory: &File,
    dice: &mut Dice,
    (start, len): (u64, u64),
    targets: &[u32],
    wild: u64,
) -> io::Result<()> {
    let is_ring = len == RING;
    if is_ring && (wild == 0 || dice.below(50) != 0) {
        let cell = start + 4096 + dice.below(4096) * 64;
        memory.write_all_at(&record(dice, targets), cell)?;
    } else if wild > 0 || !is_ring {
        // Any word of the memory: control lines, sequences, identities.
        let at = if dice.below(4) == 0 { dice.below(512) } else { dice.below(len / 8) };
        let words = [0, u64::MAX, dice.next(), dice.below(5000)];
        let word = words[dice.below(4) as usize];
        memory.write_all_at(&word.to_ne_bytes(), start + at * 8)?;
    }
    Ok(())
}

/// The record of the `n`-th SEND, a SEND Only packet. The payload is not in the record but at
/// `addr`. The MTU of the host connection bounds the payload of one packet.
fn refers(target: u32, n: u32, addr: u64, len: u32, how: u8) -> [u8; 64] {
    let mut cell = [0; 64];
    cell[..8].copy_from_slice(&(1_u64 << 56 | 7 << 32 | 29).to_le_bytes());
    cell[8..12].copy_from_slice(&[0x04, 0x40, 0xff, 0xff]);
    cell[12..16].copy_from_slice(&target.to_be_bytes());
    let psn = (0x00ff_fff0 + n % 64) & 0x00ff_ffff;
    cell[16..20].copy_from_slice(&(psn | 1 << 31).to_be_bytes());
    cell[20..28].copy_from_slice(&addr.to_le_bytes());
    cell[28..32].copy_from_slice(&len.to_le_bytes());
    cell[36] = how;
    cell
}

/// Access to this process's memory by address, including its rings and tables.
struct Hand {
    memory: File,
    dice: Dice,
}

/// Offset of the holes in a process's file.
const HOLES: u64 = 1 << 46;
/// Length of a payload in a hole, in bytes.
const HOLE: usize = 4096;

/// The number of filled places in the unused part of this process's file.
fn filled_holes() -> usize {
    let is_shared = |path: &PathBuf| {
        std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:adverb"))
            && std::fs::metadata(path).is_ok_and(|about| about.len() >= 1 << 47)
    };
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = fds.filter(is_shared).collect();
    assert!(!files.is_empty());
    let filled = |path: &PathBuf| {
        let file = File::open(path).unwrap();
        let is_filled = |n: &u64| {
            let at = (HOLES + n * 65_536).cast_signed();
            lseek(&file, at, Whence::SeekData).is_ok_and(|found| found < at + 65_536)
        };
        (0..64).filter(is_filled).count()
    };
    files.iter().map(filled).sum()
}

/// Addresses at which a process has no memory: at the edges of the range that can be mapped, and
/// beyond.
const NOWHERE: [u64; 10] = [
    0,
    1,
    (1 << 30) - 1,
    1 << 46,
    (1 << 47) - 64,
    1 << 47,
    1 << 63,
    !((1 << 30) - 1),
    u64::MAX - 63,
    u64::MAX,
];

impl Hand {
    fn pick(&mut self, from: &[u64]) -> u64 {
        from[self.dice.below(from.len() as u64) as usize]
    }
    fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, at).unwrap();
        u64::from_ne_bytes(bytes)
    }
    fn put(&self, at: u64, word: u64) {
        self.memory.write_all_at(&word.to_ne_bytes(), at).unwrap();
    }

    /// Fills a ring with records of SENDs. All payloads are in holes.
    fn holes(&mut self, ring: u64, target: u32) -> io::Result<()> {
        let mut cells = vec![0_u8; 4096 * 64];
        for (n, cell) in cells.chunks_exact_mut(64).enumerate() {
            let addr = HOLES + n as u64 % 64 * 65_536;
            cell.copy_from_slice(&refers(target, n as u32, addr, HOLE as u32, 0));
        }
        self.memory.write_all_at(&cells, ring + 4096)
    }

    /// Fills a ring with records of SENDs whose payloads are elsewhere. Two records of eight point
    /// at memory of this process.
    fn references(&mut self, ring: u64, target: u32, here: u64) -> io::Result<()> {
        let mut cells = vec![0_u8; 4096 * 64];
        for (n, cell) in cells.chunks_exact_mut(64).enumerate() {
            let (addr, len, how) = if n % 8 < 2 {
                (here, FORGED as u64, 0)
            } else {
                let len = self.pick(&[0, 1, 4096, 65_536, 65_537, 0xffff_ffff]);
                (self.pick(&NOWHERE), len, self.pick(&[0, 1, 2, 255]))
            };
            cell.copy_from_slice(&refers(target, n as u32, addr, len as u32, how as u8));
        }
        self.memory.write_all_at(&cells, ring + 4096)
    }

    /// The address of this process's table entry for `rkey`.
    fn entry(&self, tables: u64, len: u64, rkey: u32) -> Option<u64> {
        let entries = (tables + 0x5000..tables + len).step_by(64);
        entries
            .into_iter()
            .find(|at| self.word(at + 8) as u32 == rkey && self.word(at + 56) >> 63 == 1)
    }

    /// Replaces the address, the length and the kind of a key's memory. With the new addresses, the
    /// direct accesses of the peer never reach memory of this process.
    fn forge_key(&mut self, entry: u64, remote: Remote) {
        let (va, len) = if self.dice.below(2) == 0 { (remote.va, 128) } else { (0, u64::MAX) };
        let addr = if va == 0 {
            self.pick(&[1 << 63, u64::MAX - 63, u64::MAX])
        } else {
            self.pick(&NOWHERE)
        };
        // Words of an entry: 0 is the sequence, 1 and 2 hold numbers, 3 to 5 hold the address range
        // and the place of the memory. The top bit of word 7 marks the entry as valid. The low bits
        // of word 7 say how the memory is reached.
        self.put(entry + 24, va);
        self.put(entry + 32, len);
        self.put(entry + 40, addr);
        let how = self.pick(&[0, 0, 1, 2]);
        self.put(entry + 56, 1 << 63 | how);
        self.put(entry, self.word(entry).wrapping_add(2) & !1);
    }

    /// Sets hazards that show all threads as permanently at work in memory of peers, more than a
    /// process can have. The sleep announcement is random. The hazards name the region and queue
    /// pair that the peer is about to take back. Some of the named threads exist, others do not.
    fn hazards(&mut self, tables: u64, owners: &[u64], qpn: u32, key: u32) {
        let (announcement, used) =
            (self.dice.next() & 0xffff_ffff, self.pick(&[256, 257, u64::MAX]));
        self.put(tables + 64, announcement);
        self.put(tables + 128, used);
        for hazard in 0..256 {
            let value = self.dice.next() | 1;
            let at = tables + 256 + hazard * 64;
            self.put(at, value);
            let owner = self.pick(owners);
            self.put(at + 8, owner);
            self.put(at + 16, u64::from(qpn) | u64::from(key) << 24);
            let thread =
                self.pick(&[0, 1, std::process::id().into(), gettid().as_raw() as u64, value >> 8]);
            self.put(at + 24, thread);
        }
    }
}

#[test]
#[ignore = "a process of what_points_nowhere_harms_nobody"]
fn the_forger() {
    let pattern = std::env::var(PATTERN).unwrap();
    let end = QpEnd::new(QpType::Rc);
    let own = end.remote(0);
    let (qpn, theirs) = meet(&end);
    assert_eq!(end.perform(SendOp::Send, &[end.sge(0, 64)]), WcStatus::Success);
    let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
    let mut hand = Hand { memory, dice: Dice(0x9e37_79b9_7f4a_7c15) };
    let places = shared();
    let (tables, len) = *places.iter().find(|p| p.1 == TABLES).expect("tables");
    let entry = hand.entry(tables, len, own.rkey).expect("the key in the tables");
    // The second word of a peer's tables names their owner.
    let owners: Vec<u64> =
        mapped("r--s").iter().filter(|p| p.1 == TABLES).map(|p| hand.word(p.0 + 8)).collect();
    assert!(!owners.is_empty(), "tables of a peer");
    tell("forges");
    let end_of_work = Instant::now() + Duration::from_millis(400);
    while Instant::now() < end_of_work {
        // The forger writes to all rings, because it does not know which ring leads to the peer. A
        // failed write to an unmapped ring does not matter.
        let rings = || shared().into_iter().filter(|p| p.1 == RING).map(|p| p.0);
        let here = end.pages.addr();
        match pattern.as_str() {
            "references" => rings().for_each(|ring| drop(hand.references(ring, qpn, here))),
            // The records name a queue pair that does not exist, so no answer comes.
            "without end" => {
                rings().for_each(|ring| drop(hand.references(ring, 0x00ff_fff0, here)));
            }
            "holes" => rings().for_each(|ring| drop(hand.holes(ring, qpn))),
            "keys" => hand.forge_key(entry, own),
            "hazards" => hand.hazards(tables, &owners, qpn, theirs.rkey),
            other => panic!("no pattern {other}"),
        }
        end.cq.poll(8, |_| ()).unwrap();
    }
    tell("done");
    if pattern == "holes" {
        tell(&filled_holes().to_string());
    }
    stay();
}
