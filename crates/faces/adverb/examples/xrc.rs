//! Extended reliable connections: one connection to a process reaches each shared receive queue of
//! the process.
use adverb::Result;
use adverb::testing::Endpoint;

/// Runs the example.
pub fn main() -> Result<()> {
    let sender = Endpoint::new(|qp| qp.xrc_send())?;
    let receiver = Endpoint::new(|qp| qp)?;
    let domain = receiver.context.open_xrcd()?;
    let target = domain.create_qp().build()?;
    sender.qp.connect_to(&target.info()?)?;
    target.connect_to(&sender.qp.info()?)?;

    let inbox = receiver.pd.alloc(2 * 16)?;
    for i in [0, 1] {
        // One queue for each of two services, for example.
        let queue = receiver.pd.create_srq().xrc(&domain, &receiver.cq).build()?;
        queue.recv(inbox.slice(i * 16..i * 16 + 16)).id(i as u64).post()?;
        sender.qp.send("to this queue").srq(queue.number()).post()?;
        assert_eq!(receiver.completion()?.wr_id(), i as u64);
        assert_eq!(inbox.to_vec(i * 16..i * 16 + 13)?, b"to this queue");
        sender.completion()?;
    }
    Ok(())
}
