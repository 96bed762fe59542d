//! Conversions between the kernel's structures and the header's. The stock `librdmacm` calls them.

use crate::abi::*;

/// Address: kernel to header.
pub unsafe extern "C" fn ibv_copy_ah_attr_from_kern(
    dst: *mut ibv_ah_attr,
    src: *const ib_uverbs_ah_attr,
) {
    // SAFETY: the caller passes two valid structures.
    unsafe { dst.write((&*src).into()) }
}

/// QP attributes: kernel to header. `qp_state` and `rate_limit` are not changed: the kernel's
/// structure answers "which attributes lead to the requested state", and the caller sets the state
/// itself.
pub unsafe extern "C" fn ibv_copy_qp_attr_from_kern(
    dst: *mut ibv_qp_attr,
    src: *const ib_uverbs_qp_attr,
) {
    // SAFETY: the caller passes two valid structures.
    let (dst, kern) = unsafe { (&mut *dst, &*src) };
    *dst = ibv_qp_attr {
        qp_state: dst.qp_state,
        cur_qp_state: kern.cur_qp_state,
        path_mtu: kern.path_mtu,
        path_mig_state: kern.path_mig_state,
        qkey: kern.qkey,
        rq_psn: kern.rq_psn,
        sq_psn: kern.sq_psn,
        dest_qp_num: kern.dest_qp_num,
        qp_access_flags: kern.qp_access_flags,
        cap: ibv_qp_cap {
            max_send_wr: kern.max_send_wr,
            max_recv_wr: kern.max_recv_wr,
            max_send_sge: kern.max_send_sge,
            max_recv_sge: kern.max_recv_sge,
            max_inline_data: kern.max_inline_data,
        },
        ah_attr: (&kern.ah_attr).into(),
        alt_ah_attr: (&kern.alt_ah_attr).into(),
        pkey_index: kern.pkey_index,
        alt_pkey_index: kern.alt_pkey_index,
        en_sqd_async_notify: kern.en_sqd_async_notify,
        sq_draining: kern.sq_draining,
        max_rd_atomic: kern.max_rd_atomic,
        max_dest_rd_atomic: kern.max_dest_rd_atomic,
        min_rnr_timer: kern.min_rnr_timer,
        port_num: kern.port_num,
        timeout: kern.timeout,
        retry_cnt: kern.retry_cnt,
        rnr_retry: kern.rnr_retry,
        alt_port_num: kern.alt_port_num,
        alt_timeout: kern.alt_timeout,
        rate_limit: dst.rate_limit,
    };
}

/// Path record: kernel to header. The MTU is a code and fits in a byte.
pub unsafe extern "C" fn ibv_copy_path_rec_from_kern(
    dst: *mut ibv_sa_path_rec,
    src: *const ib_user_path_rec,
) {
    // SAFETY: the caller passes two valid structures.
    let kern = unsafe { &*src };
    let rec = ibv_sa_path_rec {
        dgid: ibv_gid { raw: kern.dgid },
        sgid: ibv_gid { raw: kern.sgid },
        dlid: kern.dlid,
        slid: kern.slid,
        raw_traffic: kern.raw_traffic.cast_signed(),
        flow_label: kern.flow_label,
        hop_limit: kern.hop_limit,
        traffic_class: kern.traffic_class,
        reversible: kern.reversible.cast_signed(),
        numb_path: kern.numb_path,
        pkey: kern.pkey,
        sl: kern.sl,
        mtu_selector: kern.mtu_selector,
        mtu: kern.mtu as u8,
        rate_selector: kern.rate_selector,
        rate: kern.rate,
        packet_life_time_selector: kern.packet_life_time_selector,
        packet_life_time: kern.packet_life_time,
        preference: kern.preference,
    };
    // SAFETY: as above.
    unsafe { dst.write(rec) }
}

/// Path record: header to kernel.
pub unsafe extern "C" fn ibv_copy_path_rec_to_kern(
    dst: *mut ib_user_path_rec,
    src: *const ibv_sa_path_rec,
) {
    // SAFETY: the caller passes two valid structures; the raw view of a GID is always valid.
    let (rec, dgid, sgid) = unsafe { (&*src, (*src).dgid.raw, (*src).sgid.raw) };
    let kern = ib_user_path_rec {
        dgid,
        sgid,
        dlid: rec.dlid,
        slid: rec.slid,
        raw_traffic: rec.raw_traffic.cast_unsigned(),
        flow_label: rec.flow_label,
        reversible: rec.reversible.cast_unsigned(),
        mtu: u32::from(rec.mtu),
        pkey: rec.pkey,
        hop_limit: rec.hop_limit,
        traffic_class: rec.traffic_class,
        numb_path: rec.numb_path,
        sl: rec.sl,
        mtu_selector: rec.mtu_selector,
        rate_selector: rec.rate_selector,
        rate: rec.rate,
        packet_life_time_selector: rec.packet_life_time_selector,
        packet_life_time: rec.packet_life_time,
        preference: rec.preference,
    };
    // SAFETY: as above.
    unsafe { dst.write(kern) }
}
