//! MEM-2: when a deregistration has returned, no byte of the region changes by a peer's doing. The
//! peer is stopped at random moments, in the middle of WRITEs and atomics, and costs no wait; nor
//! do its other objects.
//!
//! `ADVERB_ROUNDS` sets how often each way is tried.
mod common;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{Access, AttrMask, PathMtu, QpAttr, QpState, QpType, SendOp, WcStatus};
use adverb_device::mapping::Mapping;
use adverb_memory::{Pages, SharedFile};
use common::End;
use common::party::{Party, introduce, listen, parse, tell};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LEN: usize = 300_000;
const REMOTE: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);
/// What the owner writes when it has its memory back.
const OWN: u8 = 0xee;
/// A stopped peer goes on after this at the latest, so that a call which waits for it ends.
const LIMIT: Duration = Duration::from_secs(30);

fn rounds() -> usize {
    std::env::var("ADVERB_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(100)
}

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// Runs `call` while the peer is stopped, and has the peer go on. The call did not wait for that.
fn while_stopped<R>(pid: i32, what: &str, call: impl FnOnce() -> R) -> R {
    let (over, waited) = (AtomicBool::new(false), AtomicBool::new(false));
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            while !over.load(Ordering::SeqCst) {
                if start.elapsed() > LIMIT {
                    waited.store(true, Ordering::SeqCst);
                    signal(pid, Signal::SIGCONT);
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let result = call();
        over.store(true, Ordering::SeqCst);
        result
    });
    signal(pid, Signal::SIGCONT);
    assert!(!waited.load(Ordering::SeqCst), "{what} waited for a stopped peer");
    result
}

fn reset(end: &End) {
    let attr = QpAttr { state: QpState::Reset, ..QpAttr::default() };
    end.qp.modify(&attr, AttrMask::STATE).unwrap();
}

/// An end connected to the initiator.
fn with_an_initiator() -> (End, Party, u32) {
    let end = End::new(QpType::Rc);
    let mut party = Party::start("the_initiator", &[]);
    let (qpn, _) = parse(&party.hear());
    end.connect_to(qpn, PathMtu::Mtu1024);
    party.say(&introduce(&end));
    assert_eq!(party.hear(), "ready");
    (end, party, qpn)
}

/// Memory of one kind, all zeros.
fn memory(shared: bool) -> (Arc<Pages>, Mapping) {
    let file = shared.then(|| SharedFile::of_process().unwrap());
    let (pages, is_shared) = Pages::of_program(LEN, file).unwrap();
    assert_eq!(is_shared, shared);
    let pages = Arc::new(pages);
    (pages.clone(), Mapping::pages(pages))
}

fn first_and_last(pages: &Pages) -> [u8; 2] {
    let mut bytes = [0; 2];
    assert!(pages.read_at(0, &mut bytes[..1]) && pages.read_at(LEN - 1, &mut bytes[1..]));
    bytes
}

#[test]
fn mem_2_nothing_changes_once_a_region_is_deregistered() {
    let (end, mut party, qpn) = with_an_initiator();
    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..rounds() * 4 {
        let (shared, atomic, stops) = (round % 2 == 0, round % 8 == 2, round % 4 != 1);
        let (pages, mapping) = memory(shared);
        let mr = end.pd.reg_mapping(&mapping, 0, LEN as u64, mapping.addr(), REMOTE).unwrap();
        let what = if atomic { "add" } else { "write" };
        party.say(&format!("{what} {} {}", mapping.addr(), mr.key()));
        while first_and_last(&pages) == [0; 2] {
            std::hint::spin_loop();
        }
        dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        std::thread::sleep(Duration::from_nanos(dice >> 46));
        if stops {
            signal(party.pid(), Signal::SIGSTOP);
            while_stopped(party.pid(), "a deregistration", || {
                mr.dereg().unwrap();
                assert!(pages.write_at(0, &[OWN; LEN]));
            });
        } else {
            mr.dereg().unwrap();
            assert!(pages.write_at(0, &[OWN; LEN]));
        }
        // The initiator has seen that the key is gone: it does nothing more.
        assert_eq!(party.hear(), "RemAccessErr");
        let mut now = vec![0; LEN];
        assert!(pages.read_at(0, &mut now));
        let late = now.iter().filter(|byte| **byte != OWN).count();
        assert_eq!(late, 0, "bytes came late in round {round}: {what}, shared: {shared}, stops: {stops}");
        reset(&end);
        end.connect_to(qpn, PathMtu::Mtu1024);
        party.say("again");
        assert_eq!(party.hear(), "ready");
    }
    party.finish();
}

/// MEM-2, and the end of a queue pair: a stopped peer costs no wait, whether it is at work in the
/// very object or in another.
#[test]
fn mem_2_a_stopped_peer_blocks_nothing() {
    let (end, mut party, _) = with_an_initiator();
    let (pages, mapping) = memory(true);
    let mr = end.pd.reg_mapping(&mapping, 0, LEN as u64, mapping.addr(), REMOTE).unwrap();
    party.say(&format!("write {} {}", mapping.addr(), mr.key()));
    while first_and_last(&pages) == [0; 2] {
        std::hint::spin_loop();
    }
    signal(party.pid(), Signal::SIGSTOP);
    while_stopped(party.pid(), "what a peer is not inside of", || {
        let other = End::new(QpType::Rc);
        other.qp.destroy().unwrap();
        let (_, mapping) = memory(false);
        let local = end.pd.reg_mapping(&mapping, 0, 4096, mapping.addr(), Access::LOCAL_WRITE).unwrap();
        local.dereg().unwrap();
        let remote = end.pd.reg_mapping(&mapping, 0, 4096, mapping.addr(), REMOTE).unwrap();
        remote.dereg().unwrap();
    });
    signal(party.pid(), Signal::SIGSTOP);
    while_stopped(party.pid(), "the end of a queue pair", || end.qp.destroy().unwrap());
    assert!(pages.write_at(0, &[OWN; LEN]));
    party.hear();
    let mut now = vec![0; LEN];
    assert!(pages.read_at(0, &mut now) && now.iter().all(|byte| *byte == OWN), "bytes came late");
    mr.dereg().unwrap();
}

#[test]
#[ignore = "a process of the tests above"]
fn the_initiator() {
    let end = End::new(QpType::Rc);
    tell(&introduce(&end));
    let (qpn, _) = parse(&listen().unwrap());
    end.connect_to(qpn, PathMtu::Mtu1024);
    assert!(end.pages.write_at(0, &[7; LEN]));
    tell("ready");
    while let Some(line) = listen() {
        let mut words = line.split(' ');
        let (what, va, rkey) = (words.next(), words.next(), words.next());
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
        let (Some(va), Some(rkey)) = (number(va), number(rkey)) else {
            reset(&end);
            end.connect_to(qpn, PathMtu::Mtu1024);
            tell("ready");
            continue;
        };
        let remote = Remote { va, rkey: rkey as u32 };
        let (op, len) = match what {
            Some("add") => (SendOp::FetchAdd { remote, add: 1 }, 8),
            _ => (SendOp::Write(remote), LEN),
        };
        let status = loop {
            end.send(1, op, &[end.sge(LEN, 8), end.sge(0, len)][usize::from(len > 8)..][..1]);
            let status = end.wait(1)[0].status;
            if status != WcStatus::Success {
                break status;
            }
        };
        tell(&format!("{status:?}"));
    }
}
