//! Queue pairs with futures as requests.
mod common;
use adverb::testing::HANG_LIMIT;
use adverb::{AsyncQp, Device, Error, QpBuilder, Result, Rights, WcStatus};
use common::{block_on, poll_once};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

fn end(build: impl Fn(QpBuilder<'_>) -> QpBuilder<'_>) -> Result<AsyncQp> {
    let pd = Device::loopback()?.open()?.create_pd()?;
    build(pd.create_qp()).build_async()
}

fn pair_with(build: impl Fn(QpBuilder<'_>) -> QpBuilder<'_>) -> Result<(AsyncQp, AsyncQp)> {
    let (a, b) = (end(&build)?, end(&build)?);
    a.qp().connect_to(&b.qp().info()?)?;
    b.qp().connect_to(&a.qp().info()?)?;
    Ok((a, b))
}

fn memory(of: &AsyncQp, len: usize) -> adverb::Buffer {
    of.qp().pd().unwrap().create_buffer(len).rights(Rights::ALL).build().unwrap()
}

/// All outputs, in the order of the futures.
async fn all<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    let mut done: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (future, place) in futures.iter_mut().zip(&mut done) {
            if place.is_none()
                && let Poll::Ready(output) = Pin::new(future).poll(cx)
            {
                *place = Some(output);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[test]
fn an_awaited_request_gives_its_completion_or_its_failure() -> Result<()> {
    let (a, b) = pair_with(|qp| qp)?;
    let (ours, theirs) = (memory(&a, 64), memory(&b, 64));
    block_on(async {
        let message = b.recv(&theirs).posted().await?;
        assert_eq!(a.send("hello").await?.byte_len(), 0);
        assert_eq!(message.await?.byte_len(), 5);
        assert_eq!(theirs.to_vec(..5)?, b"hello");
        a.read(ours.slice(..5), theirs.remote()).await?;
        assert_eq!(ours.to_vec(..5)?, b"hello");
        a.fetch_add(ours.slice(..8), theirs.remote().slice(8..16), 3).await?;
        assert_eq!(theirs.load_u64(8)?, 3);
        let mut nowhere = theirs.remote();
        nowhere.key ^= 0x100;
        let Err(Error::Failed(failure)) = a.write("x", nowhere).await else {
            panic!("no such key")
        };
        assert_eq!(failure.status, WcStatus::RemAccessErr);
        assert!(failure.cause.is_some());
        // Waiting requests are flushed, and later requests too.
        let Err(Error::Failed(failure)) = a.send("y").await else {
            panic!("the connection is over")
        };
        assert_eq!(failure.status, WcStatus::WrFlushErr);
        Ok(())
    })
}

#[test]
fn a_full_queue_is_waited_for_in_order() -> Result<()> {
    const COUNT: u8 = 100;
    let (a, b) = pair_with(|qp| qp.max_send_wr(2).max_recv_wr(3))?;
    let theirs = memory(&b, COUNT.into());
    let receives =
        (0..COUNT).map(|i| b.recv(theirs.slice(usize::from(i)..=usize::from(i))).into_future());
    let bytes: Vec<[u8; 1]> = (0..COUNT).map(|i| [i]).collect();
    let sends = bytes.iter().map(|byte| a.send(byte).into_future());
    std::thread::scope(|scope| {
        let receives: Vec<_> = receives.collect();
        let receiving = scope.spawn(|| block_on(all(receives)));
        for sent in block_on(all(sends.collect())) {
            sent.unwrap();
        }
        for received in receiving.join().unwrap() {
            assert_eq!(received.unwrap().byte_len(), 1);
        }
    });
    assert_eq!(theirs.to_vec(..)?, (0..COUNT).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn a_dropped_future_gives_its_place_back() -> Result<()> {
    let (a, b) = pair_with(|qp| qp.max_recv_wr(1))?;
    let inbox = memory(&b, 8);
    block_on(async {
        // A receive that was posted and dropped takes the first message. Its completion is
        // discarded.
        drop(b.recv(&inbox).posted().await?);
        let mut waiting = pin!(b.recv(&inbox).posted());
        assert!(matches!(poll_once(waiting.as_mut()), Poll::Pending));
        // A request that is dropped in line leaves no trace.
        assert!(matches!(poll_once(b.recv(&inbox).posted()), Poll::Pending));
        a.send("first").await?;
        let second = waiting.await?;
        a.send("2nd").await?;
        assert_eq!(second.await?.byte_len(), 3);
        Ok(())
    })
}

#[test]
fn a_refused_request_is_an_error_at_once_and_takes_no_place() -> Result<()> {
    let unconnected = end(|qp| qp.max_send_wr(1))?;
    for _ in 0..3 {
        assert!(matches!(
            block_on(unconnected.send("x").into_future()),
            Err(Error::NotConnected { .. })
        ));
    }
    let nothing = end(|qp| qp.max_send_wr(0))?;
    assert!(block_on(nothing.send("x").into_future()).is_err());
    let cq = unconnected.qp().context().create_cq().build()?;
    assert_eq!(end(|qp| qp.cq(&cq)).unwrap_err().errno(), 22, "EINVAL");
    Ok(())
}

#[test]
fn tasks_of_several_threads_share_a_queue_pair() -> Result<()> {
    const EACH: usize = 200;
    let (a, b) = pair_with(|qp| qp.max_send_wr(3))?;
    let board = memory(&b, 64);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (a, board) = (&a, &board);
            scope.spawn(move || {
                let old = memory(a, 8);
                for _ in 0..EACH {
                    block_on(
                        a.fetch_add(&old, board.remote().slice(thread * 8..thread * 8 + 8), 1)
                            .into_future(),
                    )
                    .unwrap();
                }
            });
        }
    });
    for thread in 0..4 {
        assert_eq!(board.load_u64(thread * 8)?, EACH as u64);
    }
    Ok(())
}

#[test]
fn a_thread_waits_for_a_place_as_well() -> Result<()> {
    let (a, b) = adverb::testing::pair_with(|qp| qp.max_send_wr(2).max_recv_wr(1))?;
    // Without a receive no send completes, and no send leaves the queue.
    for _ in 0..2 {
        a.qp.send(()).post()?;
    }
    let full = a.qp.send(()).post_within(std::time::Duration::from_millis(5));
    assert!(matches!(full, Err(Error::QueueFull { depth: 2, .. })), "{full:?}");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..50 {
                b.qp.recv(()).post().unwrap();
                b.completion().unwrap();
            }
        });
        scope.spawn(|| {
            for _ in 0..50 {
                a.completion().unwrap();
            }
        });
        for _ in 0..48 {
            a.qp.send(()).post_within(HANG_LIMIT).unwrap();
        }
    });
    Ok(())
}

#[test]
fn asynchronous_events_can_be_awaited() -> Result<()> {
    let (a, b) = adverb::testing::pair()?;
    let mut events = a.context.async_events();
    assert!(matches!(poll_once(pin!(events.next())), Poll::Pending));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || block_on(events.next()));
        // The peer may not write this buffer, so the peer's request fails and this queue pair goes
        // to the error state.
        let ours = a.pd.alloc(8).unwrap();
        b.qp.write("x", ours.remote()).post().unwrap();
        assert!(b.completion().is_err());
        let event = waiting.join().unwrap().unwrap();
        assert_eq!(event.to, adverb::AsyncElement::Qp(a.qp.number()));
    });
    Ok(())
}
