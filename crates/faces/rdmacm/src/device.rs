//! Devices of ids. A process opens each device once, and all ids of the device share its context,
//! protection domain and XRC domain.

use adverb_sync::Mutex;
use core::ptr::null_mut;

use crate::error::{Errno, ErrnoResult, or_null};
use crate::verbs::{self, Listed};
use adverb_abi::*;

/// An open device.
#[derive(Debug)]
struct Device {
    guid: u64,
    index: u32,
    context: *mut ibv_context,
    limits: Depths,
    /// Number of ids on this device. The domains exist while there is at least one id.
    users: usize,
    pd: *mut ibv_pd,
    xrcd: *mut ibv_xrcd,
}

/// The READs and atomics of a queue pair: values of a connection, or the limits of a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Depths {
    /// READs and atomics that a queue pair answers at one time.
    pub responder_resources: u8,
    /// READs and atomics that a queue pair has in flight at one time.
    pub initiator_depth: u8,
}

/// A use of a device. Dropping the value ends the use.
#[derive(Debug)]
pub struct Use {
    /// The shared context.
    pub context: *mut ibv_context,
    /// The shared protection domain.
    pub pd: *mut ibv_pd,
    /// Limits of the device.
    pub limits: Depths,
    /// Process that opened the device.
    owner: u32,
}

#[derive(Debug)]
struct Devices {
    /// Process that opened the devices. The child of a fork opens devices itself, because the
    /// parent's devices do not work in the child.
    owner: u32,
    /// Whether at least one device has been found.
    listed: bool,
    open: Vec<Device>,
}

// SAFETY: the pointers refer to objects of libibverbs, which any thread may use.
unsafe impl Send for Devices {}

static DEVICES: Mutex<Devices> = Mutex::new(Devices { owner: 0, listed: false, open: Vec::new() });

impl Devices {
    /// Forgets the devices of a parent process.
    fn renew(&mut self) {
        let me = std::process::id();
        if self.owner != me {
            self.owner = me;
            self.listed = false;
            self.open.clear();
        }
    }

    fn position(&self, guid: u64, index: u32) -> Option<usize> {
        // The index distinguishes devices with the same GUID. The index may be unknown.
        let same = |d: &Device, by_index: bool| d.guid == guid && (!by_index || d.index == index);
        let at = |by_index| self.open.iter().position(|d| same(d, by_index));
        at(true).or_else(|| at(false))
    }

    /// # Safety
    /// The device list with this device has not been freed.
    unsafe fn open(&mut self, listed: Listed) -> ErrnoResult<usize> {
        let Listed { device, guid, index } = listed;
        // SAFETY: the caller's word.
        let context = unsafe { verbs::open_device(device) }?;
        let mut attr = ibv_device_attr::zeroed();
        // SAFETY: the context was opened above and is never closed; room of the right type.
        unsafe { verbs::query_device(context, &raw mut attr) }?;
        let byte = |value: i32| u8::try_from(value).unwrap_or(u8::MAX);
        let limits = Depths {
            responder_resources: byte(attr.max_qp_rd_atom),
            initiator_depth: byte(attr.max_qp_init_rd_atom),
        };
        let (pd, xrcd) = (null_mut(), null_mut());
        self.open.push(Device { guid, index, context, limits, users: 0, pd, xrcd });
        Ok(self.open.len() - 1)
    }

    /// Opens all devices that are not open yet. Skips a device if it cannot be opened.
    fn open_all(&mut self) -> ErrnoResult {
        verbs::with_devices(|listed| {
            for &one in listed {
                if !self.open.iter().any(|d| d.guid == one.guid && d.index == one.index) {
                    // SAFETY: the list is valid inside this closure.
                    let _ = unsafe { self.open(one) };
                }
            }
            self.listed = true;
            Ok(())
        })
    }

