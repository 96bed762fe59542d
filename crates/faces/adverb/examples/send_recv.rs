//! A message from one end to the other: SEND and a posted receive.
use adverb::testing::pair;
use adverb::{Result, WcOpcode};

/// Runs the example.
pub fn main() -> Result<()> {
    let (a, b) = pair()?;
    // A receive names memory for one message. The completion carries the id of the receive.
    let inbox = b.pd.alloc(1024)?;
    b.qp.recv(&inbox).id(1).post()?;
    // The message is gathered from registered memory, here from two pieces.
    let outbox = a.pd.alloc(1024)?;
    outbox.write(0, b"world")?;
    outbox.write(512, b"hello ")?;
    a.qp.send(&[outbox.slice(512..518), outbox.slice(..5)]).id(2).post()?;

    let received = b.completion()?;
    assert_eq!((received.wr_id(), received.opcode(), received.byte_len()), (1, WcOpcode::Recv, 11));
    assert_eq!(inbox.to_vec(..11)?, b"hello world");
    let sent = a.completion()?;
    assert_eq!((sent.wr_id(), sent.opcode()), (2, WcOpcode::Send));
    Ok(())
}
