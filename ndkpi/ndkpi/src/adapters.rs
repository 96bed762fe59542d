//! Functions to open and close adapters, and other functions of `include/adverb_ndk.h` for
//! adapters.

use core::ffi::{CStr, c_char};
use std::net::IpAddr;
use std::sync::Arc;

use adverb_ndk::device::{Device, device};
use adverb_ndk::{Adapter, Config, NtStatus, PendingMode, Version, Versioned};

use crate::abi::*;
use crate::guard::status;
use crate::kinds;
use crate::objects::{begin_close, behind, enter, header_version, known_version};
use crate::status::NO_SUCH_DEVICE;

/// The provider's part of an adapter.
#[derive(Clone)]
pub struct Open {
    /// The provider's adapter.
    pub adapter: Adapter,
    /// Requests complete in line whenever possible.
    pub in_line: bool,
}

impl Versioned for Open {
    fn version(&self) -> Version {
        self.adapter.version()
    }
}

/// The device with this name or address. Without a name, the first device.
fn find(name: Option<&str>) -> Result<Arc<Device>, NtStatus> {
    let unlisted = |e| {
        log::error!("the interfaces of this machine cannot be listed: {e}");
        NtStatus::INSUFFICIENT_RESOURCES
    };
    let address = name.and_then(|n| n.parse::<IpAddr>().ok());
    let found = match (name, address) {
        (Some(name), None) => device::named(name).map_err(unlisted)?,
        (_, address) => device::list().map_err(unlisted)?.into_iter().find(|d: &Arc<Device>| {
            address.is_none_or(|address| d.gid_index_of(&address).is_some())
        }),
    };
    found.ok_or_else(|| {
        log::error!("no device {}: `adverb devices` lists them", name.unwrap_or("at all"));
        NO_SUCH_DEVICE
    })
}

fn pending_mode(mode: ULONG) -> Result<PendingMode, NtStatus> {
    Ok(match mode {
        ADVERB_NDK_PENDING_NEVER => PendingMode::Never,
        ADVERB_NDK_PENDING_ALWAYS => PendingMode::Always,
        ADVERB_NDK_PENDING_ALTERNATE => PendingMode::Alternate,
        _ => return Err(NtStatus::INVALID_PARAMETER),
    })
}

/// `AdverbNdkOpenAdapter`.
///
/// # Safety
/// `name` is null or a text that ends with a zero byte; "What C promises", 2.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AdverbNdkOpenAdapter(
    name: *const c_char,
    out: *mut *mut NDK_ADAPTER,
) -> NTSTATUS {
    // SAFETY: the caller promises a valid `name` and `out`.
    unsafe { AdverbNdkOpenAdapterEx(name, ADVERB_NDK_PENDING_NEVER, out) }
}

/// `AdverbNdkOpenAdapterEx`.
///
/// # Safety
/// As [`AdverbNdkOpenAdapter`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AdverbNdkOpenAdapterEx(
    name: *const c_char,
    pending: ULONG,
    out: *mut *mut NDK_ADAPTER,
) -> NTSTATUS {
    let version = header_version(Version::default());
    // SAFETY: the caller promises a valid `name` and `out`.
    unsafe { AdverbNdkOpenAdapterVersion(name, version, pending, out) }
}

/// `AdverbNdkOpenAdapterVersion`.
///
/// # Safety
/// As [`AdverbNdkOpenAdapter`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AdverbNdkOpenAdapterVersion(
    name: *const c_char,
    version: NDK_VERSION,
    pending: ULONG,
    out: *mut *mut NDK_ADAPTER,
) -> NTSTATUS {
    adverb_device::logging::start("adverb", log::LevelFilter::Error);
    status(|| {
        if out.is_null() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let version = known_version(version).ok_or(NtStatus::NOT_SUPPORTED)?;
        let pending = pending_mode(pending)?;
        // SAFETY: the caller promises a text that ends with a zero byte, and `name` is not null.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy());
        let adapter = Adapter::open(&find(name.as_deref())?, Config { pending, version })?;
        let open = Open { adapter, in_line: pending == PendingMode::Never };
        // SAFETY: the caller promises a valid `out`, which is not null.
        unsafe { out.write(enter::<kinds::Adapter>(open)) };
        Ok(NtStatus::SUCCESS)
    })
}

/// `AdverbNdkCloseAdapter`: waits until all objects of the adapter are closed and all callbacks
/// have returned.
///
/// # Safety
/// "What C promises", 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AdverbNdkCloseAdapter(adapter: *mut NDK_ADAPTER) -> NTSTATUS {
    status(|| {
        // SAFETY: the caller promises a pointer from C.
        let (closing, open) = unsafe { begin_close::<kinds::Adapter>(adapter) }?;
        match open.adapter.close() {
            Ok(()) => Ok(NtStatus::SUCCESS),
            Err(refused) => {
                closing.reopen();
                Err(refused)
            }
        }
    })
}

/// `AdverbNdkQueryCounters`: the counters of this process's device.
///
/// # Safety
/// "What C promises", 1 and 2.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn AdverbNdkQueryCounters(
    adapter: *mut NDK_ADAPTER,
    counters: *mut ADVERB_NDK_COUNTERS,
) -> NTSTATUS {
    status(|| {
        // SAFETY: the caller promises pointers from C.
        let (open, out) = unsafe { (behind::<kinds::Adapter>(adapter)?, counters.as_mut()) };
        let stats = open.adapter.context().node().stats();
        *out.ok_or(NtStatus::INVALID_PARAMETER)? = ADVERB_NDK_COUNTERS {
            HandOvers: stats.commits,
            HandedOver: stats.committed,
            SendCalls: stats.send_calls,
            PacketsSent: stats.packets_sent,
        };
        Ok(NtStatus::SUCCESS)
    })
}
