//! Arming, events and the log reports about them, with real completions.
mod common;
use adverb_device::engine::cq::arm::ArmKind;
use adverb_device::engine::{PathMtu, QpType, RecvWr, SendOp};
use adverb_device::{AsyncEvent, CompChannel, Cq, Errno, Notify, Sink, Srq};
use common::{HANG_LIMIT, QpEnd, WIRE, child, join, loopback, rc, until};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Puts `n` messages from `a` into the completion queue of `b`.
fn burst(a: &QpEnd, b: &QpEnd, n: usize) {
    let before = b.cq.len();
    for i in 0..n {
        b.recv(i as u64, &[b.sge(i * 64, 64)]);
    }
    for i in 0..n {
        a.send(i as u64, SendOp::Send, &[a.sge(0, 64)]);
    }
    a.wait(n);
    until("all messages", || {
        b.context.node().progress();
        b.cq.len() >= before + n
    });
}

/// Reads all events of an end, and returns their number.
fn events(end: &QpEnd) -> usize {
    std::iter::from_fn(|| end.channel.try_event()).inspect(|cq| cq.ack_events(1)).count()
}

/// Two connected ends. The queue pair of the first has this completion queue.
fn with_queue(cq: &Arc<Cq>) -> (QpEnd, QpEnd) {
    let (mut a, b) = (QpEnd::new(QpType::Rc), QpEnd::new(QpType::Rc));
    a.qp = a.another_qp(|init| {
        (init.send_cq, init.recv_cq) = (Some(cq.clone()), Some(cq.clone()));
    });
    join(&a, &b, PathMtu::Mtu1024);
    (a, b)
}

