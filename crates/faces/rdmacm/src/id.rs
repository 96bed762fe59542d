//! The object behind an `rdma_cm_id`.
//!
//! Both the program and this library access the public part, so its fields are cells. One lock
//! protects the state shared by several threads.

use core::cell::Cell;
use core::ffi::{CStr, c_int, c_void};
use core::ptr::null_mut;
use std::time::Duration;

use adverb_sync::{Condvar, Mutex};
use libc::sockaddr_storage;

use crate::abi::cma::*;
use crate::device::{Depths, Use};
use crate::error::{Errno, ErrnoResult, zero_or_minus_one};
use crate::live::Live;
use crate::{addrinfo, channel, command};
use adverb_abi::rdma_user_cm::*;
use adverb_abi::*;

/// How long a call waits for acknowledgements before it logs the missing events.
const ACK_NOTICE: Duration = Duration::from_secs(1);

/// All existing ids.
static IDS: Live<Id> = Live::new();

/// An id. Its address equals the address of its public part.
#[repr(C)]
pub struct Id {
    /// The part visible to programs.
    pub public: rdma_cm_id,
    /// Number of the id in the connection manager.
    pub handle: Cell<u32>,
    /// The device, once it is known.
    device: Cell<Option<Use>>,
    state: Mutex<State>,
    acknowledged: Condvar,
}

/// State shared by several threads.
#[derive(Default)]
pub struct State {
    /// Number of acknowledged events.
    completed: u32,
    /// Kinds of the events without acknowledgement, in the order of reading.
    open: Vec<EventType>,
    /// Synchronous mode: the channel belongs to the id, and calls wait for their events.
    pub sync: bool,
    /// The connection failed at this end, so the peer's events about it are not reported.
    pub connect_error: bool,
    /// The depths of the connection.
    pub depths: Depths,
    /// Data in front of the program's private data, from its `rdma_addrinfo`.
    pub connect: Vec<u8>,
    /// Attributes for queue pairs of accepted requests.
    pub qp_init_attr: Option<ibv_qp_init_attr>,
    /// Enhanced connection establishment: our options.
    pub local_ece: ibv_ece,
    /// Enhanced connection establishment: the options of the peer.
    pub remote_ece: ibv_ece,
    /// Memberships.
    pub groups: Vec<*mut Group>,
    /// An address is being looked up, or its result has not been fetched.
    pub resolving: bool,
    /// Result of an address lookup.
    pub resolved: *mut rdma_addrinfo,
}

/// A membership of a multicast group.
#[derive(Debug)]
pub struct Group {
    /// The id of this membership.
    pub id: *mut Id,
    /// The program's value, returned in events.
    pub context: *mut c_void,
    /// Number of acknowledged events of the membership. Changed under the lock of the id.
    pub completed: Cell<u32>,
    pub handle: Cell<u32>,
    /// The group, once joined.
    pub gid: Cell<ibv_gid>,
    pub lid: Cell<u16>,
    pub flags: u16,
    pub addr: Vec<u8>,
}

impl Group {
    /// # Safety
    /// `group` is a membership on the heap without events.
    pub unsafe fn free(group: *mut Self) {
        // SAFETY: the caller's word.
        drop(unsafe { Box::from_raw(group) });
    }
}

impl Id {
    /// The id for a program's pointer; EINVAL if the id does not exist.
    ///
    /// # Safety
    /// The reference is used only during the current call. The memory of a destroyed id stays valid
    /// for a while.
    pub unsafe fn of<'a>(public: *mut rdma_cm_id) -> ErrnoResult<&'a Self> {
        let id = public.cast::<Self>();
        IDS.check(id)?;
        // SAFETY: the public part is the first field, and the id exists.
        unsafe { id.as_ref() }.ok_or(Errno(libc::EINVAL))
    }

    /// The pointer that programs have.
    pub fn pointer(&self) -> *mut rdma_cm_id {
        (&raw const *self).cast_mut().cast()
    }

