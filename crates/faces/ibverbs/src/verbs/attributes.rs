//! What a device offers, as `ibv_query_device` and `ibv_query_device_ex` report it, and the clock
//! of the device.
use super::tags::MAX_TAG_OPS;
use super::wq::HASH_XOR;
use super::{done, set_text};
use crate::abi::*;
use crate::errno;
use crate::handles::live;
use adverb_device::Context;
use adverb_device::device::{HW_VER, MAX_DM, PKEYS, VENDOR_ID, VENDOR_PART_ID};
use adverb_device::engine::QpType;
use adverb_device::engine::tags::MAX_TAG_SGE;
use adverb_device::multicast::{MAX_ATTACHED, MAX_GROUPS};
use adverb_device::nic::{Has, Nic};
use adverb_device::raw::{MAX_TABLE, MAX_TABLES, steering};
use adverb_device::srq::MAX_TAGS;
use core::ffi::c_int;
use libc::{EINVAL, size_t, timespec};

/// Objects of one kind: only memory bounds them, so this is the number that 24-bit object numbers
/// allow.
const MANY: c_int = (1 << 24) - 1;
/// Keys in the key table: it uses half of the 24-bit indices.
const MAX_KEYS: c_int = 1 << 23;
/// Queue pairs: a quarter of the host's 24-bit numbers.
const MAX_QP: c_int = 1 << 22;
/// The kernel's names for these bits: `IB_UVERBS_DEVICE_FLUSH_GLOBAL` and `…_ATOMIC_WRITE`.
const DEVICE_FLUSH_GLOBAL: u64 = 1 << 38;
const DEVICE_ATOMIC_WRITE: u64 = 1 << 40;

/// Bytes of a request for a rendezvous: both headers and the program's own.
const MAX_RENDEZVOUS_HEADER: u32 = 64;

const CAP_FLAGS: u32 = IBV_DEVICE_UD_AV_PORT_ENFORCE
    | IBV_DEVICE_CURR_QP_STATE_MOD
    | IBV_DEVICE_SYS_IMAGE_GUID
    | IBV_DEVICE_RC_RNR_NAK_GEN
    | IBV_DEVICE_SRQ_RESIZE
    | IBV_DEVICE_MEM_WINDOW
    | IBV_DEVICE_XRC
    | IBV_DEVICE_MEM_MGT_EXTENSIONS
    | IBV_DEVICE_MEM_WINDOW_TYPE_2B
    | IBV_DEVICE_MANAGED_FLOW_STEERING;

/// On-demand paging on reliable transports.
const ODP_RELIABLE: u32 = IBV_ODP_SUPPORT_SEND
    | IBV_ODP_SUPPORT_RECV
    | IBV_ODP_SUPPORT_WRITE
    | IBV_ODP_SUPPORT_READ
    | IBV_ODP_SUPPORT_ATOMIC
    | IBV_ODP_SUPPORT_SRQ_RECV
    | IBV_ODP_SUPPORT_FLUSH
    | IBV_ODP_SUPPORT_ATOMIC_WRITE;

