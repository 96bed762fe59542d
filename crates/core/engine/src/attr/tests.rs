use super::*;
use crate::types::{Limits, QpType};
use std::vec::Vec;

const TYPES: [QpType; 6] =
    [QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcSend, QpType::XrcRecv, QpType::RawPacket];
const STATES: [QpState; 7] = [
    QpState::Reset,
    QpState::Init,
    QpState::Rtr,
    QpState::Rts,
    QpState::Sqd,
    QpState::Sqe,
    QpState::Err,
];

const LIMITS: Limits = Limits {
    max_qp_wr: 1024,
    max_sge: 16,
    max_inline: 256,
    max_cqe: 4096,
    max_rd_atomic: 16,
    max_srq_wr: 1024,
    max_msg: 1 << 31,
    port_mtu: PathMtu::Mtu1024,
    ports: 1,
    pkeys: 1,
    gids: 4,
};

/// Attributes with values that break no rule.
fn good(from: QpState, to: QpState) -> QpAttr {
    let av =
        AddressVector { is_global: true, port_num: 1, sgid_index: 3, ..AddressVector::default() };
    QpAttr {
        state: to,
        cur_state: from,
        path_mtu: PathMtu::Mtu1024,
        av,
        alt_av: av,
        port_num: 1,
        alt_port_num: 1,
        timeout: 31,
        alt_timeout: 31,
        min_rnr_timer: 31,
        retry_cnt: 7,
        rnr_retry: 7,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        path_mig_state: 2,
        ..QpAttr::default()
    }
}

fn mask(names: &str) -> AttrMask {
    names
        .split_whitespace()
        .map(|n| AttrMask::from_name(n).unwrap_or_else(|| panic!("{n}")))
        .collect()
}

/// The manual's tables, written a second time by QP type: from, to, needed / allowed besides.
fn table(ty: QpType) -> &'static str {
    match ty {
        QpType::Rc => {
            "Reset Init PKEY_INDEX PORT ACCESS_FLAGS /;
             Init Init / PKEY_INDEX PORT ACCESS_FLAGS;
             Init Rtr AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER
                / ALT_PATH ACCESS_FLAGS PKEY_INDEX;
             Rtr Rts TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC
                / CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE;
             Rts Rts / CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE;
             Rts Sqd / EN_SQD_ASYNC_NOTIFY;
             Sqd Sqd / PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC ALT_PATH
                ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE;
             Sqd Rts / CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE"
        }
        QpType::Uc => {
            "Reset Init PKEY_INDEX PORT ACCESS_FLAGS /;
             Init Init / PKEY_INDEX PORT ACCESS_FLAGS;
             Init Rtr AV PATH_MTU DEST_QPN RQ_PSN / ALT_PATH ACCESS_FLAGS PKEY_INDEX;
             Rtr Rts SQ_PSN / CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE;
             Rts Rts / CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE;
             Rts Sqd / EN_SQD_ASYNC_NOTIFY;
             Sqd Sqd / AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE;
             Sqd Rts / CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE;
             Sqe Rts / CUR_STATE ACCESS_FLAGS"
        }
        QpType::Ud => {
            "Reset Init PKEY_INDEX PORT QKEY /;
             Init Init / PKEY_INDEX PORT QKEY;
             Init Rtr / PKEY_INDEX QKEY;
             Rtr Rts SQ_PSN / CUR_STATE QKEY;
             Rts Rts / CUR_STATE QKEY;
             Rts Sqd / EN_SQD_ASYNC_NOTIFY;
             Sqd Sqd / PKEY_INDEX QKEY;
             Sqd Rts / CUR_STATE QKEY;
             Sqe Rts / CUR_STATE QKEY"
        }
        // `qp_state_table` of Linux.
        QpType::RawPacket => {
            "Reset Init PORT /; Init Init / PORT; Init Rtr /; Rtr Rts / CUR_STATE; Rts Rts / CUR_STATE;
             Rts Sqd / EN_SQD_ASYNC_NOTIFY; Sqd Sqd /; Sqd Rts / CUR_STATE; Sqe Rts / CUR_STATE"
        }
        QpType::XrcSend => {
            "Reset Init PKEY_INDEX PORT ACCESS_FLAGS /;
             Init Init / PKEY_INDEX PORT ACCESS_FLAGS;
             Init Rtr AV PATH_MTU DEST_QPN RQ_PSN / ALT_PATH ACCESS_FLAGS PKEY_INDEX;
             Rtr Rts TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC
                / CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE;
             Rts Rts / CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE;
             Rts Sqd / EN_SQD_ASYNC_NOTIFY;
             Sqd Sqd / PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX
                PATH_MIG_STATE;
             Sqd Rts / CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE"
        }
        QpType::XrcRecv => {
            "Reset Init PKEY_INDEX PORT ACCESS_FLAGS /;
             Init Init / PKEY_INDEX PORT ACCESS_FLAGS;
             Init Rtr AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER
                / ALT_PATH ACCESS_FLAGS PKEY_INDEX;
             Rtr Rts TIMEOUT SQ_PSN / CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE;
             Rts Rts / CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE;
             Rts Sqd / EN_SQD_ASYNC_NOTIFY;
             Sqd Sqd / PORT AV TIMEOUT MAX_DEST_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER
                PATH_MIG_STATE;
             Sqd Rts / CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE"
        }
    }
}

