//! The builder of queue pairs.
use super::settings::{Settings, ack_timeout_code, rnr_timer_code};
use super::{Qp, QpInner, random_psn};
use crate::cq::Cq;
use crate::device::Context;
use crate::error::Result;
use crate::handle::Handle;
use crate::pd::Pd;
use crate::srq::Srq;
use crate::xrc::Xrcd;
use adverb_device::QpInit;
use adverb_device::engine::{Access, PathMtu, QpCap, QpType};
use std::sync::atomic::{AtomicU8, AtomicU32};
use std::time::Duration;

/// The settings of a new queue pair ([`Pd::create_qp`]). Brackets give the default of each setting.
#[derive(Clone, Debug)]
#[must_use = "nothing is made before build()"]
pub struct QpBuilder<'a> {
    context: &'a Context,
    pd: Option<&'a Pd>,
    xrcd: Option<&'a Xrcd>,
    qp_type: QpType,
    cap: QpCap,
    signal_all: bool,
    send_cq: Option<Cq>,
    recv_cq: Option<Cq>,
    srq: Option<Srq>,
    gid_index: Option<u8>,
    settings: Settings,
}

/// The default depth of each queue, in requests.
const REQUESTS: u32 = 128;

impl Pd {
    /// Starts a builder for a queue pair, by default reliable connected (`ibv_create_qp(3)`).
    pub fn create_qp(&self) -> QpBuilder<'_> {
        QpBuilder { pd: Some(self), ..QpBuilder::bare(self.context(), QpType::Rc) }
    }
}

impl Xrcd {
    /// Starts a builder for the receiving half of an XRC connection. Its messages land in the
    /// shared receive queues that the requests name. [`QpBuilder::xrc_send`] makes the sending
    /// half.
    pub fn create_qp(&self) -> QpBuilder<'_> {
        QpBuilder { xrcd: Some(self), ..QpBuilder::bare(self.context(), QpType::XrcRecv) }
    }
}

impl<'a> QpBuilder<'a> {
    fn bare(context: &'a Context, qp_type: QpType) -> Self {
        let cap = QpCap {
            max_send_wr: REQUESTS,
            max_recv_wr: REQUESTS,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 256,
        };
        QpBuilder {
            context,
            pd: None,
            xrcd: None,
            qp_type,
            cap,
            signal_all: false,
            send_cq: None,
            recv_cq: None,
            srq: None,
            gid_index: None,
            settings: Settings::default(),
        }
    }

    /// Reliable connected: messages, writes, reads and atomics, in order and acknowledged (the
    /// default).
    pub fn rc(self) -> Self {
        self.of_type(QpType::Rc)
    }
    /// Unreliable connected: messages and writes, in order, without acknowledgements. Lost packets
    /// are not sent again.
    pub fn uc(self) -> Self {
        self.of_type(QpType::Uc)
    }
    /// Unreliable datagrams: messages of at most the path MTU, to and from any queue pair that
    /// knows the Q_Key.
    pub fn ud(self) -> Self {
        self.of_type(QpType::Ud)
    }
    /// The sending half of an XRC connection. Each request names a shared receive queue of the peer
    /// ([`Request::srq`](crate::Request::srq)). [`Xrcd::create_qp`] makes the receiving half.
    pub fn xrc_send(self) -> Self {
        self.of_type(QpType::XrcSend)
    }
    fn of_type(mut self, qp_type: QpType) -> Self {
        // The receiving half of XRC has no protection domain and cannot have another type.
        if self.pd.is_some() {
            self.qp_type = qp_type;
        }
        self
    }

