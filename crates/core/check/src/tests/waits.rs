//! What a program that stands still does.
use super::examine::{POLLED, TAKEN, WAITING, causes, first, pair, received, stuck};
use super::{QP, done, ledger, post, receive, send};
use crate::examine::ENDS;
use crate::*;

/// CHK-15: unpolled completions, threads that spin, and queues that are polled.
#[test]
fn what_the_threads_do() {
    let mut l = ledger(8, 64);
    let unpolled = QueueScene { channel: false, waiting: 2, ..QueueScene::default() };
    let unpolled = QueueScene { number: 2, ..unpolled };
    assert_eq!(first(&mut l, &stuck(unpolled, pair())).0, Code::NotPolled);
    let empty = || QueueScene { number: 2, ..QueueScene::default() };
    let mut spins = stuck(empty(), pair());
    spins.threads[0].call.clear();
    let mut l = ledger(8, 64);
    assert_eq!(first(&mut l, &spins), (Code::Spins, vec![WAITING]));
    spins.polling = vec![2];
    let mut l = ledger(8, 64);
    l.poll_returned(2, vec![], POLLED);
    assert_eq!(first(&mut l, &spins).0, Code::Waits);
    // Of two running threads one polls the queue, and the other spins.
    spins.threads.push(ThreadScene { id: 8, place: POLLED, ..spins.threads[0].clone() });
    spins.threads[0].place = 1000;
    let mut l = ledger(8, 64);
    l.poll_returned(2, vec![], POLLED);
    assert_eq!(first(&mut l, &spins), (Code::Spins, vec![1000]));
    let mut l = ledger(8, 64);
    post(&mut l, &[send(1, true)]);
    let new = PairScene { state: "INIT", ..pair() };
    assert_eq!(first(&mut l, &stuck(empty(), new)).0, Code::NotConnected);
}

/// CHK-15: a CQ that is polled in vain: whether a completion can come, and the last batch.
#[test]
fn a_queue_that_is_polled_in_vain() {
    let report = |l: &mut Ledger, pair: PairScene| {
        let mut scene = stuck(QueueScene::default(), pair);
        scene.polling = vec![2];
        causes(l, &scene).remove(0)
    };
    let mut l = ledger(8, 64);
    l.receiving(QP, &[receive(1), receive(2)], false, 40);
    l.poll_returned(2, vec![], TAKEN);
    let posted = PairScene { receives: 2, ..pair() };
    let text = report(&mut l, posted.clone()).text;
    let expected = "; the last 1 poll of CQ 2 found nothing; 2 receives of queue pair 0x40 on CQ 2 \
                    wait for a message of queue pair 0x41 of process 99";
    assert!(text.ends_with(expected), "{text}");
    [1, 2].iter().for_each(|id| drop(l.polled(2, received(*id), POLLED)));
    l.poll_returned(2, vec![1, 2], POLLED);
    (0..1000).for_each(|_| l.poll_returned(2, vec![], TAKEN));
    let batch = "; the last 1000 polls of CQ 2 found nothing, and nothing is outstanding on this \
                 CQ, so no completion can come before another post; the poll before took 2 \
                 completions at once (wr_id 0x1, 0x2)";
    // The receives of another CQ are not what the program waits for.
    let of = report(&mut l, PairScene { recv_cq: 4, ..posted });
    assert_eq!(of.places, [("waits", WAITING), ("polls", TAKEN), ("completions polled", POLLED)]);
    assert!(of.text.ends_with(batch), "{}", of.text);
    // A program that gives up.
    let ends = Scene { occasion: Occasion::Status(1), ..stuck(QueueScene::default(), pair()) };
    l.examine(&ends, 78);
    let of = l.reports().remove(0);
    assert_eq!(of.places, [(ENDS, 78), ("polls", TAKEN), ("completions polled", POLLED)]);
    assert!(of.text.ends_with(batch), "{}", of.text);
    // A receive that only the device knows, a request of another CQ, and a shared receive.
    let is_idle = |l: &mut Ledger, pair| report(l, pair).text.contains("nothing is outstanding");
    assert!(!is_idle(&mut l, PairScene { receives: 1, ..pair() }));
    post(&mut l, &[send(1, false)]);
    assert!(is_idle(&mut l, pair()));
    l.shared_receiving(5, &[receive(3)]);
    assert!(!is_idle(&mut l, pair()));
    // Completions that were polled one by one are no batch.
    [3, 4].iter().for_each(|id| drop(l.polled(2, received(*id), POLLED)));
    l.poll_returned(2, vec![4], POLLED);
    (0..1000).for_each(|_| l.poll_returned(2, vec![], TAKEN));
    assert!(is_idle(&mut l, pair()) && !report(&mut l, pair()).text.contains("at once"));
    l.examine(&ends, 79);
    assert!(l.reports()[0].text.ends_with("with status 1"));
}

/// CHK-15: a reset discards posted requests. After the poll of their completion, a reset discards
/// nothing.
#[test]
fn a_reset_that_discards_requests() {
    const MOVED: CodeAddress = 55;
    let scene = || stuck(QueueScene { number: 2, ..QueueScene::default() }, pair());
    for polled in [false, true] {
        let mut l = ledger(8, 64);
        post(&mut l, &[send(1, false), send(2, true)]);
        if polled {
            l.polled(1, done(2), POLLED);
        }
        l.queue_pair_moved(QP, MOVED);
        l.queue_pair_reset(QP);
        let all = causes(&mut l, &scene());
        if polled {
            assert!(all.iter().all(|report| report.code != Code::RequestsDiscarded));
        } else {
            assert_eq!(all[0].code, Code::RequestsDiscarded);
            assert_eq!(all[0].places, [("reset", MOVED), ("now", WAITING)]);
            assert!(all[0].text.contains("with 2 posted requests"), "{}", all[0].text);
        }
    }
}
