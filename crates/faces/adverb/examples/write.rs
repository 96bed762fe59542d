//! RDMA WRITE: copies bytes into the peer's memory. The peer does nothing.
use adverb::testing::pair;
use adverb::{RemoteBuf, Result};

/// Runs the example.
pub fn main() -> Result<()> {
    let (a, b) = pair()?;
    // The owner grants the right to write, and sends address and key by any means.
    let target = b.pd.create_buffer(4096).remote_write().build()?;
    let told: [u8; RemoteBuf::ENCODED_LEN] = target.remote().to_bytes();

    let remote = RemoteBuf::from_bytes(&told);
    let source = a.pd.alloc(100)?;
    source.write(0, &[7; 100])?;
    a.qp.write(&source, remote.slice(1000..)).post()?;
    // A completion means that the peer's device has acknowledged the write: the bytes are in place.
    a.completion()?;
    assert_eq!(target.to_vec(1000..1100)?, [7; 100]);
    assert_eq!(target.to_vec(999..1000)?, [0]);
    assert!(b.cq.poll_one()?.is_none(), "the peer's queue hears nothing of it");
    Ok(())
}
