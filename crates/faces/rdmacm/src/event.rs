//! Events. This module reads an event from the channel, completes it (moves queue pairs, fetches
//! addresses), and gives it to the program.

pub mod object;

use core::cell::Cell;
use core::ffi::{c_char, c_int};
use core::ptr::null_mut;

use crate::abi::cma::*;
use crate::confirm::confirm_with_ece;
use crate::device::Depths;
use crate::error::{Errno, ErrnoResult, zero_or_minus_one};
use crate::id::{Group, Id, destroy_handle};
use crate::query::{query_address, query_gids, query_paths};
use crate::{cancel, channel, command, options, qp};
use adverb_abi::rdma_user_cm::{
    RDMA_MAX_PRIVATE_DATA, Request, rdma_ucm_conn_param, rdma_ucm_event_resp, rdma_ucm_get_event,
};
use object::{Event, Public, destroy, drop_of};

/// The next event of a channel. Waits for an event, unless the descriptor is non-blocking.
pub fn next(fd: c_int) -> ErrnoResult<*mut rdma_cm_event> {
    loop {
        let get = Request::GetEvent(rdma_ucm_get_event { response: 0 });
        let from: rdma_ucm_event_resp = cancel::wait(|| command::ask(fd, get))?;
        if from.uid == 0 {
            // The event belongs to a connection that the program has not accepted, so it has no id.
            // Skip it.
            continue;
        }
        let uid = usize::try_from(from.uid).map_err(|_| Errno(libc::EIO))?;
        let mut group = null_mut();
        let mut counts_for = core::ptr::with_exposed_provenance_mut::<Id>(uid);
        if matches!(from.event, MULTICAST_JOIN | MULTICAST_ERROR) {
            group = core::ptr::with_exposed_provenance_mut::<Group>(uid);
            // SAFETY: the uid is the address of a membership, which exists as long as it has
            // events.
            counts_for = unsafe { (*group).id };
        }
        // SAFETY: the uid is the address of an id, which exists as long as it has events.
        let id = unsafe { &*counts_for };
        let mut event = Event {
            public: Cell::new(Public {
                id: id.pointer(),
                listen_id: null_mut(),
                event: from.event,
                status: from.status as c_int,
                param: rdma_event_param { arg: 0 },
            }),
            private_data: [0; RDMA_MAX_PRIVATE_DATA],
            counts_for,
            group,
        };
        let given = event.process(id, &from);
        let kind = event.public.get().event;
        id.note_event(kind);
        if !given {
            // SAFETY: a membership exists until its events have been acknowledged.
            id.note_acknowledged(kind, unsafe { group.as_ref() });
            continue;
        }
        let owner = if group.is_null() { counts_for.addr() } else { group.addr() };
        let event = event.boxed();
        command::event_taken(owner, event.addr(), kind);
        return Ok(event);
    }
}

/// Reads the next event of a synchronous id's channel and stores it in the id. Returns kind and
/// status.
pub fn next_of(id: &Id) -> ErrnoResult<(EventType, c_int)> {
    let event = next(id.fd())?;
    id.public.event.set(event);
    // SAFETY: the event was just created.
    Ok(unsafe { ((*event).event, (*event).status) })
}

/// In synchronous mode, waits for the event of the current call and converts its status to an
/// error.
pub fn complete(id: &Id) -> ErrnoResult {
    if !id.with(|s| s.sync) {
        return Ok(());
    }
    drop_of(id);
    let (kind, status) = next_of(id)?;
    match status {
        0 => Ok(()),
        _ if kind == REJECTED => Err(Errno(libc::ECONNREFUSED)),
        status => Err(Errno(status.wrapping_abs())),
    }
}

/// Handles the event of a lookup by name. ENOENT: the program has taken the result already. The
/// program may start another lookup.
fn looked_up(id: &Id) -> ErrnoResult {
    id.with(|state| {
        state.resolving &= !state.resolved.is_null();
        if state.resolved.is_null() { Err(Errno(libc::ENOENT)) } else { Ok(()) }
    })
}

impl Event {
    /// Completes the event. Answers whether the program gets the event.
    fn process(&mut self, id: &Id, from: &rdma_ucm_event_resp) -> bool {
        match from.event {
            ADDR_RESOLVED if from.status == 0 => {
                let known = query_address(id).and_then(|()| query_gids(id));
                let known =
                    known.and_then(|()| id.device(|_| Ok(())).map_err(|_| Errno(libc::ENODEV)));
                self.fails_as(ADDR_ERROR, known);
            }
            ROUTE_RESOLVED if from.status == 0 => self.fails_as(ROUTE_ERROR, query_paths(id)),
            CONNECT_REQUEST => {
                self.copy_param(id, from);
                return self.request(id, from);
            }
            CONNECT_RESPONSE => {
                self.copy_conn(from);
                self.response(id, from);
            }
            REJECTED | DISCONNECTED if id.with(|s| s.connect_error) => return false,
            REJECTED => {
                self.copy_param(id, from);
                let _ = qp::to_error(id);
            }
            MULTICAST_JOIN | MULTICAST_ERROR => {
                self.copy_ud(from);
                // SAFETY: a membership exists until its events have been acknowledged.
                let group = unsafe { &*self.group };
                self.update(|public| public.param.ud.private_data = group.context);
                if from.event == MULTICAST_JOIN {
                    // SAFETY: the event of a joined group carries datagram parameters.
                    let to = unsafe { self.public.get().param.ud.ah_attr };
                    self.fails_as(MULTICAST_ERROR, qp::joined(id, group, to.grh.dgid, to.dlid));
                }
            }
            ADDRINFO_RESOLVED => self.fails_as(ADDRINFO_ERROR, looked_up(id)),
            ADDRINFO_ERROR => id.with(|state| state.resolving = false),
            USER => self.copy_arg(from),
            INTERNAL => {
                // The event that `rdma_resolve_addrinfo` wrote for itself.
                self.update(|public| public.event = ADDRINFO_RESOLVED);
                self.fails_as(ADDRINFO_ERROR, looked_up(id));
            }
            _ => self.copy_param(id, from),
        }
        true
    }

