//! Operations that must fail, and how they fail.
use super::super::end::Endpoint;
use super::super::world::{IN, OUT, World};
use super::{Checked, same};
use adverb_device::AsyncEvent;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{QpState, SendOp, WcOpcode, WcStatus};

/// A write with a key that does not exist. The peer refuses the write, both queue pairs go to the
/// error state, and later requests are flushed.
pub fn bad_rkey(w: &mut World, end: &mut Endpoint) -> Checked {
    let mut cause = String::new();
    if w.is_first() {
        w.fill(OUT, 1000, 1)?;
        let good = w.remote(IN);
        let bad = Remote { va: good.va, rkey: good.rkey ^ 0x5a };
        w.sync()?;
        end.send(1, SendOp::Write(bad), OUT, 1000)?;
        let failed = end.next()?;
        same("request", failed.wr_id, 1)?;
        same("status", failed.status, WcStatus::RemAccessErr)?;
        cause = failed.cause.as_ref().ok_or("the failed completion has no cause")?.to_string();
        // A request posted in the error state completes as flushed.
        end.send(2, SendOp::Write(good), OUT, 1000)?;
        let flushed = end.next()?;
        same("request", flushed.wr_id, 2)?;
        same("status", flushed.status, WcStatus::WrFlushErr)?;
        same("state", end.qp.state(), QpState::Err)?;
        w.sync()?;
    } else {
        w.expect_here(IN, 1000)?;
        end.recv(7, IN, 1000)?;
        let listener = w.listen(AsyncEvent::QpAccessErr);
        w.sync()?;
        listener.about(end.qp.number())?;
        let flushed = end.next()?;
        same("flushed receive", (flushed.wr_id, flushed.opcode), (7, WcOpcode::Recv))?;
        same("status", flushed.status, WcStatus::WrFlushErr)?;
        w.sync()?;
        same("bytes written", w.get(IN, 1000)?.iter().filter(|b| **b != 0).count(), 0)?;
    }
    w.sync()?;
    Ok(format!("refused, nothing written, the rest flushed: \"{cause}\""))
}
