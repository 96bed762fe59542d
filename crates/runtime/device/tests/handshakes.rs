//! A hostile process of the same user follows the handshake protocol, but too often or with
//! wrong contents.
mod common;
use adverb_device::engine::{PathMtu, QpType, SendOp, WcStatus};
use adverb_local::message::MAX_MESSAGE;
use adverb_local::{
    HandshakeMessage, Local, MAX_SLOT, MIN_SLOT, ReceivedHandshake, SLOT_SHIFT, Slot,
};
use adverb_shm::{Consumer, Published};
use common::party::{Party, listen, meet, stay, tell};
use common::{HANG_LIMIT, QpEnd, alone};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::eventfd::EventFd;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of handshake messages. Each claims to describe the tables of a different process.
const HANDSHAKES: u64 = 60;
/// Maximum number of peers in a process. A process may contain this many copies of the library.
const COPIES: usize = 4;
/// Maximum number of descriptors for a peer.
const COST: usize = 8;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A process that runs `the_many` against an end, with something wrong. Returns the number of
/// handshake messages that were taken.
fn hostile(end: &QpEnd, wrong: &str) -> (Party, usize) {
    let mut bad = Party::start("the_many", &[("ADVERB_WRONG", wrong)]);
    bad.say(&(end.qp.number() >> SLOT_SHIFT).to_string());
    let taken = bad.hear().parse().unwrap();
    (bad, taken)
}

/// TRU-3: the resources that a process receives do not grow with the number of names that the
/// process uses.
#[test]
fn a_process_is_no_more_peers_than_it_can_have_copies_of_the_library() {
    let _alone = alone();
    let end = QpEnd::new(QpType::Rc);
    let before = descriptors();
    let (bad, taken) = hostile(&end, "nothing");
    assert!(
        (1..=COPIES).contains(&taken),
        "{taken} of {HANDSHAKES} handshake messages of one process were taken"
    );
    let after = descriptors();
    // The pipes to the party use a few descriptors.
    assert!(after <= before + COPIES * COST + 8, "{before} descriptors before, {after} after");
    bad.finish();
}

/// TRU-3: the device refuses a doorbell descriptor on which a write or a check may block until the
/// owner of the doorbell acts.
#[test]
fn a_doorbell_is_what_it_should_be() {
    let _alone = alone();
    let end = QpEnd::new(QpType::Rc);
    for wrong in ["pipe", "tables", "eventfd", "tcp"] {
        let (bad, taken) = hostile(&end, wrong);
        assert_eq!(taken, 0, "{wrong}");
        bad.finish();
    }
}

