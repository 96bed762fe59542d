//! The requests of a queue pair.
use super::{CONNECTED, Qp};
use crate::flags::{OpFlags, OperationType};
use crate::lam::LogicalAddress;
use crate::mr::{Mr, remote_write_bit};
use crate::mw::Mw;
use crate::requests::Ticket;
use crate::sge::{SgList, Sge, inline_parts};
use crate::status::{NtStatus, status_of};
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{Access, Cause, Payload, RecvWr, SendFlags, SendOp, SendWr};
use adverb_device::{Error, Why};
use std::sync::atomic::Ordering;

/// The object whose token an invalidate request invalidates.
#[derive(Clone, Copy, Debug)]
pub enum Invalidated<'a> {
    /// A fast-registered region.
    Mr(&'a Mr),
    /// A bound window.
    Mw(&'a Mw),
}

/// Flags of every initiator request.
const COMMON: OpFlags = OpFlags::SILENT_SUCCESS.union(OpFlags::READ_FENCE).union(OpFlags::DEFER);
const SEND: OpFlags = COMMON.union(OpFlags::SEND_AND_SOLICIT_EVENT).union(OpFlags::INLINE);
const WRITE: OpFlags = COMMON.union(OpFlags::INLINE);
const READ: OpFlags = COMMON.union(OpFlags::RDMA_READ_LOCAL_INVALIDATE);
const BIND: OpFlags = COMMON.union(OpFlags::ALLOW_REMOTE_READ).union(OpFlags::ALLOW_REMOTE_WRITE);
const FAST_REGISTER: OpFlags = BIND.union(OpFlags::RDMA_READ_SINK);

impl Qp {
    /// Sends a message.
    ///
    /// # Errors
    /// `CONNECTION_INVALID`, `INSUFFICIENT_RESOURCES` (the queue is full), `INVALID_PARAMETER`
    /// (flags, entries, inline data), `ACCESS_VIOLATION` (a logical address that is not mapped).
    /// After an error, no completion follows, and all requests deferred before are committed
    /// (DEF-3, DEF-4).
    pub fn send(
        &self,
        request_context: u64,
        sgl: &[Sge<'_>],
        flags: OpFlags,
    ) -> Result<(), NtStatus> {
        self.initiate(|qp| {
            qp.transfer(request_context, OperationType::Send, SendOp::Send, sgl, flags, SEND)
        })
    }

    /// Sends a message that invalidates a token of the peer when the peer receives the message
    /// (NDK-6). If the token cannot be invalidated, the connection ends.
    ///
    /// # Errors
    /// As [`Qp::send`].
    pub fn send_and_invalidate(
        &self,
        request_context: u64,
        sgl: &[Sge<'_>],
        flags: OpFlags,
        remote_token: u32,
    ) -> Result<(), NtStatus> {
        let op = SendOp::SendInv(remote_token);
        self.initiate(|qp| qp.transfer(request_context, OperationType::Send, op, sgl, flags, SEND))
    }

    /// Writes to the peer's memory.
    ///
    /// # Errors
    /// As [`Qp::send`].
    pub fn write(
        &self,
        request_context: u64,
        sgl: &[Sge<'_>],
        remote_address: u64,
        remote_token: u32,
        flags: OpFlags,
    ) -> Result<(), NtStatus> {
        let op = SendOp::Write(Remote { va: remote_address, rkey: remote_token });
        self.initiate(|qp| {
            qp.transfer(request_context, OperationType::Write, op, sgl, flags, WRITE)
        })
    }

    /// Reads the peer's memory. With [`OpFlags::RDMA_READ_LOCAL_INVALIDATE`], a successful read
    /// invalidates the token of the first entry.
    ///
    /// # Errors
    /// As [`Qp::send`].
    pub fn read(
        &self,
        request_context: u64,
        sgl: &[Sge<'_>],
        remote_address: u64,
        remote_token: u32,
        flags: OpFlags,
    ) -> Result<(), NtStatus> {
        let op = SendOp::Read(Remote { va: remote_address, rkey: remote_token });
        if flags.contains(OpFlags::RDMA_READ_LOCAL_INVALIDATE) {
            self.initiate(|qp| qp.read_and_invalidate(request_context, op, sgl, flags))
        } else {
            self.initiate(|qp| {
                qp.transfer(request_context, OperationType::Read, op, sgl, flags, READ)
            })
        }
    }

    /// Binds a window to `length` bytes at `address` of a registered region. The window's new token
    /// is known at once. The window must not be bound when the request is processed.
    ///
    /// # Errors
    /// As [`Qp::send`]; `ACCESS_VIOLATION` (a writable window on a region that is not writable),
    /// `INVALID_PARAMETER` (bytes outside the region), `INVALID_DEVICE_STATE` (the region is not
    /// registered).
    pub fn bind(
        &self,
        request_context: u64,
        mr: &Mr,
        mw: &Mw,
        address: u64,
        length: u64,
        flags: OpFlags,
    ) -> Result<(), NtStatus> {
        self.initiate(|qp| {
            qp.check_flags(flags, BIND)?;
            let access = window_access(flags)?;
            let key = mr.key_to_bind(address, length, flags)?;
            let bind = mw.device().bind_request(key, address, length, access);
            qp.local(request_context, OperationType::Bind, SendOp::BindMw(bind), flags)?;
            mw.device().set_key(bind.new_key);
            Ok(())
        })
    }

    /// Registers `length` bytes in adapter pages, beginning at byte `fbo` of the first page.
    /// Requests address these bytes from `base_virtual_address` on. The new token is known at once.
    /// The region's token must be invalid when the request is processed.
    ///
    /// # Errors
    /// As [`Qp::send`]. `ACCESS_VIOLATION`: remote access to a region that was not prepared for
    /// remote access. `INVALID_PARAMETER`: pages that are not mapped, too many pages, too few
    /// pages, or a base address whose offset in a page is not `fbo`. `INVALID_DEVICE_STATE`: the
    /// region was not prepared.
    #[allow(clippy::too_many_arguments, reason = "the parameters of NdkFastRegister")]
    pub fn fast_register(
        &self,
        request_context: u64,
        mr: &Mr,
        adapter_pages: &[LogicalAddress],
        fbo: u32,
        length: u64,
        base_virtual_address: u64,
        flags: OpFlags,
    ) -> Result<(), NtStatus> {
        self.initiate(|qp| {
            qp.check_flags(flags, FAST_REGISTER)?;
            let access = region_access(flags)?;
            let fast = mr.fast(flags)?;
            if length == 0 {
                return Err(NtStatus::INVALID_PARAMETER);
            }
            let pages = qp.0.adapter.lams.pages(adapter_pages)?;
            let request = fast
                .prepare(&pages, fbo, length, base_virtual_address, access)
                .map_err(|e| status_of(&e))?;
            let op = SendOp::FastReg(request);
            qp.local(request_context, OperationType::FastRegister, op, flags)
                .inspect_err(|_| fast.forget(&request))?;
            fast.posted(&request);
            Ok(())
        })
    }

    /// Invalidates the token of a fast-registered region or of a window. If the token is not valid
    /// when the request is processed, the request fails with a completion.
    ///
    /// # Errors
    /// As [`Qp::send`]; `INVALID_PARAMETER` for a region of [`Mr::register`].
    pub fn invalidate(
        &self,
        request_context: u64,
        target: Invalidated<'_>,
        flags: OpFlags,
    ) -> Result<(), NtStatus> {
        self.initiate(|qp| {
            qp.check_flags(flags, COMMON)?;
            let key = match target {
                Invalidated::Mr(mr) => mr.key_to_invalidate()?,
                Invalidated::Mw(mw) => mw.device().key(),
            };
            qp.local(request_context, OperationType::Invalidate, SendOp::LocalInv(key), flags)
        })
    }

    /// Queues a receive. A receive needs no connection. After a flush or disconnect, the receive
    /// completes with `CANCELLED`.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES` (the queue is full), `INVALID_PARAMETER` (too many entries),
    /// `INVALID_DEVICE_REQUEST` (the queue pair receives from a shared receive queue),
    /// `ACCESS_VIOLATION` (a logical address that is not mapped). After an error, no completion
    /// follows.
    pub fn receive(&self, request_context: u64, sgl: &[Sge<'_>]) -> Result<(), NtStatus> {
        if self.0.has_srq {
            return Err(NtStatus::INVALID_DEVICE_REQUEST);
        }
        let list = self.entries(sgl, self.0.sizes.max_receive_request_sge)?;
        let wr = RecvWr { wr_id: request_context, sges: list.entries() };
        self.device().post_recv(&wr).map_err(|e| status_of_post(&e))
    }

    /// Runs an initiator request. A request that fails in line ends the chain: the requests
    /// deferred before it are committed before the failure is returned (DEF-4).
    fn initiate(&self, request: impl FnOnce(&Qp) -> Result<(), NtStatus>) -> Result<(), NtStatus> {
        let result = if self.0.link.load(Ordering::Acquire) == CONNECTED {
            request(self)
        } else {
            Err(NtStatus::CONNECTION_INVALID)
        };
        if result.is_err() {
            self.commit_deferred();
        }
        result
    }

    /// Commits the deferred requests. A caller that refuses a request before it reaches the queue
    /// pair must call this, because such a request ends the chain, too (DEF-4).
    pub fn commit_deferred(&self) {
        self.device().commit_sends();
    }

    fn check_flags(&self, flags: OpFlags, allowed: OpFlags) -> Result<(), NtStatus> {
        if allowed.contains(flags) { Ok(()) } else { Err(NtStatus::INVALID_PARAMETER) }
    }

    fn entries(&self, sgl: &[Sge<'_>], max: u32) -> Result<SgList, NtStatus> {
        let pd = &self.0.pd;
        SgList::new(
            sgl,
            max,
            pd.device(),
            pd.get_privileged_memory_region_token(),
            &self.0.adapter.lams,
        )
    }

    /// Posts a request that moves bytes.
    fn transfer(
        &self,
        context: u64,
        operation: OperationType,
        op: SendOp,
        sgl: &[Sge<'_>],
        flags: OpFlags,
        allowed: OpFlags,
    ) -> Result<(), NtStatus> {
        self.check_flags(flags, allowed)?;
        if flags.contains(OpFlags::INLINE) {
            return self.transfer_inline(context, operation, op, sgl, flags);
        }
        let list = self.entries(sgl, self.0.sizes.max_initiator_request_sge)?;
        self.post_one(context, operation, op, Payload::Sges(list.entries()), flags)
    }

    /// Posts an inline request. The number of entries is not limited, and tokens in the entries are
    /// ignored (NDK-5).
    fn transfer_inline(
        &self,
        context: u64,
        operation: OperationType,
        op: SendOp,
        sgl: &[Sge<'_>],
        flags: OpFlags,
    ) -> Result<(), NtStatus> {
        let mut few: [&[u8]; 4] = [&[]; 4];
        let mut many = Vec::new();
        let parts = inline_parts(sgl, &mut few, &mut many)?;
        self.post_one(context, operation, op, Payload::Inline(parts), flags)
    }

    /// Posts a request that moves no bytes.
    fn local(
        &self,
        context: u64,
        operation: OperationType,
        op: SendOp,
        flags: OpFlags,
    ) -> Result<(), NtStatus> {
        self.post_one(context, operation, op, Payload::Sges(&[]), flags)
    }

    fn post_one(
        &self,
        context: u64,
        operation: OperationType,
        op: SendOp,
        data: Payload<'_>,
        flags: OpFlags,
    ) -> Result<(), NtStatus> {
        let ticket = self.reserve(context, operation, flags)?;
        let wr = SendWr {
            wr_id: ticket.wr_id(),
            flags: device_flags(flags),
            op,
            data,
            ud: None,
            xrc_srqn: 0,
        };
        self.post(&ticket, &[wr], flags)
    }

    /// Posts the read without a completion of its own, and then the invalidate, which waits for the
    /// read.
    fn read_and_invalidate(
        &self,
        context: u64,
        read: SendOp,
        sgl: &[Sge<'_>],
        flags: OpFlags,
    ) -> Result<(), NtStatus> {
        self.check_flags(flags, READ)?;
        let Some(Sge::Registered { token, .. }) = sgl.first() else {
            return Err(NtStatus::INVALID_PARAMETER);
        };
        if *token == self.0.pd.get_privileged_memory_region_token() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        self.make_room_for_halves()?;
        let list = self.entries(sgl, self.0.sizes.max_initiator_request_sge)?;
        let ticket = self.reserve(context, OperationType::Read, flags)?;
        let (first, second) = ticket.halves();
        let all = device_flags(flags);
        let empty = SendWr {
            wr_id: first,
            flags: all - SendFlags::SIGNALED,
            op: read,
            data: Payload::Sges(list.entries()),
            ud: None,
            xrc_srqn: 0,
        };
        let invalidate = SendWr {
            wr_id: second,
            flags: all - SendFlags::FENCE,
            op: SendOp::LocalInv(*token),
            data: Payload::Sges(&[]),
            ..empty
        };
        self.post(&ticket, &[empty, invalidate], flags)
    }

    /// Makes room for hidden completions when the first read that invalidates is posted. A flush
    /// completes both halves of such a read at the device, so the completion queue needs an extra
    /// entry for each.
    fn make_room_for_halves(&self) -> Result<(), NtStatus> {
        if !self.0.room_for_halves.load(Ordering::Relaxed) {
            let more = self.0.sizes.initiator_queue_depth;
            self.0.initiator_cq.add_headroom(self.device().number(), more)?;
            self.0.room_for_halves.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn reserve(
        &self,
        context: u64,
        operation: OperationType,
        flags: OpFlags,
    ) -> Result<Ticket, NtStatus> {
        let silent = flags.contains(OpFlags::SILENT_SUCCESS);
        self.0.requests.reserve(context, operation, silent, || self.device().free_sends())
    }

    fn post(&self, ticket: &Ticket, wrs: &[SendWr<'_>], flags: OpFlags) -> Result<(), NtStatus> {
        let defer = flags.contains(OpFlags::DEFER);
        self.device().post_sends(wrs, defer).map_err(|e| status_of_post(&e))?;
        self.0.requests.posted(ticket, wrs.len());
        Ok(())
    }
}

fn device_flags(flags: OpFlags) -> SendFlags {
    let mut device = SendFlags::empty();
    device.set(SendFlags::SIGNALED, !flags.contains(OpFlags::SILENT_SUCCESS));
    device.set(SendFlags::FENCE, flags.contains(OpFlags::READ_FENCE));
    device.set(SendFlags::SOLICITED, flags.contains(OpFlags::SEND_AND_SOLICIT_EVENT));
    device.set(SendFlags::INLINE, flags.contains(OpFlags::INLINE));
    device
}

fn region_access(flags: OpFlags) -> Result<Access, NtStatus> {
    let writes = flags.intersects(remote_write_bit());
    if writes && !flags.contains(OpFlags::ALLOW_LOCAL_WRITE) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let mut access = Access::empty();
    access.set(Access::LOCAL_WRITE, flags.contains(OpFlags::ALLOW_LOCAL_WRITE));
    access.set(Access::REMOTE_READ, flags.contains(OpFlags::ALLOW_REMOTE_READ));
    access.set(Access::REMOTE_WRITE, writes);
    Ok(access)
}

fn window_access(flags: OpFlags) -> Result<Access, NtStatus> {
    Ok(region_access(flags)? - Access::LOCAL_WRITE)
}

/// The status of a request that the device refused.
fn status_of_post(error: &Error) -> NtStatus {
    match error.why() {
        Why::Cause(Cause::WrongState { .. }) => NtStatus::CONNECTION_INVALID,
        _ => status_of(error),
    }
}
