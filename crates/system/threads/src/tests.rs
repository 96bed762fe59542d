use crate::call::{Call, Limit, Line, On, ReplacedCall, Watched, parse, polled, selected};
use crate::{
    Activity, Channel, Doing, Movement, Process, ProcessLook, Status, Stillness, Task, ThreadLook,
    look, note_drive, note_end, note_wait,
};
use nix::libc;
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// The rest of a second is a pause between two polls, and the second of the program is not.
#[test]
fn a_ppoll_of_the_device_has_the_limit_of_the_programs_call() {
    let limit = Duration::from_secs(1);
    let call = ReplacedCall { number: libc::SYS_pselect6, set: None, limit: Some(limit) };
    let wait = Call::ppoll([0x70, 2], call).wait().unwrap();
    let own = On::Poll { array: 0x70, entries: 2 };
    assert_eq!((wait.name, wait.on, wait.limit), ("pselect6", own, Limit::For(limit)));
    let call = ReplacedCall { number: libc::SYS_epoll_pwait, set: Some(5), limit: None };
    let wait = Call::ppoll([0x70, 2], call).wait().unwrap();
    assert_eq!((wait.name, wait.on, wait.limit), ("epoll_pwait", On::Epoll(5), Limit::Endless));
}

/// Packets that complete nothing keep such a thread busy. It waits all the same, to the end of its
/// call. A handler that runs during the sleep may have taken the thread elsewhere.
#[test]
fn a_thread_that_drives_in_its_wait_waits_for_the_channel() {
    let pipe = nix::unistd::pipe().unwrap();
    let fd = pipe.0.as_raw_fd();
    let inode = std::fs::metadata(format!("/proc/self/fd/{fd}")).unwrap().ino();
    let polls = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
    let channel = Channel { inode, signals: false, getting: Vec::new() };
    let ended = AtomicBool::new(false);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            tell.send(nix::unistd::gettid().as_raw()).unwrap();
            while !ended.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let id = told.recv().unwrap();
        let doing = || look(id, &channel, &[id]).map(|thread| thread.doing);
        let call = ReplacedCall { number: libc::SYS_ppoll, set: None, limit: None };
        note_wait(id, call, polls.as_ptr().addr(), polls.len());
        let asleep = doing();
        note_drive(id);
        let drives = doing();
        note_end(id);
        let after = doing();
        ended.store(true, Ordering::Relaxed);
        let [works, waits] = [Doing::Works, Doing::Waits { pause: false }].map(Some);
        assert_eq!([asleep, drives, after], [works, waits, works]);
    });
}

