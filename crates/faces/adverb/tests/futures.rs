//! Futures and streams, on an executor of twenty lines.
mod common;
use adverb::testing::{Endpoint, HANG_LIMIT, pair};
use adverb::{Cq, Error, Notify, Qp, Result};
use common::{block_on, poll_once};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// A queue pair with a completion queue that has no channel.
fn streaming() -> Result<(Endpoint, Cq, Qp)> {
    let end = Endpoint::new(|qp| qp)?;
    let cq = end.context.create_cq().build()?;
    let qp = end.pd.create_qp().cq(&cq).build()?;
    Ok((end, cq, qp))
}

/// Two of these queue pairs, connected.
fn streaming_pair() -> Result<[(Endpoint, Cq, Qp); 2]> {
    let (a, b) = (streaming()?, streaming()?);
    a.2.connect_to(&b.2.info()?)?;
    b.2.connect_to(&a.2.info()?)?;
    Ok([a, b])
}

#[test]
fn chn_1_events_can_be_awaited() -> Result<()> {
    let (a, b) = pair()?;
    for round in 0..200 {
        b.qp.recv(()).id(round).post()?;
        b.cq.notify(Notify::Next)?;
        a.qp.send(()).signaled(false).post()?;
        let event = block_on(b.channel.event())?;
        assert!(*event.cq() == b.cq);
        assert_eq!(b.completion()?.wr_id(), round);
    }
    Ok(())
}

#[test]
fn chn_3_a_dropped_future_takes_no_event() -> Result<()> {
    let (a, b) = pair()?;
    b.qp.recv(()).post()?;
    b.cq.notify(Notify::Next)?;
    assert!(matches!(poll_once(b.channel.event()), Poll::Pending));
    a.qp.send(()).post()?;
    drop(block_on(b.channel.event())?);
    assert!(b.channel.try_event().is_none());
    Ok(())
}

#[test]
fn cqn_12_a_stream_loses_no_wake_up() -> Result<()> {
    const ROUNDS: u64 = 2000;
    let [(a, a_cq, a_qp), (b, b_cq, b_qp)] = streaming_pair()?;
    let (into_a, into_b) = (a.buffer(8)?, b.buffer(8)?);
    // Ping-pong: each message wakes the other side, which mostly sleeps.
    let play = |cq: &Cq, qp: &Qp, into: &adverb::Buffer, first: bool| -> Result<()> {
        let mut completions = cq.completions()?;
        if first {
            qp.send(&0u64.to_be_bytes()).signaled(false).post()?;
        }
        for round in 0..ROUNDS {
            if first {
                // The answer comes at any point of the polling, also between its steps.
                let until = Instant::now() + Duration::from_nanos(round * 7919 % 60_000);
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
            }
            let got = block_on(completions.next())?.ok()?;
            assert!(got.is_recv());
            assert_eq!(into.to_vec(..)?, round.to_be_bytes());
            qp.recv(into).post()?;
            let next = if first { round + 1 } else { round };
            if next < ROUNDS {
                qp.send(&next.to_be_bytes()).signaled(false).post()?;
            }
        }
        Ok(())
    };
    a_qp.recv(&into_a).post()?;
    b_qp.recv(&into_b).post()?;
    std::thread::scope(|scope| {
        let second = scope.spawn(|| play(&b_cq, &b_qp, &into_b, false));
        play(&a_cq, &a_qp, &into_a, true)?;
        second.join().unwrap()
    })
}

