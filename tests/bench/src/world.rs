//! Queue pairs on the loopback device, connected within one process or between two.

use std::sync::Arc;

use adverb_device::buffer::Buffer;
use adverb_device::context::AhAttr;
use adverb_device::engine::{
    Access, AddressVector, AttrMask, Payload, QpAttr, QpCap, QpState, QpType, RecvWr, SendFlags,
    SendOp, SendWr, Sge,
};
use adverb_device::{Context, Cq, Pd, Qp, QpInit, device};

use crate::Result;

/// Access rights of the buffer. The remote rights are also those of the queue pairs.
const ACCESS: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::MW_BIND);

/// First packet sequence number on both sides.
const PSN: u32 = 0x00ff_ff00;

/// The open loopback device, with memory.
pub struct World {
    /// The open device.
    pub context: Arc<Context>,
    /// The protection domain.
    pub pd: Arc<Pd>,
    /// Registered memory for messages.
    pub buffer: Buffer,
    /// Local ACK timeout of connected queue pairs: 4.096 µs times 2 to the power of this value.
    pub timeout: u8,
    path: AddressVector,
}

/// Puts what was tried before an error of the device.
pub fn failed(what: &str) -> impl Fn(adverb_device::Error) -> String + '_ {
    move |e| format!("{what}: {e}")
}

impl World {
    /// Opens the loopback device and registers `len` bytes.
    ///
    /// # Errors
    /// The refusal of the device or the system, in words.
    pub fn open(len: usize) -> Result<World> {
        let device =
            device::loopback().map_err(failed("devices"))?.ok_or("there is no loopback device")?;
        let context = device.open().map_err(failed("open"))?;
        adverb_waits::register();
        let pd = Pd::new(&context).map_err(failed("protection domain"))?;
        let buffer = Buffer::new(&pd, len, ACCESS).map_err(failed("buffer"))?;
        let index = device.gids().iter().position(|g| g.ipv4().is_some()).unwrap_or(0);
        let attr = AhAttr {
            dgid: context.gid(1, index).map_err(failed("GID"))?,
            sgid_index: index as u8,
            is_global: true,
            port_num: 1,
            hop_limit: 64,
            ..Default::default()
        };
        let path = context.resolve(&attr).map_err(failed("path"))?;
        Ok(World { context, pd, buffer, timeout: 14, path })
    }

    /// An RC queue pair in RESET with queues of `depth` requests. Only signaled sends complete.
    ///
    /// # Errors
    /// The refusal of the device, in words.
    pub fn qp(&self, send: &Arc<Cq>, recv: &Arc<Cq>, depth: u32) -> Result<Arc<Qp>> {
        let init = QpInit {
            qp_type: QpType::Rc,
            cap: QpCap {
                max_send_wr: depth,
                max_recv_wr: depth,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            signal_all: false,
            send_cq: Some(send.clone()),
            recv_cq: Some(recv.clone()),
            srq: None,
            xrcd: None,
        };
        Qp::new(&self.context, Some(&self.pd), &init).map_err(failed("queue pair"))
    }

    /// Connects a queue pair to the queue pair `dest` of any process of this machine, and moves it
    /// to RTS.
    ///
    /// # Errors
    /// The refusal of the device, in words.
    pub fn connect(&self, qp: &Qp, dest: u32) -> Result<()> {
        let init = QpAttr {
            state: QpState::Init,
            port_num: 1,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            ..QpAttr::default()
        };
        let mask = AttrMask::STATE | AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS;
        qp.modify(&init, mask).map_err(failed("to INIT"))?;
        let rtr = QpAttr {
            state: QpState::Rtr,
            av: self.path,
            path_mtu: self.context.limits().port_mtu,
            dest_qpn: dest,
            rq_psn: PSN,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 1,
            ..QpAttr::default()
        };
        let mask = AttrMask::STATE
            | AttrMask::AV
            | AttrMask::PATH_MTU
            | AttrMask::DEST_QPN
            | AttrMask::RQ_PSN
            | AttrMask::MAX_DEST_RD_ATOMIC
            | AttrMask::MIN_RNR_TIMER;
        qp.modify(&rtr, mask).map_err(failed("to RTR"))?;
        let rts = QpAttr {
            state: QpState::Rts,
            sq_psn: PSN,
            timeout: self.timeout,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 16,
            ..QpAttr::default()
        };
        let mask = AttrMask::STATE
            | AttrMask::SQ_PSN
            | AttrMask::TIMEOUT
            | AttrMask::RETRY_CNT
            | AttrMask::RNR_RETRY
            | AttrMask::MAX_QP_RD_ATOMIC;
        qp.modify(&rts, mask).map_err(failed("to RTS"))
    }

    /// Moves a queue pair to ERR, where every request is flushed at its post.
    ///
    /// # Errors
    /// The refusal of the device, in words.
    pub fn to_error(&self, qp: &Qp) -> Result<()> {
        let attr = QpAttr { state: QpState::Err, ..QpAttr::default() };
        qp.modify(&attr, AttrMask::STATE).map_err(failed("to ERR"))
    }
}

/// A request with data from registered memory.
#[must_use]
pub fn request<'a>(wr_id: u64, flags: SendFlags, op: SendOp, sges: &'a [Sge]) -> SendWr<'a> {
    SendWr { wr_id, flags, op, data: Payload::Sges(sges), ud: None, xrc_srqn: 0 }
}

/// Posts one request and hands it over.
///
/// # Errors
/// The refusal of the device, in words.
pub fn post(qp: &Qp, wr: &SendWr<'_>) -> Result<()> {
    let mut chain = qp.send_chain().map_err(failed("post"))?;
    chain.stage(wr).map_err(failed("post"))?;
    chain.commit();
    Ok(())
}

/// Posts a receive.
///
/// # Errors
/// The refusal of the device, in words.
pub fn receive(qp: &Qp, wr_id: u64, sges: &[Sge]) -> Result<()> {
    qp.post_recv(&RecvWr { wr_id, sges }).map_err(failed("post receive"))
}
