//! The port of a device: state, speed, GIDs and PKeys.
use super::attributes::write_prefix;
use super::{done, done_minus_one, failed, failed_minus_one, only_bits};
use crate::abi::*;
use crate::errno;
use crate::handles::live;
use adverb_device::device::{GID_TABLE, PKEYS, PORT};
use adverb_device::engine::{Gid, PathMtu};
use adverb_device::{Context, Error};
use core::ffi::{c_int, c_uint};
use libc::{EINVAL, ENODATA, size_t};

/// Physical port states of IBTA: disabled, and link up.
const PHYS_DISABLED: u8 = 3;
const PHYS_LINK_UP: u8 = 5;
/// GID types as sysfs counts them.
const SYSFS_V1: u32 = 0;
const SYSFS_ROCE_V2: u32 = 1;

/// IBTA codes of (link width, lane speed) nearest to a speed in Mbit/s, as RoCE drivers report
/// them.
pub(crate) fn link_codes(mbit: u32) -> (u8, u32) {
    const X1: u8 = 1;
    const X4: u8 = 2;
    match mbit {
        0..=2_500 => (X1, 1),
        2_501..=10_000 => (X1, 4),
        10_001..=25_000 => (X1, 32),
        25_001..=50_000 => (X1, 64),
        50_001..=100_000 => (X4, 32),
        100_001..=200_000 => (X4, 64),
        200_001..=400_000 => (X4, 128),
        _ => (X4, 256),
    }
}

fn attributes(context: &Context) -> ibv_port_attr {
    let (limits, port) = (context.limits(), context.port_state());
    let (width, speed) = link_codes(port.speed);
    let mut a = ibv_port_attr::zeroed();
    (a.state, a.phys_state) =
        if port.up { (IBV_PORT_ACTIVE, PHYS_LINK_UP) } else { (IBV_PORT_DOWN, PHYS_DISABLED) };
    a.max_mtu = PathMtu::Mtu4096 as u32;
    a.active_mtu = port.path_mtu() as u32;
    a.gid_tbl_len = limits.gids.into();
    a.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
    a.max_msg_sz = limits.max_msg;
    a.pkey_tbl_len = limits.pkeys;
    a.max_vl_num = 1;
    a.active_width = width;
    // Codes above one byte fit only the newer field.
    a.active_speed = u8::try_from(speed).unwrap_or(128);
    a.active_speed_ex = speed;
    a.link_layer = IBV_LINK_LAYER_ETHERNET;
    a.flags = IBV_QPF_GRH_REQUIRED;
    a
}

/// Slot `query_port`: writes `port_attr_len` bytes.
pub unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port_num: u8,
    port_attr: *mut ibv_port_attr,
    port_attr_len: size_t,
) -> c_int {
    let query = || {
        let context = &live(context)?.context;
        context.check_device()?;
        context.check_port(port_num)?;
        // SAFETY: the program passes room for that many bytes.
        unsafe { write_prefix(port_attr, &attributes(context), port_attr_len) };
        Ok(())
    };
    done("ibv_query_port", query())
}

/// The attributes of a port. Only [`COMPAT_PORT_ATTR_SIZE`] bytes are written.
pub unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port_num: u8,
    port_attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { query_port(context, port_num, port_attr, COMPAT_PORT_ATTR_SIZE) }
}

/// The speed of a port in units of 100 Mb/s.
pub unsafe extern "C" fn ibv_query_port_speed(
    context: *mut ibv_context,
    port_num: u32,
    port_speed: *mut u64,
) -> c_int {
    let query = || {
        let context = &live(context)?.context;
        check_port(context, port_num)?;
        // SAFETY: the program passes a place for the number.
        unsafe { port_speed.write(u64::from(context.port_state().speed) / 100) };
        Ok(())
    };
    done("ibv_query_port_speed", query())
}

fn check_port(context: &Context, port_num: u32) -> Result<(), Error> {
    // A number that is no `u8` is no port either.
    context.check_port(u8::try_from(port_num).unwrap_or(u8::MAX))
}

/// The GID at an index; the zero GID for an empty entry.
fn gid_at(context: &Context, port_num: u32, index: u32) -> Result<Gid, Error> {
    check_port(context, port_num)?;
    context.gid(PORT, index as usize)
}

