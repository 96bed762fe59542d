//! The table of `ibv_modify_qp(3)`: needed and allowed attributes of each transition, for each QP
//! type.
use super::{AddressVector, AttrError, AttrMask, QpAttr};
use crate::types::{Limits, QpState, QpType};
use QpState::{Err as Error, Init, Reset, Rtr, Rts, Sqd, Sqe};

const NONE: AttrMask = AttrMask::empty();
const CUR: AttrMask = AttrMask::CUR_STATE;
const NOTIFY: AttrMask = AttrMask::EN_SQD_ASYNC_NOTIFY;
const ACCESS: AttrMask = AttrMask::ACCESS_FLAGS;
const PKEY: AttrMask = AttrMask::PKEY_INDEX;
const PORT: AttrMask = AttrMask::PORT;
const QKEY: AttrMask = AttrMask::QKEY;
const AV: AttrMask = AttrMask::AV;
const MTU: AttrMask = AttrMask::PATH_MTU;
const TIMEOUT: AttrMask = AttrMask::TIMEOUT;
const RETRY: AttrMask = AttrMask::RETRY_CNT;
const RNR: AttrMask = AttrMask::RNR_RETRY;
const RQ_PSN: AttrMask = AttrMask::RQ_PSN;
const RD: AttrMask = AttrMask::MAX_QP_RD_ATOMIC;
const ALT: AttrMask = AttrMask::ALT_PATH;
const MIN_RNR: AttrMask = AttrMask::MIN_RNR_TIMER;
const SQ_PSN: AttrMask = AttrMask::SQ_PSN;
const DEST_RD: AttrMask = AttrMask::MAX_DEST_RD_ATOMIC;
const MIG: AttrMask = AttrMask::PATH_MIG_STATE;
const DEST: AttrMask = AttrMask::DEST_QPN;

const fn all<const N: usize>(masks: [AttrMask; N]) -> AttrMask {
    let mut bits = 0;
    let mut i = 0;
    while i < N {
        bits |= masks[i].bits();
        i += 1;
    }
    AttrMask::from_bits_truncate(bits)
}

/// One transition. For each QP type: the needed attributes, and the attributes allowed besides (and
/// besides STATE). Types with the same rules share an entry.
struct Row {
    from: QpState,
    to: QpState,
    rules: &'static [(&'static [QpType], AttrMask, AttrMask)],
}

const RC: QpType = QpType::Rc;
const UC: QpType = QpType::Uc;
const UD: QpType = QpType::Ud;
const XS: QpType = QpType::XrcSend;
const XR: QpType = QpType::XrcRecv;
const RAW: QpType = QpType::RawPacket;

/// Attributes that may change while the connection is up, on every connected type.
const LIVE: AttrMask = all([CUR, ALT, ACCESS, MIG]);
const LIVE_RNR: AttrMask = all([LIVE, MIN_RNR]);
const CONNECT: AttrMask = all([AV, MTU, DEST, RQ_PSN]);
const RESPOND: AttrMask = all([CONNECT, DEST_RD, MIN_RNR]);
const REQUEST: AttrMask = all([TIMEOUT, RETRY, RNR, SQ_PSN, RD]);
/// Attributes that SQD → SQD may change on every connected type.
const DRAINED: AttrMask = all([AV, ALT, ACCESS, PKEY, MIG]);

/// The rules of RTS → RTS and of SQD → RTS.
const UP: &[(&[QpType], AttrMask, AttrMask)] = &[
    (&[RC, XR], NONE, LIVE_RNR),
    (&[UC, XS], NONE, LIVE),
    (&[UD], NONE, all([CUR, QKEY])),
    (&[RAW], NONE, CUR),
];

