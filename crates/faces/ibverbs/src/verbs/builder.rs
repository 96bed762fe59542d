//! The request that a chain of `ibv_wr_start` … `ibv_wr_complete` builds.
use adverb_device::engine::wr::UdDest;
use adverb_device::engine::{Payload, SendFlags, SendOp, SendWr, Sge};
use adverb_device::{Error, Qp};

/// The request being built, and the first error of the chain. Buffers are reused.
#[derive(Default)]
pub struct Builder {
    pub(super) open: bool,
    pub(super) error: Option<Error>,
    pub(super) wr_id: u64,
    pub(super) flags: SendFlags,
    pub(super) op: Option<SendOp>,
    pub(super) sges: Vec<Sge>,
    pub(super) inline: Option<Vec<u8>>,
    pub(super) spare: Vec<u8>,
    pub(super) ud: Option<UdDest>,
    pub(super) srqn: u32,
    /// Windows that the chain binds: the address of each, and its new key.
    pub(super) binds: Vec<(usize, u32)>,
    /// Staged requests, if an instrument asks for them (`wr_api::note`).
    pub(super) noted: Option<Vec<Noted>>,
}

/// A request as it was staged.
pub struct Noted {
    pub wr_id: u64,
    pub flags: SendFlags,
    pub op: SendOp,
    pub sges: Vec<Sge>,
    pub inline: bool,
    /// The number of bytes.
    pub bytes: u64,
}

impl Builder {
    /// Stages the open request.
    pub(super) fn finish(&mut self, qp: &Qp) {
        if !self.open || self.error.is_some() {
            self.open = false;
            return;
        }
        self.open = false;
        let Some(op) = self.op else { return };
        let inline = [self.inline.as_deref().unwrap_or_default()];
        let data = if self.inline.is_some() {
            Payload::Inline(&inline)
        } else {
            Payload::Sges(&self.sges)
        };
        let mut flags = self.flags;
        flags.set(SendFlags::INLINE, self.inline.is_some());
        let wr = SendWr { wr_id: self.wr_id, flags, op, data, ud: self.ud, xrc_srqn: self.srqn };
        if let Err(e) = qp.stage_send(&wr) {
            self.error = Some(e);
        }
        if let Some(noted) = &mut self.noted {
            let (sges, inline) = (self.sges.clone(), self.inline.is_some());
            let bytes = match &self.inline {
                Some(bytes) => bytes.len() as u64,
                None => sges.iter().map(|sge| u64::from(sge.length)).sum(),
            };
            noted.push(Noted { wr_id: self.wr_id, flags: self.flags, op, sges, inline, bytes });
        }
    }
    pub(super) fn begin(&mut self, wr_id: u64, flags: u32, op: Result<SendOp, Error>) {
        self.open = true;
        self.wr_id = wr_id;
        self.flags = SendFlags::from_bits_truncate(flags) - SendFlags::RENDEZVOUS;
        self.op = match op {
            Ok(op) => Some(op),
            Err(e) => {
                self.error.get_or_insert(e);
                None
            }
        };
        self.sges.clear();
        if let Some(used) = self.inline.take() {
            self.spare = used;
        }
        self.ud = None;
        self.srqn = 0;
    }
    pub(super) fn set_inline<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) {
        let mut bytes = self.inline.take().unwrap_or_else(|| std::mem::take(&mut self.spare));
        bytes.clear();
        parts.for_each(|p| bytes.extend_from_slice(p));
        self.inline = Some(bytes);
    }
}
