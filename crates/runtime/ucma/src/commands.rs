//! Dispatches each request to its function.
use crate::event::{Event, EventKind, Param};
use crate::host::{Host, Tokens};
use crate::id::CmId;
use crate::param::qp_type;
use crate::query;
use crate::request::{Caller, FileId, Question, Reply, Request};
use crate::world::World;
use adverb_cm::ip::{PS_IB, PS_IPOIB, PS_TCP, PS_UDP};
use nix::errno::Errno;

/// The kind of queue pair of a new id.
fn kind_of(port_space: u16, asked: u8) -> Result<u8, Errno> {
    match port_space {
        PS_TCP => Ok(qp_type::RC),
        PS_UDP | PS_IPOIB => Ok(qp_type::UD),
        PS_IB => Ok(asked),
        _ => Err(Errno::EINVAL),
    }
}

impl<D: Host, T: Tokens> World<D, T> {
    /// Performs a request of the program that has opened `file`.
    ///
    /// # Errors
    /// The errno that the kernel would return. EAGAIN: no event waits.
    pub fn perform(
        &mut self,
        file: FileId,
        request: &Request<'_>,
        caller: &mut dyn Caller,
    ) -> Result<(), Errno> {
        if self.files.tokens(file.0).is_none() {
            return Err(Errno::EBADF);
        }
        let done = self.dispatch(file.0, request, caller);
        self.pump();
        done
    }

    fn dispatch(
        &mut self,
        file: u64,
        request: &Request<'_>,
        caller: &mut dyn Caller,
    ) -> Result<(), Errno> {
        match *request {
            Request::CreateId { uid, port_space, qp_type } => {
                self.create_id(file, uid, port_space, qp_type, caller)
            }
            Request::DestroyId { id } => self.destroy_id(file, id, caller),
            Request::Bind { id, address } => self.bind(file, id, address),
            Request::ResolveAddr { id, source, destination, patience } => {
                self.resolve_addr(file, id, source, destination, Some(patience))
            }
            Request::ResolveRoute { id } => self.resolve_route(file, id, None),
            Request::ResolveIbService { id } => self.resolve_ib_service(file, id),
            Request::QueryRoute { id } => {
                let id = self.id(file, id)?;
                caller.reply(&Reply::Route(query::addresses(id), query::path(id)))
            }
            Request::Query { id, question } => {
                let id = self.id(file, id)?;
                caller.reply(&match question {
                    Question::Addresses => Reply::Addresses(query::addresses(id)),
                    Question::Path => Reply::Path(query::path(id)),
                    Question::Gids => Reply::Addresses(query::gids(id)),
                    Question::Services => Reply::NoServices,
                    Question::Unknown => return Err(Errno::ENOSYS),
                })
            }
            Request::Connect { id, param, ece } => self.connect(file, id, &param, ece),
            Request::Listen { id, backlog } => self.listen(file, id, backlog),
            Request::Accept { id, uid, param, ece } => self.accept(file, id, uid, &param, ece),
            Request::Reject { id, reason, private_data } => {
                self.reject(file, id, reason, private_data)
            }
            Request::Disconnect { id } => self.disconnect(file, id),
            Request::InitQpAttr { id, state } => {
                let attr = self.init_qp_attr(file, id, state)?;
                caller.reply(&Reply::QpAttr(attr))
            }
            Request::GetEvent => self.get_event(file, caller),
            Request::GetOption { id, name } => self.get_option(file, id, name, caller),
            Request::SetOption { id } => self.set_option(file, id, caller),
            Request::Notify { id, event } => self.notify(file, id, event),
            Request::Join { id, uid, group } => self.join(file, id, uid, group, caller),
            Request::Leave { group } => self.leave(file, group, caller),
            Request::Migrate { id, from } => self.migrate(file, from.0, id, caller),
            Request::WriteEvent { id, kind, status, arg } => {
                self.write_event(file, id, kind, status, arg)
            }
        }
    }

    fn create_id(
        &mut self,
        file: u64,
        uid: u64,
        port_space: u16,
        asked: u8,
        caller: &mut dyn Caller,
    ) -> Result<(), Errno> {
        let qp_type = kind_of(port_space, asked)?;
        let psn = self.host.random();
        let number = self.ids.add(CmId::new(file, uid, port_space, qp_type, psn));
        let answered = caller.reply(&Reply::Id(number));
        if answered.is_err() {
            self.destroy(number);
        }
        answered
    }

    fn destroy_id(&mut self, file: u64, number: u32, caller: &mut dyn Caller) -> Result<(), Errno> {
        match self.id(file, number) {
            // An id with a lost device (EIO) can still be destroyed.
            Ok(_) | Err(Errno::EIO) => {}
            Err(e) => return Err(e),
        }
        let reported = self.destroy(number);
        caller.reply(&Reply::EventsReported(reported))
    }

    /// MIGRATE_ID: moves an id from the file `from` to the file `to`, with the events that wait.
    fn migrate(
        &mut self,
        to: u64,
        from: u64,
        number: u32,
        caller: &mut dyn Caller,
    ) -> Result<(), Errno> {
        let id = self.id(from, number)?;
        id.file = to;
        let reported = id.events_reported;
        for event in self.files.take(from, |e| e.owner == number) {
            if let Some(request) = event.request.and_then(|request| self.ids.get_mut(&request)) {
                request.file = to;
            }
            self.files.push(to, event);
        }
        caller.reply(&Reply::EventsReported(reported))
    }

    /// WRITE_CM_EVENT: the program's own events.
    fn write_event(
        &mut self,
        file: u64,
        number: u32,
        kind: EventKind,
        status: i32,
        arg: [u8; 8],
    ) -> Result<(), Errno> {
        if !matches!(kind, EventKind::User | EventKind::Internal) {
            return Err(Errno::EINVAL);
        }
        self.id(file, number)?;
        self.event(number, Event { param: Param::Arg(arg), ..Event::new(kind, status) });
        Ok(())
    }
}
