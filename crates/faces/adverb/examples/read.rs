//! RDMA READ: copies bytes from the peer's memory.
use adverb::Result;
use adverb::testing::pair;

/// Runs the example.
pub fn main() -> Result<()> {
    let (a, b) = pair()?;
    let source = b.pd.create_buffer(1 << 20).remote_read().build()?;
    let data: Vec<u8> = (0..1 << 20).map(|i: u32| i.to_le_bytes()[1]).collect();
    source.write(0, &data)?;

    let into = a.pd.alloc(1 << 20)?;
    a.qp.read(&into, source.remote()).post()?;
    assert_eq!(a.completion()?.byte_len(), 1 << 20);
    assert_eq!(into.to_vec(..)?, data);
    Ok(())
}
