//! The parameters of a new queue pair.
use crate::error::Error;
use crate::objects::context::Context;
use crate::objects::cq::Cq;
use crate::objects::pd::{Pd, Xrcd};
use crate::objects::srq::Srq;
use adverb_engine::{PathMtu, QpCap, QpType};
use std::sync::Arc;

/// The parameters of a new queue pair.
#[derive(Clone, Debug)]
pub struct QpInit {
    /// Transport.
    pub qp_type: QpType,
    /// Requested sizes; the device gives at least these.
    pub cap: QpCap,
    /// Every send completes.
    pub signal_all: bool,
    /// CQ of sends; required except on XRC targets.
    pub send_cq: Option<Arc<Cq>>,
    /// CQ of receives; required except on XRC.
    pub recv_cq: Option<Arc<Cq>>,
    /// SRQ for receives.
    pub srq: Option<Arc<Srq>>,
    /// XRC domain, on XRC targets.
    pub xrcd: Option<Arc<Xrcd>>,
}

impl QpInit {
    /// A raw packet queue pair that sends nothing.
    pub(crate) fn of_frames(cap: QpCap, recv_cq: Option<Arc<Cq>>) -> Self {
        QpInit {
            qp_type: QpType::RawPacket,
            cap,
            signal_all: false,
            send_cq: None,
            recv_cq,
            srq: None,
            xrcd: None,
        }
    }
}

/// Checks the arguments that a queue pair of this kind requires.
pub(super) fn check_needed(
    pd: Option<&Arc<Pd>>,
    init: &QpInit,
    needed: &[&str],
) -> Result<(), Error> {
    let given = [
        ("pd", pd.is_some()),
        ("send_cq", init.send_cq.is_some()),
        ("recv_cq", init.recv_cq.is_some()),
        ("xrcd", init.xrcd.is_some()),
    ];
    if let Some((what, _)) = given.iter().find(|(what, given)| needed.contains(what) && !given) {
        let rule = format!("a {:?} queue pair needs this argument", init.qp_type);
        return Err(Error::invalid(what, rule));
    }
    Ok(())
}

/// Arguments of a queue pair that sends and receives.
pub(super) const BOTH: &[&str] = &["pd", "send_cq", "recv_cq"];

/// Checks the parameters of a new queue pair and answers its sizes.
pub(super) fn check_init(
    context: &Context,
    pd: Option<&Arc<Pd>>,
    init: &QpInit,
) -> Result<QpCap, Error> {
    let limits = context.limits();
    if let Some(nic) = context.nic() {
        nic.check_qp_type(init.qp_type)?;
    }
    let needed = match init.qp_type {
        QpType::XrcRecv => &["xrcd"],
        QpType::XrcSend => &["pd", "send_cq"][..],
        // A work queue needs less.
        QpType::RawPacket => &[],
        QpType::Rc | QpType::Uc | QpType::Ud => BOTH,
    };
    check_needed(pd, init, needed)?;
    let mut cap = if init.qp_type == QpType::XrcRecv { QpCap::default() } else { init.cap };
    if init.srq.is_some() || init.qp_type == QpType::XrcSend {
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    }
    for (name, value, max) in [
        ("cap.max_send_wr", cap.max_send_wr, limits.max_qp_wr),
        ("cap.max_recv_wr", cap.max_recv_wr, limits.max_qp_wr),
        ("cap.max_send_sge", cap.max_send_sge, limits.max_sge),
        ("cap.max_recv_sge", cap.max_recv_sge, limits.max_sge),
        ("cap.max_inline_data", cap.max_inline_data, limits.max_inline),
    ] {
        if value > max {
            let what = format!("{name} is {value}");
            return Err(Error::invalid(what, format!("at most {max} is possible")));
        }
    }
    Ok(cap)
}

/// The largest message of a UD queue pair of a port.
#[must_use]
pub fn ud_max_message(mtu: PathMtu) -> usize {
    mtu.bytes()
}
