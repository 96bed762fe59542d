//! A hostile process of the same user follows the handshake protocol, but too often or with
//! wrong contents.
mod common;
use adverb_device::engine::{PathMtu, QpType, SendOp, WcStatus};
use adverb_local::message::MAX_MESSAGE;
use adverb_local::{HandshakeMessage, Local, MAX_SLOT, MIN_SLOT, SLOT_SHIFT, Slot};
use adverb_shm::{Consumer, Published};
use common::QpEnd;
use common::party::{Party, introduce, listen, parse, tell};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::eventfd::EventFd;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Number of handshake messages. Each claims to describe the tables of a different process.
const HANDSHAKES: u64 = 60;
/// Maximum number of peers in a process. A process may contain this many copies of the library.
const COPIES: usize = 4;
/// Maximum number of descriptors for a peer.
const COST: usize = 8;

/// Runs a single test at a time, because tests count the descriptors of this process and other
/// tests open descriptors.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// TRU-3: the resources that a process receives do not grow with the number of names that the
/// process uses.
#[test]
fn a_process_is_no_more_peers_than_it_can_have_copies_of_the_library() {
    let _alone = alone();
    let end = QpEnd::new(QpType::Rc);
    let before = descriptors();
    let mut bad = Party::start("the_many", &[]);
    bad.say(&(end.qp.number() >> SLOT_SHIFT).to_string());
    let taken: usize = bad.hear().parse().unwrap();
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
        let mut bad = Party::start("the_many", &[("ADVERB_WRONG", wrong)]);
        bad.say(&(end.qp.number() >> SLOT_SHIFT).to_string());
        assert_eq!(bad.hear(), "0", "{wrong}");
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
    let mut bad = Party::start("the_many", &[("ADVERB_WRONG", "slots")]);
    bad.say(&(end.qp.number() >> SLOT_SHIFT).to_string());
    assert_ne!(bad.hear(), "0");
    let mut good = Party::start("the_honest", &[]);
    let (qpn, _) = parse(&good.hear());
    good.say(&introduce(&end));
    end.connect_to(qpn, PathMtu::Mtu1024);
    assert_eq!(good.hear(), "ready");
    let ring_sent = || end.context.node().stats().ring_sent;
    let before = ring_sent();
    end.send(1, SendOp::Send, &[end.sge(0, 64)]);
    assert_eq!(end.wait(1)[0].status, WcStatus::Success);
    assert!(ring_sent() > before, "it went over the network");
    assert_eq!(good.hear(), "Success");
    good.finish();
    bad.finish();
}

#[test]
#[ignore = "a process of tru_3_slots_are_whose_the_kernel_says"]
fn the_honest() {
    let end = QpEnd::new(QpType::Rc);
    tell(&introduce(&end));
    let (qpn, _) = parse(&listen().unwrap());
    end.connect_to(qpn, PathMtu::Mtu1024);
    end.recv(1, &[end.sge(0, 64)]);
    tell("ready");
    tell(&format!("{:?}", end.wait(1)[0].status));
    while listen().is_some() {}
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
    let (qpn, _) = parse(&good.hear());
    let steady = QpEnd::new(QpType::Rc);
    good.say(&introduce(&steady));
    steady.connect_to(qpn, PathMtu::Mtu1024);
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
    steady.send(1, SendOp::Send, &[steady.sge(0, 64)]);
    assert_eq!(steady.wait(1)[0].status, WcStatus::Success);
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
    let message = HandshakeMessage {
        nonce: tables.identity().nonce,
        wants_answer: true,
        mtu: 65_536,
        slots: vec![own],
    };
    local
        .send_handshake(
            target,
            &message,
            &[ring_fd.as_fd(), doorbell.as_fd(), tables_fd.as_fd(), pages.as_fd()],
        )
        .unwrap();
    let mut buffer = vec![0; MAX_MESSAGE];
    let limit = Instant::now() + Duration::from_secs(20);
    let answer = loop {
        local.receive(&mut buffer, 64, &mut |_| 0);
        if let Some(answer) = local.handshakes().into_iter().find(|answer| !answer.fds.is_empty()) {
            break answer;
        }
        assert!(Instant::now() < limit, "no answer");
        std::thread::sleep(Duration::from_micros(200));
    };
    let theirs = UnixStream::from(answer.fds.into_iter().nth(1).unwrap());
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
    while listen().is_some() {}
    drop(ring);
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
    let wrong = std::env::var("ADVERB_WRONG");
    let mut buffer = vec![0; MAX_MESSAGE];
    let (mut all, mut taken) = (Vec::new(), 0);
    for n in 0..HANDSHAKES {
        let (ring, ring_fd) = Consumer::create().unwrap();
        let (tables, tables_fd) = Published::create().unwrap();
        let mut slots = vec![own];
        if wrong.as_deref() == Ok("slots") {
            slots.extend((MIN_SLOT..=MAX_SLOT).filter(|slot| *slot != own));
        }
        let message = HandshakeMessage {
            nonce: tables.identity().nonce,
            wants_answer: true,
            mtu: 65_536,
            slots,
        };
        let rung = match wrong.as_deref() {
            Ok("pipe") => pipe.as_fd(),
            Ok("tables") => tables_fd.as_fd(),
            Ok("eventfd") => counter.as_fd(),
            Ok("tcp") => tcp.as_fd(),
            _ => doorbell.as_fd(),
        };
        let descriptors = [ring_fd.as_fd(), rung, tables_fd.as_fd(), pages.as_fd()];
        local.send_handshake(target, &message, &descriptors).unwrap();
        let limit = Instant::now() + Duration::from_secs(20);
        // Every handshake message gets an answer: descriptors or a refusal.
        loop {
            local.receive(&mut buffer, 64, &mut |_| 0);
            let answers = local.handshakes();
            taken += answers.iter().filter(|answer| !answer.fds.is_empty()).count();
            if !answers.is_empty() {
                break;
            }
            assert!(Instant::now() < limit, "handshake message {n} is not answered");
            std::thread::sleep(Duration::from_micros(200));
        }
        all.push((ring, tables, tables_fd));
    }
    tell(&taken.to_string());
    while listen().is_some() {}
}
