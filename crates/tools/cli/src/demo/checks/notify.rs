//! Completion channels.
use super::super::end::Endpoint;
use super::super::world::{HANG_LIMIT, IN, OUT, World};
use super::Checked;
use adverb_device::engine::cq::arm::ArmKind;
use adverb_device::engine::{Payload, SendFlags, SendOp, WcOpcode};
use std::time::Duration;

/// How long no event may come if none is due.
const NONE: Duration = Duration::from_millis(30);

/// The first process sends a message of 100 bytes. Both processes wait until the message has
/// arrived.
fn message(w: &mut World, end: &mut Endpoint, id: u64, flags: SendFlags) -> Result<(), String> {
    if w.is_first() {
        w.fill(OUT, 100, id)?;
        let sges = [w.buffer.sge(OUT, 100)];
        end.send_with(id, SendOp::Send, SendFlags::SIGNALED | flags, Payload::Sges(&sges))?;
        end.done(id, WcOpcode::Send)?;
    }
    w.sync()
}

fn receives(end: &Endpoint, count: u64) -> Result<(), String> {
    (1..=count).try_for_each(|id| end.recv(id, IN + 4096 * id as usize, 100))
}

fn event(end: &Endpoint, wanted: bool, when: &str) -> Result<(), String> {
    match (end.event(if wanted { HANG_LIMIT } else { NONE })?, wanted) {
        (true, false) => Err(format!("an event came {when}")),
        (false, true) => Err(format!("no event came {when}")),
        _ => Ok(()),
    }
}

fn received(w: &World, end: &mut Endpoint, id: u64) -> Result<(), String> {
    end.done(id, WcOpcode::Recv)?;
    w.check(IN + 4096 * id as usize, 100, id)
}

/// CQN-1, CQN-3, CQN-4, CQN-7, CHN-4.
pub fn next(w: &mut World, end: &mut Endpoint) -> Checked {
    let second = !w.is_first();
    if second {
        receives(end, 4)?;
        end.arm(ArmKind::Next)?;
    }
    w.sync()?;
    message(w, end, 1, SendFlags::empty())?;
    if second {
        event(end, true, "for a message after the request")?;
        received(w, end, 1)?;
    }
    w.sync()?;
    message(w, end, 2, SendFlags::empty())?;
    if second {
        event(end, false, "without a request")?;
        end.arm(ArmKind::Next)?;
        event(end, false, "for a message before the request")?;
        received(w, end, 2)?;
    }
    w.sync()?;
    message(w, end, 3, SendFlags::empty())?;
    message(w, end, 4, SendFlags::empty())?;
    if second {
        event(end, true, "for a message after the second request")?;
        event(end, false, "twice for one request")?;
        received(w, end, 3)?;
        received(w, end, 4)?;
    }
    w.sync()?;
    Ok("one for each request, none for what was there before; acknowledged".into())
}

/// CQN-2, CQN-4, CQN-9.
pub fn solicited(w: &mut World, end: &mut Endpoint) -> Checked {
    let second = !w.is_first();
    if second {
        receives(end, 2)?;
        end.arm(ArmKind::Solicited)?;
    }
    w.sync()?;
    message(w, end, 1, SendFlags::empty())?;
    if second {
        event(end, false, "for a message that did not ask for one")?;
    }
    w.sync()?;
    message(w, end, 2, SendFlags::SOLICITED)?;
    if second {
        event(end, true, "for a message that asked for one")?;
        received(w, end, 1)?;
        received(w, end, 2)?;
        end.quiet(Duration::from_millis(5))?;
    }
    w.sync()?;
    Ok("none for a plain message, one for a solicited; acknowledged".into())
}
