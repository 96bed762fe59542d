//! Send requests, and how they are staged.
use super::Qp;
use crate::ah::Ah;
use crate::buffer::{BufSlice, RemoteBuf};
use crate::data::{Data, Slices};
use crate::error::{Error, Result};
use crate::mw::{Mw, WindowRights};
use adverb_device::engine::wr::UdDest;
use adverb_device::engine::{Key, Payload, QpType, SendFlags, SendOp, SendWr};
use adverb_device::qp::SendChain;

/// How far a flush takes the data of earlier writes (IBTA annex A19.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Placement {
    /// All processors and devices of the peer see the data.
    Global = 1,
    /// The data survives a power failure, if the memory does.
    Persistent = 2,
}

/// The operation of a request.
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

/// A send request.
#[derive(Debug)]
pub(super) struct Wr<'d> {
    op: Op<'d>,
    data: Data<'d>,
    pub(super) wr_id: u64,
    pub(super) flags: SendFlags,
    dest: Option<UdDest>,
    pub(super) srq: u32,
}

/// Windows and their keys before a staged bind. Dropping this value restores the keys.
#[derive(Default)]
pub(super) struct Undo(Vec<(Mw, Key)>);

impl Undo {
    /// The binds are posted, so the new keys stay.
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

impl<'d> Wr<'d> {
    pub(super) fn new(op: Op<'d>, data: Data<'d>) -> Self {
        Wr { op, data, wr_id: 0, flags: SendFlags::SIGNALED, dest: None, srq: 0 }
    }

    pub(super) fn send_to(&mut self, ah: &Ah, qp_number: u32, qkey: u32) {
        self.dest = Some(UdDest { av: ah.av(), qpn: qp_number, qkey });
    }

    /// Posts the request with this id.
    pub(super) fn post(&self, wr_id: u64, qp: &Qp) -> Result<()> {
        let mut chain = qp.lower().send_chain()?;
        let mut undo = Undo::default();
        self.stage(wr_id, &mut chain, qp.qp_type(), &mut undo)?;
        undo.forget();
        chain.commit();
        Ok(())
    }

    /// Checks the request and adds it to the chain with this id.
    pub(super) fn stage(
        &self,
        wr_id: u64,
        chain: &mut SendChain<'_>,
        qp_type: QpType,
        undo: &mut Undo,
    ) -> Result<()> {
        let needed = qp_type == QpType::Ud;
        if self.dest.is_some() != needed {
            return Err(Error::Destination { needed });
        }
        let op = self.op.resolve(self.data.len())?;
        let stage = |data: Payload<'_>| {
            let Wr { flags, dest, srq, .. } = *self;
            Ok(chain.stage(&SendWr { wr_id, flags, op, data, ud: dest, xrc_srqn: srq })?)
        };
        self.with_payload(stage)?;
        if let (SendOp::BindMw(bind), Op::Bind { mw, .. }) = (op, self.op) {
            // Set the key before the commit: a thread that polls the completion may read the new
            // key.
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

/// The length of the word that an atomic changes, in bytes.
const WORD: u64 = 8;

impl Op<'_> {
    /// The operation in the engine's form. The length of the remote memory is checked against the
    /// `len` bytes of the request.
    fn resolve(&self, len: u64) -> Result<SendOp> {
        Ok(match *self {
            Op::Send => SendOp::Send,
            // The engine keeps immediate data as verbs do: the bytes in network order.
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
                SendOp::Flush {
                    remote: remote.holding(0)?,
                    len,
                    placement: to as u8,
                    selectivity: 0,
                }
            }
            Op::LocalInv(key) => SendOp::LocalInv(key),
            Op::Bind { mw, to, rights } => SendOp::BindMw(mw.bind_request(to, rights)),
        })
    }
}
