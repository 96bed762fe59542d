//! The object behind an `rdma_cm_event`, until the event is acknowledged. Also the destruction of
//! an id, which waits for all acknowledgements.

use core::cell::Cell;
use core::ffi::c_int;
use core::ptr::null_mut;

use crate::abi::cma::*;
use crate::error::{ErrnoResult, zero_or_minus_one};
use crate::id::{Group, Id, retire};
use crate::live::Live;
use crate::{cancel, command};
use adverb_abi::rdma_user_cm::RDMA_MAX_PRIVATE_DATA;

/// An event. Its address equals the address of its public part.
#[repr(C)]
pub struct Event {
    pub public: Cell<Public>,
    pub private_data: [u8; RDMA_MAX_PRIVATE_DATA],
    /// The id for which the event counts. For a request this is the listener.
    pub counts_for: *mut Id,
    pub group: *mut Group,
}

/// The public part, which is read and written as a whole.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Public {
    pub id: *mut rdma_cm_id,
    pub listen_id: *mut rdma_cm_id,
    pub event: EventType,
    pub status: c_int,
    pub param: rdma_event_param,
}

const _: () = assert!(size_of::<Public>() == size_of::<rdma_cm_event>());

/// The value of each byte of an event that a hunt overwrites.
const OVERWRITTEN: u8 = 0xa5;

/// All events without an acknowledgement.
static EVENTS: Live<Event> = Live::new();

impl Event {
    /// Moves the event to the heap, and sets the pointer to its private data.
    pub fn boxed(self) -> *mut rdma_cm_event {
        let new = EVENTS.enter(self);
        // SAFETY: the event was just created. Both parameter types begin with the private data
        // pointer. For a membership the pointer is the program's value and is not changed. Empty
        // private data stays null.
        unsafe {
            let mut public = (*new).public.get();
            if (*new).group.is_null()
                && public.event < ADDRINFO_RESOLVED
                && public.param.conn.private_data_len > 0
            {
                public.param.conn.private_data = (&raw const (*new).private_data).cast();
            }
            (*new).public.set(public);
        }
        new.cast()
    }

    pub fn update(&self, change: impl FnOnce(&mut Public)) {
        let mut public = self.public.get();
        change(&mut public);
        self.public.set(public);
    }

    /// Changes the event to the error kind `kind` if `outcome` is an error.
    pub fn fails_as(&self, kind: EventType, outcome: ErrnoResult) {
        if let Err(why) = outcome {
            self.update(|public| {
                public.event = kind;
                public.status = -why.0;
            });
        }
    }
}

/// Acknowledges the event that synchronous mode stored in an id.
pub fn drop_of(id: &Id) {
    let event = id.public.event.replace(null_mut());
    if !event.is_null() {
        // SAFETY: the event belongs to this id and has not been acknowledged.
        let _ = unsafe { acknowledge(event, 0) };
    }
}

/// Destroys an id after all its events have been acknowledged.
///
/// # Safety
/// `public` was made by [`create`](crate::id::create) or arrived with an event, and is not used any
/// more.
pub unsafe fn destroy(public: *mut rdma_cm_id) -> ErrnoResult {
    // SAFETY: the caller's word.
    let (id, reported) = unsafe { retire(public) }?;
    drop_of(id);
    id.wait_acknowledged(reported, None, c"rdma_destroy_id");
    // SAFETY: the connection manager no longer knows the id, and no event refers to it.
    unsafe { Id::free(public.cast()) };
    Ok(())
}

/// `rdma_ack_cm_event`: frees the event. 0, or -1 with `errno` EINVAL for null and for an event
/// acknowledged before.
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("mov rsi, [rsp]", "jmp {ack}", ack = sym ack_cm_event);
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("mov x1, x30", "b {ack}", ack = sym ack_cm_event);
}

unsafe extern "C-unwind" fn ack_cm_event(event: *mut rdma_cm_event, place: usize) -> c_int {
    // SAFETY: the caller's promise.
    zero_or_minus_one(cancel::only_in_waits(|| unsafe { acknowledge(event, place) }))
}

/// Frees an event. `place`: the return address of the program's call, or 0.
///
/// # Safety
/// As [`rdma_ack_cm_event`].
unsafe fn acknowledge(event: *mut rdma_cm_event, place: usize) -> ErrnoResult {
    let at = event.cast::<Event>();
    EVENTS.claim(at)?;
    // Before the memory serves another event.
    let overwrites = command::event_acknowledged(event.addr(), place);
    // SAFETY: `claim` succeeded, so the event is ours. Ids and memberships exist until their events
    // have been acknowledged.
    unsafe {
        let known = &*at;
        (*known.counts_for).note_acknowledged(known.public.get().event, known.group.as_ref());
        if overwrites {
            at.cast::<u8>().write_bytes(OVERWRITTEN, size_of::<Event>());
        }
        EVENTS.rest(at);
    }
    Ok(())
}

/// `rdma_destroy_id`: waits until all events of the id have been acknowledged.
pub unsafe extern "C-unwind" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { destroy(id) })
}
