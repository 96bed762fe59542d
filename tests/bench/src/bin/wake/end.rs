//! An end of the ping-pong: a queue pair with a completion channel for receives.

use std::sync::Arc;
use std::time::{Duration, Instant};

use adverb_bench::Result;
use adverb_bench::pair;
use adverb_bench::world::{World, failed, post, receive, request};
use adverb_device::engine::cq::arm::ArmKind;
use adverb_device::engine::{SendFlags, SendOp, WcStatus};
use adverb_device::{CompChannel, Cq, Errno, Qp};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::epoll::{Epoll, EpollTimeout};

/// Bytes of a message.
pub const PING: usize = 8;
/// A message of this length ends the run.
pub const STOP: usize = 1;

/// Receives always posted.
const RECEIVES: u64 = 16;
/// Depth of the send queue. Every 16th request is signaled.
const SENDS: u32 = 64;
/// Offsets of outgoing and incoming messages.
const OUT: usize = 64;
const IN: usize = 0;
/// A silence of this length is a failure.
const HANG_LIMIT: Duration = Duration::from_secs(5);

/// A queue pair with a channel for receives.
pub struct WakeEnd {
    world: World,
    channel: Arc<CompChannel>,
    recv_cq: Arc<Cq>,
    send_cq: Arc<Cq>,
    qp: Arc<Qp>,
    epoll: Option<Epoll>,
    sent: u32,
    /// Outstanding completions of sends.
    signalled: u32,
    /// Lengths of messages polled and not yet returned.
    arrived: Vec<usize>,
}

impl WakeEnd {
    /// Creates the objects on the loopback device. The receive queue is armed and full.
    pub fn new(by_epoll: bool) -> Result<WakeEnd> {
        let world = World::open(128)?;
        let channel = CompChannel::new(&world.context).map_err(failed("channel"))?;
        let recv_cq = Cq::new(&world.context, 64, Some(&channel), 0).map_err(failed("CQ"))?;
        let send_cq = Cq::new(&world.context, SENDS, None, 0).map_err(failed("CQ"))?;
        let qp = world.qp(&send_cq, &recv_cq, SENDS)?;
        let mut epoll = None;
        if by_epoll {
            let flags = fcntl(&*channel, FcntlArg::F_GETFL).map_err(|e| format!("F_GETFL: {e}"))?;
            let flags = OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK;
            fcntl(&*channel, FcntlArg::F_SETFL(flags)).map_err(|e| format!("F_SETFL: {e}"))?;
            epoll = Some(pair::epoll_of(&[&*channel])?);
        }
        recv_cq.req_notify(ArmKind::Next).map_err(failed("arm"))?;
        Ok(WakeEnd {
            world,
            channel,
            recv_cq,
            send_cq,
            qp,
            epoll,
            sent: 0,
            signalled: 0,
            arrived: Vec::with_capacity(RECEIVES as usize),
        })
    }

    /// The queue pair's number.
    pub fn number(&self) -> u32 {
        self.qp.number()
    }

    /// Connects the queue pair and posts receives.
    pub fn connect(&self, peer: u32) -> Result<()> {
        self.world.connect(&self.qp, peer)?;
        (0..RECEIVES).try_for_each(|n| self.post_receive(n))
    }

    fn post_receive(&self, wr_id: u64) -> Result<()> {
        receive(&self.qp, wr_id, &[self.world.buffer.sge(IN, PING)])
    }

    /// Sends one message. A signaled request now and then keeps the queue from filling up.
    pub fn send(&mut self, len: usize) -> Result<()> {
        self.sent += 1;
        let signalled = self.sent.is_multiple_of(SENDS / 4);
        let flags = if signalled { SendFlags::SIGNALED } else { SendFlags::empty() };
        let sges = [self.world.buffer.sge(OUT, len)];
        post(&self.qp, &request(u64::from(self.sent), flags, SendOp::Send, &sges))?;
        self.signalled += u32::from(signalled);
        if self.signalled > 1 { self.collect(1) } else { Ok(()) }
    }

    /// Polls for completions of sends until at most `left` are outstanding.
    fn collect(&mut self, left: u32) -> Result<()> {
        let end = Instant::now() + HANG_LIMIT;
        while self.signalled > left {
            let mut bad = None;
            let n = self.send_cq.poll(8, |c| {
                if c.status != WcStatus::Success {
                    bad = Some(c.status);
                }
            });
            if let Some(status) = bad {
                return Err(format!("send: {status:?}"));
            }
            self.signalled -= n.map_err(|e| format!("poll: {e}"))? as u32;
            if Instant::now() > end {
                return Err("a send does not complete".to_string());
            }
        }
        Ok(())
    }

    /// The length of the next message. Sleeps for its event: get, acknowledge, arm, poll until
    /// empty.
    pub fn receive(&mut self) -> Result<usize> {
        while self.arrived.is_empty() {
            let cq = self.event()?;
            cq.ack_events(1);
            cq.req_notify(ArmKind::Next).map_err(failed("arm"))?;
            self.drain()?;
        }
        Ok(self.arrived.remove(0))
    }

    fn event(&self) -> Result<Arc<Cq>> {
        let Some(epoll) = &self.epoll else {
            let cutoff = Some(Instant::now() + HANG_LIMIT);
            return self.channel.next_event(cutoff).map_err(|e| format!("get event: {e}"));
        };
        loop {
            let limit = EpollTimeout::try_from(HANG_LIMIT).unwrap_or(EpollTimeout::ZERO);
            if !pair::sleep(epoll, limit)? {
                return Err("no event came".to_string());
            }
            match self.channel.next_event(None) {
                Err(Errno::EAGAIN) => {}
                result => return result.map_err(|e| format!("get event: {e}")),
            }
        }
    }

    fn drain(&mut self) -> Result<()> {
        loop {
            let mut got = None;
            self.recv_cq.poll(1, |c| got = Some(c)).map_err(|e| format!("poll: {e}"))?;
            let Some(completion) = got else { return Ok(()) };
            if completion.status != WcStatus::Success {
                return Err(format!("receive: {:?}", completion.status));
            }
            self.arrived.push(completion.byte_len as usize);
            self.post_receive(completion.wr_id)?;
        }
    }
}
