//! Paths that are refused, and their replacements. The tests check that the replacement is used and
//! moves the right bytes.
use crate::rig::{ALL, KINDS, Kind, Shape, pattern, request};
use crate::talk::{Other, Pair};
use crate::two_sided::MOST;
use crate::{Case, local};
use adverb_device::engine::{QpState, SendFlags, SendOp, WcStatus};
use nix::sys::signal::Signal;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub const CASES: &[Case] = &[
    Case { env: &[("ADVERB_ADOPT", "off")], ..local("pages_stay_where_they_are", stay) },
    Case { env: &[(HIDE, "1")], bare: true, ..local("nobody_looks_into_the_other", forbidden) },
    local("a_peer_that_never_answers", silent),
    local("rings_that_are_full", full),
    local("what_is_sent_is_what_was_posted", taken_back),
    local("a_program_that_exits_while_requests_wait", exits),
    local("one_end_wants_the_network", mixed),
];

/// If set, the process forbids other processes to read its memory.
const HIDE: &str = "ADVERB_HOST_HIDE";

/// Number of log messages about unreachable memory.
static FORBIDDEN: AtomicUsize = AtomicUsize::new(0);
/// Number of log messages about processes that do not answer.
static SILENT: AtomicUsize = AtomicUsize::new(0);
/// Number of log messages about a peer that is too slow for a further wait.
static LATE: AtomicUsize = AtomicUsize::new(0);

pub fn heard(record: &log::Record<'_>) {
    let text = record.args().to_string();
    if record.level() == log::Level::Warn && text.contains("not reached directly") {
        FORBIDDEN.fetch_add(1, Ordering::SeqCst);
    }
    if text.contains("not waited for any longer") {
        LATE.fetch_add(1, Ordering::SeqCst);
    }
    if text.contains("did not agree to share memory") {
        SILENT.fetch_add(1, Ordering::SeqCst);
    }
}

pub fn hide() {
    if std::env::var_os(HIDE).is_some() {
        nix::sys::prctl::set_dumpable(false).unwrap();
    }
}

/// Moves bytes between two kinds of memory in every way. Returns the number of requests performed
/// directly.
fn all_ways(p: &mut Pair, qp: usize, from: Kind, to: Kind) -> u64 {
    let before = p.a.ways()[0];
    let mine = p.a.region(from, MOST, ALL, 0);
    let (theirs, at) = p.b.region(to, MOST, ALL, 0);
    for (n, len) in [8, 4096, 70_000, MOST].into_iter().enumerate() {
        for (m, op) in
            [SendOp::Write(at), SendOp::Send, SendOp::WriteImm(at, 1)].into_iter().enumerate()
        {
            let seed = (n * 3 + m) as u64 + 1;
            p.a.regions[mine].put(0, &pattern(len, seed));
            if m > 0 {
                p.b.ask(&format!("recv {qp} 1 {theirs} 0 {len}"));
            }
            p.a.post(qp, &[request(1, SendFlags::SIGNALED, op, &[p.a.regions[mine].sge(0, len)])]);
            let done = p.a.wait(1).remove(0);
            assert_eq!(done.status, WcStatus::Success, "{:?}", done.cause);
            if m > 0 {
                p.b.ask("wait 1");
            }
            assert!(p.b.same(theirs, 0, len, seed), "{len} bytes {from:?} to {to:?} by {op:?}");
        }
        p.a.regions[mine].put(0, &vec![0; len]);
        p.a.send(qp, 1, SendOp::Read(at), &[p.a.regions[mine].sge(0, len)]);
        assert_eq!(p.a.wait(1)[0].status, WcStatus::Success);
        assert!(
            p.a.regions[mine].get(0, len) == pattern(len, n as u64 * 3 + 3),
            "read of {len} {to:?}"
        );
    }
    p.b.ask(&format!("put {theirs} 0 5"));
    p.a.send(qp, 1, SendOp::FetchAdd { remote: at, add: 2 }, &[p.a.regions[mine].sge(0, 8)]);
    assert_eq!(p.a.wait(1)[0].status, WcStatus::Success);
    assert_eq!((p.a.regions[mine].word(0), p.b.word(theirs, 0)), (5, 7));
    p.a.ways()[0] - before
}

