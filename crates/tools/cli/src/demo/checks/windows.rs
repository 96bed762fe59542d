//! Memory windows of type 2: bound, used, and invalidated by the peer or by their owner.
use super::super::end::Endpoint;
use super::super::world::{IN, OUT, World, words};
use super::two_sided::message;
use super::{Checked, same};
use adverb_device::Mw;
use adverb_device::engine::keys::MwType;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{Access, SendOp, WcOpcode, WcStatus};
use std::sync::Arc;

/// Size of the window, which begins at [`IN`] of the buffer.
const LEN: usize = 4096;

/// The second process binds a window. Both processes get its key.
fn bind(w: &mut World, end: &mut Endpoint) -> Result<(Option<Arc<Mw>>, u32), String> {
    if w.is_first() {
        let key = w.swap(0)? as u32;
        return Ok((None, key));
    }
    let mw = w.pd.alloc_mw(MwType::Type2).map_err(words("memory window"))?;
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
    let bind = mw.bind_request(w.buffer.key(), w.buffer.addr() + IN as u64, LEN as u64, access);
    end.send(100, SendOp::BindMw(bind), 0, 0)?;
    mw.set_key(bind.new_key);
    end.done(100, WcOpcode::BindMw)?;
    w.swap(u64::from(mw.key()))?;
    let key = mw.key();
    Ok((Some(mw), key))
}

/// The first process writes through the window. The write must arrive if `open` is set, and must be
/// refused otherwise.
fn write(w: &mut World, end: &mut Endpoint, key: u32, seed: u64, open: bool) -> Result<(), String> {
    w.expect_here(IN, LEN)?;
    w.sync()?;
    if w.is_first() {
        w.fill(OUT, LEN, seed)?;
        let remote = Remote { va: w.remote(IN).va, rkey: key };
        end.send(seed, SendOp::Write(remote), OUT, LEN)?;
        if open {
            end.done(seed, WcOpcode::RdmaWrite)?;
        } else {
            let status = end.next()?.status;
            same("status of a write through a closed window", status, WcStatus::RemAccessErr)?;
        }
    }
    w.sync()?;
    match (w.is_first(), open) {
        (true, _) => Ok(()),
        (false, true) => w.check_here(IN, LEN, seed),
        (false, false) => {
            same("bytes written", w.get(IN, LEN)?.iter().filter(|b| **b != 0).count(), 0)
        }
    }
}

fn finish(w: &mut World, mw: Option<Arc<Mw>>) -> Result<(), String> {
    w.sync()?;
    mw.map_or(Ok(()), |mw| mw.dealloc().map_err(words("memory window")))
}

pub fn send_inv(w: &mut World, end: &mut Endpoint) -> Checked {
    let (mw, key) = bind(w, end)?;
    write(w, end, key, 11, true)?;
    message(w, end, 12, SendOp::SendInv(key), 1000)?;
    write(w, end, key, 13, false)?;
    finish(w, mw)?;
    Ok("bound by a request, written through, closed by the peer's message".into())
}

pub fn local_inv(w: &mut World, end: &mut Endpoint) -> Checked {
    let (mw, key) = bind(w, end)?;
    write(w, end, key, 21, true)?;
    if !w.is_first() {
        end.send(22, SendOp::LocalInv(key), 0, 0)?;
        end.done(22, WcOpcode::LocalInv)?;
    }
    w.sync()?;
    write(w, end, key, 23, false)?;
    finish(w, mw)?;
    Ok("a window closed by its owner; a write through it is refused".into())
}
