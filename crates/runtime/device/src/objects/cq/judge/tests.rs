use super::{Evidence, IDLE, LONG, PATIENCE, QueueThreads, Scene, next_look};
use adverb_threads::{Doing, PAUSE, Thread};
use std::time::Duration;

const WORKS: Doing = Doing::Works;
const IN_FUTEX: Doing = Doing::Rests(true);
const IN_PIPE: Doing = Doing::Rests(false);
const WAITS: Doing = Doing::Waits { pause: false };
const PAUSES: Doing = Doing::Waits { pause: true };
const HIDDEN: Doing = Doing::Hidden;

/// Threads 1, 2, … with these activities; thread 1 polled last.
fn scene(doing: &[Doing]) -> Scene {
    let thread = |(i, doing): (usize, &Doing)| Thread {
        id: i as i32 + 1,
        name: format!("t{}", i + 1),
        doing: *doing,
        call: "epoll_wait(5)".into(),
    };
    Scene {
        queue_threads: QueueThreads { poller: Some(1), ..QueueThreads::default() },
        threads: doing.iter().enumerate().map(thread).collect(),
        hidden: false,
        task: false,
        alone: true,
        sibling: false,
        never_armed: false,
        silent: Duration::ZERO,
    }
}

/// The silence after which the scene is reported, and the report.
fn reported(scene: &Scene) -> Option<(Duration, Evidence)> {
    [PATIENCE, IDLE, PAUSE, LONG, LONG * 100].into_iter().find_map(|silent| {
        let evidence = Scene { silent, ..scene.clone() }.judge()?;
        Some((silent, evidence))
    })
}

fn after(scene: &Scene) -> Option<Duration> {
    reported(scene).map(|(silent, _)| silent)
}

