//! Operations on the other process's memory.
use super::super::end::Endpoint;
use super::super::world::{IN, OUT, World};
use super::{Checked, SIZES, SIZES_IN_WORDS, same};
use adverb_device::engine::{SendOp, WcFlags, WcOpcode};

pub fn write(w: &mut World, end: &mut Endpoint) -> Checked {
    for (id, size) in (1..).zip(SIZES) {
        w.fill(OUT, size, id)?;
        w.expect_here(IN, size)?;
        w.sync()?;
        if w.is_first() {
            end.send(id, SendOp::Write(w.remote(IN)), OUT, size)?;
            end.done(id, WcOpcode::RdmaWrite)?;
        }
        w.sync()?;
        if !w.is_first() {
            w.check_here(IN, size, id)?;
        }
    }
    Ok(SIZES_IN_WORDS.into())
}

/// Writes into the other process's memory, with immediate data that takes a receive.
pub fn write_with_imm(
    w: &mut World,
    end: &mut Endpoint,
    id: u64,
    size: usize,
) -> Result<(), String> {
    let imm = 0x0ad0_0000 + id as u32;
    if w.is_first() {
        w.fill(OUT, size, id)?;
        w.sync()?;
        end.send(id, SendOp::WriteImm(w.remote(IN), imm), OUT, size)?;
        end.done(id, WcOpcode::RdmaWrite)?;
    } else {
        w.expect_here(IN, size)?;
        end.recv(id, 0, 0)?;
        w.sync()?;
        let c = end.done(id, WcOpcode::RecvRdmaWithImm)?;
        same("length", c.byte_len as usize, size)?;
        same("flags", c.flags, WcFlags::WITH_IMM)?;
        same("immediate data", c.imm, imm)?;
        w.check_here(IN, size, id)?;
    }
    w.sync()
}

pub fn write_imm(w: &mut World, end: &mut Endpoint) -> Checked {
    (1..).zip(SIZES).try_for_each(|(id, size)| write_with_imm(w, end, id, size))?;
    Ok(SIZES_IN_WORDS.into())
}

pub fn read(w: &mut World, end: &mut Endpoint) -> Checked {
    for (id, size) in (1..).zip(SIZES) {
        if w.is_first() {
            w.expect_here(IN, size)?;
            w.sync()?;
            end.send(id, SendOp::Read(w.remote(OUT)), IN, size)?;
            let c = end.done(id, WcOpcode::RdmaRead)?;
            same("length", c.byte_len as usize, size)?;
            w.check_here(IN, size, id)?;
        } else {
            w.fill(OUT, size, id)?;
            w.sync()?;
        }
        w.sync()?;
    }
    Ok(SIZES_IN_WORDS.into())
}

/// Offset of the word that the atomics change.
const WORD: usize = IN + 8;

pub fn compare_swap(w: &mut World, end: &mut Endpoint) -> Checked {
    let (before, after) = (0x0123_4567_89ab_cdef_u64, 0xfeed_face_cafe_f00d_u64);
    w.put(WORD, &before.to_ne_bytes())?;
    w.sync()?;
    if w.is_first() {
        let remote = w.remote(WORD);
        // The first comparison fails, the second matches, the third finds the new value.
        let rounds = [(after, 1, before), (before, after, before), (before, 2, after)];
        for (id, (compare, swap, old)) in (1..).zip(rounds) {
            end.send(id, SendOp::CompareSwap { remote, compare, swap }, OUT, 8)?;
            same("length", end.done(id, WcOpcode::CompSwap)?.byte_len, 8)?;
            same("value found", w.word(OUT)?, old)?;
        }
    }
    w.sync()?;
    if !w.is_first() {
        same("word", w.word(WORD)?, after)?;
    }
    Ok("does not match, matches, does not match any more".into())
}

pub fn fetch_add(w: &mut World, end: &mut Endpoint) -> Checked {
    const ROUNDS: u64 = 64;
    const START: u64 = u64::MAX - 100;
    w.put(WORD, &START.to_ne_bytes())?;
    w.sync()?;
    if w.is_first() {
        let remote = w.remote(WORD);
        for id in 0..ROUNDS {
            end.send(id, SendOp::FetchAdd { remote, add: 7 }, OUT + 8 * id as usize, 8)?;
        }
        for id in 0..ROUNDS {
            end.done(id, WcOpcode::FetchAdd)?;
            same("value found", w.word(OUT + 8 * id as usize)?, START.wrapping_add(7 * id))?;
        }
    }
    w.sync()?;
    if !w.is_first() {
        same("word", w.word(WORD)?, START.wrapping_add(7 * ROUNDS))?;
    }
    Ok(format!("{ROUNDS} on their way at once, over the end of 64 bits"))
}

pub fn atomic_write_and_flush(w: &mut World, end: &mut Endpoint) -> Checked {
    w.expect_here(IN, 5000)?;
    w.sync()?;
    if w.is_first() {
        w.fill(OUT, 5000, 4)?;
        end.send(1, SendOp::Write(w.remote(IN)), OUT, 5000)?;
        // Flush a range to global visibility, then the whole region to persistence.
        for (id, placement, selectivity) in [(2, 1, 0), (3, 2, 1)] {
            let remote = w.remote(IN);
            end.send(id, SendOp::Flush { remote, len: 5000, placement, selectivity }, OUT, 0)?;
        }
        w.fill(OUT + 8192, 8, 9)?;
        end.send(4, SendOp::AtomicWrite(w.remote(IN)), OUT + 8192, 8)?;
        end.done(1, WcOpcode::RdmaWrite)?;
        end.done(2, WcOpcode::Flush)?;
        end.done(3, WcOpcode::Flush)?;
        end.done(4, WcOpcode::AtomicWrite)?;
    }
    w.sync()?;
    if !w.is_first() {
        w.check(IN, 8, 9)?;
        let rest = super::super::world::pattern(5000, 4);
        same("bytes behind the word", w.get(IN + 8, 4992)? == rest[8..], true)?;
    }
    Ok("in order behind a Write; flush of a range and of a region".into())
}