    /// Creates an id for a request. On failure the request is destroyed, and the program gets no
    /// event.
    fn request(&mut self, listener: &Id, from: &rdma_ucm_event_resp) -> bool {
        let (public, sync) = (&listener.public, listener.with(|s| s.sync));
        let new = Id::new(
            public.channel.get(),
            public.context.get(),
            public.ps.get(),
            public.qp_type.get(),
        );
        let Ok(new) = new else {
            let _ = destroy_handle(listener.fd(), from.id);
            return false;
        };
        // SAFETY: the id was just created.
        let id = unsafe { &*new };
        id.handle.set(from.id);
        // SAFETY: a connection request carries these parameters. For datagrams the values are not
        // used.
        let rdma_ucm_conn_param { responder_resources, initiator_depth, .. } =
            unsafe { from.param.conn };
        id.with(|state| {
            state.depths = Depths { responder_resources, initiator_depth };
            state.remote_ece.vendor_id = from.ece.vendor_id;
            state.remote_ece.options = from.ece.attr_mod;
        });
        self.update(|public| {
            public.listen_id = listener.pointer();
            public.id = id.pointer();
        });
        let moved = if sync { options::migrate(id, null_mut()) } else { Ok(()) };
        let known = moved.and_then(|()| query_address(id)).and_then(|()| query_gids(id));
        match known.and_then(|()| query_paths(id)) {
            Ok(()) => true,
            Err(why) => {
                eprintln!(
                    "adverb: warn: a connection request is dropped, because no id could be set up \
                     (errno {})",
                    why.0
                );
                // SAFETY: the program does not know the id yet.
                let _ = unsafe { destroy(id.pointer()) };
                false
            }
        }
    }

    /// The peer accepted. If the id has a queue pair, the connection is confirmed at once.
    /// Otherwise the program confirms.
    fn response(&self, id: &Id, from: &rdma_ucm_event_resp) {
        if id.public.qp.get().is_null() {
            id.with(|state| {
                state.remote_ece.vendor_id = from.ece.vendor_id;
                state.remote_ece.options = from.ece.attr_mod;
            });
            return;
        }
        self.update(|public| public.event = ESTABLISHED);
        if let Err(why) = confirm_with_ece(id, from.ece) {
            id.with(|s| s.connect_error = true);
            self.fails_as(CONNECT_ERROR, Err(why));
        }
    }

    fn copy_param(&mut self, id: &Id, from: &rdma_ucm_event_resp) {
        if id.is_datagram() { self.copy_ud(from) } else { self.copy_conn(from) }
    }

    fn copy_conn(&mut self, from: &rdma_ucm_event_resp) {
        // SAFETY: any bytes are valid for this type.
        let from = unsafe { from.param.conn };
        self.private_data = from.private_data;
        let conn = rdma_conn_param {
            private_data: core::ptr::null(),
            private_data_len: from.private_data_len,
            responder_resources: from.responder_resources,
            initiator_depth: from.initiator_depth,
            flow_control: from.flow_control,
            retry_count: from.retry_count,
            rnr_retry_count: from.rnr_retry_count,
            srq: from.srq,
            qp_num: from.qp_num,
        };
        self.update(|public| public.param.conn = conn);
    }

    fn copy_ud(&mut self, from: &rdma_ucm_event_resp) {
        // SAFETY: any bytes are valid for this type.
        let from = unsafe { from.param.ud };
        self.private_data = from.private_data;
        let ud = rdma_ud_param {
            private_data: core::ptr::null(),
            private_data_len: from.private_data_len,
            ah_attr: (&from.ah_attr).into(),
            qp_num: from.qp_num,
            qkey: from.qkey,
        };
        self.update(|public| public.param.ud = ud);
    }

    fn copy_arg(&self, from: &rdma_ucm_event_resp) {
        // SAFETY: any bytes are valid for this type.
        let [low, high] = unsafe { from.param.arg };
        let mut arg = [0; 8];
        arg[..4].copy_from_slice(&low.to_ne_bytes());
        arg[4..].copy_from_slice(&high.to_ne_bytes());
        self.update(|public| public.param.arg = u64::from_ne_bytes(arg));
    }
}

/// `rdma_event_str`.
pub extern "C" fn rdma_event_str(kind: EventType) -> *const c_char {
    event_name(kind).as_ptr()
}

/// `rdma_get_cm_event`: 0, or -1 with `errno` set; EAGAIN if the channel is non-blocking and has no
/// event.
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("mov rdx, [rsp]", "jmp {get}", get = sym get_cm_event);
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("mov x2, x30", "b {get}", get = sym get_cm_event);
}

unsafe extern "C-unwind" fn get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
    return_address: usize,
) -> c_int {
    if event.is_null() {
        return zero_or_minus_one(Err(Errno(libc::EINVAL)));
    }
    let read = |fd| command::at_place(return_address, || next(fd));
    let next = cancel::only_in_waits(|| channel::fd(channel).and_then(read));
    zero_or_minus_one(next.map(|next| {
        // SAFETY: the caller's word.
        unsafe { event.write(next) }
    }))
}