#[test]
fn streams_of_one_queue_share_its_completions() -> Result<()> {
    const EACH: usize = 100;
    let [(_a, _, a_qp), (_b, cq, b_qp)] = streaming_pair()?;
    for i in 0..EACH as u64 {
        b_qp.recv(()).id(i).post()?;
    }
    let mut got: Vec<u64> = std::thread::scope(|scope| {
        let take = || {
            (0..EACH / 4).map(|_| block_on(cq.completion()).unwrap().wr_id()).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
        for _ in 0..EACH {
            a_qp.send(()).signaled(false).post().unwrap();
        }
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    got.sort_unstable();
    assert_eq!(got, (0..EACH as u64).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn a_dropped_stream_keeps_nothing() -> Result<()> {
    let [(_a, _, a_qp), (_b, cq, b_qp)] = streaming_pair()?;
    for i in 0..3 {
        b_qp.recv(()).id(i).post()?;
    }
    assert!(matches!(poll_once(cq.completion()), Poll::Pending));
    for _ in 0..3 {
        a_qp.send(()).post()?;
    }
    let mut stream = cq.completions()?;
    assert_eq!(block_on(stream.next())?.wr_id(), 0);
    drop(stream);
    assert_eq!(block_on(cq.completion())?.wr_id(), 1);
    assert_eq!(cq.wait(HANG_LIMIT)?.wr_id(), 2);
    // The waker of the task no longer exists, too.
    let task = Arc::new(Orphan(Mutex::new(None)));
    let waker = Waker::from(task.clone());
    let mut waiting = Box::pin(cq.completion());
    assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(Arc::strong_count(&task), 3);
    drop((waiting, waker));
    assert_eq!(Arc::strong_count(&task), 1);
    Ok(())
}

#[test]
fn a_queue_with_a_channel_has_no_stream() -> Result<()> {
    let end = Endpoint::new(|qp| qp)?;
    assert!(matches!(end.cq.completions(), Err(Error::HasChannel)));
    assert!(matches!(block_on(end.cq.completion()), Err(Error::HasChannel)));
    Ok(())
}

#[test]
fn a_stream_ends_after_an_overflow() -> Result<()> {
    use futures_core::Stream;
    let (a, b) = (Endpoint::new(|qp| qp)?, Endpoint::new(|qp| qp)?);
    let cq = b.context.create_cq().entries(1).build()?;
    let qp = b.pd.create_qp().cq(&cq).build()?;
    a.qp.connect_to(&qp.info()?)?;
    qp.connect_to(&a.qp.info()?)?;
    for _ in 0..2 {
        qp.recv(()).post()?;
    }
    for _ in 0..2 {
        a.qp.send(()).post()?;
    }
    let start = Instant::now();
    while !cq.is_broken() {
        assert!(start.elapsed() < HANG_LIMIT);
        std::thread::yield_now();
    }
    let mut stream = cq.completions()?;
    let items = block_on(async {
        let mut items = Vec::new();
        while let Some(item) = std::future::poll_fn(|cx| Pin::new(&mut stream).poll_next(cx)).await
        {
            items.push(item);
        }
        items
    });
    assert!(matches!(&items[..], [Ok(_), Err(Error::CqOverflow { depth: 1 })]), "{items:?}");
    Ok(())
}

/// A task without an executor: no thread polls it again.
struct Orphan(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl Wake for Orphan {
    fn wake(self: Arc<Self>) {}
}

/// The waker is the last owner of the task, and the task is the last owner of the queue. Waking the
/// task must not end the queue under the queue's own lock.
#[test]
fn a_task_without_an_executor_stops_nobody() -> Result<()> {
    let [(a, _, a_qp), (b, cq, b_qp)] = streaming_pair()?;
    b_qp.recv(()).post()?;
    let task = Arc::new(Orphan(Mutex::new(Some(Box::pin(async move {
        let _ = cq.completion().await;
        drop(b_qp);
    })))));
    let waker = Waker::from(task.clone());
    let polled =
        task.0.lock().unwrap().as_mut().unwrap().as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    drop((task, waker));
    a_qp.send(()).post()?;
    let start = Instant::now();
    while a_qp.send_cq().expect("it has one").is_empty() {
        assert!(start.elapsed() < HANG_LIMIT, "the device stands still");
        std::thread::yield_now();
    }
    // All other tasks continue.
    a.qp.connect_to(&b.qp.info()?)?;
    b.qp.connect_to(&a.qp.info()?)?;
    b.qp.recv(()).post()?;
    a.qp.send(()).post()?;
    b.completion()?;
    Ok(())
}

/// The same for a task that waits on a channel.
#[test]
fn a_task_on_a_channel_without_an_executor_stops_nobody() -> Result<()> {
    let ((a, b), (c, d)) = (pair()?, pair()?);
    b.qp.recv(()).post()?;
    b.cq.notify(Notify::Next)?;
    let task = Arc::new(Orphan(Mutex::new(Some(Box::pin(async move {
        let _ = b.channel.event().await;
        drop(b);
    })))));
    let waker = Waker::from(task.clone());
    let polled =
        task.0.lock().unwrap().as_mut().unwrap().as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    drop((task, waker));
    a.qp.send(()).post()?;
    a.completion()?;
    d.qp.recv(()).post()?;
    c.qp.send(()).post()?;
    d.completion()?;
    Ok(())
}

#[test]
fn every_task_that_waits_on_a_channel_has_its_event() -> Result<()> {
    const TASKS: u64 = 8;
    let (a, b) = pair()?;
    for id in 0..TASKS {
        b.qp.recv(()).id(id).post()?;
    }
    b.cq.notify_persistent(Notify::Next)?;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..TASKS).map(|_| scope.spawn(|| block_on(b.channel.event()).map(drop))).collect();
        for _ in 0..TASKS {
            a.qp.send(()).signaled(false).post()?;
        }
        threads.into_iter().try_for_each(|t| t.join().unwrap())
    })?;
    assert!(b.channel.try_event().is_none());
    Ok(())
}