#[test]
fn a_line_says_what_a_thread_waits_for() {
    assert_eq!(parse("running\n"), Some(Line::Running));
    assert_eq!(parse("-1 0x7ffd 0x7f11\n"), Some(Line::Outside));
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
        !call(&line(libc::SYS_io_uring_enter, [0; 6])).sleeps_for_ever(),
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

/// HUN-4: a thread counts as asleep for ever only in a call that only another thread or process can
/// end.
#[cfg(target_arch = "x86_64")]
#[test]
fn sleeps_with_a_time_limit_are_none_for_ever() {
    for (line, forever) in [
        ("202 0x7f00 0x80 0x0 0x0 0x0 0xffffffff 0x7ffd 0x7f11", true),
        ("202 0x7f00 0x80 0x0 0x7ffd12 0x0 0xffffffff 0x7ffd 0x7f11", false),
        ("7 0x7ffd 0x2 0xffffffff 0x0 0x0 0x0 0x7ffd 0x7f11", true),
        ("7 0x7ffd 0x2 0x3e8 0x0 0x0 0x0 0x7ffd 0x7f11", false),
        ("271 0x7ffd 0x2 0x0 0x0 0x8 0x0 0x7ffd 0x7f11", true),
        ("232 0x3 0x7ffd 0x1 0xffffffffffffffff 0x0 0x0 0x7ffd 0x7f11", true),
        ("232 0x3 0x7ffd 0x1 0x64 0x0 0x0 0x7ffd 0x7f11", false),
        ("230 0x0 0x0 0x7ffd 0x7ffd 0x0 0x0 0x7ffd 0x7f11", false),
        ("61 0xffffffff 0x7ffd 0x0 0x0 0x0 0x0 0x7ffd 0x7f11", true),
    ] {
        assert_eq!(call(line).sleeps_for_ever(), forever, "{line}");
    }
}

#[test]
fn a_call_shows_registers_and_the_word_of_a_futex() {
    let futex = call(&line(libc::SYS_futex, [0x70, 0x80, 7, 0, 0, 0]));
    assert_eq!((futex.futex(), futex.registers), (Some(0x70), [0x7ffd_0a1b, 0x7f11]));
    assert_eq!(call(&line(libc::SYS_read, [0x70; 6])).futex(), None);
}

#[test]
fn a_status_names_the_thread_and_counts_switches() {
    let text = "Name:\tadverb-check\nUmask:\t0022\nState:\tS (sleeping)\n\
                voluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t7\n";
    let status = Status::parse(text).unwrap();
    assert_eq!((&*status.name, status.state, status.switches), ("adverb-check", 'S', 157));
    assert_eq!(Status::parse("Name:\tx\n"), None);
    let is_ours = |id: i32, name: &str| {
        let task = Task { process: Process::Number(7), id };
        task.is_ours(&Status { name: name.into(), ..status.clone() })
    };
    assert!(is_ours(8, "adverb-check") && is_ours(8, "adverb"));
    assert!(!is_ours(8, "adverbial"));
    assert!(!is_ours(7, "adverb"), "the program's first thread may have any name");
}

/// HUN-4: a thread's time without a processor is known.
#[test]
fn the_files_of_a_thread_are_read() {
    let own = nix::unistd::gettid().as_raw();
    let tasks = Process::Own.tasks().unwrap();
    assert!(tasks.contains(&Task::own(own)));
    assert!(Task::own(own).line().is_ok());
    assert_eq!(Task::own(own).status().unwrap().state, 'R');
    assert!(Task::own(own).times().is_some());
    let numbered = Process::Number(std::process::id().cast_signed()).program_tasks().unwrap();
    assert!(numbered.iter().any(|(task, _)| task.id == own));
    assert!(!ProcessLook::of(Process::Own).unwrap().threads.contains_key(&own));
}

const ENOUGH: Duration = Duration::from_micros(400);
use Activity::{Hidden, Naps, Runs, Sleeps};

fn thread(activity: Activity, switches: u64) -> ThreadLook {
    ThreadLook { activity, switches, waited: Duration::ZERO, ours: false }
}

/// Threads 1, 2, … with these activities and switches.
fn at(threads: &[(Activity, u64)], spent_us: u64) -> ProcessLook {
    let threads = threads.iter().map(|(activity, switches)| thread(*activity, *switches));
    ProcessLook { threads: (1..).zip(threads).collect(), spent: Duration::from_micros(spent_us) }
}

/// A sleeping thread is still if it did not wake between two looks.
#[test]
fn a_thread_that_woke_moves() {
    let then = at(&[(Sleeps, 5)], 0);
    let is = |now: &ProcessLook, last: &ProcessLook| now.movement(&then, last, ENOUGH);
    assert_eq!(is(&then, &then), Movement::Still);
    let woke = at(&[(Sleeps, 6)], 0);
    assert_eq!(is(&woke, &then), Movement::Moves);
    assert_eq!(is(&woke, &woke), Movement::Still);
    assert_eq!(is(&at(&[(Sleeps, 5), (Sleeps, 1)], 0), &then), Movement::Moves);
    let two = at(&[(Sleeps, 5), (Sleeps, 1)], 0);
    assert_eq!(is(&two, &two), Movement::Still);
    assert_eq!(is(&then, &two), Movement::Moves, "a thread has ended");
    let hidden = at(&[(Hidden, 5)], 0);
    assert_eq!(hidden.movement(&hidden, &hidden, ENOUGH), Movement::Moves);
    assert!(woke.has_moved(&then) && !then.has_moved(&then));
}

/// Running threads have had the processor for long enough, each, and a napping thread has looked
/// several times.
#[test]
fn a_thread_that_runs_gets_time() {
    let then = at(&[(Runs, 5), (Runs, 1)], 1000);
    let is = |now: &ProcessLook, last: &ProcessLook| now.movement(&then, last, ENOUGH);
    assert_eq!(is(&at(&[(Runs, 9), (Runs, 3)], 1799), &then), Movement::Moves);
    assert_eq!(is(&at(&[(Runs, 9), (Runs, 3)], 1800), &then), Movement::Polls);
    // A thread that went to sleep needs no more time, but a second look.
    let slept = at(&[(Runs, 9), (Sleeps, 3)], 1400);
    assert_eq!(is(&slept, &then), Movement::Moves);
    assert_eq!(is(&slept, &slept), Movement::Polls);
    let naps = at(&[(Naps, 5)], 0);
    assert_eq!(at(&[(Naps, 8)], 0).movement(&naps, &naps, ENOUGH), Movement::Moves);
    assert_eq!(at(&[(Naps, 9)], 0).movement(&naps, &naps, ENOUGH), Movement::Polls);
}

/// HUN-4: the device's threads may sleep and wake. While one of them has work, the process moves.
#[test]
fn hun_4_a_thread_of_the_device_moves_while_it_runs() {
    let with = |activity, switches| {
        let mut look = at(&[(Sleeps, 5)], 0);
        look.threads.insert(9, ThreadLook { ours: true, ..thread(activity, switches) });
        look
    };
    let then = with(Naps, 1);
    assert_eq!(with(Sleeps, 2).movement(&then, &then, ENOUGH), Movement::Still);
    assert!(!with(Sleeps, 2).has_moved(&then));
    assert_eq!(with(Runs, 2).movement(&then, &then, ENOUGH), Movement::Moves);
}

/// HUN-4: time in which a thread waits for a processor is not stillness.
#[test]
fn hun_4_a_wait_for_a_processor_does_not_count() {
    let second = Duration::from_secs(1);
    let look = |switches, ours_waited| {
        let mut look = at(&[(Sleeps, switches)], 0);
        let ours = ThreadLook { ours: true, waited: ours_waited, ..thread(Sleeps, 1) };
        look.threads.insert(9, ours);
        BTreeMap::from([(Process::Number(7), look)])
    };
    let mut stillness = Stillness::default();
    stillness.add(look(5, second), second);
    assert_eq!(stillness.lasts(), Duration::ZERO, "one look tells nothing");
    assert_eq!(stillness.add(look(5, second), second), second);
    assert_eq!((stillness.lasts(), stillness.threads()), (second, 1));
    assert_eq!(stillness.add(look(5, second + second / 4), second), second * 3 / 4);
    assert_eq!(stillness.lasts(), second * 7 / 4);
    stillness.add(look(6, second * 2), second);
    assert_eq!(stillness.lasts(), Duration::ZERO, "a thread has woken");
    stillness.add(look(6, second * 2), second);
    assert_eq!(stillness.lasts(), second);
    stillness.add(BTreeMap::new(), second);
    assert_eq!(stillness.lasts(), Duration::ZERO, "a process has ended");
}
