//! On tokio: connect, and wait for events of a channel whose descriptor tokio's reactor watches.
//! Feature `tokio`.
use adverb::connect::Options;
use adverb::testing::Endpoint;
use adverb::tokio::{Channel, Listener, connect};
use adverb::{Notify, Result};

/// Runs the example.
pub fn main() -> Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run())
}

async fn run() -> Result<()> {
    let listener = Listener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(serve(listener));

    let end = Endpoint::new(|qp| qp)?;
    let channel = Channel::new(end.channel.clone())?;
    let inbox = end.pd.alloc(64)?;
    end.qp.recv(&inbox).post()?;
    end.cq.notify(Notify::Solicited)?;
    let _connection = connect(address, &end.qp).await?;
    end.qp.send("echo this").post()?;
    let event = channel.event().await?;
    let got = event.cq().drain().filter_map(Result::ok).find(|c| c.is_recv()).expect("the echo");
    assert_eq!(inbox.to_vec(..got.byte_len())?, b"echo this");
    server.await.expect("the server did not panic")
}

/// Sends back one message.
async fn serve(listener: Listener) -> Result<()> {
    let end = Endpoint::new(|qp| qp)?;
    let inbox = end.pd.alloc(64)?;
    end.qp.recv(&inbox).post()?;
    end.cq.notify(Notify::Next)?;
    let _connection = listener.accept().await?.accept_with(&end.qp, &Options::default()).await?;
    // The same without tokio's reactor: the device wakes the task.
    let event = end.channel.event().await?;
    let got = event.cq().poll_one()?.expect("a completion").ok()?;
    end.qp.send(inbox.slice(..got.byte_len())).solicited().post()?;
    // The queue pair stays until the answer is acknowledged.
    end.cq.notify(Notify::Next)?;
    while end.cq.poll_one()?.is_none() {
        drop(end.channel.event().await?);
        end.cq.notify(Notify::Next)?;
    }
    Ok(())
}