fn stay(p: &mut Pair) {
    let qp = p.rc();
    for (from, to) in KINDS.into_iter().flat_map(|from| KINDS.map(|to| (from, to))) {
        // In memory of the program, the initiator performs WRITEs and READs by system calls, and
        // the target performs the atomic.
        let one_sided = if to == Kind::Buffer { 9 } else { 8 };
        assert_eq!(all_ways(p, qp, from, to), one_sided, "{from:?} to {to:?}");
    }
    p.wants.one_sided = true;
}

fn forbidden(p: &mut Pair) {
    let qp = p.rc();
    all_ways(p, qp, Kind::Buffer, Kind::Buffer);
    assert_eq!(FORBIDDEN.load(Ordering::SeqCst), 0, "said where nothing was copied");
    for _ in 0..2 {
        p.renew();
        let qp = p.rc();
        for (from, to) in KINDS.into_iter().flat_map(|from| KINDS.map(|to| (from, to))) {
            let one_sided = all_ways(p, qp, from, to);
            assert_eq!(one_sided, if to == Kind::Private { 0 } else { 9 }, "{from:?} to {to:?}");
        }
    }
    assert_eq!(FORBIDDEN.load(Ordering::SeqCst), 1, "said once");
    (p.wants.one_sided, p.wants.tx_ring) = (true, true);
}

/// A hanging process: the process listens at its name and never answers.
fn silent(p: &mut Pair) {
    let uid = nix::unistd::geteuid();
    let claim = |slot: u32| {
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        bind(
            socket.as_raw_fd(),
            &UnixAddr::new_abstract(format!("adverb-{uid}-{slot}").as_bytes())?,
        )?;
        listen(&socket, Backlog::new(64)?)?;
        Ok::<_, nix::Error>((slot, socket))
    };
    // Find a slot number that no process uses.
    let (slot, _socket) = (900..1000).find_map(|slot| claim(slot).ok()).expect("a free slot");
    let hasty = Shape { timeout: 8, retry: 1, ..Shape::default() };
    let mine = p.a.region(Kind::Buffer, 64, ALL, 0);
    for n in 0..3 {
        p.a.qp(hasty);
        p.a.connect(n, slot << 14 | 5);
        p.a.send(n, 1, SendOp::Send, &[p.a.regions[mine].sge(0, 8)]);
        assert_eq!(p.a.wait(1)[0].status, WcStatus::RetryExcErr);
        p.b.ask(&format!("qp {}", hasty.words()));
    }
    assert!(SILENT.load(Ordering::SeqCst) > 0);
    // Other connections are not affected.
    let qp = p.rc();
    assert_eq!(all_ways(p, qp, Kind::Buffer, Kind::Block), 9);
    p.wants.network = true;
}

/// The peer is stopped until its ring is full and requests wait for room.
fn full(p: &mut Pair) {
    const COUNT: usize = 200;
    const LEN: usize = 16_000;
    for kind in KINDS {
        let qp = p.rc();
        let from = p.a.region(kind, COUNT * LEN, ALL, 0);
        let (to, at) = p.b.region(kind, COUNT * LEN, ALL, 0);
        p.a.regions[from].put(0, &pattern(COUNT * LEN, 5));
        (0..COUNT).for_each(|n| drop(p.b.ask(&format!("recv {qp} {n} {to} {} {LEN}", n * LEN))));
        p.b.signal(Signal::SIGSTOP);
        for n in 0..COUNT {
            p.a.send(qp, n as u64, SendOp::Send, &[p.a.regions[from].sge(n * LEN, LEN)]);
        }
        // The READ must not overtake the SENDs: the READ must return the sent bytes.
        let back = p.a.region(Kind::Buffer, LEN, ALL, 0);
        let last =
            adverb_device::engine::wr::Remote { va: at.va + ((COUNT - 1) * LEN) as u64, ..at };
        p.a.send(qp, COUNT as u64, SendOp::Read(last), &[p.a.regions[back].sge(0, LEN)]);
        assert_eq!(p.a.cq.len(), 0, "completed by a process that stands still");
        p.b.signal(Signal::SIGCONT);
        let done = p.a.wait(COUNT + 1);
        assert!(done.iter().all(|c| c.status == WcStatus::Success));
        assert!(done.iter().map(|c| c.wr_id).eq(0..=COUNT as u64));
        p.b.ask(&format!("wait {COUNT}"));
        assert!(p.b.same(to, 0, COUNT * LEN, 5), "{kind:?}");
        assert!(p.a.regions[back].get(0, LEN) == p.a.regions[from].get((COUNT - 1) * LEN, LEN));
    }
    p.wants.tx_ring = true;
}

