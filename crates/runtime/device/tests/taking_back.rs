//! MEM-2: after a deregistration has returned, no peer changes a byte of the region. The test stops
//! the peer at random moments, in the middle of WRITEs and atomics. The stopped peer delays neither
//! the deregistration nor calls on other objects.
//!
//! `ADVERB_ROUNDS` sets the number of rounds of each variant.
mod common;
use adverb_device::Mr;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{Access, PathMtu, QpState, QpType, SendFlags, SendOp, Sge, WcStatus};
use adverb_device::mapping::Mapping;
use adverb_device::qp::{PlainData, PlainOp, PlainPost, SendChain};
use adverb_memory::{Pages, SharedFile};
use common::party::{Party, listen, meet, tell};
use common::{QpEnd, to_state, until};
use nix::sys::signal::{Signal, kill, raise};
use nix::unistd::{Pid, close};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LEN: usize = 300_000;
const REMOTE: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);
/// The value that the owner writes after the owner has taken the memory back.
const OWN: u8 = 0xee;
/// The test continues a stopped peer after this time at the latest. So a call that waits for the
/// peer ends.
const LIMIT: Duration = Duration::from_secs(30);

/// Seed of the random moments.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

fn rounds() -> usize {
    std::env::var("ADVERB_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(100)
}

/// Stops the peer, runs `call`, and continues the peer. Fails if `call` waited for the peer.
fn while_stopped(party: &Party, what: &str, call: impl FnOnce()) {
    let pid = party.pid();
    kill(pid, Signal::SIGSTOP).unwrap();
    let (over, waited) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            while !over.load(Ordering::SeqCst) {
                if start.elapsed() > LIMIT {
                    waited.store(true, Ordering::SeqCst);
                    kill(pid, Signal::SIGCONT).unwrap();
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        call();
        over.store(true, Ordering::SeqCst);
    });
    party.go_on();
    assert!(!waited.load(Ordering::SeqCst), "{what} waited for a stopped peer");
}

/// An end that is connected to the initiator process, with the number and the memory of the peer.
fn with_an_initiator() -> (QpEnd, Party, (u32, Remote)) {
    let end = QpEnd::new(QpType::Rc);
    let mut party = Party::start("the_initiator", &[]);
    let peer = party.meet(&end);
    assert_eq!(party.hear(), "ready");
    (end, party, peer)
}

/// Zeroed memory, shared with peers or private.
fn memory(shared: bool) -> (Arc<Pages>, Mapping) {
    let file = shared.then(|| SharedFile::of_process().unwrap());
    let (pages, is_shared) = Pages::of_program(LEN, file).unwrap();
    assert_eq!(is_shared, shared);
    let pages = Arc::new(pages);
    (pages.clone(), Mapping::pages(pages))
}

/// Registers all of a mapping.
fn register(end: &QpEnd, mapping: &Mapping, access: Access) -> Arc<Mr> {
    end.pd.reg_mapping(mapping, 0, mapping.len(), mapping.addr(), access).unwrap()
}

/// Takes memory back, which the owner then changes.
fn take_back(mr: &Mr, pages: &Pages) {
    mr.dereg().unwrap();
    assert!(pages.write_at(0, &[OWN; LEN]));
}

/// Fails if bytes have changed since [`take_back`].
fn check(pages: &Pages, when: &str) {
    let mut now = vec![0; LEN];
    assert!(pages.read_at(0, &mut now));
    let late = now.iter().filter(|byte| **byte != OWN).count();
    assert_eq!(late, 0, "bytes came late: {when}");
}

/// A random number of nanoseconds.
fn some_time(dice: &mut u64) -> Duration {
    *dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    Duration::from_nanos(*dice >> 46)
}

fn first_and_last(pages: &Pages) -> [u8; 2] {
    let mut bytes = [0; 2];
    assert!(pages.read_at(0, &mut bytes[..1]) && pages.read_at(LEN - 1, &mut bytes[1..]));
    bytes
}

#[test]
fn mem_2_nothing_changes_once_a_region_is_deregistered() {
    let (end, mut party, (qpn, _)) = with_an_initiator();
    let mut dice = SEED;
    for round in 0..rounds() * 4 {
        let (shared, atomic, stops) = (round % 2 == 0, round % 8 == 2, round % 4 != 1);
        let (pages, mapping) = memory(shared);
        let mr = register(&end, &mapping, REMOTE);
        let what = if atomic { "add" } else { "write" };
        party.say(&format!("{what} {} {}", mapping.addr(), mr.key()));
        while first_and_last(&pages) == [0; 2] {
            std::hint::spin_loop();
        }
        std::thread::sleep(some_time(&mut dice));
        if stops {
            while_stopped(&party, "a deregistration", || take_back(&mr, &pages));
        } else {
            take_back(&mr, &pages);
        }
        // The initiator has seen the invalid key, so the initiator sends nothing more.
        assert_eq!(party.hear(), "RemAccessErr");
        check(&pages, &format!("round {round}: {what}, shared: {shared}, stops: {stops}"));
        to_state(&end.qp, QpState::Reset);
        end.connect_to(qpn, PathMtu::Mtu1024);
        party.say("again");
        assert_eq!(party.hear(), "ready");
    }
    party.finish();
}

/// MEM-2: a stopped peer delays neither deregistrations nor the end of a queue pair. This holds for
/// the object in which the peer is at work, and for other objects.
#[test]
fn mem_2_a_stopped_peer_blocks_nothing() {
    let (end, mut party, _) = with_an_initiator();
    let (pages, mapping) = memory(true);
    let mr = register(&end, &mapping, REMOTE);
    party.say(&format!("write {} {}", mapping.addr(), mr.key()));
    while first_and_last(&pages) == [0; 2] {
        std::hint::spin_loop();
    }
    while_stopped(&party, "what a peer is not inside of", || {
        let other = QpEnd::new(QpType::Rc);
        other.qp.destroy().unwrap();
        let (_, mapping) = memory(false);
        for access in [Access::LOCAL_WRITE, REMOTE] {
            register(&end, &mapping, access).dereg().unwrap();
        }
    });
    while_stopped(&party, "the end of a queue pair", || end.qp.destroy().unwrap());
    assert!(pages.write_at(0, &[OWN; LEN]));
    party.hear();
    check(&pages, "the queue pair has ended");
    mr.dereg().unwrap();
}

/// MEM-2: a peer that is stopped anywhere in a stream of SENDs delays no deregistration and no end
/// of a queue pair.
#[test]
fn mem_2_a_stopped_sender_blocks_nothing() {
    let (end, mut party, _) = with_an_initiator();
    (0..256).for_each(|id| end.recv(id, &[end.sge(0, 8)]));
    party.say("send 0 0");
    let mut dice = SEED;
    for _ in 0..rounds() / 2 {
        let until = Instant::now() + some_time(&mut dice) * 32;
        while Instant::now() < until {
            let mut got = 0;
            end.cq
                .poll(16, |c| {
                    assert_eq!(c.status, WcStatus::Success);
                    got += 1;
                })
                .unwrap();
            (0..got).for_each(|id| end.recv(id, &[end.sge(0, 8)]));
        }
        let local = register(&end, &memory(false).1, Access::LOCAL_WRITE);
        let other = QpEnd::new(QpType::Rc);
        while_stopped(&party, "what a sender is not inside of", || {
            local.dereg().unwrap();
            other.qp.destroy().unwrap();
        });
    }
}

/// MEM-2 on the initiator's side: after the initiator has deregistered its own region, no READ of
/// the initiator writes to the region. This holds although READs take no lock of the key table.
#[test]
fn mem_2_no_read_of_ones_own_comes_late() {
    let (end, party, (_, remote)) = with_an_initiator();
    let qp = end.qp.clone();
    let mut dice = SEED;
    for round in 0..rounds() * 4 {
        let (pages, mapping) = memory(true);
        let mr = register(&end, &mapping, Access::LOCAL_WRITE);
        let length = if round % 4 == 0 { LEN as u32 } else { 8 };
        let data = PlainData::Entry(Sge { addr: mapping.addr(), length, lkey: mr.key() });
        let (op, flags) = (PlainOp::Read(remote), SendFlags::empty());
        let is_read =
            |chain: &mut SendChain<'_>| chain.perform(&PlainPost { wr_id: 0, flags, op, data });
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut chains, mut reads, mut last) = (0, 0_u64, false);
                // Some chains have one request, others have several. The reader ignores a request
                // that is not performed during the post, because another test may just have
                // deregistered a key.
                while !last {
                    last = over.load(Ordering::SeqCst);
                    let mut chain = qp.send_chain().unwrap();
                    reads += (0..=chains % 3).take_while(|_| is_read(&mut chain)).count() as u64;
                    chain.commit();
                    chains += 1;
                }
                reads
            });
            while first_and_last(&pages)[0] == 0 {
                std::hint::spin_loop();
            }
            std::thread::sleep(some_time(&mut dice));
            take_back(&mr, &pages);
            over.store(true, Ordering::SeqCst);
            assert!(reader.join().unwrap() > 0);
        });
        check(&pages, &format!("round {round}, {length} at a time"));
    }
    party.finish();
}

