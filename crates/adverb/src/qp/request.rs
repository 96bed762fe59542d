//! Send requests.
use super::{Batch, Qp};
use crate::ah::Ah;
use crate::buffer::{BufSlice, RemoteBuf};
use crate::data::{Data, Slices};
use crate::error::{Error, Result};
use crate::mw::{Mw, WindowRights};
use adverb_device::engine::wr::UdDest;
use adverb_device::engine::{Key, Payload, QpType, SendFlags, SendOp, SendWr};
use adverb_device::qp::SendChain;

/// A send request that is not posted yet: made by [`Qp::send`] and its kin, completed by the
/// methods here, posted by [`Request::post`]. Dropped before, nothing happens.
#[derive(Debug)]
#[must_use = "nothing is posted before post()"]
pub struct Request<'t, 'd> {
    target: Target<'t, 'd>,
    wr: Wr<'d>,
}

/// Where a request goes.
#[derive(Debug)]
pub(super) enum Target<'t, 'd> {
    Qp(&'t Qp),
    Batch(&'t mut Batch<'d>),
}

/// How far a flush takes what was written before (IBTA annex A19.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Placement {
    /// All processors and devices of the peer see it.
    Global = 1,
    /// It survives a power failure, if the memory does.
    Persistent = 2,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op<'d> {
    Send,
    SendImm(u32),
    SendInv(Key),
    Write(RemoteBuf),
    WriteImm(RemoteBuf, u32),
    Read(RemoteBuf),
    CompareSwap { remote: RemoteBuf, compare: u64, swap: u64 },
    FetchAdd { remote: RemoteBuf, add: u64 },
    AtomicWrite(RemoteBuf),
    Flush(RemoteBuf, Placement),
    LocalInv(Key),
    Bind { mw: &'d Mw, to: Option<BufSlice<'d>>, rights: WindowRights },
}

/// A request.
#[derive(Debug)]
pub(super) struct Wr<'d> {
    op: Op<'d>,
    data: Data<'d>,
    wr_id: u64,
    flags: SendFlags,
    dest: Option<UdDest>,
    srq: u32,
}

impl<'t, 'd> Request<'t, 'd> {
    pub(super) fn new(target: Target<'t, 'd>, op: Op<'d>, data: Data<'d>) -> Self {
        let wr = Wr { op, data, wr_id: 0, flags: SendFlags::SIGNALED, dest: None, srq: 0 };
        Request { target, wr }
    }

    fn flag(mut self, flag: SendFlags, on: bool) -> Self {
        self.wr.flags.set(flag, on);
        self
    }

    /// The id that its completion carries (0).
    pub fn id(mut self, wr_id: u64) -> Self {
        self.wr.wr_id = wr_id;
        self
    }

    /// Does its success make a completion (yes)? A failure always does. A silent request leaves its
    /// place in the send queue when a later one completes, so at least one in a queue's length must
    /// not be silent.
    pub fn signaled(self, yes: bool) -> Self {
        self.flag(SendFlags::SIGNALED, yes)
    }

    /// Asks for an event at a peer that waits for solicited completions (CQN-9). Means something on
    /// sends and on writes with immediate data.
    pub fn solicited(self) -> Self {
        self.flag(SendFlags::SOLICITED, true)
    }

    /// Waits until all reads and atomics posted before have completed (IBTA 10.8.3.3).
    pub fn fence(self) -> Self {
        self.flag(SendFlags::FENCE, true)
    }

    /// Copies the data when the request is posted, so that the buffer may be used again at once. At
    /// most what the queue pair was made for
    /// ([`QpBuilder::max_inline`](crate::QpBuilder::max_inline)). Plain bytes are always inline.
    pub fn inline(self) -> Self {
        self.flag(SendFlags::INLINE, true)
    }

    /// Where a datagram goes: address, queue pair number, Q_Key (with its top bit set, the queue
    /// pair's own is sent instead; IBTA 10.2.5).
    pub fn to(mut self, ah: &Ah, qp_number: u32, qkey: u32) -> Self {
        self.wr.dest = Some(UdDest { av: ah.av(), qpn: qp_number, qkey });
        self
    }

    /// The peer's shared receive queue, on XRC ([`Srq::number`](crate::Srq::number)).
    pub fn srq(mut self, number: u32) -> Self {
        self.wr.srq = number;
        self
    }

