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
    *dst = ibv_qp_attr { qp_state: dst.qp_state, rate_limit: dst.rate_limit, ..kern.into() };
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
