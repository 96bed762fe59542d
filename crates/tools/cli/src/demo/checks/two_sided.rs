//! Messages that the first process sends and the second receives.
use super::super::end::{Endpoint, INLINE};
use super::super::world::{IN, OUT, World, pattern};
use super::{Checked, SIZES, SIZES_IN_WORDS, same};
use adverb_device::engine::{Payload, SendFlags, SendOp, WcFlags, WcOpcode};
use std::time::Duration;

/// Sends a message and checks it in both processes. The receive is posted before the send.
pub fn message(
    w: &mut World,
    end: &mut Endpoint,
    id: u64,
    op: SendOp,
    size: usize,
) -> Result<(), String> {
    if w.is_first() {
        w.fill(OUT, size, id)?;
        w.sync()?;
        end.send(id, op, OUT, size)?;
        end.done(id, WcOpcode::Send)?;
    } else {
        w.expect_here(IN, size)?;
        end.recv(id, IN, size)?;
        w.sync()?;
        let c = end.done(id, WcOpcode::Recv)?;
        same("length", c.byte_len as usize, size)?;
        w.check_here(IN, size, id)?;
        match op {
            SendOp::SendImm(imm) => {
                same("flags", c.flags, WcFlags::WITH_IMM)?;
                same("immediate data", c.imm, imm)?;
            }
            SendOp::SendInv(key) => {
                same("flags", c.flags, WcFlags::WITH_INV)?;
                same("invalidated key", c.imm, key)?;
            }
            _ => same("flags", c.flags, WcFlags::empty())?,
        }
    }
    w.sync()
}

pub fn send(w: &mut World, end: &mut Endpoint) -> Checked {
    (1..).zip(SIZES).try_for_each(|(id, size)| message(w, end, id, SendOp::Send, size))?;
    // Several messages on their way at the same time, gathered and scattered.
    const MESSAGES: usize = 100;
    const SIZE: usize = 3000;
    let half = SIZE / 2;
    if w.is_first() {
        w.fill(OUT, MESSAGES * SIZE, 99)?;
        w.sync()?;
        for i in 0..MESSAGES {
            let at = OUT + i * SIZE;
            let sges = [w.buffer.sge(at, half), w.buffer.sge(at + half, SIZE - half)];
            end.send_with(i as u64, SendOp::Send, SendFlags::SIGNALED, Payload::Sges(&sges))?;
        }
        for i in 0..MESSAGES {
            end.done(i as u64, WcOpcode::Send)?;
        }
    } else {
        w.expect_here(IN, MESSAGES * SIZE)?;
        for i in 0..MESSAGES {
            end.recv(i as u64, IN + i * SIZE, SIZE)?;
        }
        w.sync()?;
        for i in 0..MESSAGES {
            same("length", end.done(i as u64, WcOpcode::Recv)?.byte_len as usize, SIZE)?;
        }
        w.check_here(IN, MESSAGES * SIZE, 99)?;
    }
    w.sync()?;
    Ok(format!("{SIZES_IN_WORDS}; {MESSAGES} in order, gathered"))
}

pub fn send_imm(w: &mut World, end: &mut Endpoint) -> Checked {
    for (id, size) in (1..).zip(SIZES) {
        message(w, end, id, SendOp::SendImm(0xadbe_0000 + id as u32), size)?;
    }
    Ok(SIZES_IN_WORDS.into())
}

pub fn inline(w: &mut World, end: &mut Endpoint) -> Checked {
    let data = pattern(INLINE as usize, 5);
    let parts: [&[u8]; 3] = [&data[..100], &data[100..101], &data[101..]];
    w.expect_here(IN, data.len())?;
    w.expect_here(IN + 4096, data.len())?;
    if w.is_first() {
        w.sync()?;
        let flags = SendFlags::SIGNALED | SendFlags::INLINE;
        end.send_with(1, SendOp::Write(w.remote(IN)), flags, Payload::Inline(&parts))?;
        end.done(1, WcOpcode::RdmaWrite)?;
        end.send_with(2, SendOp::Send, flags, Payload::Inline(&parts))?;
        end.done(2, WcOpcode::Send)?;
        let long = pattern(INLINE as usize + 1, 6);
        let refused = end.send_with(3, SendOp::Send, SendFlags::INLINE, Payload::Inline(&[&long]));
        if refused.is_ok() {
            return Err(format!(
                "{} bytes of inline data were taken, {INLINE} were asked for",
                long.len()
            ));
        }
    } else {
        end.recv(2, IN + 4096, data.len())?;
        w.sync()?;
        end.done(2, WcOpcode::Recv)?;
        w.check_here(IN, data.len(), 5)?;
        w.check_here(IN + 4096, data.len(), 5)?;
    }
    w.sync()?;
    Ok(format!("Send and Write of {INLINE} B in three pieces; one byte more is refused"))
}

pub fn not_ready(w: &mut World, end: &mut Endpoint) -> Checked {
    const LATE: Duration = Duration::from_millis(20);
    if w.is_first() {
        w.fill(OUT, 5000, 8)?;
        end.send(1, SendOp::Send, OUT, 5000)?;
        w.sync()?;
        end.done(1, WcOpcode::Send)?;
    } else {
        w.expect_here(IN, 5000)?;
        w.sync()?;
        std::thread::sleep(LATE);
        end.recv(1, IN, 5000)?;
        end.done(1, WcOpcode::Recv)?;
        w.check_here(IN, 5000, 8)?;
    }
    w.sync()?;
    Ok(format!("the receive is posted {} ms after the send", LATE.as_millis()))
}
