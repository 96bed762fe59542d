//! A queue pair with a completion queue and channel.
use super::world::{ACCESS, HANG_LIMIT, World, words};
use adverb_device::buffer::Buffer;
use adverb_device::engine::cq::arm::ArmKind;
use adverb_device::engine::wr::UdDest;
use adverb_device::engine::{
    AddressVector, AttrMask, Completion, PathMtu, Payload, QpAttr, QpCap, QpState, QpType, RecvWr,
    SendFlags, SendOp, SendWr, WcOpcode, WcStatus,
};
use adverb_device::{CompChannel, Cq, Errno, Qp, QpInit, Srq, Xrcd};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Depth of a send or receive queue, in requests.
pub const DEPTH: u32 = 512;
/// Size of inline data, in bytes.
pub const INLINE: u32 = 256;
/// Q_Key of datagrams.
pub const QKEY: u32 = 0x0ad0_0ad0;

/// The kind of a queue pair, and the objects shared by the queue pair.
#[derive(Clone, Default)]
pub enum Kind {
    #[default]
    Rc,
    Uc,
    Ud,
    /// RC with receives from a shared queue.
    Shared(Arc<Srq>),
    XrcSend,
    XrcRecv(Arc<Xrcd>),
}

pub struct Endpoint {
    pub qp: Arc<Qp>,
    pub cq: Arc<Cq>,
    channel: Arc<CompChannel>,
    buffer: Arc<Buffer>,
    polled: VecDeque<Completion>,
    /// The destination of every send request.
    pub dest: Option<UdDest>,
    pub xrc_srqn: u32,
}

/// The first PSNs of a connection.
#[derive(Clone, Copy, Default)]
pub struct FirstPsns {
    pub own: u32,
    pub peer: u32,
}

impl World {
    /// A queue pair in each process, connected.
    pub fn connected(&mut self, kind: Kind) -> Result<Endpoint, String> {
        let end = Endpoint::new(self, kind)?;
        self.connect(&end)?;
        Ok(end)
    }

    /// Connects a queue pair with the queue pair of the other process, which calls this function at
    /// the same time.
    pub fn connect(&mut self, end: &Endpoint) -> Result<(), String> {
        let psn = first_psn(end.qp.number());
        let theirs = self.control.exchange(&[u64::from(end.qp.number()), u64::from(psn)])?;
        let &[qpn, peer_psn] = &theirs[..] else {
            return Err("the other process uses another protocol".into());
        };
        let psns = FirstPsns { own: psn, peer: peer_psn as u32 };
        end.connect(&self.path()?, self.mtu(), psns, qpn as u32)?;
        self.sync()
    }
}

impl Endpoint {
    pub fn new(world: &World, kind: Kind) -> Result<Endpoint, String> {
        let context = &world.context;
        let channel = CompChannel::new(context).map_err(words("completion channel"))?;
        let cq =
            Cq::new(context, 4 * DEPTH, Some(&channel), 0).map_err(words("completion queue"))?;
        let (qp_type, srq, xrcd) = match kind {
            Kind::Rc => (QpType::Rc, None, None),
            Kind::Uc => (QpType::Uc, None, None),
            Kind::Ud => (QpType::Ud, None, None),
            Kind::Shared(srq) => (QpType::Rc, Some(srq), None),
            Kind::XrcSend => (QpType::XrcSend, None, None),
            Kind::XrcRecv(xrcd) => (QpType::XrcRecv, None, Some(xrcd)),
        };
        let init = QpInit {
            qp_type,
            cap: QpCap {
                max_send_wr: DEPTH,
                max_recv_wr: DEPTH,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: INLINE,
            },
            signal_all: false,
            send_cq: Some(cq.clone()),
            recv_cq: Some(cq.clone()),
            srq,
            xrcd,
        };
        let qp = Qp::new(context, Some(&world.pd), &init).map_err(words("queue pair"))?;
        let buffer = world.buffer.clone();
        Ok(Endpoint { qp, cq, channel, buffer, polled: VecDeque::new(), dest: None, xrc_srqn: 0 })
    }

    /// Goes through INIT, RTR and RTS, connected to queue pair `qpn`.
    pub fn connect(
        &self,
        path: &AddressVector,
        mtu: PathMtu,
        psns: FirstPsns,
        qpn: u32,
    ) -> Result<(), String> {
        use QpState::{Init, Reset, Rtr, Rts};
        let attr = QpAttr {
            port_num: 1,
            access: ACCESS,
            qkey: QKEY,
            av: *path,
            path_mtu: mtu,
            dest_qpn: qpn,
            rq_psn: psns.peer,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 1,
            sq_psn: psns.own,
            // 4.096 µs · 2^14 = 67 ms, seven times.
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 16,
            ..QpAttr::default()
        };
        let kind = self.qp.qp_type();
        for (from, state) in [(Reset, Init), (Init, Rtr), (Rtr, Rts)] {
            // Each transition takes the attributes that it needs.
            let mask = AttrMask::needed(kind, from, state);
            self.qp
                .modify(&QpAttr { state, ..attr }, mask)
                .map_err(|e| format!("{kind:?} queue pair to {state:?}: {e}"))?;
        }
        Ok(())
    }

