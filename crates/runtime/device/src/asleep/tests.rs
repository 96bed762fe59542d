use super::call::{Call, Limit, Line, On, Watched, parse, polled, selected, sleeps_for_ever};
use super::judge::{
    Doing, Evidence, IDLE, LONG, PATIENCE, PAUSE, QueueThreads, Scene, Thread, next_look,
};
use super::process;
use nix::libc;
use std::time::Duration;

fn call(line: &str) -> Call {
    match parse(line) {
        Some(Line::Blocked(call)) => call,
        other => panic!("{line}: {other:?}"),
    }
}

fn line(number: libc::c_long, arguments: [u64; 6]) -> String {
    let words: Vec<String> = arguments.iter().map(|a| format!("{a:#x}")).collect();
    format!("{number} {} 0x7ffd0a1b 0x7f11\n", words.join(" "))
}

#[test]
fn a_line_says_what_a_thread_waits_for() {
    assert_eq!(parse("running\n"), Some(Line::Running));
    assert_eq!(parse("-1 0x7ffd 0x7f11\n"), Some(Line::Running));
    assert_eq!(
        (parse(""), parse("7 0x1\n"), parse("x 0x1 0x1 0x1 0x1 0x1 0x1")),
        (None, None, None)
    );
    let wait = |number, arguments| call(&line(number, arguments)).wait();
    let is = |number, arguments, on, limit| {
        let wait = wait(number, arguments).unwrap();
        assert_eq!((wait.on, wait.limit), (on, limit), "{}", wait.name);
    };
    let ms = |n| Limit::For(Duration::from_millis(n));
    is(libc::SYS_read, [9, 1, 2, 0, 0, 0], On::Read(9), Limit::Endless);
    let poll = On::Poll { array: 0x70, entries: 2 };
    is(libc::SYS_ppoll, [0x70, 2, 0x80, 0, 8, 0], poll, Limit::Timespec(0x80));
    is(libc::SYS_ppoll, [0x70, 2, 0, 0, 8, 0], poll, Limit::Endless);
    let select = On::Select { set: 0x70, below: 6 };
    is(libc::SYS_pselect6, [6, 0x70, 0, 0, 0x90, 0], select, Limit::Timespec(0x90));
    is(libc::SYS_epoll_pwait, [5, 1, 1, 0xffff_ffff, 0, 8], On::Epoll(5), Limit::Endless);
    is(libc::SYS_epoll_pwait, [5, 1, 1, 0x64, 0, 8], On::Epoll(5), ms(100));
    is(libc::SYS_epoll_pwait2, [5, 1, 1, 0, 0, 8], On::Epoll(5), Limit::Endless);
    let futex = On::Futex { private: true, value: 7 };
    is(libc::SYS_futex, [0x70, 0x80, 7, 0, 0, 0], futex, Limit::Endless);
    let shared = On::Futex { private: false, value: 7 };
    is(libc::SYS_futex, [0x70, 0x109, 7, 0x90, 0, 0], shared, Limit::Timespec(0x90));
    #[cfg(target_arch = "x86_64")]
    {
        is(libc::SYS_poll, [0x70, 2, 0xffff_ffff_ffff_ffff, 0, 0, 0], poll, Limit::Endless);
        is(libc::SYS_poll, [0x70, 2, 0x64, 0, 0, 0], poll, ms(100));
        is(libc::SYS_select, [6, 0x70, 0, 0, 0x90, 0], select, Limit::Timeval(0x90));
        is(libc::SYS_epoll_wait, [5, 1, 1, 0, 0, 0], On::Epoll(5), ms(0));
    }
    assert_eq!(wait(libc::SYS_write, [1; 6]), None, "a write is work");
    assert!(
        !sleeps_for_ever(&line(libc::SYS_io_uring_enter, [0; 6])),
        "it can have a limit of its own"
    );
}

#[test]
fn a_limit_is_read_from_memory() {
    let bytes = |a: i64, b: i64| -> [u8; 16] {
        [a.to_ne_bytes(), b.to_ne_bytes()].concat().try_into().unwrap()
    };
    assert_eq!(Limit::Timespec(1).of_memory(bytes(2, 5)), Some(Duration::new(2, 5)));
    assert_eq!(Limit::Timeval(1).of_memory(bytes(2, 5)), Some(Duration::new(2, 5_000)));
    for (a, b) in [(-1, 0), (0, -1), (0, i64::MAX)] {
        assert_eq!(Limit::Timeval(1).of_memory(bytes(a, b)), None, "{a} {b}");
    }
}

#[test]
fn only_what_is_read_from_counts() {
    let entry =
        |fd: i32, events: i16| [&fd.to_ne_bytes()[..], &events.to_ne_bytes(), &[0, 0]].concat();
    let array = [entry(-1, libc::POLLIN), entry(4, libc::POLLOUT), entry(5, libc::POLLIN)].concat();
    assert_eq!(polled(&array, |fd| fd == 5), Some(5));
    assert_eq!(polled(&array, |fd| fd == 4), None, "it waits until it can write");
    assert_eq!(polled(&array, |fd| fd == -1), None);
    assert_eq!(polled(&array[..20], |fd| fd == 5), None, "half an entry");
    let set = (1u64 << 3 | 1 << 41).to_ne_bytes();
    assert_eq!(selected(&set, 64, |fd| fd == 41), Some(41));
    assert_eq!(selected(&set, 41, |fd| fd == 41), None, "beyond the number of descriptors");
    assert_eq!(selected(&set, 1 << 40, |fd| fd == 4), None);
}

#[test]
fn a_line_of_an_epoll_names_what_it_watches() {
    let line = "tfd:        3 events: 80000019 data:                3  pos:0 ino:97133d sdev:f";
    let watched = Watched::parse(line).unwrap();
    assert_eq!(watched, Watched { fd: 3, events: 0x8000_0019, inode: Some(0x97133d) });
    assert!(watched.reads() && watched.is_at_edge());
    let old = Watched::parse("tfd: 7 events: 19 data: 7").unwrap();
    assert_eq!((old.inode, old.reads(), old.is_at_edge()), (None, true, false));
    let switched_off = Watched::parse("tfd: 7 events: 40000000 data: 7").unwrap();
    assert!(!switched_off.reads(), "one shot, which was fired");
    assert_eq!(Watched::parse("flags:\t02000002"), None);
    assert_eq!(Watched::parse("tfd: x"), None);
}

#[test]
fn switches_are_counted() {
    let status = "Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t7\n";
    assert_eq!(process::switches_in(status), Some(157));
    assert_eq!(process::switches_in("Name:\tx\n"), None);
    assert!(
        process::is_ours("adverb")
            && process::is_ours("adverb-check")
            && !process::is_ours("adverbial")
    );
    assert_eq!(process::own_id(), nix::unistd::gettid().as_raw());
    let other = std::thread::spawn(process::own_id).join().unwrap();
    assert_ne!(other, process::own_id());
}

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
