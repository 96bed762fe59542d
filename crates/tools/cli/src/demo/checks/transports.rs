//! Other transports, and shared receive queues.
use super::super::end::{Endpoint, Kind, QKEY};
use super::super::world::{HANG_LIMIT, IN, OUT, World, words};
use super::one_sided::write_with_imm;
use super::two_sided::message;
use super::{Checked, same};
use adverb_device::engine::wr::UdDest;
use adverb_device::engine::{RecvWr, SendOp, WcFlags, WcOpcode, WcStatus};
use adverb_device::{AsyncEvent, Cq, Srq, Xrcd};
use std::sync::Arc;
use std::time::Instant;

pub fn uc(w: &mut World, end: &mut Endpoint) -> Checked {
    // Short enough for the sockets' buffers: packets that an unreliable connection loses stay lost.
    const SIZES: [usize; 5] = [0, 1, 1024, 4097, 65_536];
    (1..).zip(SIZES).try_for_each(|(id, size)| message(w, end, id, SendOp::Send, size))?;
    (11..).zip(SIZES).try_for_each(|(id, size)| write_with_imm(w, end, id, size))?;
    Ok("5 sizes of each, 0 B to 64 KiB".into())
}

/// Size of the GRH in front of a datagram. An IPv4 header takes its last 20 bytes.
const GRH: usize = 40;

pub fn ud(w: &mut World, end: &mut Endpoint) -> Checked {
    let path = w.path()?;
    let qpn = w.swap(u64::from(end.qp.number()))? as u32;
    end.dest = Some(UdDest { av: path, qpn, qkey: QKEY });
    let most = w.mtu().bytes();
    for (id, size) in (1..).zip([0, 1, most / 2, most]) {
        if w.is_first() {
            w.fill(OUT, size, id)?;
            w.sync()?;
            end.send(id, SendOp::SendImm(77), OUT, size)?;
            end.done(id, WcOpcode::Send)?;
        } else {
            w.expect_here(IN, GRH + size)?;
            end.recv(id, IN, GRH + size)?;
            w.sync()?;
            let c = end.done(id, WcOpcode::Recv)?;
            same("length", c.byte_len as usize, GRH + size)?;
            same("flags", c.flags, WcFlags::GRH | WcFlags::WITH_IMM)?;
            same("source queue pair", c.src_qpn, qpn)?;
            same("immediate data", c.imm, 77)?;
            w.check_here(IN + GRH, size, id)?;
            let header = w.get(IN, GRH)?;
            let (from, to) = match path.sgid.ipv4() {
                Some(_) => (&header[32..36], &header[36..40]),
                None => (&header[8..24], &header[24..40]),
            };
            let tail = |gid: [u8; 16]| gid[16 - from.len()..].to_vec();
            same("source address of the header", from, &tail(path.dgid.0))?;
            same("destination address of the header", to, &tail(path.sgid.0))?;
        }
        w.sync()?;
    }
    Ok(format!("4 sizes, 0 B to {most} B, with header and source"))
}

/// Posts receives of `len` bytes to a shared receive queue. Their buffers lie one behind the other.
fn post(w: &World, srq: &Srq, count: usize, len: usize) -> Result<(), String> {
    for i in 0..count {
        let sges = [w.buffer.sge(IN + i * len, len)];
        let wr = RecvWr { wr_id: i as u64, sges: &sges };
        srq.post_recv(&wr).map_err(|e| format!("post to the shared receive queue: {e:?}"))?;
    }
    Ok(())
}