    /// Posts a send request for a part of the buffer.
    pub fn send(&self, wr_id: u64, op: SendOp, offset: usize, len: usize) -> Result<(), String> {
        self.send_with(
            wr_id,
            op,
            SendFlags::SIGNALED,
            Payload::Sges(&[self.buffer.sge(offset, len)]),
        )
    }

    pub fn send_with(
        &self,
        wr_id: u64,
        op: SendOp,
        flags: SendFlags,
        data: Payload<'_>,
    ) -> Result<(), String> {
        let request = SendWr { wr_id, flags, op, data, ud: self.dest, xrc_srqn: self.xrc_srqn };
        let mut chain = self.qp.send_chain().map_err(words("post"))?;
        chain.stage(&request).map_err(|e| format!("post of {op:?}: {e}"))?;
        chain.commit();
        Ok(())
    }

    /// Posts a receive into a part of the buffer.
    pub fn recv(&self, wr_id: u64, offset: usize, len: usize) -> Result<(), String> {
        let sges = [self.buffer.sge(offset, len)];
        self.qp.post_recv(&RecvWr { wr_id, sges: &sges }).map_err(words("post of a receive"))
    }

    /// Takes the completions in the queue.
    pub fn poll(&self, max: usize, take: impl FnMut(Completion)) -> Result<usize, String> {
        self.cq.poll(max, take).map_err(|cause| format!("completion queue: {cause}"))
    }

    /// Waits for the next completion, successful or not.
    pub fn next(&mut self) -> Result<Completion, String> {
        let start = Instant::now();
        loop {
            if let Some(completion) = self.polled.pop_front() {
                return Ok(completion);
            }
            let mut polled = std::mem::take(&mut self.polled);
            self.poll(64, |c| polled.push_back(c))?;
            self.polled = polled;
            if self.polled.is_empty() {
                if start.elapsed() > HANG_LIMIT {
                    return Err(format!("no completion came in {HANG_LIMIT:?}"));
                }
                // The other process may need this core.
                std::thread::yield_now();
            }
        }
    }

    /// Waits for the next completion, and checks for the success of this
    /// request.
    pub fn done(&mut self, wr_id: u64, opcode: WcOpcode) -> Result<Completion, String> {
        let c = self.next()?;
        if c.status != WcStatus::Success {
            return Err(failure(&c));
        }
        if (c.wr_id, c.opcode, c.qpn) != (wr_id, opcode, self.qp.number()) {
            return Err(format!(
                "completion {:?} of request {} on queue pair {:#x}, expected {opcode:?} of {wr_id} on {:#x}",
                c.opcode,
                c.wr_id,
                c.qpn,
                self.qp.number()
            ));
        }
        Ok(c)
    }

    /// Fails if anything completes within `time`.
    pub fn quiet(&mut self, time: Duration) -> Result<(), String> {
        let start = Instant::now();
        while start.elapsed() < time {
            let mut polled = self.polled.pop_front();
            self.poll(1, |c| _ = polled.get_or_insert(c))?;
            if let Some(c) = polled {
                return Err(format!(
                    "unexpected completion {:?} of request {}: {:?}",
                    c.opcode, c.wr_id, c.status
                ));
            }
        }
        Ok(())
    }

    pub fn arm(&self, kind: ArmKind) -> Result<(), String> {
        self.cq.req_notify(kind).map_err(words("asking for a notification"))
    }

    /// Waits for an event of the channel and acknowledges it. `false` if no event arrived in time.
    pub fn event(&self, time: Duration) -> Result<bool, String> {
        match self.channel.next_event(Some(Instant::now() + time)) {
            Ok(cq) if Arc::ptr_eq(&cq, &self.cq) => {
                cq.ack_events(1);
                Ok(true)
            }
            Ok(cq) => {
                cq.ack_events(1);
                Err("an event of another completion queue".into())
            }
            Err(Errno::ETIMEDOUT) => Ok(false),
            Err(e) => Err(format!("waiting for an event: {}", e.desc())),
        }
    }

    /// Destroys everything. No object may have users any more.
    pub fn close(self) -> Result<(), String> {
        self.qp.destroy().map_err(words("destroying the queue pair"))?;
        self.cq.destroy().map_err(words("destroying the completion queue"))?;
        self.channel.destroy().map_err(words("destroying the completion channel"))
    }
}

/// Describes a failed completion.
pub fn failure(c: &Completion) -> String {
    let why =
        c.cause.as_ref().map_or_else(|| "no cause is known".into(), |cause| cause.to_string());
    format!("{:?} of request {} completed with {:?}: {why}", c.opcode, c.wr_id, c.status)
}

/// Starts near the end of the 24 bits. So the PSNs of every connection wrap around.
fn first_psn(qpn: u32) -> u32 {
    0x00ff_fff0 | (qpn & 0xf)
}