/// The file for the shared pages of a process.
fn pages() -> OwnedFd {
    let file = File::from(
        memfd_create(c"pages", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap(),
    );
    file.set_len(1 << 62).unwrap();
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
    file.into()
}

/// TRU-3: the sender of a handshake message counts as the owner of only the slots that the kernel
/// attributes to the process, whatever the message says. Later processes are still reachable.
#[test]
fn tru_3_slots_are_whose_the_kernel_says() {
    let _alone = alone();
    let end = QpEnd::new(QpType::Rc);
    let (bad, taken) = hostile(&end, "slots");
    assert_ne!(taken, 0);
    let mut good = Party::start("the_honest", &[]);
    good.meet(&end);
    assert_eq!(good.hear(), "ready");
    let ring_sent = || end.context.node().stats().ring_sent;
    let before = ring_sent();
    assert_eq!(end.perform(SendOp::Send, &[end.sge(0, 64)]), WcStatus::Success);
    assert!(ring_sent() > before, "it went over the network");
    assert_eq!(good.hear(), "Success");
    good.finish();
    bad.finish();
}

#[test]
#[ignore = "a process of tru_3_slots_are_whose_the_kernel_says"]
fn the_honest() {
    let end = QpEnd::new(QpType::Rc);
    meet(&end);
    end.recv(1, &[end.sge(0, 64)]);
    tell("ready");
    tell(&format!("{:?}", end.wait(1)[0].status));
    stay();
}

/// TRU-3: the owner of a doorbell can fill the doorbell and set blocking mode. Such a doorbell does
/// not block the ringing process. If a process breaks the doorbell of its peer, only its own
/// connection ends.
#[test]
fn tru_3_what_a_peer_does_to_doorbells_is_its_own_loss() {
    let _alone = alone();
    let end = QpEnd::new(QpType::Rc);
    let mut bad = Party::start("the_ringer", &[]);
    bad.say(&(end.qp.number() >> SLOT_SHIFT).to_string());
    let slot: u32 = bad.hear().parse().unwrap();
    let mut good = Party::start("the_honest", &[]);
    let steady = QpEnd::new(QpType::Rc);
    good.meet(&steady);
    assert_eq!(good.hear(), "ready");
    end.connect_to(slot << SLOT_SHIFT | 1, PathMtu::Mtu1024);
    // The peer announces sleep again and again, so many of these messages ring the doorbell.
    for id in 0..50 {
        end.send(id, SendOp::Send, &[end.sge(0, 64)]);
        std::thread::sleep(Duration::from_millis(1));
    }
    bad.say("break");
    assert_eq!(bad.hear(), "broken");
    let ends = end.wait(50);
    assert!(format!("{:?}", ends[0].cause).contains("PeerEnded"), "{:?}", ends[0]);
    assert_eq!(steady.perform(SendOp::Send, &[steady.sge(0, 64)]), WcStatus::Success);
    assert_eq!(good.hear(), "Success");
    good.finish();
    bad.finish();
}

#[test]
#[ignore = "a process of tru_3_what_a_peer_does_to_bells_is_its_own_loss"]
fn the_ringer() {
    let target: Slot = listen().unwrap().parse().unwrap();
    let (local, own) = with_a_slot();
    let ((doorbell, mut kept), pages) = (UnixStream::pair().unwrap(), pages());
    let fill = |mut stream: &UnixStream| {
        stream.set_nonblocking(true).unwrap();
        while stream.write(&[1; 4096]).is_ok() {}
        stream.set_nonblocking(false).unwrap();
    };
    fill(&doorbell);
    let (ring, ring_fd) = Consumer::create().unwrap();
    let (tables, tables_fd) = Published::create().unwrap();
    let descriptors = [ring_fd.as_fd(), doorbell.as_fd(), tables_fd.as_fd(), pages.as_fd()];
    local.send_handshake(target, &message(&tables, vec![own]), &descriptors).unwrap();
    let mut answers = answers(&local);
    while answers[0].fds.is_empty() {
        answers = self::answers(&local);
    }
    let theirs = UnixStream::from(answers.remove(0).fds.remove(1));
    fill(&theirs);
    tell(&own.to_string());
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::SeqCst) {
                tables.set_sleeping(true);
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        assert_eq!(listen().as_deref(), Some("break"));
        over.store(true, std::sync::atomic::Ordering::SeqCst);
    });
    // This process has never read from its doorbell, so the doorbell is still full.
    assert!(kept.read(&mut [0; 16]).is_ok_and(|n| n == 16));
    theirs.shutdown(std::net::Shutdown::Both).unwrap();
    tell("broken");
    stay();
    drop(ring);
}

fn message(tables: &Published, slots: Vec<Slot>) -> HandshakeMessage {
    let nonce = tables.identity().nonce;
    HandshakeMessage { nonce, wants_answer: true, mtu: 65_536, slots }
}

/// The next answers of other processes. Every handshake message gets an answer: descriptors or a
/// refusal.
fn answers(local: &Local) -> Vec<ReceivedHandshake> {
    let mut buffer = vec![0; MAX_MESSAGE];
    let limit = Instant::now() + HANG_LIMIT;
    loop {
        local.receive(&mut buffer, 64, &mut |_| 0);
        let answers = local.handshakes();
        if !answers.is_empty() {
            return answers;
        }
        assert!(Instant::now() < limit, "a handshake message is not answered");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Gives this process a slot.
fn with_a_slot() -> (Arc<Local>, Slot) {
    let local = Local::new(u64::from(std::process::id())).unwrap();
    let own = local.slots()[0];
    (local, own)
}

#[test]
#[ignore = "a process of a_process_is_no_more_peers_than_it_can_have_copies_of_the_library"]
fn the_many() {
    let target: Slot = listen().unwrap().parse().unwrap();
    let (local, own) = with_a_slot();
    let ((doorbell, _kept), pages) = (UnixStream::pair().unwrap(), pages());
    let (_reads, pipe) = std::io::pipe().unwrap();
    let (counter, tcp) = (EventFd::new().unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let wrong = std::env::var("ADVERB_WRONG").unwrap();
    let (mut all, mut taken) = (Vec::new(), 0);
    for _ in 0..HANDSHAKES {
        let (ring, ring_fd) = Consumer::create().unwrap();
        let (tables, tables_fd) = Published::create().unwrap();
        let mut slots = vec![own];
        if wrong == "slots" {
            slots.extend((MIN_SLOT..=MAX_SLOT).filter(|slot| *slot != own));
        }
        let rung = match wrong.as_str() {
            "pipe" => pipe.as_fd(),
            "tables" => tables_fd.as_fd(),
            "eventfd" => counter.as_fd(),
            "tcp" => tcp.as_fd(),
            _ => doorbell.as_fd(),
        };
        let descriptors = [ring_fd.as_fd(), rung, tables_fd.as_fd(), pages.as_fd()];
        local.send_handshake(target, &message(&tables, slots), &descriptors).unwrap();
        taken += answers(&local).iter().filter(|answer| !answer.fds.is_empty()).count();
        all.push((ring, tables, tables_fd));
    }
    tell(&taken.to_string());
    stay();
}