pub fn srq(w: &mut World) -> Checked {
    const EACH: usize = 8;
    const LEN: usize = 2000;
    let srq = if w.is_first() {
        None
    } else {
        let srq = Srq::new(&w.pd, 64, 2, 0, None).map_err(words("shared receive queue"))?;
        w.expect_here(IN, 2 * EACH * LEN)?;
        post(w, &srq, 2 * EACH, LEN)?;
        srq.modify(None, Some(4)).map_err(words("limit of the shared receive queue"))?;
        Some(srq)
    };
    let kind = || srq.clone().map_or(Kind::Rc, Kind::Shared);
    let mut ends = [w.connected(kind())?, w.connected(kind())?];
    let limit = srq.as_ref().map(|srq| (w.listen(AsyncEvent::SrqLimitReached), srq.number()));
    w.fill(OUT, 2 * EACH * LEN, 31)?;
    w.sync()?;
    if w.is_first() {
        for i in 0..2 * EACH {
            ends[i % 2].send(i as u64, SendOp::Send, OUT + i * LEN, LEN)?;
            ends[i % 2].done(i as u64, WcOpcode::Send)?;
        }
    } else {
        for i in 0..2 * EACH {
            let c = ends[i % 2].done(i as u64, WcOpcode::Recv)?;
            same("length", c.byte_len as usize, LEN)?;
        }
        w.check_here(IN, 2 * EACH * LEN, 31)?;
    }
    if let Some((listener, number)) = limit {
        listener.about(number)?;
    }
    w.sync()?;
    for end in ends {
        end.close()?;
    }
    if let Some(srq) = srq {
        srq.destroy().map_err(words("destroying the shared receive queue"))?;
    }
    Ok(format!("two queue pairs, {} messages, the limit event", 2 * EACH))
}

pub fn xrc(w: &mut World) -> Checked {
    const MESSAGES: usize = 8;
    const LEN: usize = 3000;
    if w.is_first() {
        let mut end = w.connected(Kind::XrcSend)?;
        end.xrc_srqn = w.swap(0)? as u32;
        w.fill(OUT, MESSAGES * LEN, 41)?;
        w.sync()?;
        for i in 0..MESSAGES {
            end.send(i as u64, SendOp::Send, OUT + i * LEN, LEN)?;
            end.done(i as u64, WcOpcode::Send)?;
        }
        w.sync()?;
        end.close()?;
    } else {
        let xrcd = Xrcd::open(&w.context, None).map_err(words("XRC domain"))?;
        let cq = Cq::new(&w.context, 64, None, 0).map_err(words("completion queue"))?;
        let srq = Srq::new(&w.pd, 64, 2, 0, Some((&xrcd, &cq)))
            .map_err(words("XRC shared receive queue"))?;
        w.expect_here(IN, MESSAGES * LEN)?;
        post(w, &srq, MESSAGES, LEN)?;
        let end: Endpoint = w.connected(Kind::XrcRecv(xrcd.clone()))?;
        w.swap(u64::from(srq.number()))?;
        w.sync()?;
        receive_all(&cq, MESSAGES, LEN, end.qp.number())?;
        w.check_here(IN, MESSAGES * LEN, 41)?;
        w.sync()?;
        end.close()?;
        srq.destroy().map_err(words("destroying the XRC shared receive queue"))?;
        cq.destroy().map_err(words("destroying the completion queue"))?;
        xrcd.close().map_err(words("closing the XRC domain"))?;
    }
    Ok(format!("{MESSAGES} messages to the shared receive queue that each names"))
}

fn receive_all(cq: &Arc<Cq>, count: usize, len: usize, qpn: u32) -> Result<(), String> {
    let start = Instant::now();
    let mut got = Vec::new();
    while got.len() < count {
        cq.poll(count, |c| got.push(c)).map_err(|cause| cause.to_string())?;
        if start.elapsed() > HANG_LIMIT {
            return Err(format!("{} of {count} completions came", got.len()));
        }
    }
    for (i, c) in got.iter().enumerate() {
        same("status", c.status, WcStatus::Success)?;
        same(
            "completion",
            (c.wr_id, c.opcode, c.byte_len as usize, c.qpn),
            (i as u64, WcOpcode::Recv, len, qpn),
        )?;
    }
    Ok(())
}