fn state(name: &str) -> QpState {
    *STATES.iter().find(|state| std::format!("{state:?}") == name).expect(name)
}

/// The rows of [`table`], and the transitions that each state has.
fn expected(ty: QpType) -> Vec<(QpState, QpState, AttrMask, AttrMask)> {
    let row = |row: &str| {
        let (needed, allowed) = row.split_once('/').expect("a slash");
        let [from, to, needed] = std::array::from_fn({
            let mut words = needed.trim().splitn(3, ' ');
            move |_| words.next().unwrap_or_default()
        });
        (state(from), state(to), mask(needed), mask(allowed))
    };
    let mut rows: Vec<_> = table(ty).split(';').map(row).collect();
    for from in STATES {
        rows.push((from, QpState::Reset, AttrMask::empty(), AttrMask::empty()));
        rows.push((from, QpState::Err, AttrMask::empty(), AttrMask::empty()));
    }
    rows
}

#[test]
fn every_row_takes_what_it_takes_and_nothing_else() {
    for ty in TYPES {
        for (from, to, needed, taken) in expected(ty) {
            let attr = good(from, to);
            let check = |mask| check_modify(ty, from, &attr, mask, &LIMITS);
            let full = AttrMask::STATE | needed | taken;
            let label = std::format!("{ty:?} {from:?} to {to:?}");
            assert_eq!(check(full), Ok(to), "{label}");
            assert_eq!(
                check(AttrMask::STATE | needed),
                Ok(to),
                "{label}, without the optional ones"
            );
            for attrs in needed.iter() {
                assert_eq!(
                    check(full - attrs),
                    Err(AttrError::Missing { attrs, from, to }),
                    "{label}"
                );
            }
            for attrs in (AttrMask::all() - full).iter() {
                assert_eq!(
                    check(full | attrs),
                    Err(AttrError::NotAllowed { attrs, from, to }),
                    "{label}"
                );
            }
            if !needed.is_empty() {
                let missing = Err(AttrError::Missing { attrs: needed, from, to });
                assert_eq!(check(AttrMask::STATE), missing, "{label}: all of them named");
            }
        }
    }
}

#[test]
fn every_other_pair_is_no_transition() {
    let mut refused = 0;
    for ty in TYPES {
        let rows = expected(ty);
        for from in STATES {
            for to in STATES {
                if rows.iter().any(|r| (r.0, r.1) == (from, to)) {
                    continue;
                }
                refused += 1;
                for mask in
                    [AttrMask::STATE, AttrMask::STATE | AttrMask::CUR_STATE, AttrMask::all()]
                {
                    let got = check_modify(ty, from, &good(from, to), mask, &LIMITS);
                    assert_eq!(got, Err(AttrError::BadTransition { from, to }), "{ty:?}");
                }
            }
        }
    }
    // 49 pairs each, 14 of them into RESET or ERR; 8 rows each, one more on UC, UD and raw packet.
    assert_eq!(refused, 6 * (49 - 14 - 8) - 3);
}

