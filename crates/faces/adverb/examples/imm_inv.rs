//! What can travel with a message: four bytes of immediate data, or an order to invalidate a key of
//! the peer's.
use adverb::testing::pair;
use adverb::{MwType, Result, WcOpcode, WindowRights};

/// Runs it.
pub fn main() -> Result<()> {
    let (a, b) = pair()?;
    let memory = b.buffer(64)?;
    for id in 0..3 {
        b.qp.recv(()).id(id).post()?;
    }
    // With a send.
    a.qp.send_imm((), 0xcafe).post()?;
    a.completion()?;
    assert_eq!(b.completion()?.imm(), Some(0xcafe));
    // With a write: the peer learns that it has happened.
    a.qp.write_imm("payload", memory.remote(), 7).post()?;
    a.completion()?;
    let told = b.completion()?;
    assert_eq!((told.opcode(), told.imm(), told.byte_len()), (WcOpcode::RecvRdmaWithImm, Some(7), 7));
    // "I am done with your window": the peer needs no request of its own to close it.
    let window = b.pd.create_mw(MwType::Type2)?;
    b.qp.bind_mw(&window, memory.slice(..), WindowRights::WRITE).post()?;
    b.completion()?;
    a.qp.send_inv((), window.key()).post()?;
    a.completion()?;
    assert_eq!(b.completion()?.invalidated(), Some(window.key()));
    Ok(())
}
