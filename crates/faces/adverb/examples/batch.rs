//! A batch: the device gets all requests in one step, or none of them.
use adverb::Result;
use adverb::testing::{HANG_LIMIT, pair};

/// Runs the example.
pub fn main() -> Result<()> {
    let (a, b) = pair()?;
    let log = b.buffer(1024)?;
    b.qp.recv(()).post()?;
    // First the records, then their number, then a message. They arrive in the order of posting.
    let records = ["one", "two", "three"];
    let count = 3u64.to_ne_bytes();
    let mut batch = a.qp.batch();
    for (i, record) in records.iter().enumerate() {
        let place = 64 * (i + 1);
        batch.write(*record, log.remote().slice(place..place + 64)).signaled(false).post()?;
    }
    batch.write(&count, log.remote().slice(..8)).signaled(false).post()?;
    batch.send_imm((), 3).id(9).post()?;
    assert_eq!(batch.len(), 5);
    batch.submit()?;
    // Requests complete in order, so one completion is enough.
    assert_eq!(a.completion()?.wr_id(), 9);
    assert_eq!(b.completion()?.imm(), Some(3));
    assert_eq!((log.load_u64(0)?, log.to_vec(192..197)?), (3, b"three".to_vec()));

    // A batch that is dropped without `submit()` has posted nothing.
    let mut dropped = a.qp.batch();
    dropped.send(()).post()?;
    drop(dropped);
    assert!(a.cq.wait_all(1, HANG_LIMIT / 400).is_err());
    Ok(())
}
