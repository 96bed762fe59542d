//! What stands behind an `rdma_cm_event`, until it is acknowledged; and the end of an id, which
//! waits for that.

use core::cell::Cell;
use core::ffi::c_int;
use core::ptr::null_mut;

use crate::abi::cma::*;
use crate::error::{Outcome, zero_or_minus_one};
use crate::id::{Group, Id, retire};
use crate::live::Live;
use adverb_abi::rdma_user_cm::RDMA_MAX_PRIVATE_DATA;

/// An event; its address is that of its public half.
#[repr(C)]
pub struct Event {
    pub public: Cell<Public>,
    pub private_data: [u8; RDMA_MAX_PRIVATE_DATA],
    /// The id that it counts for: of a request the one that listens.
    pub counts_for: *mut Id,
    pub group: *mut Group,
}

/// The public half, copied in and out as a whole.
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

/// Those that have not been acknowledged.
static EVENTS: Live<Event> = Live::new();

impl Event {
    /// Moves the event to where the program finds it, with its pointer to private data.
    pub fn boxed(self) -> *mut rdma_cm_event {
        let new = EVENTS.enter(self);
        // SAFETY: just made. Of both kinds of parameters the pointer comes first; a membership's is
        // the program's value, and an empty one stays null.
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

    /// Becomes another kind if what has to be done for it failed.
    pub fn fails_as(&self, kind: EventType, outcome: Outcome) {
        if let Err(why) = outcome {
            self.update(|public| {
                public.event = kind;
                public.status = -why.0;
            });
        }
    }
}

/// Acknowledges the event that synchronous mode left at an id.
pub fn drop_of(id: &Id) {
    let event = id.public.event.replace(null_mut());
    if !event.is_null() {
        // SAFETY: an event of this id that nobody has acknowledged.
        unsafe { rdma_ack_cm_event(event) };
    }
}

/// Destroys an id as soon as its events have been acknowledged.
///
/// # Safety
/// Made by [`create`](crate::id::create) or taken from an event, not used any more.
pub unsafe fn destroy(public: *mut rdma_cm_id) -> Outcome {
    // SAFETY: the caller's word.
    let (id, reported) = unsafe { retire(public) }?;
    drop_of(id);
    id.wait_acknowledged(reported, None, "rdma_destroy_id");
    // SAFETY: the other side does not know it any more, and no event names it.
    unsafe { Id::free(public.cast()) };
    Ok(())
}

/// `rdma_ack_cm_event`: frees the event. 0, or -1 with `errno` EINVAL for null and for one that was
/// acknowledged before.
///
/// # Safety
/// An event of `rdma_get_cm_event`, or null.
pub unsafe extern "C-unwind" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    let at = event.cast::<Event>();
    zero_or_minus_one(EVENTS.claim(at).map(|()| {
        // SAFETY: claimed just now; ids and memberships live until their events have been
        // acknowledged.
        unsafe {
            let event = &*at;
            (*event.counts_for).note_acknowledged(event.public.get().event, event.group.as_ref());
            EVENTS.rest(at);
        }
    }))
}

/// `rdma_destroy_id`: waits for the acknowledgement of the id's events.
///
/// # Safety
/// An id whose queue pair has been destroyed and that is not used any more.
pub unsafe extern "C-unwind" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { destroy(id) })
}