fn attributes(context: &Context) -> ibv_device_attr {
    let (limits, guid) = (context.limits(), context.device().guid().to_be());
    let int = |n: u32| c_int::try_from(n).unwrap_or(c_int::MAX);
    let mut a = ibv_device_attr::zeroed();
    set_text(&mut a.fw_ver, env!("CARGO_PKG_VERSION"));
    a.node_guid = guid;
    a.sys_image_guid = guid;
    a.max_mr_size = u64::MAX;
    a.page_size_cap = 0xffff_f000;
    a.vendor_id = VENDOR_ID;
    a.vendor_part_id = VENDOR_PART_ID;
    a.hw_ver = HW_VER;
    a.max_qp = MAX_QP;
    a.max_qp_wr = int(limits.max_qp_wr);
    a.device_cap_flags = CAP_FLAGS;
    a.max_sge = int(limits.max_sge);
    a.max_sge_rd = int(limits.max_sge);
    a.max_cq = MANY;
    a.max_cqe = int(limits.max_cqe);
    a.max_mr = MAX_KEYS;
    a.max_pd = MANY;
    a.max_qp_rd_atom = limits.max_rd_atomic.into();
    a.max_res_rd_atom = MAX_QP * c_int::from(limits.max_rd_atomic);
    a.max_qp_init_rd_atom = limits.max_rd_atomic.into();
    // On shared memory, atomics are the CPU's own instructions: atomic against every access on this
    // machine. In a program's private memory the kernel copies the words, under a lock of the
    // process, so atomics are atomic only against each other. The device reports the weaker of the
    // two.
    a.atomic_cap = IBV_ATOMIC_HCA;
    a.max_raw_ethy_qp = MANY;
    a.max_mw = MAX_KEYS;
    a.max_mcast_grp = int(MAX_GROUPS as u32);
    a.max_mcast_qp_attach = int(MAX_ATTACHED as u32);
    a.max_total_mcast_qp_attach = int((MAX_GROUPS * MAX_ATTACHED) as u32);
    a.max_ah = MANY;
    a.max_srq = MANY;
    a.max_srq_wr = int(limits.max_srq_wr);
    a.max_srq_sge = int(limits.max_sge);
    a.max_pkeys = PKEYS;
    // 4.096 µs × 2^15 = 134 ms: the time for which a busy host may leave a packet unread.
    a.local_ca_ack_delay = 15;
    a.phys_port_cnt = limits.ports;
    if let Some(nic) = context.nic() {
        restrict(&mut a, nic);
    }
    a
}

/// Leaves out what the imitated device does not have.
fn restrict(a: &mut ibv_device_attr, nic: &Nic) {
    a.max_sge_rd = nic.max_sge_rd as c_int;
    if !nic.has.contains(Has::ATOMIC) {
        a.atomic_cap = IBV_ATOMIC_NONE;
    }
    if !nic.has.contains(Has::WINDOWS) {
        a.max_mw = 0;
        a.device_cap_flags &= !(IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
    }
    if !nic.has.contains(Has::SRQ) {
        (a.max_srq, a.max_srq_wr, a.max_srq_sge) = (0, 0, 0);
        a.device_cap_flags &= !IBV_DEVICE_SRQ_RESIZE;
    }
    if !nic.has.contains(Has::MULTICAST) {
        (a.max_mcast_grp, a.max_mcast_qp_attach, a.max_total_mcast_qp_attach) = (0, 0, 0);
    }
    if !nic.has.contains(Has::LOCAL_INVALIDATE) {
        a.device_cap_flags &= !IBV_DEVICE_MEM_MGT_EXTENSIONS;
    }
    if !nic.qp_types.contains(&QpType::XrcSend) {
        a.device_cap_flags &= !IBV_DEVICE_XRC;
    }
    if !nic.qp_types.contains(&QpType::RawPacket) {
        a.max_raw_ethy_qp = 0;
        a.device_cap_flags &= !IBV_DEVICE_MANAGED_FLOW_STEERING;
    }
}

fn extended(context: &Context) -> ibv_device_attr_ex {
    let mut a = ibv_device_attr_ex::zeroed();
    a.orig_attr = attributes(context);
    a.odp_caps = ibv_odp_caps {
        general_caps: IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT,
        per_transport_caps: ibv_odp_transport_caps {
            rc_odp_caps: ODP_RELIABLE,
            uc_odp_caps: IBV_ODP_SUPPORT_SEND
                | IBV_ODP_SUPPORT_RECV
                | IBV_ODP_SUPPORT_WRITE
                | IBV_ODP_SUPPORT_SRQ_RECV,
            ud_odp_caps: IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV,
        },
    };
    a.xrc_odp_caps = ODP_RELIABLE;
    // Timestamps are nanoseconds: a clock of 1 GHz.
    a.completion_timestamp_mask = u64::MAX;
    a.hca_core_clock = 1_000_000;
    a.device_cap_flags_ex = u64::from(CAP_FLAGS) | DEVICE_FLUSH_GLOBAL | DEVICE_ATOMIC_WRITE;
    a.cq_mod_caps = ibv_cq_moderation_caps { max_cq_count: u16::MAX, max_cq_period: u16::MAX };
    a.rss_caps = ibv_rss_caps {
        supported_qpts: 1 << IBV_QPT_RAW_PACKET,
        max_rwq_indirection_tables: MAX_TABLES,
        max_rwq_indirection_table_size: MAX_TABLE as u32,
        rx_hash_fields_mask: steering::Fields::ALL.0,
        rx_hash_function: IBV_RX_HASH_FUNC_TOEPLITZ | HASH_XOR,
    };
    a.max_wq_type_rq = MANY as u32;
    a.tm_caps = ibv_tm_caps {
        max_rndv_hdr_size: MAX_RENDEZVOUS_HEADER,
        max_num_tags: MAX_TAGS,
        flags: IBV_TM_CAP_RC,
        max_ops: MAX_TAG_OPS,
        max_sge: MAX_TAG_SGE,
    };
    a.max_dm_size = MAX_DM;
    a.phys_port_cnt_ex = context.limits().ports.into();
    if let Some(nic) = context.nic() {
        restrict_extended(&mut a, nic);
    }
    a
}

/// Like [`restrict`], for the extended attributes.
fn restrict_extended(a: &mut ibv_device_attr_ex, nic: &Nic) {
    let removed = !u64::from(a.orig_attr.device_cap_flags) & u64::from(CAP_FLAGS);
    a.device_cap_flags_ex &= !removed;
    if !nic.has.contains(Has::FLUSH) {
        a.device_cap_flags_ex &= !(DEVICE_FLUSH_GLOBAL | DEVICE_ATOMIC_WRITE);
        a.odp_caps.per_transport_caps.rc_odp_caps &=
            !(IBV_ODP_SUPPORT_FLUSH | IBV_ODP_SUPPORT_ATOMIC_WRITE);
        a.xrc_odp_caps &= !(IBV_ODP_SUPPORT_FLUSH | IBV_ODP_SUPPORT_ATOMIC_WRITE);
    }
    if !nic.has.contains(Has::ODP) {
        a.odp_caps = ibv_odp_caps::zeroed();
        a.xrc_odp_caps = 0;
    }
    if !nic.has.contains(Has::TAGS) {
        a.tm_caps = ibv_tm_caps::zeroed();
    }
    if !nic.has.contains(Has::DM) {
        a.max_dm_size = 0;
    }
    if !nic.qp_types.contains(&QpType::RawPacket) {
        a.rss_caps = ibv_rss_caps::zeroed();
        a.max_wq_type_rq = 0;
    }
}

/// Writes the first `len` bytes of a value. Bytes after the value become zero.
///
/// # Safety
/// `to` has `len` bytes.
pub(super) unsafe fn write_prefix<T>(to: *mut T, value: &T, len: usize) {
    let own = len.min(size_of::<T>());
    // SAFETY: the caller's promise; the value has `own` bytes.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping((&raw const *value).cast(), own);
        to.cast::<u8>().add(own).write_bytes(0, len - own);
    }
}