/// Number of mappings of the file `inode` and of descriptors of the process `pid`: the resources of
/// a peer in this process.
fn held(inode: u64, pid: Pid) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let is_its = |line: &&str| line.split_whitespace().nth(4) == Some(inode.to_string().as_str());
    let fds = std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten();
    let names_it = |text: &String| text.lines().any(|line| line == format!("Pid:\t{pid}"));
    let fds = fds.filter_map(|entry| std::fs::read_to_string(entry.path()).ok()).filter(names_it);
    maps.lines().filter(is_its).count() + fds.count()
}

/// MEM-2: a peer that has closed all descriptors no longer counts as a peer, but the threads of the
/// peer may be in the middle of a copy. The deregistration waits for these threads. The mappings
/// and descriptors for this wait are released when the process ends.
#[test]
fn mem_2_a_peer_that_left_writes_nothing_late() {
    for round in 0..10 {
        let mut party = Party::start("the_leaver", &[]);
        let end = QpEnd::new(QpType::Rc);
        party.meet(&end);
        let inode: u64 = party.hear().parse().unwrap();
        let (pages, mapping) = memory(true);
        let mr = register(&end, &mapping, REMOTE);
        party.say(&format!("{} {}", mapping.addr(), mr.key()));
        // The peer closes its descriptors and then stops itself, in the middle of a copy.
        let pid = party.pid();
        party.wait_stopped();
        std::thread::sleep(Duration::from_millis(50));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                kill(pid, Signal::SIGCONT).unwrap();
            });
            take_back(&mr, &pages);
        });
        std::thread::sleep(Duration::from_millis(10));
        check(&pages, &format!("round {round}"));
        // The peer's resources are still open, because the peer has not ended.
        assert!(held(inode, party.pid()) > 0);
        kill(party.pid(), Signal::SIGKILL).unwrap();
        until("nothing of a dead process is held", || held(inode, party.pid()) == 0);
    }
}