/// EXT-4: the thread that polls decides. Its work is respected for any length of time.
#[test]
fn ext_4_the_thread_that_polls_decides() {
    assert_eq!(after(&scene(&[WORKS])), None);
    assert_eq!(after(&scene(&[IN_PIPE])), None);
    assert_eq!(after(&scene(&[IN_FUTEX, IN_FUTEX])), None, "no thread waits for the channel");
    assert_eq!(after(&scene(&[WAITS, WORKS])), Some(PATIENCE));
    assert_eq!(after(&scene(&[PAUSES, WORKS])), Some(PAUSE));
    assert_eq!(after(&scene(&[WORKS, WAITS])), None, "another thread waits");
    let (_, evidence) = reported(&scene(&[WAITS])).unwrap();
    assert_eq!(evidence.to_string(), r#"thread 1 "t1" waits in epoll_wait(5)"#);
}

/// Threads that have armed or taken an event since the last poll could be about to poll.
#[test]
fn ext_4_a_thread_about_to_poll_counts() {
    let mut pool = scene(&[WAITS, WORKS]);
    pool.queue_threads.taker = Some(2);
    assert_eq!(after(&pool), None, "the second thread of a pool handles the event");
    let mut pool = scene(&[WAITS, WAITS]);
    pool.queue_threads.taker = Some(2);
    assert_eq!(after(&pool), Some(PATIENCE));
    let mut ended = scene(&[WAITS]);
    ended.queue_threads.armer = Some(9);
    assert_eq!(after(&ended), Some(PATIENCE), "a thread that has ended polls no more");
}

/// A thread waits for events and wakes another thread, which polls.
#[test]
fn ext_4_work_given_to_another_thread() {
    let handed = |doing: &[Doing]| {
        let mut scene = scene(doing);
        scene.queue_threads.taker = Some(2);
        scene
    };
    assert_eq!(after(&handed(&[WORKS, WAITS])), None, "the worker works");
    let poller = |scene: &Scene| reported(scene).unwrap().1.poller.map(|thread| thread.id);
    let idle = handed(&[IN_FUTEX, WAITS, IN_FUTEX]);
    assert_eq!(poller(&idle), Some(1), "the worker was not woken");
    let mut by_itself = idle.clone();
    by_itself.queue_threads.taker = None;
    assert_eq!(poller(&by_itself), None, "no event has come since the last poll");
    by_itself.queue_threads.armer = Some(2);
    assert_eq!(poller(&by_itself), Some(1), "no poll follows the arm");
    by_itself.queue_threads.armer = Some(1);
    assert_eq!(poller(&by_itself), None, "the thread armed itself");
    assert_eq!(after(&idle), Some(IDLE), "no thread is left that could wake the worker");
    let text = reported(&idle).unwrap().1.to_string();
    assert_eq!(text, r#"thread 2 "t2" waits in epoll_wait(5), and every other thread is idle"#);
    let busy = handed(&[IN_FUTEX, WAITS, WORKS]);
    assert_eq!(after(&busy), Some(LONG), "the third thread could be what the worker waits for");
    assert_eq!(poller(&busy), Some(1));
    let text = reported(&busy).unwrap().1.to_string();
    assert_eq!(text, r#"thread 2 "t2" waits in epoll_wait(5), and no thread has polled for 10 s"#);
    // The polling thread took the event itself, so the thread comes back.
    let mut own = scene(&[IN_FUTEX, WAITS, WORKS]);
    own.queue_threads.same = true;
    assert_eq!(after(&own), None);
}

/// A hidden activity gets a longer wait.
#[test]
fn ext_4_a_hidden_thread_gets_a_second() {
    assert_eq!(after(&scene(&[HIDDEN])), Some(PAUSE));
    assert!(
        reported(&scene(&[HIDDEN]))
            .unwrap()
            .1
            .to_string()
            .ends_with("no thread has polled for 1 s")
    );
    let mut nothing = Scene { hidden: true, ..scene(&[]) };
    assert_eq!(after(&nothing), Some(PAUSE));
    nothing.hidden = false;
    assert_eq!(after(&nothing), None);
    let task = Scene { task: true, ..scene(&[WORKS]) };
    let (silent, evidence) = reported(&task).unwrap();
    assert_eq!(silent, LONG);
    assert_eq!(
        evidence.to_string(),
        "a task waits for the event, and no thread has polled for 10 s"
    );
}

/// A queue that no thread has touched belongs only to the waiting threads.
#[test]
fn ext_4_an_untouched_queue() {
    let untouched = |doing: &[Doing]| Scene {
        queue_threads: QueueThreads::default(),
        never_armed: true,
        ..scene(doing)
    };
    assert_eq!(after(&untouched(&[WAITS])), Some(PATIENCE));
    assert_eq!(after(&untouched(&[WAITS, IN_FUTEX])), Some(PATIENCE));
    assert_eq!(after(&untouched(&[WAITS, WORKS])), Some(PAUSE));
    assert_eq!(after(&untouched(&[WORKS, WORKS])), None);
    let shared = Scene { alone: false, ..untouched(&[WAITS, WORKS]) };
    assert_eq!(after(&shared), Some(LONG));
    let sibling = Scene { alone: false, sibling: true, ..untouched(&[WAITS]) };
    assert_eq!(after(&sibling), Some(LONG));
    // Never armed, but polled: the program needs no event for this queue.
    let polled = Scene {
        queue_threads: QueueThreads { poller: Some(1), ..QueueThreads::default() },
        ..sibling
    };
    assert_eq!(after(&polled), None);
    let mut armed = scene(&[WORKS, WAITS]);
    armed.queue_threads = QueueThreads { armer: Some(1), ..QueueThreads::default() };
    assert_eq!(after(&armed), Some(LONG), "armed too late, never polled");
}

/// The looks become rare, and include the times for which the judgement waits.
#[test]
fn looks_become_rare() {
    let (mut silent, mut times) = (Duration::ZERO, Vec::new());
    while silent < Duration::from_secs(200) {
        silent += next_look(silent);
        times.push(silent.as_millis());
    }
    assert_eq!(
        times,
        [
            100, 200, 400, 800, 1000, 2000, 4000, 8000, 10_000, 20_000, 40_000, 80_000, 140_000,
            200_000
        ]
    );
}
