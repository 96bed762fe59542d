//! Inline data is copied when the request is posted. So plain bytes need no registered memory, and
//! a buffer can be reused at once.
use adverb::testing::pair_with;
use adverb::{Cause, Result};

/// Runs the example.
pub fn main() -> Result<()> {
    let (a, b) = pair_with(|qp| qp.max_inline(128))?;
    let inbox = b.pd.alloc(64)?;
    b.qp.recv(inbox.slice(..32)).post()?;
    b.qp.recv(inbox.slice(32..)).post()?;
    // Plain bytes are always inline.
    a.qp.send("plain bytes").post()?;
    // A buffer can be inline, too. The program may change the buffer right after the post.
    let outbox = a.pd.alloc(16)?;
    outbox.write(0, b"registered bytes")?;
    a.qp.send(&outbox).inline().post()?;
    outbox.write(0, &[0; 16])?;
    assert_eq!(b.completion()?.byte_len(), 11);
    assert_eq!(b.completion()?.byte_len(), 16);
    assert_eq!(inbox.to_vec(..11)?, b"plain bytes");
    assert_eq!(inbox.to_vec(32..48)?, b"registered bytes");
    // More bytes than the queue pair allows are refused, with the numbers.
    let refused = a.qp.send(&[0; 129]).post().unwrap_err();
    assert_eq!(refused.cause(), Some(&Cause::TooMuchInline { given: 129, max: 128 }));
    Ok(())
}