/// The attributes of a device.
pub unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    device_attr: *mut ibv_device_attr,
) -> c_int {
    // SAFETY: the program passes a place for the attributes.
    let query = live(context).map(|obj| unsafe { device_attr.write(attributes(&obj.context)) });
    done("ibv_query_device", query)
}

/// Slot `query_device_ex`: writes `attr_size` bytes. `input` may be null.
pub unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    attr_size: size_t,
) -> c_int {
    // SAFETY: null or the program's input.
    if unsafe { input.as_ref() }.is_some_and(|i| i.comp_mask != 0)
        || attr_size < size_of::<ibv_device_attr>()
    {
        return errno::code(EINVAL);
    }
    // SAFETY: the program passes room for `attr_size` bytes.
    let query =
        live(context).map(|obj| unsafe { write_prefix(attr, &extended(&obj.context), attr_size) });
    done("ibv_query_device_ex", query)
}

/// Slot `query_rt_values`: the clock of the device, in the units of completion timestamps.
pub unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    let query = live(context).map(|obj| {
        // SAFETY: the program passes a place for the values.
        let values = unsafe { &mut *values };
        let asked = values.comp_mask;
        values.comp_mask = 0;
        if asked & IBV_VALUES_MASK_RAW_CLOCK != 0 {
            // Programs read the raw clock only from `tv_nsec`.
            let now = obj.context.node().now().0;
            values.raw_clock = timespec { tv_sec: 0, tv_nsec: now as _ };
            values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
        }
    });
    done("ibv_query_rt_values_ex", query)
}