/// One GID; zeros for an empty entry.
pub unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    let query = || {
        // A negative index is beyond any table.
        let found = gid_at(&live(context)?.context, port_num.into(), index as u32)?;
        // SAFETY: the program passes a place for the GID.
        unsafe { gid.write(ibv_gid { raw: found.0 }) };
        Ok(())
    };
    done_minus_one("ibv_query_gid", query())
}

fn entry(context: &Context, gid: Gid, index: u32) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: ibv_gid { raw: gid.0 },
        gid_index: index,
        port_num: PORT.into(),
        gid_type: IBV_GID_TYPE_ROCE_V2,
        ndev_ifindex: context.gid_entry(index as usize).interface,
    }
}

/// One row of the GID table, in the size that the program knows.
pub unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port_num: u32,
    gid_index: u32,
    to: *mut ibv_gid_entry,
    flags: u32,
    entry_size: size_t,
) -> c_int {
    let query = || {
        let context = &live(context)?.context;
        only_bits("flags are", flags, 0)?;
        let gid = gid_at(context, port_num, gid_index)?;
        if !gid.is_zero() {
            // SAFETY: the program passes room for that many bytes.
            unsafe { write_prefix(to, &entry(context, gid, gid_index), entry_size) };
        }
        Ok(gid)
    };
    match query() {
        Ok(gid) if gid.is_zero() => errno::code(ENODATA),
        found => done("ibv_query_gid_ex", found.map(drop)),
    }
}

/// Writes all valid rows of the GID table. Returns their number, or a negative errno value:
/// `-EINVAL` if the rows do not fit.
pub unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: size_t,
    flags: u32,
    entry_size: size_t,
) -> isize {
    let query = || {
        let context = &live(context)?.context;
        only_bits("flags are", flags, 0)?;
        if max_entries == 0 || entry_size == 0 {
            return Err(Error::invalid("max_entries or entry_size", "it is 0"));
        }
        let mut written = 0;
        for index in 0..GID_TABLE {
            let gid = context.gid(PORT, index).unwrap_or_default();
            if gid.is_zero() {
                continue;
            }
            if written == max_entries {
                let what = format!("max_entries is {max_entries}");
                return Err(Error::invalid(what, "the port has more GIDs"));
            }
            // SAFETY: the program's array of `max_entries` rows of `entry_size` bytes.
            unsafe {
                let to = entries.byte_add(written * entry_size);
                write_prefix(to, &entry(context, gid, index as u32), entry_size);
            }
            written += 1;
        }
        Ok(written as isize)
    };
    query().unwrap_or_else(|e| -(failed("ibv_query_gid_table", &e) as isize))
}

/// The type of a GID in the numbering of sysfs: 0 for IB and RoCE v1 (and for an empty entry), 1
/// for RoCE v2. Private to rdma-core, whose programs call it.
pub unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port_num: u8,
    index: c_uint,
    gid_type: *mut u32,
) -> c_int {
    let query = || {
        let gid = gid_at(&live(context)?.context, port_num.into(), index)?;
        // SAFETY: the program passes a place for the type.
        unsafe { gid_type.write(if gid.is_zero() { SYSFS_V1 } else { SYSFS_ROCE_V2 }) };
        Ok(())
    };
    done_minus_one("ibv_query_gid_type", query())
}

/// One PKey, in network byte order.
pub unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    let query = || {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let found = live(context)?.context.pkey(port_num, index)?;
        // SAFETY: the program passes a place for the key.
        unsafe { pkey.write(found.to_be()) };
        Ok(())
    };
    done_minus_one("ibv_query_pkey", query())
}

/// The index of a PKey given in network byte order.
pub unsafe extern "C" fn ibv_get_pkey_index(
    context: *mut ibv_context,
    port_num: u8,
    pkey: u16,
) -> c_int {
    let owner = match live(context) {
        Ok(owner) => owner,
        Err(e) => return failed_minus_one("ibv_get_pkey_index", &e),
    };
    let context = &owner.context;
    let found = (0..usize::from(PKEYS))
        .find(|&i| context.pkey(port_num, i).is_ok_and(|k| k.to_be() == pkey));
    match found {
        Some(index) => index as c_int,
        None => errno::minus_one(EINVAL),
    }
}
