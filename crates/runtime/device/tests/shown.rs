//! What a process shows to other processes of the user (`adverb top`, `adverb stat`): the values of
//! queue pairs and completion queues, asked for as another process asks.
mod common;
use adverb_device::Qp;
use adverb_device::buffer::Buffer;
use adverb_device::engine::cq::arm::ArmKind;
use adverb_device::engine::{Access, QpType, SendOp};
use adverb_device::snapshot::{Arm, OBJECTS, Page, Pair, Queue};
use adverb_local::Asker;
use common::{HANG_LIMIT, QpEnd, SMALL, alone, rc};
use nix::sys::resource::{UsageWho, getrusage};
use std::time::{Duration, Instant};

/// The pages of this process.
fn pages(asker: &mut Asker) -> Vec<Page> {
    pages_from(0, asker)
}

fn pages_from(first: u32, asker: &mut Asker) -> Vec<Page> {
    let mut pages = Vec::new();
    asker.ask(first, HANG_LIMIT, |_, pid, bytes| {
        if pid != std::process::id() as i32 {
            return None;
        }
        let page = Page::parse(bytes).expect("a page");
        let next = page.next;
        pages.push(page);
        next
    });
    pages
}

fn shown(qp: &Qp) -> Pair {
    let pages = pages(&mut Asker::new().unwrap());
    let all = pages.into_iter().flat_map(|page| page.queue_pairs);
    all.into_iter().find(|pair| pair.number == qp.number()).expect("the queue pair")
}

fn queue(end: &QpEnd) -> Queue {
    let pages = pages(&mut Asker::new().unwrap());
    let all = pages.into_iter().flat_map(|page| page.queues);
    all.into_iter().find(|queue| queue.number == end.cq.number()).expect("the queue")
}

