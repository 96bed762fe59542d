//! Others that write while pages move.
use crate::world::*;
use adverb_memory::Refusal;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

cases![
    threads_without_userfaultfd,
    counters_of_other_threads,
    system_calls_of_other_threads,
    direct_reads_of_other_threads,
    stacks_of_other_threads,
    the_stack_of_this_thread,
    joining_a_thread,
    giving_back_waits_for_threads,
    own_threads_pass_the_gate,
    own_threads_that_do_not_rest,
    signal_handlers,
];

/// Adopts and gives back until it is `enough`, which is asked with the times it was adopted.
fn to_and_fro(memory: &[u8], enough: impl Fn(u32) -> bool) {
    let mut times = 0;
    while !enough(times) {
        match adopt(memory) {
            Ok(adopted) => {
                drop(adopted);
                times += 1;
            }
            Err(refusal) => assert!(matches!(refusal, Refusal::Pinned | Refusal::Busy), "{refusal:?}"),
        }
    }
}

fn threads_without_userfaultfd() {
    become_nobody();
    let memory = filled(1);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        });
        let refusal = adopt(memory).err();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(refusal, Some(Refusal::Threads));
    });
    wait_until_alone();
    drop(adopt(memory).unwrap());
}

/// New pages each time, since pages do not go back while the threads run.
fn counters_of_other_threads() {
    if !can_hold_up() {
        return;
    }
    let memory = filled(256 * 16);
    memory.fill(0);
    let (stop, region) = (AtomicBool::new(false), AtomicU64::new(0));
    let all: Vec<&[u8]> = memory.chunks(256 * PAGE).collect();
    thread::scope(|scope| {
        let count = |thread: usize| {
            let (all, stop, region) = (&all, &stop, &region);
            move || {
                let (mut counted, mut n) = ([0_u64; 16], 0_usize);
                while !stop.load(Ordering::Relaxed) {
                    let at = region.load(Ordering::Relaxed) as usize;
                    n = n.wrapping_mul(5).wrapping_add(1);
                    let place = word(all[at], n % 256 * PAGE + thread * 8);
                    // Neither thread shares a word: plain loads and stores, as programs do.
                    place.store(place.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    counted[at] += 1;
                }
                counted
            }
        };
        let counters = [scope.spawn(count(0)), scope.spawn(count(1))];
        for (at, memory) in all.iter().enumerate() {
            region.store(at as u64, Ordering::Relaxed);
            // Not only begun: where there are processors enough, some thread counts at this moment.
            for _ in 0..10 {
                let seen = || [0, 8].map(|at| word(memory, at).load(Ordering::Relaxed));
                let before = seen();
                while seen() == before {
                    std::hint::spin_loop();
                }
            }
            std::mem::forget(adopt(memory).unwrap());
            thread::sleep(Duration::from_millis(3));
        }
        stop.store(true, Ordering::Relaxed);
        for (thread, counter) in counters.into_iter().enumerate() {
            let counted = counter.join().unwrap();
            for (at, counted) in counted.iter().enumerate() {
                let sum: u64 = (0..256)
                    .map(|page| word(all[at], page * PAGE + thread * 8).load(Ordering::Relaxed))
                    .sum();
                assert_eq!((at, sum), (at, *counted));
            }
        }
    });
    assert_eq!(file_size(), memory.len() as u64);
}

/// The kernel writes for the thread: where that failed, it would say EFAULT.
fn system_calls_of_other_threads() {
    if !can_hold_up() {
        return;
    }
    let memory: &[u8] = pages(256);
    let (reader, mut writer) = std::io::pipe().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..memory.len() / 16 {
                writer.write_all(&[n as u8 | 1; 16]).unwrap();
            }
        });
        scope.spawn(|| {
            let mut at = 0;
            while at < memory.len() {
                // SAFETY: into the memory that moves.
                let n =
                    unsafe { libc::read(reader.as_raw_fd(), memory.as_ptr().cast_mut().add(at).cast(), 16) };
                assert!(n > 0, "{}", std::io::Error::last_os_error());
                at += n as usize;
            }
        });
        for (n, part) in memory.chunks(2 * PAGE).enumerate() {
            while n % 8 == 7 && word(part, 0).load(Ordering::Relaxed) == 0 {
                // Somewhere near to where the reader is.
                thread::yield_now();
            }
            std::mem::forget(adopt(part).unwrap());
        }
    });
    assert!(memory.chunks(16).enumerate().all(|(n, piece)| piece.iter().all(|byte| *byte == n as u8 | 1)));
}

/// A device writes to pages that the kernel has pinned. Such pages are refused.
fn direct_reads_of_other_threads() {
    if !can_hold_up() {
        return;
    }
    let path =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("direct-{}", std::process::id()));
    let contents: Vec<u8> = (0..64 * PAGE).map(|n| (n / 512) as u8 | 1).collect();
    std::fs::write(&path, &contents).unwrap();
    let path_c = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: opens a file.
    let fd = unsafe { libc::open(path_c.as_ptr(), libc::O_RDONLY | libc::O_DIRECT) };
    std::fs::remove_file(&path).unwrap();
    assert!(fd >= 0, "no direct reads in {}", env!("CARGO_TARGET_TMPDIR"));
    let memory = pages(64 * 16);
    thread::scope(|scope| {
        for part in memory.chunks(64 * PAGE) {
            let reader = scope.spawn(|| {
                // SAFETY: into the memory that moves.
                let n = unsafe { libc::pread(fd, part.as_ptr().cast_mut().cast(), part.len(), 0) };
                assert_eq!(n, part.len() as isize, "{}", std::io::Error::last_os_error());
            });
            match adopt(part) {
                Ok(adopted) => std::mem::forget(adopted),
                Err(refusal) => assert_eq!(refusal, Refusal::Pinned),
            }
            reader.join().unwrap();
            assert_eq!(part, contents);
        }
    });
}