#[test]
#[ignore = "a process of mem_2_a_peer_that_left_writes_nothing_late"]
fn the_leaver() {
    let end = QpEnd::new(QpType::Rc);
    meet(&end);
    end.put(0, &[7; LEN]);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    // The tables of this process are the only shared mapping of the device with this length.
    let of_line = |line: &str| {
        let mut words = line.split_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let is_tables = number(to)? - number(from)? == 0x50_5000 && words.next()? == "rw-s";
        is_tables.then(|| words.nth(2).map(str::to_owned))?
    };
    tell(&maps.lines().find_map(of_line).expect("tables"));
    let line = listen().unwrap();
    let (va, rkey) = line.split_once(' ').unwrap();
    let remote = Remote { va: va.parse().unwrap(), rkey: rkey.parse().unwrap() };
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(30));
        let fds = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let numbers: Vec<i32> = fds
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|fd| *fd > 2)
            .collect();
        for fd in numbers {
            let _ = close(fd);
        }
        raise(Signal::SIGSTOP).unwrap();
    });
    let over = Instant::now() + LIMIT;
    while Instant::now() < over {
        if end.perform(SendOp::Write(remote), &[end.sge(0, LEN)]) != WcStatus::Success {
            break;
        }
    }
    std::thread::sleep(LIMIT);
}

#[test]
#[ignore = "a process of the tests above"]
fn the_initiator() {
    let end = QpEnd::new(QpType::Rc);
    let (qpn, _) = meet(&end);
    end.put(0, &[7; LEN]);
    tell("ready");
    while let Some(line) = listen() {
        let mut words = line.split(' ');
        let (what, va, rkey) = (words.next(), words.next(), words.next());
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
        let (Some(va), Some(rkey)) = (number(va), number(rkey)) else {
            to_state(&end.qp, QpState::Reset);
            end.connect_to(qpn, PathMtu::Mtu1024);
            tell("ready");
            continue;
        };
        let remote = Remote { va, rkey: rkey as u32 };
        let (op, len) = match what {
            Some("add") => (SendOp::FetchAdd { remote, add: 1 }, 8),
            Some("send") => (SendOp::Send, 8),
            _ => (SendOp::Write(remote), LEN),
        };
        let status = loop {
            let from = if len > 8 { 0 } else { LEN };
            let status = end.perform(op, &[end.sge(from, len)]);
            if status != WcStatus::Success {
                break status;
            }
        };
        tell(&format!("{status:?}"));
    }
}