    /// Sets the completion queue of sends and receives (by default a new queue, large enough for
    /// all requests).
    pub fn cq(self, cq: &Cq) -> Self {
        self.send_cq(cq).recv_cq(cq)
    }
    /// Sets the completion queue of sends.
    pub fn send_cq(mut self, cq: &Cq) -> Self {
        self.send_cq = Some(cq.clone());
        self
    }
    /// Sets the completion queue of receives.
    pub fn recv_cq(mut self, cq: &Cq) -> Self {
        self.recv_cq = Some(cq.clone());
        self
    }
    /// Takes receives from this shared receive queue (by default the queue pair has its own).
    pub fn srq(mut self, srq: &Srq) -> Self {
        self.srq = Some(srq.clone());
        self
    }
    /// Sets how many send requests may be outstanding at the same time (default 128).
    pub fn max_send_wr(mut self, n: u32) -> Self {
        self.cap.max_send_wr = n;
        self
    }
    /// Sets how many receives may be posted at the same time (default 128).
    pub fn max_recv_wr(mut self, n: u32) -> Self {
        self.cap.max_recv_wr = n;
        self
    }
    /// Sets how many pieces a request gathers from or scatters to (default 4).
    pub fn max_sge(mut self, n: u32) -> Self {
        self.cap.max_send_sge = n;
        self.cap.max_recv_sge = n;
        self
    }
    /// Sets how many bytes of inline data a request may have, at most 1024 (default 256).
    pub fn max_inline(mut self, bytes: u32) -> Self {
        self.cap.max_inline_data = bytes;
        self
    }
    /// Makes each send complete, whatever [`Request::signaled`](crate::Request::signaled) says
    /// (`sq_sig_all`).
    pub fn signal_all(mut self) -> Self {
        self.signal_all = true;
        self
    }
    /// Sets what the peer may do over this queue pair (default: read, write, atomics). The keys of
    /// the memory must allow the operation as well.
    pub fn access(mut self, access: Access) -> Self {
        self.settings.access = access;
        self
    }
    /// Sets the index of the local GID (default: [`Context::default_gid_index`]).
    pub fn gid_index(mut self, index: u8) -> Self {
        self.gid_index = Some(index);
        self
    }
    /// Limits the path MTU (default: the device's MTU). The connection uses the smaller MTU of the
    /// two sides.
    pub fn path_mtu(mut self, mtu: PathMtu) -> Self {
        self.settings.path_mtu = Some(mtu);
        self
    }
    /// Sets how many reads and atomics may be outstanding at the same time: `out` for those that
    /// this side sends, `in_` for those that the peer sends. The default is 16 for each, the
    /// maximum 128. In each direction, the connection uses the smaller of the sender's `out` and
    /// the receiver's `in_`.
    pub fn read_depth(mut self, out: u8, in_: u8) -> Self {
        self.settings.reads_out = out;
        self.settings.reads_in = in_;
        self
    }
    /// Sets how long the sender waits for an acknowledgement before it sends a packet again
    /// (default 67 ms). The time is rounded up to 4.096 µs · 2ⁿ; zero means never (IBTA 9.7.6.1.3).
    pub fn ack_timeout(mut self, time: Duration) -> Self {
        self.settings.ack_timeout = ack_timeout_code(time);
        self
    }
    /// Sets how often a packet is sent again before the connection fails with `RetryExcErr`
    /// (default 7, the maximum).
    pub fn retry_count(mut self, n: u8) -> Self {
        self.settings.retry_count = n;
        self
    }
    /// Sets how often a message that found no posted receive is sent again (default 7, which means
    /// forever).
    pub fn rnr_retry(mut self, n: u8) -> Self {
        self.settings.rnr_retry = n;
        self
    }
    /// Sets how long the peer waits before it sends again when no receive is posted (default 10
    /// µs). The time is rounded up to a value of the protocol, at most 655 ms (IBTA 9.7.5.2.8).
    pub fn rnr_timer(mut self, time: Duration) -> Self {
        self.settings.rnr_timer = rnr_timer_code(time);
        self
    }
    /// Sets the Q_Key that incoming datagrams must carry (UD; default 0x00ad0ad0).
    pub fn qkey(mut self, qkey: u32) -> Self {
        self.settings.qkey = qkey;
        self
    }

    /// Whether the program gave the builder completion queues or a shared receive queue.
    pub(super) fn has_queues(&self) -> bool {
        self.send_cq.is_some() || self.recv_cq.is_some() || self.srq.is_some()
    }

    /// The depths of the send queue and the receive queue.
    pub(super) fn depths(&self) -> (u32, u32) {
        (self.cap.max_send_wr, self.cap.max_recv_wr)
    }

    /// Makes the queue pair, in INIT and ready for receives, or (UD) ready to send.
    ///
    /// # Errors
    /// EINVAL with the name of the size that is out of range. ENOMEM if no queue pair number is
    /// free. For UD, EADDRINUSE and similar errors if UDP port 4791 cannot be bound.
    pub fn build(mut self) -> Result<Qp> {
        self.fill_in_cqs()?;
        let index = self.gid_index.unwrap_or_else(|| self.context.default_gid_index());
        self.context.gid(index)?;
        let init = QpInit {
            qp_type: self.qp_type,
            cap: self.cap,
            signal_all: self.signal_all,
            send_cq: self.send_cq.as_ref().map(|cq| cq.lower().clone()),
            recv_cq: self.recv_cq.as_ref().map(|cq| cq.lower().clone()),
            srq: self.srq.as_ref().map(|srq| srq.lower().clone()),
            xrcd: self.xrcd.map(|x| x.lower().clone()),
        };
        let qp = Qp(Handle::new(QpInner {
            qp: adverb_device::Qp::new(self.context.lower(), self.pd.map(Pd::lower), &init)?,
            context: self.context.clone(),
            send_cq: self.send_cq,
            recv_cq: self.recv_cq,
            pd: self.pd.cloned(),
            srq: self.srq,
            _xrcd: self.xrcd.cloned(),
            settings: self.settings,
            gid_index: AtomicU8::new(index),
            first_psn: AtomicU32::new(random_psn()),
        }));
        qp.to_init()?;
        if qp.qp_type() == QpType::Ud {
            qp.activate_ud()?;
        }
        Ok(qp)
    }

    /// Makes the completion queues that the program did not give, if this type of queue pair needs
    /// them.
    fn fill_in_cqs(&mut self) -> Result<()> {
        let (sends, recvs) = match self.qp_type {
            QpType::XrcRecv => (false, false),
            QpType::XrcSend => (true, false),
            QpType::Rc | QpType::Uc | QpType::Ud | QpType::RawPacket => (true, true),
        };
        let missing = |wanted: bool, cq: &Option<Cq>| wanted && cq.is_none();
        if missing(sends, &self.send_cq) || missing(recvs, &self.recv_cq) {
            let shared =
                self.srq.as_ref().map_or(self.cap.max_recv_wr, |s| s.lower().attributes().0);
            let entries = self.cap.max_send_wr.saturating_add(shared).max(1);
            let cq = self
                .context
                .create_cq()
                .entries(entries.min(self.context.limits().max_cqe))
                .build()?;
            for (wanted, place) in [(sends, &mut self.send_cq), (recvs, &mut self.recv_cq)] {
                if wanted {
                    place.get_or_insert_with(|| cq.clone());
                }
            }
        }
        Ok(())
    }
}