/// The values of an end's completion queue, as soon as they are as expected.
fn queue_with(end: &QpEnd, is: impl Fn(&Queue) -> bool) -> Queue {
    let deadline = Instant::now() + HANG_LIMIT;
    loop {
        let queue = queue(end);
        if is(&queue) {
            return queue;
        }
        assert!(Instant::now() < deadline, "{queue:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// TOP-3: messages, bytes, requests without an end and receives are those of the program.
#[test]
fn top_3_values_of_a_transfer() {
    let _alone = alone();
    let (a, b) = rc();
    for i in 0..10 {
        b.recv(i, &[b.sge(i as usize * 4096, 4096)]);
    }
    for i in 0..3 {
        a.send(i, SendOp::Send, &[a.sge(0, 64)]);
    }
    a.send(3, SendOp::Send, &[a.sge(0, 3000)]);
    a.send(4, SendOp::Read(b.remote(0)), &[a.sge(0, 500)]);
    a.wait(5);
    b.wait(4);
    let (sender, receiver) = (shown(&a.qp), shown(&b.qp));
    assert_eq!((sender.transport(), sender.state_name()), ("RC", "RTS"));
    assert_eq!((sender.posted, sender.sent_bytes, sender.read_bytes), (5, 3 * 64 + 3000, 500));
    assert_eq!((sender.open, sender.depth, sender.received), (0, 512, 0));
    assert_eq!((sender.dest, receiver.dest), (b.qp.number(), a.qp.number()));
    assert_eq!((sender.send_cq, sender.recv_cq), (a.cq.number(), a.cq.number()));
    assert!(receiver.received >= 4 && receiver.received_bytes == 3 * 64 + 3000, "{receiver:?}");
    assert_eq!((receiver.receives, receiver.posted, receiver.drops), (6, 0, 0));
    let counters = pages(&mut Asker::new().unwrap()).swap_remove(0).counters;
    let committed = counters.iter().find(|(name, _)| name == "committed");
    assert!(committed.is_some_and(|(_, value)| *value >= 5), "{counters:?}");
    // A message that finds no receive stays open.
    for i in 0..7 {
        a.send(i, SendOp::Send, &[a.sge(0, 64)]);
    }
    a.wait(6);
    let open = shown(&a.qp);
    assert_eq!((open.posted, open.open), (12, 1), "{open:?}");
    b.recv(9, &[b.sge(0, 64)]);
    a.wait(1);
    assert_eq!(shown(&a.qp).open, 0);
}

/// TOP-3: the arm, the completions and the unread events of a completion queue.
#[test]
fn top_3_values_of_a_completion_queue() {
    let _alone = alone();
    let (a, b) = rc();
    let send = |n: u64| {
        for i in 0..n {
            b.recv(i, &[b.sge(0, 64)]);
        }
        for i in 0..n {
            a.send(i, SendOp::Send, &[a.sge(0, 64)]);
        }
        a.wait(n as usize);
    };
    let fresh = queue(&b);
    assert_eq!((fresh.capacity, fresh.arm, fresh.channel), (4096, Arm::None, true));
    b.cq.req_notify(ArmKind::Solicited).unwrap();
    assert_eq!(queue(&b).arm, Arm::Solicited);
    b.cq.req_notify(ArmKind::Next).unwrap();
    assert_eq!((queue(&b).arm, queue(&b).arms), (Arm::Next, 2));
    send(3);
    queue_with(&b, |queue| (queue.waiting, queue.unread, queue.arm) == (3, 1, Arm::None));
    b.channel.next_event(None).unwrap().ack_events(1);
    queue_with(&b, |queue| (queue.waiting, queue.unannounced, queue.unread) == (3, 3, 0));
    b.wait(3);
    queue_with(&b, |queue| (queue.waiting, queue.unannounced) == (0, 0));
}

/// TOP-4: a queue with completions for which no event will come, and whose program sleeps, is named
/// with the words of the log and the thread. A queue whose program sleeps rightly is not.
#[test]
fn top_4_a_lost_wake_up_is_shown() {
    let _alone = alone();
    let (a, b) = rc();
    let (channel, cq) = (b.channel.clone(), b.cq.clone());
    let waiter = std::thread::spawn(move || {
        cq.req_notify(ArmKind::Next).unwrap();
        channel.next_event(None).unwrap().ack_events(1);
        // The program neither polls nor arms, and waits again.
        assert!(channel.next_event(None).is_err());
    });
    let right = queue_with(&b, |queue| !queue.waiter.is_empty());
    assert!(right.stuck.is_empty() && right.waiter.contains("in ibv_get_cq_event"), "{right:?}");
    b.recv(0, &[b.sge(0, 64)]);
    a.send(0, SendOp::Send, &[a.sge(0, 64)]);
    let lost = queue_with(&b, |queue| !queue.stuck.is_empty());
    let number = b.cq.number();
    let words =
        format!("CQ {number} holds 1 completion and was not armed again after its last event");
    assert!(lost.stuck.starts_with(&words) && lost.stuck.contains("shown.rs:"), "{lost:?}");
    assert_eq!((lost.waiting, lost.unannounced, lost.unread), (1, 1, 0));
    b.wait(1);
    queue_with(&b, |queue| queue.stuck.is_empty());
    b.channel.interrupt();
    waiter.join().unwrap();
}

/// TOP-2: many queue pairs come in several pages, each once and in order.
#[test]
fn top_2_many_queue_pairs_come_in_pages() {
    let _alone = alone();
    let end = QpEnd::new(QpType::Rc);
    let qps: Vec<_> = (0..500).map(|_| end.another_qp(|init| init.cap = SMALL)).collect();
    let mut asker = Asker::new().unwrap();
    for _ in 0..2 {
        let pages = pages(&mut asker);
        assert!(pages.len() > 2, "{} pages", pages.len());
        let numbers: Vec<u32> =
            pages.iter().flat_map(|page| &page.queue_pairs).map(|qp| qp.number).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b));
        assert!(qps.iter().all(|qp| numbers.contains(&qp.number())));
        assert!(pages.iter().all(|page| page.process.queue_pairs as usize == numbers.len()));
        let first = &pages[0];
        assert!(pages[1..].iter().all(|page| page.counters.is_empty()));
        assert!(first.process.contexts > 0 && first.process.pid == std::process::id());
    }
}

/// The objects of this process, and its counters.
fn objects() -> Vec<String> {
    let pages = pages_from(OBJECTS, &mut Asker::new().unwrap());
    assert!(pages.iter().all(|page| page.queue_pairs.is_empty() && page.queues.is_empty()));
    pages.into_iter().flat_map(|page| page.objects).collect()
}

/// SYS-10: the objects of a process are listed as long as they live, in any number, and the
/// counters are those of the queue pairs, also of ended ones.
#[test]
fn sys_10_objects_and_counters() {
    let _alone = alone();
    let count = |word: &str| {
        let word = format!(" {word} ");
        objects().iter().filter(|line| line.contains(&word)).count()
    };
    let kinds = ["ctx", "pd", "cq", "mr", "qp"];
    let before = kinds.map(count);
    let (a, b) = rc();
    b.recv(0, &[b.sge(0, 64)]);
    a.send(0, SendOp::Send, &[a.sge(0, 64)]);
    a.wait(1);
    let number = a.qp.number();
    let line = objects().into_iter().find(|line| line.contains(&format!(" qp {number} ")));
    let words = format!(" qp {number} {} 2 3 {} ", a.pd.id().0, b.qp.number());
    assert!(line.as_ref().is_some_and(|line| line.contains(&words)), "{line:?}, not {words}");
    let during = kinds.map(count);
    assert!(before.iter().zip(during).all(|(before, during)| *before < during), "{during:?}");
    let counters = || -> Vec<u64> {
        let device = a.context.device().name().to_owned();
        let lines = objects();
        let line = lines.iter().find_map(|line| line.strip_prefix(&format!("{device} counters ")));
        line.unwrap().split(' ').map(|value| value.parse().unwrap()).collect()
    };
    // The message, as a packet with its answer or without a packet.
    let counted = counters();
    assert!(counted.iter().sum::<u64>() > 0, "{counted:?}");
    let region = || Buffer::new(&a.pd, 64, Access::LOCAL_WRITE).unwrap();
    let regions: Vec<_> = (0..1500).map(|_| region()).collect();
    assert_eq!(count("mr"), during[3] + regions.len());
    drop(regions);
    a.qp.destroy().unwrap();
    assert!(counters().iter().zip(&counted).all(|(now, then)| now >= then));
    assert!(!objects().iter().any(|line| line.contains(&format!(" qp {number} "))));
}

/// TOP-5: a process that is asked nothing runs nothing, and a process that sleeps answers.
#[test]
fn top_5_an_idle_process_does_nothing_and_answers() {
    let _alone = alone();
    let (a, b) = rc();
    b.cq.req_notify(ArmKind::Next).unwrap();
    let mut asker = Asker::new().unwrap();
    for _ in 0..2 {
        let all = pages(&mut asker).into_iter().flat_map(|page| page.queue_pairs);
        assert!(all.into_iter().any(|pair| pair.number == a.qp.number()));
    }
    let switches = || getrusage(UsageWho::RUSAGE_SELF).unwrap().voluntary_context_switches();
    // The background thread ends its stay away from the sockets, and the watch of the completion
    // queue ends. Other processes of the user wake this process when they open a device. So the
    // test waits for a short time with few sleeps of any thread. A thread that looks for questions
    // every 10 ms would have ten.
    let idle = (0..100).any(|_| {
        let before = switches();
        std::thread::sleep(Duration::from_millis(100));
        switches() - before <= 4
    });
    assert!(idle, "the process does not fall asleep");
    assert!(!pages(&mut asker).is_empty());
}
