//! Arming and events through the native API.
use adverb::testing::{Endpoint, HANG_LIMIT, pair};
use adverb::{Cq, CqEvent, Error, Notify, Qp, WcStatus};
use nix::poll::{PollFd, PollFlags, poll};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How long a test waits for an event that must not come.
const QUIET: Duration = Duration::from_millis(30);

/// Both ends, with `n` receives posted at the second.
fn pair_with_receives(n: u64) -> (Endpoint, Endpoint) {
    let (a, b) = pair().unwrap();
    for wr_id in 0..n {
        b.qp.recv(()).id(wr_id).post().unwrap();
    }
    (a, b)
}

fn event(end: &Endpoint) -> CqEvent {
    end.channel.next_event_timeout(HANG_LIMIT).unwrap().expect("an event")
}

/// Arms the queue of `b` for the next completion, and sends a message that makes an event.
fn armed_send(a: &Endpoint, b: &Endpoint) {
    b.cq.notify(Notify::Next).unwrap();
    a.qp.send(()).post().unwrap();
}

/// A queue of the end's channel, and a queue pair that is connected to itself.
fn looped(end: &Endpoint) -> (Qp, Cq) {
    let cq = end.context.create_cq().channel(&end.channel).entries(16).build().unwrap();
    let qp = end.pd.create_qp().cq(&cq).build().unwrap();
    qp.connect_to(&qp.info().unwrap()).unwrap();
    (qp, cq)
}

/// Sends a message of the queue pair to itself, with one completion, which makes an event.
fn send_to_itself((qp, cq): &(Qp, Cq)) {
    qp.recv(()).post().unwrap();
    cq.notify(Notify::Next).unwrap();
    qp.send(()).signaled(false).post().unwrap();
}

fn no_event(end: &Endpoint) {
    let event = end.channel.next_event_timeout(QUIET).unwrap();
    assert!(event.is_none(), "an event that nobody asked for");
}

