//! Channels on tokio's reactor, and streams on its executor.
use adverb::testing::{HANG_LIMIT, pair};
use adverb::{Device, Notify, Result};

#[tokio::test]
async fn chn_2_tokios_reactor_sees_events() -> Result<()> {
    let (a, b) = pair()?;
    let channel = adverb::tokio::Channel::new(b.channel.clone())?;
    for round in 0..100 {
        b.qp.recv(()).id(round).post()?;
        b.cq.notify(Notify::Next)?;
        a.qp.send(()).signaled(false).post()?;
        let event = tokio::time::timeout(HANG_LIMIT, channel.event()).await.expect("an event")?;
        assert!(*event.cq() == b.cq);
        assert_eq!(b.completion()?.wr_id(), round);
    }
    assert!(channel.channel() == &b.channel);
    Ok(())
}

#[tokio::test]
async fn events_of_one_channel_serve_many_tasks() -> Result<()> {
    let (a, b) = pair()?;
    let channel = std::sync::Arc::new(adverb::tokio::Channel::new(b.channel.clone())?);
    for round in 0..10 {
        b.qp.recv(()).id(round).post()?;
    }
    b.cq.notify_persistent(Notify::Next)?;
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let channel = channel.clone();
            tokio::spawn(async move { tokio::time::timeout(HANG_LIMIT, channel.event()).await })
        })
        .collect();
    for _ in 0..10 {
        a.qp.send(()).signaled(false).post()?;
    }
    for task in tasks {
        drop(task.await.unwrap().expect("each task has its event")?);
    }
    assert_eq!(b.cq.drain().count(), 10);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_runs_on_tokio() -> Result<()> {
    let context = Device::loopback()?.open()?;
    let pd = context.create_pd()?;
    let [(cq, qp), (peer_cq, peer)] = {
        let make = || {
            let cq = context.create_cq().build()?;
            let qp = pd.create_qp().cq(&cq).build()?;
            Ok::<_, adverb::Error>((cq, qp))
        };
        [make()?, make()?]
    };
    qp.connect_to(&peer.info()?)?;
    peer.connect_to(&qp.info()?)?;
    for i in 0..100 {
        peer.recv(()).id(i).post()?;
    }
    let receiving = tokio::spawn(async move {
        let mut completions = peer_cq.completions()?;
        for i in 0..100 {
            assert_eq!(completions.next().await?.ok()?.wr_id(), i);
        }
        Ok::<_, adverb::Error>(())
    });
    for _ in 0..100 {
        qp.send(()).post()?;
        tokio::time::timeout(HANG_LIMIT, cq.completion()).await.expect("a completion")?.ok()?;
    }
    receiving.await.unwrap()
}