#[test]
fn without_state_it_stays_by_its_own_row() {
    let check =
        |from, mask| check_modify(QpType::Rc, from, &good(from, QpState::Err), mask, &LIMITS);
    assert_eq!(check(QpState::Rts, AttrMask::ACCESS_FLAGS), Ok(QpState::Rts));
    assert_eq!(check(QpState::Init, AttrMask::PORT), Ok(QpState::Init));
    assert_eq!(check(QpState::Sqd, AttrMask::AV), Ok(QpState::Sqd));
    assert_eq!(
        check(QpState::Rtr, AttrMask::ACCESS_FLAGS),
        Err(AttrError::BadTransition { from: QpState::Rtr, to: QpState::Rtr })
    );
    let attrs = AttrMask::PORT;
    let state = QpState::Reset;
    assert_eq!(check(state, attrs), Err(AttrError::NotAllowed { attrs, from: state, to: state }));
}

#[test]
fn cur_state_must_be_true() {
    let attr = QpAttr { cur_state: QpState::Sqd, ..good(QpState::Rts, QpState::Rts) };
    let mask = AttrMask::STATE | AttrMask::CUR_STATE;
    let got = check_modify(QpType::Rc, QpState::Rts, &attr, mask, &LIMITS);
    assert_eq!(got, Err(AttrError::NotInState { claimed: QpState::Sqd, actual: QpState::Rts }));
    let got = check_modify(QpType::Rc, QpState::Sqd, &attr, mask, &LIMITS);
    assert_eq!(got, Ok(QpState::Rts));
}

/// Values just beyond their rule: refused by name if the attribute is in the mask, ignored
/// otherwise.
#[test]
fn values() {
    use QpState::{Init, Reset, Rtr, Rts};
    type Change = fn(&mut QpAttr);
    let cases: &[(QpState, QpState, &str, &str, Change)] = &[
        (Reset, Init, "PORT", "IBV_QP_PORT", |a| a.port_num = 0),
        (Reset, Init, "PORT", "IBV_QP_PORT", |a| a.port_num = 2),
        (Reset, Init, "PKEY_INDEX", "IBV_QP_PKEY_INDEX", |a| a.pkey_index = 1),
        (Init, Rtr, "PATH_MTU", "IBV_QP_PATH_MTU", |a| a.path_mtu = PathMtu::Mtu2048),
        (Init, Rtr, "MAX_DEST_RD_ATOMIC", "IBV_QP_MAX_DEST_RD_ATOMIC", |a| {
            a.max_dest_rd_atomic = 17
        }),
        (Init, Rtr, "AV", "IBV_QP_AV", |a| a.av.is_global = false),
        (Init, Rtr, "AV", "IBV_QP_AV", |a| a.av.sgid_index = 4),
        (Init, Rtr, "AV", "IBV_QP_AV", |a| a.av.port_num = 0),
        (Init, Rtr, "AV", "IBV_QP_AV", |a| a.av.port_num = 2),
        (Init, Rtr, "ALT_PATH", "IBV_QP_ALT_PATH", |a| a.alt_port_num = 2),
        (Init, Rtr, "ALT_PATH", "IBV_QP_ALT_PATH", |a| a.alt_pkey_index = 1),
        (Init, Rtr, "ALT_PATH", "IBV_QP_ALT_PATH", |a| a.alt_av.is_global = false),
        (Rtr, Rts, "MAX_QP_RD_ATOMIC", "IBV_QP_MAX_QP_RD_ATOMIC", |a| a.max_rd_atomic = 17),
        (Rtr, Rts, "PATH_MIG_STATE", "IBV_QP_PATH_MIG_STATE", |a| a.path_mig_state = 3),
    ];
    for (from, to, which, name, change) in cases {
        let mut attr = good(*from, *to);
        change(&mut attr);
        let (.., needed, _) =
            expected(QpType::Rc).into_iter().find(|r| (r.0, r.1) == (*from, *to)).expect("a row");
        let given = AttrMask::STATE | needed | mask(which);
        match check_modify(QpType::Rc, *from, &attr, given, &LIMITS) {
            Err(AttrError::BadValue { attr, .. }) => assert_eq!(attr, *name),
            other => panic!("{name}: {other:?}"),
        }
        let reset = QpAttr { state: Reset, ..attr };
        assert_eq!(
            check_modify(QpType::Rc, *from, &reset, AttrMask::STATE, &LIMITS),
            Ok(Reset),
            "{name}"
        );
    }
}