fn stacks_of_other_threads() {
    if !can_hold_up() {
        return;
    }
    thread::scope(|scope| {
        let (say, hear) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            let here = [1_u8; 64];
            say.send(addr(std::hint::black_box(&here))).unwrap();
            let _ = wait.recv();
        });
        let there = hear.recv().unwrap();
        assert_eq!(shadow().adopt(there, 64).err(), Some(Refusal::Stack));
        drop(end);
    });
}

/// A child of its `fork` goes on on the same stack, alone.
fn the_stack_of_this_thread() {
    let _ = shadow();
    let thread = thread::spawn(|| {
        let buffer = [1_u8; 512 << 10];
        let buffer = std::hint::black_box(&buffer);
        let refused = || {
            let at = [0, buffer.len() / 2, buffer.len() - PAGE];
            at.iter().all(|at| adopt(&buffer[*at..at + PAGE]).err() == Some(Refusal::Stack))
        };
        assert!(refused());
        assert_eq!(in_child(|| i32::from(!refused())), 0);
    });
    thread.join().unwrap();
    assert_eq!(file_size(), 0);
}

/// A buffer right above a thread's stack is in the same mapping, but not in the stack; and who joins the thread is woken.
fn joining_a_thread() {
    if !can_hold_up() {
        return;
    }
    let _ = shadow();
    for _ in 0..20 {
        let buffer = filled(16);
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = thread::spawn(move || wait.recv().is_err());
        drop(adopt(buffer).unwrap());
        thread::sleep(Duration::from_millis(1));
        drop(end);
        assert!(thread.join().unwrap());
        assert_eq!(buffer, filled(16));
    }
}

fn giving_back_waits_for_threads() {
    let memory = filled(4);
    let adopted = adopt(memory).unwrap();
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let thread = thread::spawn(move || wait.recv().is_err());
    drop(adopted);
    assert_eq!((shadow().stats().idle, file_size()), (4 * PAGE as u64, 4 * PAGE as u64));
    memory[7] = 99;
    // A registration meanwhile finds them there.
    let again = adopt(&memory[..PAGE]).unwrap();
    assert_eq!(in_file(addr(memory) + 7, 1), [99]);
    assert_eq!(shadow().stats().idle, 3 * PAGE as u64);
    drop(again);
    drop(end);
    assert!(thread.join().unwrap());
    wait_until_alone();
    shadow().sweep();
    assert_eq!((shadow().stats().inside, file_size()), (0, 0));
    assert_eq!((memory[7], &memory[8..]), (99, &filled(4)[8..]));
}

/// A thread of the library's own writes to the heap, whose pages move; behind the gate alone.
fn own_threads_pass_the_gate() {
    become_nobody();
    let memory: &[u8] = pages(16);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let own = shadow().own_thread();
            let mut counted = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                let _work = own.work();
                for n in 0..100 {
                    let place = word(memory, n % 16 * PAGE);
                    place.store(place.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    counted += 1;
                }
            }
            counted
        });
        // Until the thread is known.
        while shadow().adopt(addr(memory), 1).is_err() {
            thread::yield_now();
        }
        to_and_fro(memory, |times| times == 1000);
        stop.store(true, Ordering::Relaxed);
        let counted = thread.join().unwrap();
        let sum: u64 = (0..16).map(|page| word(memory, page * PAGE).load(Ordering::Relaxed)).sum();
        assert_eq!(sum, counted);
    });
}

fn own_threads_that_do_not_rest() {
    become_nobody();
    let memory = filled(1);
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let (say, hear) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        let own = shadow().own_thread();
        let work = own.work();
        assert_eq!(adopt(filled(1)).err(), Some(Refusal::Threads), "from such a thread itself");
        say.send(()).unwrap();
        let _ = wait.recv();
        drop(work);
        say.send(()).unwrap();
        std::thread::park();
    });
    hear.recv().unwrap();
    assert_eq!(adopt(memory).err(), Some(Refusal::Busy));
    assert_eq!(memory, filled(1));
    drop(end);
    hear.recv().unwrap();
    drop(adopt(memory).unwrap());
    thread.thread().unpark();
    thread.join().unwrap();
    wait_until_alone();
    drop(adopt(memory).unwrap());
}

fn signal_handlers() {
    static PLACE: AtomicU64 = AtomicU64::new(0);
    static COUNTED: AtomicU64 = AtomicU64::new(0);
    extern "C" fn count(_: libc::c_int) {
        for page in 0..16 {
            // SAFETY: the case's memory.
            let place = unsafe {
                AtomicU64::from_ptr((PLACE.load(Ordering::Relaxed) as usize + page * PAGE) as *mut u64)
            };
            place.store(place.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        COUNTED.fetch_add(1, Ordering::Relaxed);
    }
    let memory = pages(16);
    PLACE.store(addr(memory), Ordering::Relaxed);
    let every = libc::timeval { tv_sec: 0, tv_usec: 60 };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: a handler that touches the case's memory alone.
    unsafe {
        libc::signal(libc::SIGALRM, count as *const () as libc::sighandler_t);
        libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
    }
    to_and_fro(memory, |times| times >= 1000 && COUNTED.load(Ordering::Relaxed) >= 1000);
    // SAFETY: no more signals from here on.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &std::mem::zeroed(), std::ptr::null_mut()) };
    let counted = COUNTED.load(Ordering::Relaxed);
    for page in 0..16 {
        assert_eq!((page, word(memory, page * PAGE).load(Ordering::Relaxed)), (page, counted));
    }
}
