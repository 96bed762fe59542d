//! Eight threads post and poll on shared objects and on objects of their own, with a check of every
//! byte. The test also runs under ThreadSanitizer (`make tsan`). `ADVERB_THREADS_SECONDS` sets the
//! duration.
mod common;
use adverb_device::engine::{SendOp, WcStatus};
use adverb_sync::Mutex;
use common::{QpEnd, pattern, rc};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn duration() -> Duration {
    let seconds =
        std::env::var("ADVERB_THREADS_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(2);
    Duration::from_secs(seconds)
}

/// Sends one message of `size` bytes from `a` to `b`. Only this thread polls.
fn exchange(a: &QpEnd, b: &QpEnd, round: u64, size: usize) {
    let data = pattern(size, round as u8);
    a.put(0, &data);
    b.recv(round, &[b.sge(0, size)]);
    a.send(round, SendOp::Send, &[a.sge(0, size)]);
    let got = b.wait(1).remove(0);
    assert_eq!((got.status, got.wr_id, got.byte_len as usize), (WcStatus::Success, round, size));
    assert!(b.get(0, size) == data, "round {round}");
    assert_eq!(a.wait(1)[0].status, WcStatus::Success);
}

#[test]
fn eight_threads_on_own_queue_pairs() {
    let end = Instant::now() + duration();
    std::thread::scope(|scope| {
        for t in 0..8u64 {
            scope.spawn(move || {
                let (a, b) = rc();
                let mut round = 0;
                // Run at least one round, however late this thread starts.
                while round == 0 || Instant::now() < end {
                    exchange(&a, &b, round, 1 + (round as usize * 977 + t as usize * 131) % 20_000);
                    round += 1;
                }
            });
        }
    });
}

/// Eight threads post SENDs on one queue pair, and each takes the next completion. A message
/// carries its number and must arrive in the buffer with that number.
#[test]
fn eight_threads_on_one_queue_pair() {
    const SLOT: usize = 4096;
    const SLOTS: u64 = 64;
    let (a, b) = rc();
    for i in 0..SLOTS {
        b.recv(i, &[b.sge(i as usize * SLOT, SLOT)]);
    }
    // Free slots of the sender's buffer.
    let free: Mutex<Vec<u64>> = Mutex::new((0..SLOTS).collect());
    let (sent, acked, received) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let end = Instant::now() + duration();
    let limit = end + Duration::from_secs(60);
    let step = |posting: bool| {
        if posting {
            let slot = free.lock().pop();
            if let Some(slot) = slot {
                let number = sent.fetch_add(1, Ordering::SeqCst);
                let mut data = pattern(SLOT, number as u8);
                data[..8].copy_from_slice(&number.to_le_bytes());
                a.put(slot as usize * SLOT, &data);
                a.send(slot, SendOp::Send, &[a.sge(slot as usize * SLOT, SLOT)]);
            }
        }
        a.cq.poll(8, |c| {
            assert_eq!(c.status, WcStatus::Success, "{:?}", c.cause);
            acked.fetch_add(1, Ordering::SeqCst);
            free.lock().push(c.wr_id);
        })
        .unwrap();
        let mut got = Vec::new();
        b.cq.poll(8, |c| got.push(c)).unwrap();
        for c in got {
            assert_eq!((c.status, c.byte_len as usize), (WcStatus::Success, SLOT));
            let data = b.get(c.wr_id as usize * SLOT, SLOT);
            let number = u64::from_le_bytes(data[..8].try_into().unwrap());
            assert!(data[8..] == pattern(SLOT, number as u8)[8..], "message {number}");
            b.recv(c.wr_id, &[b.sge(c.wr_id as usize * SLOT, SLOT)]);
            received.fetch_add(1, Ordering::SeqCst);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while Instant::now() < end {
                    step(true);
                }
                let all = || {
                    let n = sent.load(Ordering::SeqCst);
                    acked.load(Ordering::SeqCst) == n && received.load(Ordering::SeqCst) == n
                };
                while !all() {
                    assert!(
                        Instant::now() < limit,
                        "sent {sent:?}, acknowledged {acked:?}, received {received:?}"
                    );
                    step(false);
                }
            });
        }
    });
    assert!(sent.load(Ordering::SeqCst) > 0);
}