/// Waits until the queue has `n` completions, and leaves them there.
fn arrived(cq: &Cq, n: usize) {
    let start = Instant::now();
    while cq.len() < n {
        assert!(start.elapsed() < HANG_LIMIT, "{} of {n} completions", cq.len());
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn readable(end: &Endpoint) -> bool {
    let mut fds = [PollFd::new(end.channel.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, 0u8).unwrap() == 1
}

#[test]
fn cqn_1_cqn_4_one_arm_gives_one_event_of_the_next_completion() {
    let (a, b) = pair_with_receives(2);
    armed_send(&a, &b);
    assert!(*event(&b).cq() == b.cq);
    assert_eq!(b.completion().unwrap().wr_id(), 0, "CQN-7: the completion is there with its event");
    a.qp.send(()).post().unwrap();
    arrived(&b.cq, 1);
    no_event(&b);
}

#[test]
fn cqn_2_cqn_9_solicited_waits_for_the_flag_or_a_failure() {
    let (a, b) = pair_with_receives(3);
    b.cq.notify(Notify::Solicited).unwrap();
    a.qp.send(()).post().unwrap();
    arrived(&b.cq, 1);
    no_event(&b);
    a.qp.send_imm((), 1).solicited().post().unwrap();
    drop(event(&b));
    b.cq.notify(Notify::Solicited).unwrap();
    b.qp.disconnect().unwrap();
    drop(event(&b));
    let last = b.cq.drain().last().unwrap().unwrap();
    assert_eq!(last.status(), WcStatus::WrFlushErr);
}

#[test]
fn errors_alone_wake_an_arm_for_errors() {
    let (a, b) = pair_with_receives(2);
    b.cq.notify(Notify::Errors).unwrap();
    a.qp.send(()).solicited().post().unwrap();
    arrived(&b.cq, 1);
    no_event(&b);
    b.qp.disconnect().unwrap();
    drop(event(&b));
}

#[test]
fn cqn_3_what_lies_there_when_armed_makes_no_event() {
    let (a, b) = pair_with_receives(2);
    a.qp.send(()).post().unwrap();
    arrived(&b.cq, 1);
    b.cq.notify(Notify::Next).unwrap();
    no_event(&b);
    a.qp.send(()).post().unwrap();
    drop(event(&b));
}

#[test]
fn cqn_5_cqn_6_arms_add_up() {
    let (a, b) = pair_with_receives(2);
    for what in [Notify::Next, Notify::Solicited, Notify::Next] {
        b.cq.notify(what).unwrap();
    }
    a.qp.send(()).post().unwrap();
    drop(event(&b));
    a.qp.send(()).solicited().post().unwrap();
    arrived(&b.cq, 2);
    no_event(&b);
}

#[test]
fn cqn_8_an_event_may_find_an_empty_queue() {
    let (a, b) = pair_with_receives(1);
    armed_send(&a, &b);
    b.completion().unwrap();
    let late = event(&b);
    assert_eq!(late.cq().poll_one().unwrap().map(|c| c.wr_id()), None);
}

#[test]
fn cqn_11_a_queue_without_a_channel_can_be_armed() {
    let (a, b) = pair_with_receives(0);
    let cq = b.context.create_cq().build().unwrap();
    let qp = b.pd.create_qp().cq(&cq).build().unwrap();
    a.qp.reset().unwrap();
    a.qp.connect_to(&qp.info().unwrap()).unwrap();
    qp.connect_to(&a.qp.info().unwrap()).unwrap();
    qp.recv(()).post().unwrap();
    cq.notify(Notify::Next).unwrap();
    a.qp.send(()).post().unwrap();
    cq.wait(HANG_LIMIT).unwrap().ok().unwrap();
    no_event(&b);
}

#[test]
fn chn_1_the_event_names_its_queue() {
    let end = Endpoint::new(|qp| qp).unwrap();
    let cqs = [3, 4].map(|data| {
        end.context.create_cq().channel(&end.channel).user_data(data).entries(16).build().unwrap()
    });
    for cq in &cqs {
        let [x, y] = [0, 1].map(|_| end.pd.create_qp().cq(cq).build().unwrap());
        x.connect_to(&y.info().unwrap()).unwrap();
        y.connect_to(&x.info().unwrap()).unwrap();
        cq.notify(Notify::Next).unwrap();
        y.recv(()).post().unwrap();
        x.send(()).post().unwrap();
        let event = event(&end);
        assert!(event.cq() == cq && event.cq().user_data() == cq.user_data());
    }
}

#[test]
fn chn_2_the_descriptor_is_readable_while_an_event_waits() {
    let (a, b) = pair_with_receives(1);
    b.channel.set_nonblocking(true).unwrap();
    assert!(matches!(b.channel.next_event(), Err(Error::WouldBlock)));
    assert!(!readable(&b));
    armed_send(&a, &b);
    let mut fds = [PollFd::new(b.channel.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, 20_000u16).unwrap(), 1);
    drop(b.channel.next_event().unwrap());
    assert!(!readable(&b));
    b.channel.set_nonblocking(false).unwrap();
    no_event(&b);
}

#[test]
fn chn_3_events_come_in_order_and_each_once() {
    let end = Endpoint::new(|qp| qp).unwrap();
    let queues: Vec<_> = (0..4).map(|_| looped(&end)).collect();
    for one in queues.iter().rev() {
        send_to_itself(one);
        arrived(&one.1, 1);
    }
    let waiting: Vec<_> = std::thread::scope(|scope| {
        let one = || event(&end).cq().number();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let mut numbers: Vec<_> = queues.iter().map(|(_, cq)| cq.number()).collect();
    let mut got = waiting.clone();
    got.sort_unstable();
    numbers.sort_unstable();
    assert_eq!(got, numbers, "each to one thread");
    for one in &queues {
        send_to_itself(one);
        arrived(&one.1, 2);
    }
    let order: Vec<_> = queues.iter().map(|_| event(&end).cq().number()).collect();
    assert_eq!(order, queues.iter().map(|(_, cq)| cq.number()).collect::<Vec<_>>());
}

#[test]
fn chn_4_an_event_keeps_its_queue_until_it_is_dropped() {
    let (a, b) = pair_with_receives(1);
    armed_send(&a, &b);
    let event = event(&b);
    let Endpoint { cq, qp, channel, .. } = b;
    qp.destroy().unwrap();
    let number = cq.number();
    assert!(
        matches!(cq.destroy(), Err(Error::Busy { users: 1, .. })),
        "the event is not acknowledged"
    );
    assert_eq!(event.cq().number(), number);
    assert!(matches!(channel.clone().destroy(), Err(Error::Busy { .. })));
    // After the acknowledgement the queue ends, and with it the last user of the channel.
    drop(event);
    channel.destroy().unwrap();
}

#[test]
fn chn_5_unread_events_go_with_their_queue() {
    let (a, b) = pair_with_receives(1);
    armed_send(&a, &b);
    arrived(&b.cq, 1);
    let Endpoint { cq, qp, channel, .. } = b;
    qp.destroy().unwrap();
    cq.destroy().unwrap();
    assert!(channel.next_event_timeout(QUIET).unwrap().is_none());
}

#[test]
fn chn_6_a_channel_with_queues_is_busy() {
    let end = Endpoint::new(|qp| qp).unwrap();
    let e = end.channel.clone().destroy().unwrap_err();
    assert!(matches!(e, Error::Busy { .. }) && e.errno() == 16, "{e}");
}

#[test]
fn chn_7_a_wait_can_be_interrupted() {
    let end = Endpoint::new(|qp| qp).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| end.channel.next_event());
        std::thread::sleep(QUIET);
        end.channel.interrupt();
        let e = waiting.join().unwrap().unwrap_err();
        assert!(matches!(e, Error::Interrupted) && e.errno() == 4, "{e}");
    });
}

#[test]
fn ext_1_peek_leaves_everything_in_place() {
    let (a, b) = pair_with_receives(3);
    b.cq.notify(Notify::Next).unwrap();
    for _ in 0..3 {
        a.qp.send(()).post().unwrap();
    }
    arrived(&b.cq, 3);
    let ids = |max| b.cq.peek(max).iter().map(adverb::Completion::wr_id).collect::<Vec<_>>();
    assert_eq!((ids(2), ids(10)), (vec![0, 1], vec![0, 1, 2]));
    drop(event(&b));
    let polled: Vec<_> = b.cq.drain().map(|c| c.unwrap().wr_id()).collect();
    assert_eq!(polled, [0, 1, 2]);
    assert!(b.cq.peek(10).is_empty());
}

#[test]
fn ext_2_moderation_counts_and_times() {
    let (a, b) = pair_with_receives(5);
    b.cq.moderate(3, Duration::ZERO).unwrap();
    armed_send(&a, &b);
    a.qp.send(()).post().unwrap();
    arrived(&b.cq, 2);
    no_event(&b);
    a.qp.send(()).post().unwrap();
    drop(event(&b));
    assert_eq!(b.cq.drain().count(), 3);
    // The count is far away, so the period decides.
    b.cq.moderate(100, Duration::from_millis(2)).unwrap();
    armed_send(&a, &b);
    drop(event(&b));
    // Both values are zero, so the event comes at once.
    b.cq.moderate(0, Duration::ZERO).unwrap();
    armed_send(&a, &b);
    drop(event(&b));
}

#[test]
fn ext_3_a_persistent_arm_stays_until_it_is_taken_back() {
    let (a, b) = pair_with_receives(8);
    b.cq.notify_persistent(Notify::Next).unwrap();
    for _ in 0..3 {
        a.qp.send(()).post().unwrap();
        drop(event(&b));
    }
    b.cq.moderate(2, Duration::ZERO).unwrap();
    for _ in 0..2 {
        a.qp.send(()).post().unwrap();
        a.qp.send(()).post().unwrap();
        drop(event(&b));
    }
    b.cq.disarm();
    a.qp.send(()).post().unwrap();
    arrived(&b.cq, 8);
    no_event(&b);
}

#[test]
fn ext_4_completions_that_no_event_speaks_of_are_reported() {
    let (a, b) = pair_with_receives(2);
    a.qp.send(()).post().unwrap();
    arrived(&b.cq, 1);
    let report = b.channel.lost_wakeups();
    assert_eq!(report.len(), 1);
    assert!(report[0].cq == b.cq && report[0].waiting == 1 && !report[0].armed);
    b.cq.notify(Notify::Next).unwrap();
    let report = b.channel.lost_wakeups();
    assert!(report[0].armed, "armed behind the completion");
    assert!(report[0].report.contains("events.rs"), "it says where: {}", report[0].report);
    b.completion().unwrap();
    assert!(b.channel.lost_wakeups().is_empty(), "arm, then poll until empty, leaves nothing");
}

#[test]
fn chn_4_chn_5_queues_may_go_while_threads_wait() {
    let end = Endpoint::new(|qp| qp).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiter = || {
            let mut seen = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                if let Some(event) =
                    end.channel.next_event_timeout(Duration::from_millis(1)).unwrap()
                {
                    // The event keeps its queue.
                    assert!(event.cq().poll_one().is_ok());
                    seen += 1;
                }
            }
            seen
        };
        let waiters = [scope.spawn(waiter), scope.spawn(waiter)];
        let start = Instant::now();
        for _ in 0..200 {
            let (qp, cq) = looped(&end);
            qp.recv(()).post().unwrap();
            cq.notify(Notify::Next).unwrap();
            qp.send(()).post().unwrap();
            // Queue pair and queue are dropped here, with their events in any state.
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        let seen: u32 = waiters.map(|w| w.join().unwrap()).iter().sum();
        assert!(seen <= 200, "{seen} events of 200 arms");
        assert!(start.elapsed() < HANG_LIMIT);
    });
    // With the end's own queue, the last queue of the channel ends.
    let Endpoint { channel, cq, qp, .. } = end;
    qp.destroy().unwrap();
    cq.destroy().unwrap();
    channel.destroy().unwrap();
}