/// The call that takes back memory or a queue pair must wait until the peer has fetched the
/// payload. Otherwise the peer would fetch other bytes.
fn taken_back(p: &mut Pair) {
    const LEN: usize = 100_000;
    for (n, kind) in KINDS.into_iter().enumerate() {
        for how in ["destroy", "reset", "deregister"] {
            let (qp, mine) = (p.rc(), p.a.region(kind, LEN, ALL, 0));
            let (to, _) = p.b.region(Kind::Buffer, LEN, ALL, 0);
            p.a.regions[mine].put(0, &pattern(LEN, n as u64));
            p.b.ask(&format!("recv {qp} 1 {to} 0 {LEN}"));
            p.b.signal(Signal::SIGSTOP);
            p.a.send(qp, 1, SendOp::Send, &[p.a.regions[mine].sge(0, LEN)]);
            let late = LATE.load(Ordering::SeqCst);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    // Sleep so that the call below has usually begun.
                    std::thread::sleep(Duration::from_millis(20));
                    p.b.signal(Signal::SIGCONT);
                });
                match how {
                    "destroy" => p.a.qps[qp].0.destroy().unwrap(),
                    "reset" => p.a.to(qp, QpState::Reset),
                    _ => p.a.regions[mine].dereg(),
                }
                p.a.regions[mine].put(0, &[0xee; LEN]);
            });
            assert_eq!(p.b.ask("wait 1"), format!("Success/Recv/1/{LEN}/0/0"), "{kind:?} {how}");
            // The call does not wait for a peer that needs more than a second to fetch the payload.
            // The log says so.
            let waited = LATE.load(Ordering::SeqCst) == late;
            assert!(
                !waited || p.b.same(to, 0, LEN, n as u64),
                "{kind:?} {how}: other bytes were sent"
            );
        }
    }
    p.a.cq.poll(64, |_| ()).unwrap();
    p.wants.tx_ring = true;
}

/// A program may end without polling its completions, even if the rings are full.
fn exits(p: &mut Pair) {
    const COUNT: usize = 200;
    const LEN: usize = 16_000;
    let mut leaves = Other::new();
    let qp = format!("qp {}", Shape::default().words());
    let (theirs, own) = (p.b.ask(&qp), leaves.ask(&qp));
    p.b.ask(&format!("connect 0 {own}"));
    leaves.ask(&format!("connect 0 {theirs}"));
    let (from, _) = leaves.region(Kind::Private, LEN, ALL, 0);
    p.b.signal(Signal::SIGSTOP);
    leaves.ask(&format!("flood 0 {COUNT} {from} {LEN}"));
    leaves.leave();
    p.b.signal(Signal::SIGCONT);
    p.renew();
}

/// Only one of the two processes is told to use the network.
fn mixed(p: &mut Pair) {
    p.b = Other::playing("target", &[("ADVERB_PATH", "wire")]);
    let qp = p.rc();
    for (from, to) in KINDS.into_iter().zip([Kind::Block, Kind::Private, Kind::Buffer]) {
        assert_eq!(all_ways(p, qp, from, to), 0);
    }
    p.wants.network = true;
}