/// IBTA 11.2.5.2 and `ibv_modify_qp(3)`, with the XRC halves as in Linux. RESET and ERR can be
/// entered from every state with STATE alone, and are not listed.
///
/// No transition takes CAP (the queues' sizes are fixed, as on ConnectX) or RATE_LIMIT (in Linux
/// only for raw packet QPs).
const TABLE: &[Row] = &[
    Row {
        from: Reset,
        to: Init,
        rules: &[
            (&[RC, UC, XS, XR], all([PKEY, PORT, ACCESS]), NONE),
            (&[UD], all([PKEY, PORT, QKEY]), NONE),
            (&[RAW], PORT, NONE),
        ],
    },
    Row {
        from: Init,
        to: Init,
        rules: &[
            (&[RC, UC, XS, XR], NONE, all([PKEY, PORT, ACCESS])),
            (&[UD], NONE, all([PKEY, PORT, QKEY])),
            (&[RAW], NONE, PORT),
        ],
    },
    Row {
        from: Init,
        to: Rtr,
        rules: &[
            (&[RC, XR], RESPOND, all([ALT, ACCESS, PKEY])),
            (&[UC, XS], CONNECT, all([ALT, ACCESS, PKEY])),
            (&[UD], NONE, all([PKEY, QKEY])),
            (&[RAW], NONE, NONE),
        ],
    },
    Row {
        from: Rtr,
        to: Rts,
        rules: &[
            (&[RC], REQUEST, LIVE_RNR),
            (&[XS], REQUEST, LIVE),
            (&[XR], all([TIMEOUT, SQ_PSN]), LIVE_RNR),
            (&[UC], SQ_PSN, LIVE),
            (&[UD], SQ_PSN, all([CUR, QKEY])),
            (&[RAW], NONE, CUR),
        ],
    },
    Row { from: Rts, to: Rts, rules: UP },
    Row { from: Rts, to: Sqd, rules: &[(&[RC, UC, UD, XS, XR, RAW], NONE, NOTIFY)] },
    Row {
        from: Sqd,
        to: Sqd,
        rules: &[
            (&[RC], NONE, all([DRAINED, PORT, TIMEOUT, RETRY, RNR, RD, DEST_RD, MIN_RNR])),
            (&[XS], NONE, all([DRAINED, PORT, TIMEOUT, RETRY, RNR, RD])),
            (&[XR], NONE, all([DRAINED, PORT, TIMEOUT, DEST_RD, MIN_RNR])),
            (&[UC], NONE, DRAINED),
            (&[UD], NONE, all([PKEY, QKEY])),
            (&[RAW], NONE, NONE),
        ],
    },
    Row { from: Sqd, to: Rts, rules: UP },
    // SQE exists for unacknowledged services only (IBTA 10.3.1.6).
    Row {
        from: Sqe,
        to: Rts,
        rules: &[
            (&[UC], NONE, all([CUR, ACCESS])),
            (&[UD], NONE, all([CUR, QKEY])),
            (&[RAW], NONE, CUR),
        ],
    },
];

/// The needed and the additionally allowed attributes of a transition, or `None` if the transition
/// does not exist.
fn rule(qp_type: QpType, from: QpState, to: QpState) -> Option<(AttrMask, AttrMask)> {
    if matches!(to, Reset | Error) {
        return Some((NONE, NONE));
    }
    let row = TABLE.iter().find(|r| r.from == from && r.to == to)?;
    let (_, needed, taken) = row.rules.iter().find(|(types, ..)| types.contains(&qp_type))?;
    Some((*needed, *taken))
}

impl AttrMask {
    /// `STATE` and the attributes that a transition needs. A transition that does not exist has
    /// `STATE` alone.
    #[must_use]
    pub fn needed(qp_type: QpType, from: QpState, to: QpState) -> AttrMask {
        AttrMask::STATE | rule(qp_type, from, to).map_or(NONE, |(needed, _)| needed)
    }
}

