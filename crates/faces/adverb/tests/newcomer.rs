use adverb::testing::pair;
use adverb::{Notify, Result};

#[test]
fn two_devices_talk() -> Result<()> {
    // Two ends in this process: device, completion channel, connected queue pair; what one sends
    // the other receives.
    let (a, b) = pair()?;

    // A message, and an event when it has come.
    let inbox = b.pd.alloc(1024)?;
    b.qp.recv(&inbox).id(7).post()?;
    b.cq.notify(Notify::Next)?;
    a.qp.send("hello").post()?;
    let event = b.channel.next_event()?;
    let got = event.cq().poll_one()?.expect("the event's completion").ok()?;
    assert_eq!((got.wr_id(), got.byte_len()), (7, 5));
    assert_eq!(inbox.to_vec(..5)?, b"hello");

    // Memory that the other end may write and count in, by itself.
    let board = b.pd.create_buffer(4096).remote_write().remote_atomic().build()?;
    let old = a.pd.alloc(8)?;
    a.qp.write("direct", board.remote().slice(64..)).post()?;
    a.qp.fetch_add(&old, board.remote().slice(..8), 5).post()?;
    for _ in 0..3 {
        a.completion()?; // the send, the write, the atomic
    }
    assert_eq!(board.to_vec(64..70)?, b"direct");
    assert_eq!((old.load_u64(0)?, board.load_u64(0)?), (0, 5));
    Ok(())
}
