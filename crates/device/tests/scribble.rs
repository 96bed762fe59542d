//! A process of the same user that writes whatever it likes to everything it can write: its rings and its own tables. Who shares
//! memory with it does not crash or hang, and its traffic with others is right to the byte.
//!
//! `ADVERB_SCRIBBLERS` sets how many there are, one after the other; `ADVERB_SEED` where their dice begin.
mod common;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{PathMtu, QpState, QpType, SendOp, WcStatus};
use common::party::{Party, introduce, listen, parse, tell};
use common::{End, pattern};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Bytes of a message to and from the process that behaves.
const SIZE: usize = 20_000;
/// Where the parts of a buffer are.
const OUT: usize = 0;
const BACK: usize = 1 << 20;
const READ: usize = 2 << 20;

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

/// One message there and back, and one-sided requests, every byte checked.
fn exchange(end: &End, far: Remote, round: u64) {
    let data = pattern(SIZE, round as u8);
    assert!(end.pages.write_at(OUT, &data));
    end.recv(1, &[end.sge(BACK, SIZE)]);
    end.send(2, SendOp::Send, &[end.sge(OUT, SIZE)]);
    let to = Remote { va: far.va + READ as u64, ..far };
    end.send(3, SendOp::Write(to), &[end.sge(OUT, SIZE)]);
    end.send(4, SendOp::Read(to), &[end.sge(READ, SIZE)]);
    let done = end.wait(4);
    assert!(done.iter().all(|c| c.status == WcStatus::Success), "round {round}: {done:?}");
    for at in [BACK, READ] {
        let mut got = vec![0; SIZE];
        assert!(end.pages.read_at(at, &mut got));
        assert!(got == data, "round {round}: bytes at {at} are wrong");
    }
}

#[test]
fn others_are_not_harmed() {
    let (count, seed) = (number("ADVERB_SCRIBBLERS", 6), number("ADVERB_SEED", 1));
    let steady = End::new(QpType::Rc);
    let mut good = Party::start("the_steady", &[]);
    let (qpn, far) = parse(&good.hear());
    good.say(&introduce(&steady));
    steady.connect_to(qpn, PathMtu::Mtu1024);
    good.say("go");
    let mut round = 0;
    for i in 0..count {
        let dice = (seed * 1000 + i).to_string();
        let mut bad = Party::start("the_scribbler", &[("ADVERB_SEED", &dice)]);
        let end = End::new(QpType::Rc);
        let (qpn, remote) = parse(&bad.hear());
        bad.say(&introduce(&end));
        bad.say(&steady.qp.number().to_string());
        end.connect_to(qpn, PathMtu::Mtu1024);
        for id in 0..64 {
            end.recv(id, &[end.sge(0, 4096)]);
        }
        assert_eq!(bad.hear(), "scribbles");
        // What becomes of its own connection is its own business; that of the other goes on.
        let limit = Instant::now() + Duration::from_secs(60);
        let (before, mut waiting) = (round, 0);
        while bad.has_said().is_none() {
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
        assert!(round > before);
        drop(bad);
        exchange(&steady, far, round);
        round += 1;
        end.qp.destroy().unwrap();
    }
    good.finish();
    println!("{round} rounds beside {count} scribblers");
}

/// The other process of the traffic that is to go on: sends back what it gets.
#[test]
#[ignore = "a process of others_are_not_harmed"]
fn the_steady() {
    let end = End::new(QpType::Rc);
    tell(&introduce(&end));
    let (qpn, _) = parse(&listen().unwrap());
    end.connect_to(qpn, PathMtu::Mtu1024);
    end.recv(0, &[end.sge(OUT, SIZE)]);
    assert_eq!(listen().as_deref(), Some("go"));
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(listen().is_none());
            over.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        while !over.load(std::sync::atomic::Ordering::SeqCst) {
            end.cq
                .poll(8, |c| {
                    assert_eq!(c.status, WcStatus::Success, "{:?}", c.cause);
                    if c.wr_id == 0 {
                        end.send(1, SendOp::Send, &[end.sge(OUT, SIZE)]);
                    } else {
                        end.recv(0, &[end.sge(OUT, SIZE)]);
                    }
                })
                .unwrap();
        }
    });
}

/// Shared memory of the device in this process that it can write to: rings and tables, by their sizes.
fn shared() -> Vec<(u64, u64)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let of_line = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
        let ours = rest.starts_with("rw-s") && rest.contains("/memfd:adverb ");
        (ours && matches!(to - from, 0x4_1000 | 0x50_5000)).then_some((from, to - from))
    };
    maps.lines().filter_map(of_line).collect()
}

/// A record such as a peer writes, with a body that is nearly a packet.
fn record(dice: &mut Dice, targets: &[u32]) -> [u8; 64] {
    let mut cell = [0; 64];
    for word in cell.chunks_mut(8) {
        word.copy_from_slice(&dice.next().to_le_bytes());
    }
    let tag: u64 = [1, 1, 3, 5, 7, 8, 0, 15][dice.below(8) as usize];
    let len: u64 = [12, 16, 28, 41, 56, 20, 0, 1000][dice.below(8) as usize];
    cell[..8].copy_from_slice(&(1_u64 << 56 | tag << 32 | len).to_le_bytes());
    let target = targets[dice.below(targets.len() as u64) as usize];
    // RC opcodes above all; then flags, the partition, the queue pair, a PSN near that of the connection.
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
    let end = End::new(QpType::Rc);
    tell(&introduce(&end));
    let (qpn, _) = parse(&listen().unwrap());
    let victim: u32 = listen().unwrap().parse().unwrap();
    end.connect_to(qpn, PathMtu::Mtu1024);
    end.send(1, SendOp::Send, &[end.sge(0, 64)]);
    assert_eq!(end.wait(1)[0].status, WcStatus::Success);
    let mut places = shared();
    assert!(places.iter().any(|p| p.1 == 0x4_1000) && places.iter().any(|p| p.1 == 0x50_5000), "{places:?}");
    let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
    tell("scribbles");
    let until = Instant::now() + Duration::from_millis(300);
    // Some begin with records that look right, as the first that does not ends it all.
    let wild = dice.below(3);
    while Instant::now() < until {
        for _ in 0..200 {
            let (start, len) = places[dice.below(places.len() as u64) as usize];
            if write(&memory, &mut dice, (start, len), &[qpn, victim], wild).is_err() {
                // Unmapped since: a ring that it broke itself. The tables stay.
                places = shared();
            }
        }
        // Its own traffic goes on, too, as far as it does.
        end.cq.poll(8, |_| ()).unwrap();
    }
    tell("done");
    while listen().is_some() {}
}

fn write(
    memory: &File,
    dice: &mut Dice,
    (start, len): (u64, u64),
    targets: &[u32],
    wild: u64,
) -> io::Result<()> {
    let is_ring = len == 0x4_1000;
    if is_ring && (wild == 0 || dice.below(50) != 0) {
        let cell = start + 4096 + dice.below(4096) * 64;
        memory.write_all_at(&record(dice, targets), cell)?;
    } else if wild > 0 || !is_ring {
        // Any word at all: control lines, sequences, identities.
        let at = if dice.below(4) == 0 { dice.below(512) } else { dice.below(len / 8) };
        let words = [0, u64::MAX, dice.next(), dice.below(5000)];
        let word = words[dice.below(4) as usize];
        memory.write_all_at(&word.to_ne_bytes(), start + at * 8)?;
    }
    Ok(())
}
