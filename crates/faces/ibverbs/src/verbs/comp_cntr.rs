//! Completion counters.
use super::attributes::write_prefix;
use super::observers::call::Event;
use super::observers::list::tell;
use super::{done, end, failed_null, files, only_bits};
use crate::abi::*;
use crate::handles::{Origin, live, live_in, reserve};
use adverb_device::comp_counter::MAX_COUNTERS;
use adverb_device::{CompCounter, CounterType, Error};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};
use libc::size_t;

/// All operations that counters can be attached to.
const OPS: u32 = IBV_QP_ATTACH_COMP_CNTR_OP_SEND
    | IBV_QP_ATTACH_COMP_CNTR_OP_RECV
    | IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ
    | IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ
    | IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE
    | IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE;

/// Support for completion counters, in the size that the program knows.
pub unsafe extern "C" fn _ibv_query_comp_cntr_caps(
    context: *mut ibv_context,
    caps: *mut ibv_comp_cntr_caps,
    caps_size: size_t,
) -> c_int {
    let query = live(context).map(|_| {
        let all = ibv_comp_cntr_caps {
            max_value: u64::MAX,
            max_counters: MAX_COUNTERS,
            supported_qp_attach_ops: OPS,
        };
        // SAFETY: the program passes room for `caps_size` bytes.
        unsafe { write_prefix(caps, &all, caps_size) };
    });
    done("ibv_query_comp_cntr_caps", query)
}

/// Creates a counter.
pub unsafe extern "C" fn ibv_create_comp_cntr(
    context: *mut ibv_context,
    attr: *mut ibv_comp_cntr_init_attr,
) -> *mut ibv_comp_cntr {
    // SAFETY: the program's attributes.
    unsafe { create(context, attr) }.unwrap_or_else(|e| failed_null("ibv_create_comp_cntr", &e))
}

/// # Safety
/// Valid attributes, if the context is alive.
unsafe fn create(
    context: *mut ibv_context,
    attr: *const ibv_comp_cntr_init_attr,
) -> Result<*mut ibv_comp_cntr, Error> {
    let obj = live(context)?;
    // SAFETY: the caller's promise.
    let attr = unsafe { &*attr };
    only_bits("comp_mask is", attr.comp_mask, 0)?;
    only_bits("flags are", attr.flags, 0)?;
    let counter_type = match attr.type_ {
        IBV_COMP_CNTR_TYPE_WRS => CounterType::Requests,
        IBV_COMP_CNTR_TYPE_BYTES => CounterType::Bytes,
        other => return Err(Error::invalid(format!("type is {other}"), "unknown value")),
    };
    let place = reserve()?;
    let counter = CompCounter::new(&obj.context, counter_type)?;
    let handle = files::new_handle();
    let origin = Origin { context, file: obj.file, handle };
    Ok(place.fill(ibv_comp_cntr { context, handle }, counter, origin))
}

/// Destroys a counter: EBUSY while it is attached to queue pairs.
pub unsafe extern "C" fn ibv_destroy_comp_cntr(cntr: *mut ibv_comp_cntr) -> c_int {
    end("ibv_destroy_comp_cntr", cntr, |obj| obj.destroy())
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident($value:ident: $ty:ty) $count:ident $act:expr;)*) => { $(
        $(#[$doc])*
        pub unsafe extern "C" fn $name(cntr: *mut ibv_comp_cntr, $value: $ty) -> c_int {
            let act = live(cntr).map(|obj| {
                let count = obj.$count();
                $act(count, $value)
            });
            done(stringify!($name), act)
        }
    )* };
}

fn set(count: &AtomicU64, value: u64) {
    count.store(value, Ordering::Release);
}
fn inc(count: &AtomicU64, amount: u64) {
    count.fetch_add(amount, Ordering::AcqRel);
}
fn read(count: &AtomicU64, to: *mut u64) {
    // SAFETY: the program passes a place for the value.
    unsafe { to.write(count.load(Ordering::Acquire)) };
}

counts! {
    /// Sets the count of successes.
    ibv_set_comp_cntr(value: u64) good set;
    /// Sets the count of errors.
    ibv_set_err_comp_cntr(value: u64) failed set;
    /// Adds to the count of successes.
    ibv_inc_comp_cntr(amount: u64) good inc;
    /// Adds to the count of errors.
    ibv_inc_err_comp_cntr(amount: u64) failed inc;
    /// Reads the count of successes.
    ibv_read_comp_cntr(value: *mut u64) good read;
    /// Reads the count of errors.
    ibv_read_err_comp_cntr(value: *mut u64) failed read;
}

/// Counts operations of a queue pair until the queue pair is destroyed.
pub unsafe extern "C" fn ibv_qp_attach_comp_cntr(
    qp: *mut ibv_qp,
    cntr: *mut ibv_comp_cntr,
    attr: *mut ibv_qp_attach_comp_cntr_attr,
) -> c_int {
    let attach = || {
        let obj = live(qp)?;
        let counter = live_in(cntr, obj.origin().file)?;
        // SAFETY: the program's attributes.
        let attr = unsafe { &*attr };
        only_bits("comp_mask is", attr.comp_mask, 0)?;
        tell(Event::Counted(&obj.qp));
        obj.qp.attach_counter(&counter, attr.op_mask)
    };
    done("ibv_qp_attach_comp_cntr", attach())
}
