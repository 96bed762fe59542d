//! Measures the cost of a ring between two processes on two processors, compared with a bare word
//! of shared memory.
//!
//! `cargo run --release -p adverb-shm --example lane_cost -- [ROUNDS]`
//!
//! Each round times one after the other: a word going to and fro, a record of 8 bytes going to and
//! fro, and records in one direction. The printed ratio is the median of the rounds' ratios.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::hint::spin_loop;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::time::Instant;

use adverb_shm::{Consumer, Producer, Pushed};

const TURNS: u64 = 50_000;
const STREAM: u64 = 500_000;
const LARGE: [usize; 3] = [512, 4096, 65536];
const BYTES: u64 = 64 << 20;
/// Seconds after which either process gives up, in case the other process has ended.
const LIMIT: u32 = 300;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("child") => {
            let number = |i: usize| args[i].parse::<u32>().expect("a number");
            child(number(2), number(3), number(4), number(5));
        }
        rounds => parent(rounds.map_or(11, |rounds| rounds.parse().expect("a number of rounds"))),
    }
}

/// Runs this process on one processor, for `LIMIT` seconds at most.
fn pin(processor: usize) {
    // SAFETY: no pointers.
    unsafe { libc::alarm(LIMIT) };
    // SAFETY: all zeros is an empty set; the set lives through the call.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    assert_eq!(result, 0, "needs two processors: {}", std::io::Error::last_os_error());
}

/// Opens a descriptor of another process.
fn of_process(pid: u32, fd: u32) -> OwnedFd {
    let path = format!("/proc/{pid}/fd/{fd}");
    OpenOptions::new().read(true).write(true).open(path).expect("the other's descriptor").into()
}

/// Two words in cache lines of their own, mapped for the lifetime of the process.
fn words(file: &File) -> [&'static AtomicU64; 2] {
    // SAFETY: a new shared mapping of a file with one page; aligned, never unmapped, and accessed
    // only by atomics.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        [0, 256].map(|offset| AtomicU64::from_ptr(at.cast::<u8>().add(offset).cast()))
    }
}

fn wait_for(word: &AtomicU64, value: u64) {
    while word.load(Acquire) != value {
        spin_loop();
    }
}

fn push(to: &mut Producer, body: &[u8]) {
    loop {
        let fill = |bytes: &mut [u8]| {
            bytes.copy_from_slice(body);
            true
        };
        match to.push(1, body.len(), fill).expect("whole") {
            Pushed::Done => return,
            Pushed::Full => spin_loop(),
            Pushed::Refused => unreachable!("shorter than a ring's longest"),
        }
    }
}

/// Takes a record of 8 bytes.
fn take(from: &mut Consumer) -> u64 {
    loop {
        while from.is_empty() {
            spin_loop();
        }
        let value = from.take(|_, body| u64::from_ne_bytes(body.try_into().expect("eight bytes")));
        if let Some(value) = value.expect("whole") {
            return value;
        }
    }
}

/// Takes `count` records into `into`; returns the sum of their first words.
fn drain(from: &mut Consumer, count: u64, into: &mut [u8]) -> u64 {
    let (mut sum, mut got) = (0u64, 0);
    while got < count {
        let taken = from.take(|_, body| into[..body.len()].copy_from_slice(body)).expect("whole");
        if taken.is_some() {
            got += 1;
            sum = sum.wrapping_add(u64::from_ne_bytes(into[..8].try_into().expect("eight bytes")));
        } else {
            spin_loop();
        }
    }
    sum
}

/// Sends numbered records and waits until their sum comes back. Returns records a second.
fn stream(to: &mut Producer, from: &mut Consumer, len: usize, count: u64) -> f64 {
    let mut body = vec![0x5a; len];
    let start = Instant::now();
    for i in 0..count {
        body[..8].copy_from_slice(&i.to_ne_bytes());
        push(to, &body);
    }
    assert_eq!(take(from), (0..count).sum::<u64>(), "a record was lost or changed");
    count as f64 / start.elapsed().as_secs_f64()
}

fn large(len: usize) -> u64 {
    BYTES / len as u64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn parent(rounds: usize) {
    pin(0);
    // SAFETY: the name is NUL-terminated, the flags are integers, and the new descriptor has no
    // other owner.
    let file =
        unsafe { File::from_raw_fd(libc::memfd_create(c"words".as_ptr(), libc::MFD_CLOEXEC)) };
    file.set_len(4096).expect("a page");
    let [mine, theirs] = words(&file);
    let (mut from, ring) = Consumer::create().expect("a ring");
    let args =
        [std::process::id(), file.as_raw_fd() as u32, ring.as_raw_fd() as u32, rounds as u32];
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .arg("child")
        .args(args.map(|arg| arg.to_string()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the other process");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("its ring");
    let theirs_fd = line.trim().parse().expect("the number of a descriptor");
    let mut to = Producer::open(of_process(child.id(), theirs_fd)).expect("its ring");
    // The child printed the number after it had opened our ring.
    let (mut raw, mut ring, mut ratio, mut rate) = (vec![], vec![], vec![], vec![]);
    let mut speed = [const { Vec::new() }; LARGE.len()];
    for round in 0..rounds as u64 {
        let first = round * TURNS;
        let start = Instant::now();
        for turn in first..first + TURNS {
            mine.store(turn + 1, Release);
            wait_for(theirs, turn + 1);
        }
        let word = start.elapsed().as_nanos() as f64 / TURNS as f64 / 2.0;
        let start = Instant::now();
        for turn in 0..TURNS {
            push(&mut to, &turn.to_ne_bytes());
            assert_eq!(take(&mut from), turn);
        }
        let record = start.elapsed().as_nanos() as f64 / TURNS as f64 / 2.0;
        raw.push(word);
        ring.push(record);
        ratio.push(record / word);
        rate.push(stream(&mut to, &mut from, 8, STREAM));
        for (&len, speed) in LARGE.iter().zip(&mut speed) {
            speed.push(stream(&mut to, &mut from, len, large(len)) * len as f64);
        }
    }
    assert!(child.wait().expect("the other's end").success());
    println!("one way, medians of {rounds} rounds");
    println!("  word            {:8.1} ns", median(raw));
    println!("  record of 8 B   {:8.1} ns, {:.2} of it", median(ring), median(ratio));
    println!("  records of 8 B  {:8.2} M/s", median(rate) / 1e6);
    for (len, speed) in LARGE.iter().zip(speed) {
        println!("  of {len:5} B      {:8.2} GB/s", median(speed) / 1e9);
    }
}

fn child(parent: u32, words_fd: u32, ring: u32, rounds: u32) {
    pin(1);
    let [theirs, mine] = words(&File::from(of_process(parent, words_fd)));
    let mut to = Producer::open(of_process(parent, ring)).expect("the parent's ring");
    let (mut from, ring) = Consumer::create().expect("a ring");
    println!("{}", ring.as_raw_fd());
    std::io::stdout().flush().expect("a pipe");
    let mut into = vec![0; Producer::MAX_BODY];
    for round in 0..u64::from(rounds) {
        for turn in round * TURNS..(round + 1) * TURNS {
            wait_for(theirs, turn + 1);
            mine.store(turn + 1, Release);
        }
        for _ in 0..TURNS {
            let value = take(&mut from);
            push(&mut to, &value.to_ne_bytes());
        }
        for count in [STREAM].into_iter().chain(LARGE.map(large)) {
            let sum = drain(&mut from, count, &mut into);
            push(&mut to, &sum.to_ne_bytes());
        }
    }
}