/// Checks a modify against the state machine and the device's limits, and answers the new state of
/// the QP. Changes nothing. Without `STATE` the QP keeps its state, by the rules of a transition to
/// the same state (as in Linux).
///
/// Hardware keeps the low bits of PSNs, the destination QPN, the flow label and the narrow fields
/// ([`Narrow`](super::Narrow)). So these are not checked, and the queue pair cuts them.
///
/// # Errors
/// The first broken rule: `CUR_STATE`, the transition, missing attributes, surplus attributes,
/// values.
pub fn check_modify(
    qp_type: QpType,
    current: QpState,
    attr: &QpAttr,
    mask: AttrMask,
    limits: &Limits,
) -> Result<QpState, AttrError> {
    if mask.contains(CUR) && attr.cur_state != current {
        return Err(AttrError::NotInState { claimed: attr.cur_state, actual: current });
    }
    let (from, to) = (current, if mask.contains(AttrMask::STATE) { attr.state } else { current });
    let (needed, taken) = rule(qp_type, from, to).ok_or(AttrError::BadTransition { from, to })?;
    let attrs = needed - mask;
    if !attrs.is_empty() {
        return Err(AttrError::Missing { attrs, from, to });
    }
    let attrs = mask - needed - taken - AttrMask::STATE;
    if !attrs.is_empty() {
        return Err(AttrError::NotAllowed { attrs, from, to });
    }
    check_values(attr, mask, limits)?;
    Ok(to)
}

/// The value rules of the attributes in the mask.
fn check_values(attr: &QpAttr, mask: AttrMask, limits: &Limits) -> Result<(), AttrError> {
    let check = |which: AttrMask, ok: bool, name: &'static str, value: u64, rule: &'static str| {
        if mask.contains(which) && !ok {
            return Err(AttrError::BadValue { attr: name, value, rule });
        }
        Ok(())
    };
    let a = attr;
    let (no_port, beyond_keys) = ("no such port", "beyond the P_Key table");
    check(PORT, port_ok(a.port_num, limits), "IBV_QP_PORT", a.port_num.into(), no_port)?;
    let (key, keys) = (a.pkey_index, limits.pkeys);
    check(PKEY, key < keys, "IBV_QP_PKEY_INDEX", key.into(), beyond_keys)?;
    let beyond_rd = "more than the device's max_qp_rd_atom";
    let (rd, dest_rd, max_rd) = (a.max_rd_atomic, a.max_dest_rd_atomic, limits.max_rd_atomic);
    check(RD, rd <= max_rd, "IBV_QP_MAX_QP_RD_ATOMIC", rd.into(), beyond_rd)?;
    check(DEST_RD, dest_rd <= max_rd, "IBV_QP_MAX_DEST_RD_ATOMIC", dest_rd.into(), beyond_rd)?;
    let (mtu, larger) = (a.path_mtu, "larger than the port's active MTU");
    check(MTU, mtu <= limits.port_mtu, "IBV_QP_PATH_MTU", mtu as u64, larger)?;
    let mig = a.path_mig_state;
    check(MIG, mig <= 2, "IBV_QP_PATH_MIG_STATE", mig.into(), "0, 1 or 2")?;
    if mask.contains(AV) {
        check_path("IBV_QP_AV", &a.av, limits)?;
        let rule = "the port of the address vector is not the port of IBV_QP_PORT";
        let port = a.av.port_num;
        check(PORT, port == a.port_num, "IBV_QP_AV", port.into(), rule)?;
    }
    // Kept for queries: RoCE has no automatic path migration, but Linux lets programs load the
    // alternate path.
    if mask.contains(ALT) {
        let alt = "IBV_QP_ALT_PATH";
        check(ALT, port_ok(a.alt_port_num, limits), alt, a.alt_port_num.into(), no_port)?;
        check(ALT, a.alt_pkey_index < keys, alt, a.alt_pkey_index.into(), beyond_keys)?;
        check_path(alt, &a.alt_av, limits)?;
    }
    Ok(())
}

fn port_ok(port: u8, limits: &Limits) -> bool {
    (1..=limits.ports).contains(&port)
}

fn check_path(attr: &'static str, av: &AddressVector, limits: &Limits) -> Result<(), AttrError> {
    let bad = |value, rule| Err(AttrError::BadValue { attr, value, rule });
    if !port_ok(av.port_num, limits) {
        return bad(av.port_num.into(), "no such port in the address vector");
    }
    if !av.is_global {
        return bad(0, "RoCE needs a GRH: is_global must be 1");
    }
    if u16::from(av.sgid_index) >= limits.gids {
        return bad(av.sgid_index.into(), "sgid_index is beyond the GID table");
    }
    Ok(())
}
