//! Reads completions and leaves them in the queue.
use adverb::testing::pair;
use adverb::{Result, WcOpcode};
use std::time::{Duration, Instant};

/// Runs the example.
pub fn main() -> Result<()> {
    let (a, b) = pair()?;
    for id in 0..3 {
        b.qp.recv(()).id(id).post()?;
        a.qp.send_imm((), 100 + id as u32).post()?;
    }
    let start = Instant::now();
    let seen = loop {
        let seen = b.cq.peek(8);
        if seen.len() == 3 {
            break seen;
        }
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::yield_now();
    };
    assert!(seen.iter().all(|c| c.opcode() == WcOpcode::Recv));
    assert_eq!(seen.iter().filter_map(|c| c.imm()).collect::<Vec<_>>(), [100, 101, 102]);
    // The completions are still in the queue.
    let taken: Vec<u64> = b.cq.drain().map(|c| c.map(|c| c.wr_id())).collect::<Result<_>>()?;
    assert_eq!(taken, [0, 1, 2]);
    assert!(b.cq.peek(8).is_empty());
    Ok(())
}
