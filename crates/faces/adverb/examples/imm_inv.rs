//! A message can carry four bytes of immediate data, or invalidate a key of the peer.
use adverb::testing::pair;
use adverb::{MwType, Result, WcOpcode, WindowRights};

/// Runs the example.
pub fn main() -> Result<()> {
    let (a, b) = pair()?;
    let memory = b.buffer(64)?;
    for id in 0..3 {
        b.qp.recv(()).id(id).post()?;
    }
    // Immediate data with a send.
    a.qp.send_imm((), 0xcafe).post()?;
    a.completion()?;
    assert_eq!(b.completion()?.imm(), Some(0xcafe));
    // Immediate data with a write: the peer learns of the write.
    a.qp.write_imm("payload", memory.remote(), 7).post()?;
    a.completion()?;
    let told = b.completion()?;
    assert_eq!(
        (told.opcode(), told.imm(), told.byte_len()),
        (WcOpcode::RecvRdmaWithImm, Some(7), 7)
    );
    // The sender closes the peer's window; the peer needs no request for this.
    let window = b.pd.create_mw(MwType::Type2)?;
    b.qp.bind_mw(&window, memory.slice(..), WindowRights::WRITE).post()?;
    b.completion()?;
    a.qp.send_inv((), window.key()).post()?;
    a.completion()?;
    assert_eq!(b.completion()?.invalidated(), Some(window.key()));
    Ok(())
}