    /// Creates an id on a channel. With null, creates a channel for the id.
    pub fn new(
        on: *mut rdma_event_channel,
        context: *mut c_void,
        ps: u32,
        qp_type: u32,
    ) -> ErrnoResult<*mut Self> {
        let sync = on.is_null();
        let channel = if sync { channel::create()? } else { on };
        let public = rdma_cm_id::zeroed();
        public.channel.set(channel);
        public.context.set(context);
        public.ps.set(ps);
        public.qp_type.set(qp_type);
        Ok(IDS.enter(Self {
            public,
            handle: Cell::new(u32::MAX),
            device: Cell::new(None),
            state: Mutex::new(State { sync, ..State::default() }),
            acknowledged: Condvar::new(),
        }))
    }

    /// Frees an id without references, and its own channel.
    ///
    /// # Safety
    /// The id was made by [`Id::new`] and claimed, and is freed once.
    pub unsafe fn free(at: *mut Self) {
        // SAFETY: the caller's word; the paths were allocated with malloc, and the channel was made
        // by `channel::create`.
        unsafe {
            let id = &*at;
            let mut state = id.state.lock();
            libc::free(id.public.route.path_rec.replace(null_mut()).cast());
            drop(id.device.take());
            if state.sync {
                channel::rdma_destroy_event_channel(id.public.channel.get());
            }
            addrinfo::rdma_freeaddrinfo(core::mem::replace(&mut state.resolved, null_mut()));
            for group in core::mem::take(&mut state.groups) {
                Group::free(group);
            }
            drop(state);
            IDS.rest(at);
        }
    }

    /// The descriptor of the id's channel.
    pub fn fd(&self) -> c_int {
        let channel = self.public.channel.get();
        // If the program destroyed the channel, the descriptor is -1 and every request fails.
        channel::fd(channel).unwrap_or(-1)
    }

    /// Accesses the shared state under the lock.
    pub fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock())
    }

    /// Whether this is a datagram id.
    pub fn is_datagram(&self) -> bool {
        self.public.qp_type.get() == IBV_QPT_UD
    }

    /// Sets the device of the id, once.
    pub fn set_device(&self, guid: u64, index: u32, port: u8, pkey: u16) -> ErrnoResult {
        let device = self.device.take();
        if device.is_some() || guid == 0 {
            self.device.set(device);
            return Ok(());
        }
        let device = Use::of(guid, index)?;
        self.public.verbs.set(device.context);
        self.public.pd.set(device.pd);
        self.public.port_num.set(port);
        self.public.route.addr.ibaddr.pkey.set(pkey);
        self.device.set(Some(device));
        Ok(())
    }

    /// Calls `f` with the device; EINVAL if the device is not known yet.
    pub fn device<T>(&self, f: impl FnOnce(&Use) -> ErrnoResult<T>) -> ErrnoResult<T> {
        let device = self.device.take();
        let outcome = device.as_ref().map_or(Err(Errno(libc::EINVAL)), f);
        self.device.set(device);
        outcome
    }

    /// Records that an event of this id has been read. The log names `kind` if the event is never
    /// acknowledged.
    pub fn note_event(&self, kind: EventType) {
        self.state.lock().open.push(kind);
    }

    /// Records that an event has been acknowledged. `group` is the membership of the event, if any.
    pub fn note_acknowledged(&self, kind: EventType, group: Option<&Group>) {
        let mut state = self.state.lock();
        if let Some(at) = state.open.iter().position(|k| *k == kind) {
            state.open.remove(at);
        }
        state.completed += 1;
        if let Some(group) = group {
            group.completed.set(group.completed.get() + 1);
        }
        self.acknowledged.notify_all();
    }

    /// The addresses of the objects for which events are awaited: a membership, or the id and its
    /// memberships.
    fn owners(&self, group: Option<&Group>) -> Vec<usize> {
        match group {
            Some(group) => vec![core::ptr::from_ref(group).addr()],
            None => self.with(|state| {
                let groups = state.groups.iter().map(|group| group.addr());
                core::iter::once(core::ptr::from_ref(self).addr()).chain(groups).collect()
            }),
        }
    }

    /// Waits until `reported` events of the id or of a membership have been acknowledged. Logs the
    /// missing events if this takes long.
    pub fn wait_acknowledged(&self, reported: u32, group: Option<&Group>, call: &CStr) {
        let missing = |state: &State| {
            let completed = group.map_or(state.completed, |g| g.completed.get());
            reported.wrapping_sub(completed).cast_signed()
        };
        if self.with(|state| missing(state)) <= 0 {
            return;
        }
        for owner in self.owners(group) {
            command::events_awaited(owner, call);
        }
        let mut state = self.state.lock();
        let mut said = false;
        loop {
            let missing = missing(&state);
            if missing <= 0 {
                return;
            }
            let late = self.acknowledged.wait_for(&mut state, ACK_NOTICE);
            if late && !said {
                said = true;
                let kinds: Vec<_> =
                    state.open.iter().map(|k| event_name(*k).to_string_lossy()).collect();
                eprintln!(
                    "adverb: warn: {} waits for the acknowledgement of {missing} event(s) \
                     returned by rdma_get_cm_event: {}; call rdma_ack_cm_event for each",
                    call.to_string_lossy(),
                    kinds.join(", ")
                );
            }
        }
    }
}