#[test]
fn ext_1_peek_leaves_completions_where_they_are() {
    let (a, b) = rc();
    burst(&a, &b, 3);
    let mut seen = Vec::new();
    assert_eq!(b.cq.peek(2, |c| seen.push(c.wr_id)), 2);
    assert_eq!(b.cq.peek(9, |c| seen.push(c.wr_id)), 3);
    assert_eq!(seen, [0, 1, 0, 1, 2]);
    assert_eq!(b.wait(3).iter().map(|c| c.wr_id).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(b.cq.peek(9, |_| ()), 0);
}

#[test]
fn ext_2_an_event_comes_after_the_period_without_anybody_polling() {
    let (a, b) = rc();
    b.cq.moderate(100, Duration::from_millis(5)).unwrap();
    b.cq.req_notify(ArmKind::Next).unwrap();
    burst(&a, &b, 3);
    b.channel.next_event(Some(Instant::now() + HANG_LIMIT)).unwrap().ack_events(1);
    assert_eq!(b.wait(3).len(), 3);
    assert!(b.channel.try_event().is_none(), "one arm, one event");
}

#[test]
fn ext_3_a_persistent_arm_notifies_of_every_completion_until_it_is_taken_back() {
    let (a, b) = rc();
    b.cq.notify_persistent(ArmKind::Next).unwrap();
    burst(&a, &b, 5);
    for _ in 0..5 {
        b.channel.try_event().expect("an event for each").ack_events(1);
    }
    assert!(b.channel.try_event().is_none());
    b.cq.disarm();
    burst(&a, &b, 1);
    assert!(b.channel.try_event().is_none());
    // With moderation, an event stands for four completions.
    b.cq.moderate(4, Duration::ZERO).unwrap();
    b.cq.notify_persistent(ArmKind::Next).unwrap();
    burst(&a, &b, 9);
    assert_eq!(events(&b), 2);
}

#[test]
fn ext_3_events_that_nobody_reads_are_bounded_by_the_queue() {
    let (a, b) = (QpEnd::new(QpType::Rc), QpEnd::with_cq(QpType::Rc, 8));
    join(&a, &b, PathMtu::Mtu1024);
    b.cq.notify_persistent(ArmKind::Next).unwrap();
    for _ in 0..10 {
        burst(&a, &b, 4);
        b.wait(4);
    }
    assert_eq!(events(&b), 8);
    // After the events were read, new completions make events again.
    burst(&a, &b, 1);
    b.channel.try_event().expect("an event").ack_events(1);
}

#[test]
fn ndk_2_a_fresh_completion_satisfies_the_arm_at_once() {
    let (a, b) = rc();
    burst(&a, &b, 1);
    b.cq.arm_fresh(ArmKind::Solicited).unwrap();
    b.channel.try_event().expect("satisfied at once").ack_events(1);
    b.cq.mark_notified();
    b.cq.arm_fresh(ArmKind::Next).unwrap();
    assert!(b.channel.try_event().is_none(), "it was there at the last callback");
    burst(&a, &b, 1);
    b.channel.try_event().expect("the next one").ack_events(1);
}

#[test]
fn an_interrupt_ends_one_wait_and_leaves_the_descriptor_as_it_was() {
    let (a, b) = rc();
    let channel = b.channel.clone();
    let waiter = std::thread::spawn(move || channel.next_event(None).map(|_| ()));
    std::thread::sleep(Duration::from_millis(30));
    b.channel.interrupt();
    assert_eq!(waiter.join().unwrap(), Err(Errno::EINTR));
    let soon = || Some(Instant::now() + Duration::from_millis(20));
    assert_eq!(b.channel.next_event(soon()).map(|_| ()), Err(Errno::ETIMEDOUT), "once");
    // Interrupt before the wait: the channel keeps the interrupt, and does not mistake an event for
    // the interrupt.
    b.cq.req_notify(ArmKind::Next).unwrap();
    burst(&a, &b, 1);
    b.channel.interrupt();
    b.channel.next_event(None).unwrap().ack_events(1);
    assert_eq!(b.channel.next_event(None).map(|_| ()), Err(Errno::EINTR));
    assert_eq!(b.channel.next_event(soon()).map(|_| ()), Err(Errno::ETIMEDOUT));
}

/// Counts wake-ups.
#[derive(Debug, Default)]
struct Counting(AtomicUsize);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Notify for Counting {
    fn notify(&self, _: &Arc<Cq>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_task_is_woken_by_the_background_thread() {
    let (a, b) = rc();
    let woken = Arc::new(Counting::default());
    let waker = Waker::from(woken.clone());
    let mut cx = Context::from_waker(&waker);
    for round in 0..20 {
        b.cq.req_notify(ArmKind::Next).unwrap();
        assert!(b.channel.poll_event(&mut cx).is_pending());
        assert!(b.channel.poll_event(&mut cx).is_pending());
        b.recv(round, &[b.sge(0, 64)]);
        a.send(round, SendOp::Send, &[a.sge(0, 64)]);
        until("a wake-up", || woken.0.load(Ordering::SeqCst) == round as usize + 1);
        let Poll::Ready(Ok(cq)) = b.channel.poll_event(&mut cx) else { panic!("no event") };
        cq.ack_events(1);
        assert_eq!(b.wait(1)[0].wr_id, round);
        a.wait(1);
    }
}

/// The last waker of a task may hold the last reference to the queue. The thread that wakes the
/// task must not drop the task while the thread holds the lock of the queue.
#[test]
fn a_woken_task_is_not_dropped_under_the_lock_of_its_queue() {
    struct Task {
        woken: AtomicUsize,
        dropped_by: Arc<Mutex<Option<std::thread::ThreadId>>>,
    }
    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.woken.fetch_add(1, Ordering::SeqCst);
        }
    }
    impl Drop for Task {
        fn drop(&mut self) {
            *self.dropped_by.lock().unwrap() = Some(std::thread::current().id());
        }
    }
    let (a, b) = rc();
    let dropped_by = Arc::new(Mutex::new(None));
    let task = Arc::new(Task { woken: AtomicUsize::new(0), dropped_by: dropped_by.clone() });
    let weak = Arc::downgrade(&task);
    let waker = Waker::from(task);
    b.cq.req_notify(ArmKind::Next).unwrap();
    assert!(b.channel.poll_event(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    burst(&a, &b, 1);
    until("a wake-up", || weak.upgrade().is_some_and(|t| t.woken.load(Ordering::SeqCst) == 1));
    assert!(dropped_by.lock().unwrap().is_none(), "still kept");
    let other = Waker::from(Arc::new(Counting::default()));
    assert!(b.channel.poll_event(&mut Context::from_waker(&other)).is_ready());
    assert_eq!(*dropped_by.lock().unwrap(), Some(std::thread::current().id()));
}

#[test]
fn a_sink_of_a_front_end_is_told_once_an_arm() {
    let context = loopback().open().unwrap();
    let told = Arc::new(Counting::default());
    let cq = Cq::with_sink(&context, 16, Sink::Custom(told.clone()), 0).unwrap();
    let (a, b) = with_queue(&cq);
    for i in 0..4 {
        b.recv(i, &[b.sge(0, 64)]);
    }
    cq.req_notify(ArmKind::Next).unwrap();
    for i in 0..4 {
        a.send(i, SendOp::Send, &[a.sge(0, 64)]);
    }
    until("four completions", || {
        context.node().progress();
        cq.len() == 4
    });
    assert_eq!(told.0.load(Ordering::SeqCst), 1);
}

/// The first word of the line `name` in the kernel's status of a thread of this process.
fn status_of(tid: i32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status")).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn chn_7_a_thread_that_waits_for_asynchronous_events_sleeps_until_there_is_one() {
    child::run("inner_asynchronous", &[]);
    child::run("inner_asynchronous", &[WIRE]);
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_asynchronous() {
    let (a, mut b) = (QpEnd::new(QpType::Rc), QpEnd::new(QpType::Rc));
    let srq = Srq::new(&b.pd, 64, 1, 0, None).unwrap();
    b.qp = b.another_qp(|init| init.srq = Some(srq.clone()));
    join(&a, &b, PathMtu::Mtu1024);
    for i in 0..64 {
        srq.post_recv(&RecvWr { wr_id: i, sges: &[b.sge(0, 64)] }).unwrap();
    }
    let (tell, told) = std::sync::mpsc::channel();
    let context = b.context.clone();
    let waiter = std::thread::spawn(move || {
        tell.send(nix::unistd::gettid().as_raw()).unwrap();
        let (event, element) = context.next_async_event().unwrap();
        context.ack_async_event(&element);
        event
    });
    let tid = told.recv().unwrap();
    // Wait until the thread sleeps and does not wake up any more.
    let (sleeps, mut before) = (|| status_of(tid, "voluntary_ctxt_switches:"), String::new());
    until("a thread that sleeps", || {
        let last = std::mem::replace(&mut before, sleeps());
        std::thread::sleep(Duration::from_millis(50));
        last == before && status_of(tid, "State:") == "S"
    });
    for i in 0..50 {
        a.send(i, SendOp::Send, &[a.sge(0, 64)]);
        std::thread::sleep(Duration::from_millis(2));
    }
    until("fifty messages without a poll", || b.cq.len() == 50);
    assert_eq!(sleeps(), before, "woken by packets");
    srq.modify(None, Some(10)).unwrap();
    for i in 50..60 {
        a.send(i, SendOp::Send, &[a.sge(0, 64)]);
    }
    until("the event, with nobody else at it", || waiter.is_finished());
    assert_eq!(waiter.join().unwrap(), AsyncEvent::SrqLimitReached);
    let flags = nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK);
    nix::fcntl::fcntl(b.context.async_events(), flags).unwrap();
    assert_eq!(b.context.next_async_event().map(|_| ()), Err(Errno::EAGAIN));
}

/// Collects the log lines.
struct Lines(Mutex<Vec<String>>);

static LINES: Lines = Lines(Mutex::new(Vec::new()));

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        self.0.lock().unwrap().push(record.args().to_string());
    }
    fn flush(&self) {}
}

/// The log lines about a queue with the text `what`.
fn reports(cq: &Cq, what: &str) -> Vec<String> {
    let name = format!("CQ {} ", cq.number());
    let lines = LINES.0.lock().unwrap();
    lines.iter().filter(|l| l.contains(&name) && l.contains(what)).cloned().collect()
}

fn start_log() {
    let _ = log::set_logger(&LINES);
    log::set_max_level(log::LevelFilter::Warn);
}

/// EXT-4, for a program that sleeps in a call that the device does not see.
#[test]
fn ext_4_a_program_that_stops_polling_early_is_told() {
    start_log();
    let (a, b) = rc();
    burst(&a, &b, 10);
    b.cq.req_notify(ArmKind::Next).unwrap();
    b.wait(2);
    let now = b.channel.lost_wakeups();
    assert_eq!((now.len(), now[0].waiting, now[0].armed), (1, 8, true));
    // The program waits in its own `poll`, as another program does in `epoll`.
    let mut fds = [PollFd::new(b.channel.as_fd(), PollFlags::POLLIN)];
    until("a report", || {
        assert_eq!(poll(&mut fds, PollTimeout::from(50u8)), Ok(0), "an event");
        !reports(&b.cq, "lost wake-up").is_empty()
    });
    let report = &reports(&b.cq, "lost wake-up")[0];
    assert!(
        report.contains(&format!("thread {} ", nix::unistd::gettid())),
        "which thread: {report}"
    );
    assert!(report.contains("holds 8 completions that came before its last arm"), "{report}");
    assert!(report.contains("tests/notify.rs"), "armed where: {report}");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(reports(&b.cq, "lost wake-up").len(), 1, "once an arm");
}

#[test]
fn ext_4_a_thread_that_sleeps_beside_an_unarmed_queue_is_told() {
    start_log();
    let (a, b) = rc();
    burst(&a, &b, 1);
    let channel = b.channel.clone();
    let waiter = std::thread::spawn(move || channel.next_event(None).map(|_| ()));
    until("a report", || !reports(&b.cq, "lost wake-up").is_empty());
    b.channel.interrupt();
    assert_eq!(waiter.join().unwrap(), Err(Errno::EINTR));
    let reports = reports(&b.cq, "lost wake-up");
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(reports[0].contains("holds 1 completion and was never armed"), "{}", reports[0]);
}

#[test]
fn ext_4_a_program_in_the_documented_order_is_told_nothing() {
    start_log();
    let (a, b) = rc();
    b.cq.req_notify(ArmKind::Next).unwrap();
    for _ in 0..5 {
        burst(&a, &b, 10);
        // An unread event is waiting, so no wake-up is lost, even after a long time.
        std::thread::sleep(Duration::from_millis(150));
        assert!(b.channel.lost_wakeups().is_empty());
        b.channel.next_event(None).unwrap().ack_events(1);
        b.cq.req_notify(ArmKind::Next).unwrap();
        // The program works on a message for a while.
        std::thread::sleep(Duration::from_millis(150));
        b.wait(10);
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(reports(&b.cq, "lost wake-up"), [""; 0]);
}

/// EXT-5: the log names the queue, the number of events and the waiting time. The call returns when
/// the events are acknowledged.
#[test]
fn ext_5_a_destroy_that_waits_says_for_what() {
    start_log();
    let context = loopback().open().unwrap();
    let channel = CompChannel::new(&context).unwrap();
    let cq = Cq::new(&context, 16, Some(&channel), 0).unwrap();
    let (a, b) = with_queue(&cq);
    b.recv(1, &[b.sge(0, 64)]);
    cq.req_notify(ArmKind::Next).unwrap();
    a.send(1, SendOp::Send, &[a.sge(0, 64)]);
    let event = channel.next_event(None).unwrap();
    a.qp.destroy().unwrap();
    let destroyer = std::thread::spawn(move || event.destroy().map(|()| event));
    until("the report", || !reports(&cq, "waits for 1 event").is_empty());
    let report = &reports(&cq, "waits for 1 event")[0];
    assert!(report.contains("not acknowledged"), "{report}");
    let since = report.split_once("since ").unwrap().1.split_once("s)").unwrap().0;
    assert!(since.parse::<f64>().unwrap() >= 1.0, "{report}");
    assert!(!destroyer.is_finished());
    cq.ack_events(1);
    destroyer.join().unwrap().unwrap();
}

/// A completion that arrives between the arm and the end of the following polling makes an event.
/// `poll_next` leaves the completion for the event. The completion can be polled in three cases:
/// the program insists, reads the event, or begins a new poll.
#[test]
fn cqn_8_what_makes_an_event_behind_an_arm_is_left_for_the_event() {
    let (a, b) = rc();
    let one_more = |id: u64| {
        let had = b.cq.len();
        b.recv(id, &[b.sge(0, 64)]);
        a.send(id, SendOp::Send, &[a.sge(0, 64)]);
        until("the message", || {
            a.context.node().progress();
            b.context.node().progress();
            b.cq.len() > had
        });
    };
    let next = |insist| {
        let mut id = None;
        b.cq.poll_next(insist, |c| id = Some(c.wr_id)).unwrap();
        id
    };
    let first = || {
        let mut id = None;
        b.cq.poll(1, |c| id = Some(c.wr_id)).unwrap();
        id
    };
    for then in ["insists", "polls anew", "reads the event"] {
        one_more(1);
        b.cq.req_notify(ArmKind::Next).unwrap();
        one_more(2);
        one_more(3);
        assert_eq!(first(), Some(1));
        assert_eq!((next(false), next(false)), (None, None));
        match then {
            "insists" => assert_eq!(next(true), Some(2)),
            "polls anew" => assert_eq!(first(), Some(2)),
            _ => {
                b.channel.next_event(None).unwrap().ack_events(1);
                assert_eq!(next(false), Some(2));
            }
        }
        assert_eq!((next(false), next(false)), (Some(3), None));
        events(&b);
    }
    // If the queue was empty before the arm, the first poll takes the new completion. The event
    // stays in the channel.
    b.cq.req_notify(ArmKind::Next).unwrap();
    one_more(4);
    assert_eq!((first(), next(false)), (Some(4), None));
    b.channel.try_event().expect("the event for what was polled").ack_events(1);
}

#[test]
fn cqn_8_a_program_with_an_event_is_left_alone_until_it_polls() {
    child::run("inner_event_in_hand", &[WIRE]);
}

/// A message that arrives between an event and the following poll waits for the poll, even if the
/// program loses the processor meanwhile. After the poll, the background thread receives messages
/// without the program.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_event_in_hand() {
    // The test counts rounds, because single rounds can fail for two reasons. The background thread
    // takes over after a while, so a round in which this thread lost the processor proves nothing.
    // The event does not stop a thread that had already begun to look. If such a thread lost the
    // processor, the thread finds the second message as well.
    const ROUNDS: usize = 1000;
    let (a, b) = rc();
    let (mut left_alone, mut not) = (0, 0);
    for _ in 0..ROUNDS {
        for i in 0..2 {
            b.recv(i, &[b.sge(0, 64)]);
        }
        // Wait in a get-event call, not on the file descriptor itself.
        assert!(b.channel.next_event(Some(Instant::now() + Duration::from_millis(1))).is_err());
        b.cq.req_notify(ArmKind::Next).unwrap();
        a.send(0, SendOp::Send, &[a.sge(0, 64)]);
        let cq = b.channel.next_event(Some(Instant::now() + Duration::from_secs(20))).unwrap();
        let given = Instant::now();
        cq.ack_events(1);
        a.send(1, SendOp::Send, &[a.sge(0, 64)]);
        while given.elapsed() < Duration::from_millis(5) {
            std::thread::sleep(Duration::from_micros(500));
        }
        let waiting = b.cq.len();
        if given.elapsed() < Duration::from_millis(8) {
            *if waiting == 1 { &mut left_alone } else { &mut not } += 1;
        }
        let mut taken = b.cq.poll(1, drop).unwrap();
        until("nobody received the second", || b.cq.len() + taken >= 2);
        while taken < 2 {
            taken += b.cq.poll(2, drop).unwrap();
        }
        a.wait(2);
        if left_alone >= 10 + 4 * not {
            return;
        }
    }
    panic!("left alone {left_alone} times, not {not} times, of {ROUNDS}");
}