    /// Posts it (`ibv_post_send(3)`), or adds it to its batch. On a connection that has failed it
    /// is accepted and completes with `WrFlushErr`.
    ///
    /// # Errors
    /// [`Error::NotConnected`], [`Error::QueueFull`], [`Error::RemoteTooShort`],
    /// [`Error::Destination`]; EINVAL with the cause for what the transport or the queue pair does
    /// not allow. Nothing was posted then.
    pub fn post(self) -> Result<()> {
        match self.target {
            Target::Qp(qp) => {
                let mut chain = qp.raw().send_chain()?;
                let mut undo = Undo::default();
                self.wr.stage(&mut chain, qp.qp_type(), &mut undo)?;
                undo.forget();
                chain.commit();
            }
            Target::Batch(batch) => batch.push(self.wr),
        }
        Ok(())
    }
}

/// Windows whose key a staged bind has changed. Dropped, it changes them back.
#[derive(Default)]
pub(super) struct Undo(Vec<(Mw, Key)>);

impl Undo {
    /// The binds are posted.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        for (mw, key) in self.0.iter().rev() {
            mw.set_key(*key);
        }
    }
}

impl Wr<'_> {
    /// Checks it and adds it to what the queue pair is to hand over.
    pub(super) fn stage(&self, chain: &mut SendChain<'_>, qp_type: QpType, undo: &mut Undo) -> Result<()> {
        let needed = qp_type == QpType::Ud;
        if self.dest.is_some() != needed {
            return Err(Error::Destination { needed });
        }
        let op = self.op.resolve(self.data.len())?;
        let stage = |data: Payload<'_>| {
            let Wr { wr_id, flags, dest, srq, .. } = *self;
            Ok(chain.stage(&SendWr { wr_id, flags, op, data, ud: dest, xrc_srqn: srq })?)
        };
        self.with_payload(stage)?;
        if let (SendOp::BindMw(bind), Op::Bind { mw, .. }) = (op, self.op) {
            // Before the hand-over: whoever polls the completion may read the new key.
            undo.0.push((mw.clone(), bind.mw));
            mw.set_key(bind.new_key);
        }
        Ok(())
    }

    fn with_payload(&self, f: impl FnOnce(Payload<'_>) -> Result<()>) -> Result<()> {
        match &self.data {
            Data::Bytes(bytes) => f(Payload::Inline(&[bytes])),
            Data::Slices(Slices::None) => f(Payload::Sges(&[])),
            Data::Slices(slices) if self.flags.contains(SendFlags::INLINE) => {
                f(Payload::Inline(&[&slices.gather()?]))
            }
            Data::Slices(slices) => slices.with_sges(|sges| f(Payload::Sges(sges))),
        }
    }
}

/// Bytes that an atomic changes.
const WORD: u64 = 8;

impl Op<'_> {
    /// The operation as the engine has it, its remote memory checked against the `len` bytes of the
    /// request.
    fn resolve(&self, len: u64) -> Result<SendOp> {
        Ok(match *self {
            Op::Send => SendOp::Send,
            // The engine has immediate data as verbs have it: the bytes in network order.
            Op::SendImm(imm) => SendOp::SendImm(imm.to_be()),
            Op::SendInv(key) => SendOp::SendInv(key),
            Op::Write(remote) => SendOp::Write(remote.holding(len)?),
            Op::WriteImm(remote, imm) => SendOp::WriteImm(remote.holding(len)?, imm.to_be()),
            Op::Read(remote) => SendOp::Read(remote.holding(len)?),
            Op::CompareSwap { remote, compare, swap } => {
                SendOp::CompareSwap { remote: remote.holding(WORD)?, compare, swap }
            }
            Op::FetchAdd { remote, add } => SendOp::FetchAdd { remote: remote.holding(WORD)?, add },
            Op::AtomicWrite(remote) => SendOp::AtomicWrite(remote.holding(WORD)?),
            Op::Flush(remote, to) => {
                let max = u64::from(u32::MAX);
                let len = u32::try_from(remote.len).map_err(|_| Error::OutOfRange {
                    start: 0,
                    end: remote.len,
                    len: max,
                })?;
                // Selectivity 0: this range, not the whole region.
                SendOp::Flush { remote: remote.holding(0)?, len, placement: to as u8, selectivity: 0 }
            }
            Op::LocalInv(key) => SendOp::LocalInv(key),
            Op::Bind { mw, to, rights } => SendOp::BindMw(mw.bind_request(to, rights)),
        })
    }
}