/// Each value of a byte is accepted, and keeps the bits of its field (OBJ-8).
#[test]
fn narrow_fields_keep_their_low_bits() {
    let all = AttrMask::all();
    for value in 0..=u8::MAX {
        let mut wide = good(QpState::Rtr, QpState::Rts);
        (wide.min_rnr_timer, wide.timeout, wide.alt_timeout) = (value, value, value);
        (wide.retry_cnt, wide.rnr_retry) = (value, value);
        (wide.av.sl, wide.alt_av.sl) = (value, value);
        for (from, to) in [(QpState::Init, QpState::Rtr), (QpState::Rtr, QpState::Rts)] {
            let row = expected(QpType::Rc).into_iter().find(|r| (r.0, r.1) == (from, to));
            let (.., needed, taken) = row.expect("a row");
            let attr = QpAttr { state: to, cur_state: from, ..wide };
            let mask = AttrMask::STATE | needed | taken;
            assert_eq!(check_modify(QpType::Rc, from, &attr, mask, &LIMITS), Ok(to), "{value}");
        }
        let mut cuts = Vec::new();
        let mut attr = wide;
        attr.narrow(all, &mut |cut| cuts.push(cut));
        assert_eq!([attr.min_rnr_timer, attr.timeout, attr.alt_timeout], [value & 31; 3]);
        assert_eq!([attr.retry_cnt, attr.rnr_retry], [value & 7; 2]);
        assert_eq!([attr.av.sl, attr.alt_av.sl], [value & 15; 2]);
        let lost =
            [value & 31, value & 31, value & 31, value & 7, value & 7, value & 15, value & 15];
        assert_eq!(cuts.len(), lost.iter().filter(|kept| **kept != value).count(), "{value}");
        assert!(cuts.iter().all(|cut| cut.given == value));
        // Attributes outside the mask stay, and nothing is reported.
        let mut other = wide;
        other.narrow(AttrMask::QKEY, &mut |cut| panic!("{cut}"));
        assert_eq!(other, wide);
    }
    let cut = Cut { field: Narrow::MinRnrTimer, given: 32 };
    let words = "min_rnr_timer is 32, which does not fit the 5 bits of the field: the field \
                 becomes 0";
    assert_eq!(std::format!("{cut}"), words);
}

#[test]
fn port_and_address_vector_agree() {
    let limits = Limits { ports: 2, ..LIMITS };
    let mut attr = good(QpState::Sqd, QpState::Sqd);
    attr.port_num = 2;
    let both = AttrMask::AV | AttrMask::PORT;
    assert!(check_modify(QpType::Rc, QpState::Sqd, &attr, AttrMask::AV, &limits).is_ok());
    assert!(matches!(
        check_modify(QpType::Rc, QpState::Sqd, &attr, both, &limits),
        Err(AttrError::BadValue { attr: "IBV_QP_AV", value: 1, .. })
    ));
}

#[test]
fn refusals_read_as_sentences() {
    let missing =
        AttrError::Missing { attrs: mask("TIMEOUT SQ_PSN"), from: QpState::Rtr, to: QpState::Rts };
    assert_eq!(std::format!("{missing}"), "Rtr to Rts needs IBV_QP_TIMEOUT, IBV_QP_SQ_PSN");
}
