//! Completions as a stream, without a runtime: the executor is a thread that parks.
use adverb::{Device, Result};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// Unparks its thread.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Runs the example.
pub fn main() -> Result<()> {
    let context = Device::loopback()?.open()?;
    let pd = context.create_pd()?;
    let sender = pd.create_qp().build()?;
    // A completion queue without a channel can be a stream.
    let cq = context.create_cq().build()?;
    let receiver = pd.create_qp().cq(&cq).build()?;
    sender.connect_to(&receiver.info()?)?;
    receiver.connect_to(&sender.info()?)?;
    for id in 0..50 {
        receiver.recv(()).id(id).post()?;
    }
    let sending = std::thread::spawn(move || (0..50).try_for_each(|_| sender.send(()).post()));
    block_on(async {
        let mut completions = cq.completions()?;
        for id in 0..50 {
            assert_eq!(completions.next().await?.ok()?.wr_id(), id);
        }
        Ok::<_, adverb::Error>(())
    })?;
    sending.join().expect("the sender did not panic")?;
    Ok(())
}