/// Creates an id with a queue pair type.
pub fn create(
    on: *mut rdma_event_channel,
    context: *mut c_void,
    ps: u32,
    qp_type: u32,
) -> ErrnoResult<*mut rdma_cm_id> {
    crate::device::require()?;
    crate::error::ready()?;
    if !on.is_null() {
        channel::fd(on)?;
    }
    let new = Id::new(on, context, ps, qp_type)?;
    // SAFETY: the id was just created.
    let id = unsafe { &*new };
    let body = rdma_ucm_create_id {
        uid: new.expose_provenance() as u64,
        response: 0,
        ps: ps as u16,
        qp_type: qp_type as u8,
        reserved: [0; 5],
    };
    match command::ask::<rdma_ucm_create_id_resp>(id.fd(), Request::CreateId(body)) {
        Ok(answer) => {
            id.handle.set(answer.id);
            Ok(id.pointer())
        }
        Err(why) => {
            IDS.claim(new)?;
            // SAFETY: no other code knows the id.
            unsafe { Id::free(new) };
            Err(why)
        }
    }
}

/// Destroys an id in the connection manager. Returns how many of its events have been read.
pub fn destroy_handle(fd: c_int, handle: u32) -> ErrnoResult<u32> {
    let body = rdma_ucm_destroy_id { response: 0, id: handle, reserved: 0 };
    let answer: rdma_ucm_destroy_id_resp = command::ask(fd, Request::DestroyId(body))?;
    Ok(answer.events_reported)
}

/// Takes an id away from the program and destroys it in the connection manager. Returns how many of
/// its events have been read.
///
/// # Safety
/// `public` was made by [`create`] or arrived with an event, and is not used any more.
pub unsafe fn retire<'a>(public: *mut rdma_cm_id) -> ErrnoResult<(&'a Id, u32)> {
    // SAFETY: the caller's word.
    let id = unsafe { Id::of(public) }?;
    IDS.claim(id)?;
    let reported = destroy_handle(id.fd(), id.handle.get()).inspect_err(|_| IDS.restore(id))?;
    Ok((id, reported))
}

/// Copies an address of the program.
///
/// # Safety
/// `from` is null, or points to an address with the length of its family.
pub unsafe fn address(from: *const libc::sockaddr) -> ErrnoResult<(sockaddr_storage, usize)> {
    // SAFETY: all fields are integers, for which zeros are valid. Every address begins with its
    // family, and has the length of its family.
    unsafe {
        let mut to: sockaddr_storage = core::mem::zeroed();
        let len = match from.as_ref().map(|a| c_int::from(a.sa_family)) {
            Some(libc::AF_INET) => size_of::<libc::sockaddr_in>(),
            Some(libc::AF_INET6) => size_of::<libc::sockaddr_in6>(),
            Some(AF_IB) => 48,
            _ => return Err(Errno(libc::EINVAL)),
        };
        core::ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut to).cast::<u8>(), len);
        Ok((to, len))
    }
}

/// `rdma_create_id`: 0, or -1 with `errno` set. Without a channel the id is synchronous.
pub unsafe extern "C-unwind" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: u32,
) -> c_int {
    let qp_type = if ps == PS_IPOIB || ps == PS_UDP { IBV_QPT_UD } else { IBV_QPT_RC };
    let made =
        if id.is_null() { Err(Errno(libc::EINVAL)) } else { create(channel, context, ps, qp_type) };
    zero_or_minus_one(made.map(|new| {
        // SAFETY: the caller's word.
        unsafe { id.write(new) }
    }))
}