    fn find(&mut self, guid: u64, index: u32) -> ErrnoResult<usize> {
        if let Some(at) = self.position(guid, index) {
            return Ok(at);
        }
        verbs::with_devices(|listed| {
            let exact = listed.iter().find(|d| d.guid == guid && d.index == index);
            let found = exact
                .or_else(|| listed.iter().find(|d| d.guid == guid))
                .ok_or(Errno(libc::ENODEV))?;
            // SAFETY: the list is valid inside this closure.
            unsafe { self.open(*found) }
        })
    }
}

impl Use {
    /// Uses the device with this GUID (as from `ibv_get_device_guid`) and index.
    pub fn of(guid: u64, index: u32) -> ErrnoResult<Self> {
        let mut devices = DEVICES.lock();
        devices.renew();
        let at = devices.find(guid, index)?;
        let owner = devices.owner;
        let device = &mut devices.open[at];
        if device.pd.is_null() {
            // SAFETY: the context is never closed.
            device.pd = unsafe { verbs::alloc_pd(device.context) }?;
        }
        device.users += 1;
        Ok(Self { context: device.context, pd: device.pd, limits: device.limits, owner })
    }

    /// The shared XRC domain of this device.
    pub fn xrcd(&self) -> ErrnoResult<*mut ibv_xrcd> {
        let mut devices = DEVICES.lock();
        let device = devices
            .open
            .iter_mut()
            .find(|d| d.context == self.context)
            .ok_or(Errno(libc::ENODEV))?;
        if device.xrcd.is_null() {
            // SAFETY: the context is never closed.
            device.xrcd = unsafe { verbs::open_xrcd(device.context) }?;
        }
        Ok(device.xrcd)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut devices = DEVICES.lock();
        // In the child of a fork, a use of the parent refers to nothing.
        if devices.owner != self.owner || self.owner != std::process::id() {
            return;
        }
        let Some(device) = devices.open.iter_mut().find(|d| d.context == self.context) else {
            return;
        };
        device.users -= 1;
        if device.users > 0 {
            return;
        }
        // If the program still has objects in the domains, the calls refuse. The domains then stay,
        // and the next id uses them.
        //
        // SAFETY: no id uses the domains any more. If any other object does, the call refuses.
        unsafe {
            if !device.pd.is_null() && verbs::dealloc_pd(device.pd).is_ok() {
                device.pd = null_mut();
            }
            if !device.xrcd.is_null() && verbs::close_xrcd(device.context, device.xrcd).is_ok() {
                device.xrcd = null_mut();
            }
        }
    }
}

/// Looks for devices once, so that the first call of a process without devices fails.
pub fn require() -> ErrnoResult {
    let mut devices = DEVICES.lock();
    devices.renew();
    if !devices.listed {
        verbs::with_devices(|_| Ok(()))?;
        devices.listed = true;
    }
    Ok(())
}

/// `rdma_get_devices`: the open devices, as a list with a null at its end. `rdma_free_devices`
/// frees the list.
pub unsafe extern "C" fn rdma_get_devices(count: *mut core::ffi::c_int) -> *mut *mut ibv_context {
    let mut devices = DEVICES.lock();
    devices.renew();
    let mut made = devices.open_all().and_then(|()| {
        let size = (devices.open.len() + 1) * size_of::<*mut ibv_context>();
        // SAFETY: calloc takes a count and a size.
        let list = unsafe { libc::calloc(1, size) }.cast::<*mut ibv_context>();
        if list.is_null() { Err(Errno(libc::ENOMEM)) } else { Ok(list) }
    });
    if let Ok(list) = &mut made {
        for (i, device) in devices.open.iter().enumerate() {
            // SAFETY: the list has room for all devices and the null.
            unsafe { list.add(i).write(device.context) };
        }
    }
    if !count.is_null() {
        let n = if made.is_ok() { devices.open.len() } else { 0 };
        // SAFETY: the caller's word.
        unsafe { *count = n as core::ffi::c_int };
    }
    or_null(made)
}

/// `rdma_free_devices`: frees the list; the devices stay open.
pub unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: the list was made with calloc.
    unsafe { libc::free(list.cast()) };
}
