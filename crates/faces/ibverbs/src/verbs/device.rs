//! Devices: the list, opening and closing. Attributes are in [`super::attributes`], ports and GIDs
//! in [`super::port`].
use super::{end, failed, failed_minus_one, failed_null, files, set_text, setup, tables};
use crate::abi::*;
use crate::errno;
use crate::handles::{FileId, Origin, reserve};
use crate::listed::DeviceObj;
use crate::objects::ContextObj;
use adverb_device::device::COMP_VECTORS;
use adverb_device::{Device, Error};
use adverb_sync::Mutex;
use core::ffi::{c_char, c_int};
use core::mem::offset_of;
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// The device objects given to programs. A device keeps its object while the device does not
/// change. Objects are never freed, because programs keep pointers. There are only as many as the
/// machine ever had interfaces.
static DEVICES: Mutex<Vec<&'static DeviceObj>> = Mutex::new(Vec::new());

/// The lists given out and not yet freed, by address.
static LISTS: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

fn describe(device: &Arc<Device>, index: usize) -> &'static DeviceObj {
    let mut c = ibv_device::zeroed();
    c.node_type = IBV_NODE_CA;
    c.transport_type = IBV_TRANSPORT_IB;
    set_text(&mut c.name, device.name());
    set_text(&mut c.dev_name, &format!("uverbs{index}"));
    set_text(&mut c.dev_path, &format!("/sys/class/infiniband_verbs/uverbs{index}"));
    set_text(&mut c.ibdev_path, &format!("/sys/class/infiniband/{}", device.name()));
    Box::leak(Box::new(DeviceObj { c, ops: core::ptr::null(), device: device.clone() }))
}

/// The index in a device's `uverbsN`.
fn index_of(obj: &DeviceObj) -> c_int {
    let digits = obj.c.dev_name.iter().skip("uverbs".len()).take_while(|&&c| c != 0);
    digits.fold(0, |n, &c| n * 10 + c_int::from(c as u8 - b'0'))
}

/// The current devices.
fn current() -> Result<Vec<&'static DeviceObj>, Error> {
    let found = adverb_device::device::list()?;
    let mut known = DEVICES.lock();
    let now: Vec<_> = found
        .iter()
        .enumerate()
        .map(|(index, device)| {
            let same = |o: &&&DeviceObj| o.device == *device && index_of(o) == index as c_int;
            known.iter().find(same).copied().unwrap_or_else(|| {
                let new = describe(device, index);
                known.push(new);
                new
            })
        })
        .collect();
    Ok(now)
}

/// The devices of this process, null-terminated. `num_devices` may be null. On a machine without a
/// usable network interface the list is empty, and the log gives the reason.
pub unsafe extern "C" fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    setup::init();
    let set_count = |n: usize| {
        if !num_devices.is_null() {
            // SAFETY: the program's place for the number.
            unsafe { num_devices.write(n as c_int) };
        }
    };
    set_count(0);
    let devices = match current() {
        Ok(devices) => devices,
        Err(e) => return failed_null("ibv_get_device_list", &e),
    };
    if let Err(e) = adverb_device::share_allocations() {
        return failed_null("ibv_get_device_list", &e);
    }
    if devices.is_empty() {
        log::error!("no device: no network interface of this machine is up and has an IP address");
    }
    // SAFETY: plain allocation, checked below.
    let list = unsafe { libc::calloc(devices.len() + 1, size_of::<*mut ibv_device>()) }
        .cast::<*mut ibv_device>();
    if list.is_null() {
        return errno::null(libc::ENOMEM);
    }
    set_count(devices.len());
    for (i, device) in devices.into_iter().enumerate() {
        // SAFETY: within the list.
        unsafe { list.add(i).write(core::ptr::from_ref(device).cast_mut().cast()) };
    }
    LISTS.lock().insert(list as usize);
    list
}

/// Frees the list. Devices that are open stay.
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    if list.is_null() {
        return;
    }
    if !LISTS.lock().remove(&(list as usize)) {
        let e = Error::invalid(format!("{list:p}"), "not a list of devices, or freed already");
        failed("ibv_free_device_list", &e);
        return;
    }
    // SAFETY: allocated by `ibv_get_device_list`, and freed only here.
    unsafe { libc::free(list.cast()) };
}

/// The object of a device.
fn find(device: *mut ibv_device) -> Result<&'static DeviceObj, Error> {
    let known = DEVICES.lock();
    known.iter().find(|d| core::ptr::addr_eq(**d, device)).copied().ok_or_else(|| {
        Error::invalid(format!("{device:p}"), "this library gave no such device to the program")
    })
}

/// The name of a device, from its structure. The structure is public, and tests of programs make
/// devices of their own. So any pointer except null gives a name, and no memory is read.
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    if device.is_null() {
        let e = Error::invalid("null", "not a device");
        return failed_null::<c_char>("ibv_get_device_name", &e);
    }
    device.wrapping_byte_add(offset_of!(ibv_device, name)).cast()
}

/// The index of a device: the number in its `dev_name`.
pub unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    match find(device) {
        Ok(found) => index_of(found),
        Err(e) => failed_minus_one("ibv_get_device_index", &e),
    }
}

/// The node GUID, in network byte order.
pub unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    match find(device) {
        Ok(found) => found.device.guid().to_be(),
        Err(e) => {
            failed("ibv_get_device_guid", &e);
            0
        }
    }
}

/// Opens a device.
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    setup::init();
    let device = match find(device) {
        Ok(device) => device,
        Err(e) => return failed_null("ibv_open_device", &e),
    };
    // `cmd_fd` identifies the context for `ibv_import_device`: a descriptor with its own inode.
    // SAFETY: a plain system call; a returned descriptor belongs to the library.
    let fd = unsafe {
        match libc::memfd_create(files::CMD_FD_NAME.as_ptr(), libc::MFD_CLOEXEC) {
            -1 => None,
            fd => Some(OwnedFd::from_raw_fd(fd)),
        }
    };
    let Some(fd) = fd else {
        let e = std::io::Error::last_os_error();
        log::error!("ibv_open_device fails: no descriptor for cmd_fd: {e}");
        return errno::null(e.raw_os_error().unwrap_or(libc::EMFILE));
    };
    make_context(device, fd, None).unwrap_or_else(|e| {
        log::error!("ibv_open_device fails: {e}");
        errno::null(e.errno())
    })
}

/// Makes a context. The context owns `cmd_fd`, and shares the file of objects if imported.
pub(super) fn make_context(
    device: &'static DeviceObj,
    cmd_fd: OwnedFd,
    shared: Option<FileId>,
) -> Result<*mut ibv_context, Error> {
    let place = reserve::<ContextObj>()?;
    let context = device.device.open()?;
    adverb_waits::register();
    let file = match shared {
        Some(file) => file,
        None => files::open_file(&cmd_fd, device)?,
    };
    let mut table = tables::verbs_context();
    table.context.device = core::ptr::from_ref(device).cast_mut().cast();
    table.context.cmd_fd = cmd_fd.as_raw_fd();
    table.context.async_fd = context.async_events().as_raw_fd();
    table.context.num_comp_vectors = COMP_VECTORS as c_int;
    table.context.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    // SAFETY: only an address within the slot is taken.
    let handle = unsafe { &raw mut (*place.handle()).context };
    let origin = Origin { context: handle, file, handle: 0 };
    place.fill(table, ContextObj { context, file, cmd_fd: cmd_fd.into() }, origin);
    Ok(handle)
}

/// Closes a device. Objects that the program did not destroy stay until the process ends, as in
/// rdma-core.
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    end("ibv_close_device", context, |_| Ok(()))
}
