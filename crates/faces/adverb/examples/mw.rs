//! A memory window: a key to a part of a buffer, bound and invalidated in order with other
//! requests.
use adverb::testing::pair;
use adverb::{Error, MwType, Result, WcStatus, WindowRights};

/// Runs the example.
pub fn main() -> Result<()> {
    let (a, b) = pair()?;
    let buffer = b.pd.create_buffer(4096).windows().build()?;
    let window = b.pd.create_mw(MwType::Type2)?;
    // Open 100 bytes for writing, only to this peer.
    let part = buffer.slice(1000..1100);
    b.qp.bind_mw(&window, part, WindowRights::WRITE).post()?;
    b.completion()?;
    let remote = window.remote(part);

    a.qp.write(b"through the window", remote).post()?;
    a.completion()?;
    assert_eq!(buffer.to_vec(1000..1018)?, b"through the window");

    // Close the window.
    b.qp.local_inv(window.key()).post()?;
    b.completion()?;
    a.qp.write(b"too late", remote).post()?;
    match a.completion() {
        Err(Error::Failed(failure)) => assert_eq!(failure.status, WcStatus::RemAccessErr),
        other => panic!("the window is closed: {other:?}"),
    }
    Ok(())
}
