//! A shared receive queue: several connections take receives from one pool. An event comes when few
//! receives are left.
use adverb::testing::Endpoint;
use adverb::{AsyncEventKind, Result};
use std::time::Duration;

/// Runs the example.
pub fn main() -> Result<()> {
    let end = Endpoint::new(|qp| qp)?;
    let pool = end.pd.create_srq().max_wr(64).limit(3).build()?;
    let inbox = end.pd.alloc(4 * 16)?;
    for i in 0..4 {
        pool.recv(inbox.slice(i * 16..i * 16 + 16)).id(i as u64).post()?;
    }
    // Two connections use the pool and one completion queue.
    for text in ["first", "second"] {
        let receiver = end.pd.create_qp().cq(&end.cq).srq(&pool).build()?;
        let sender = end.pd.create_qp().build()?;
        sender.connect_to(&receiver.info()?)?;
        receiver.connect_to(&sender.info()?)?;
        sender.send(text).post()?;
        let got = end.completion()?;
        assert_eq!((got.qp_number(), got.byte_len()), (receiver.number(), text.len()));
        let start = got.wr_id() as usize * 16;
        assert_eq!(inbox.to_vec(start..start + text.len())?, text.as_bytes());
    }
    // Fewer than three receives are left: the program should post more.
    let event = end.context.async_event_within(Duration::from_secs(20)).expect("the limit event");
    assert_eq!(event.kind, AsyncEventKind::SrqLimitReached);
    pool.set_limit(3)?;
    Ok(())
}
