//! All ids, files and groups of a process, over one connection manager: values in, values out.
use crate::event::{Event, EventKind, Queued};
use crate::host::{Binding, Group, Host, Presence, Tokens};
use crate::id::{CmId, Standing};
use crate::limited::{Heard, Limited};
use crate::ports::Ports;
use crate::request::{Caller, FileId, Reply};
use adverb_cm::{CommandError, Config, Endpoint, MAD_LEN, Path, Time};
use files::Files;
use nix::errno::Errno;
use services::{Claims, Listeners};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use table::Table;

mod files;
mod services;
mod table;

/// The largest backlog of a listener, as in `/proc/sys/net/rdma_ucm/max_backlog`.
pub const MAX_BACKLOG: u32 = 1024;
/// How often the addresses of ids are checked for presence.
pub const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A multicast group joined by an id.
#[derive(Debug)]
pub(crate) struct Joined<M> {
    pub owner: u32,
    /// `None`: the join is under way, or has failed, and the event has said so.
    pub group: Option<Group<M>>,
    pub events_reported: u32,
}

/// The rdma_cm of a process. The owner calls [`World::perform`] for the program, and
/// [`World::mad`], [`World::timeout`] and [`World::peer_ended`] for the machine.
pub struct World<D: Host, T: Tokens> {
    pub(crate) host: D,
    pub(crate) cm: Endpoint,
    pub(crate) ids: Table<CmId>,
    pub(crate) groups: Table<Joined<D::Membership>>,
    pub(crate) files: Files<T>,
    pub(crate) ports: Ports,
    pub(crate) claims: Claims<D::Claim>,
    pub(crate) listeners: Listeners,
    pub(crate) by_conn: BTreeMap<adverb_cm::Id, u32>,
    /// Reserved queue pair numbers, for connections that are not over.
    pub(crate) reservations: BTreeMap<adverb_cm::Id, D::Reservation>,
    /// Farewells entrusted to the survivor, by connection to another machine. The survivor sends a
    /// farewell if this process is killed.
    pub(crate) entrusted: BTreeMap<adverb_cm::Id, [u8; MAD_LEN]>,
    /// Connections in `reservations` without an id, because the program has destroyed the id. No
    /// event reports the end of such a connection.
    lingering: BTreeSet<adverb_cm::Id>,
    /// The interface on which the current MAD arrived, if its addresses are link-local.
    pub(crate) scope: u32,
    /// When the addresses of ids are checked next.
    pub(crate) look_at: Time,
    pub(crate) heard: Heard,
    pub(crate) limited: Limited,
}

impl<D: Host, T: Tokens> World<D, T> {
    /// Creates a world without ids. `config` configures the connection manager.
    pub fn new(host: D, config: Config) -> World<D, T> {
        let look_at = host.now() + LOOK_EVERY;
        World {
            host,
            cm: Endpoint::new(config),
            ids: Table::default(),
            groups: Table::default(),
            files: Files::default(),
            ports: Ports::default(),
            claims: Claims::default(),
            listeners: Listeners::default(),
            by_conn: BTreeMap::new(),
            reservations: BTreeMap::new(),
            entrusted: BTreeMap::new(),
            lingering: BTreeSet::new(),
            scope: 0,
            look_at,
            heard: Heard::default(),
            limited: Limited::default(),
        }
    }

    /// Opens the device file.
    pub fn open(&mut self, tokens: T) -> FileId {
        FileId(self.files.open(tokens))
    }

    /// The tokens of a file.
    pub fn tokens(&self, file: FileId) -> Option<&T> {
        self.files.tokens(file.0)
    }

    /// Closes a file and ends all ids of the file. Returns the tokens of the file.
    pub fn close(&mut self, file: FileId) -> Option<T> {
        for number in self.ids.numbers(|id| id.file == file.0) {
            self.destroy(number);
        }
        self.pump();
        self.files.close(file.0)
    }

    /// Ends all ids when the process exits. The files stay, because threads may still wait in them.
    pub fn end(&mut self) {
        for number in self.ids.numbers(|_| true) {
            self.destroy(number);
        }
        self.pump();
    }

    /// Handles a MAD for this process. Returns when [`World::timeout`] is to be called next.
    pub fn mad(&mut self, now: Time, path: Path, scope: u32, mad: &[u8; MAD_LEN]) -> Option<Time> {
        self.scope = scope;
        self.heard.count(path.remote);
        if let Err(e) = self.cm.handle_mad(now, path, mad) {
            log::debug!("rdma_cm: a MAD from {} is dropped: {e}", path.remote);
        }
        self.pump();
        self.scope = 0;
        self.next_timeout()
    }

    /// Handles a timeout, at the time returned last.
    pub fn timeout(&mut self, now: Time) -> Option<Time> {
        self.cm.handle_timeout(now);
        self.pump();
        self.look_at_neighbours(now);
        if now >= self.look_at {
            self.look_at = now + LOOK_EVERY;
            self.look_at_addresses();
            self.pump();
        }
        self.next_timeout()
    }

    /// Handles the end of a process of this host. `prefix` is the prefix of the process in
    /// communication ids.
    pub fn peer_ended(&mut self, now: Time, prefix: u32) -> Option<Time> {
        let host = &self.host;
        self.cm.peer_ended(now, prefix, |path| host.is_local(path.remote));
        self.pump();
        self.next_timeout()
    }

    /// Handles a change of this machine's interfaces or addresses.
    pub fn interfaces_changed(&mut self, now: Time) -> Option<Time> {
        self.look_at = now + LOOK_EVERY;
        self.look_at_addresses();
        self.pump();
        self.next_timeout()
    }

    /// Does an id wait for the answer of a peer, or of a neighbour? Either comes, or a timer ends
    /// the wait with an event.
    pub fn awaits_answer(&self) -> bool {
        let awaits = |id: &CmId| {
            id.asking.is_some() || id.conn.is_some_and(|(conn, _)| self.cm.awaits_answer(conn))
        };
        self.ids.values().any(awaits)
    }

    /// When [`World::timeout`] is to be called next.
    pub fn next_timeout(&self) -> Option<Time> {
        let looks =
            !self.host.hears_of_interfaces() && self.ids.values().any(|id| id.binding.is_some());
        let look = looks.then_some(self.look_at);
        look.into_iter().chain(self.cm.poll_timeout()).chain(self.next_look_at_neighbours()).min()
    }

    /// Sends all MADs of the connection manager and handles all events.
    pub(crate) fn pump(&mut self) {
        loop {
            while let Some(transmit) = self.cm.poll_transmit() {
                if let Err(e) = self.host.send(&transmit.path, &transmit.mad) {
                    self.on_not_sent(&transmit, &e);
                }
            }
            let Some((conn, event)) = self.cm.poll_event() else { break };
            self.on_event(conn, event);
        }
        // Releases the queue pair numbers of ended connections for reuse.
        while let Some(conn) = self.cm.poll_forgotten() {
            if self.lingering.remove(&conn) {
                self.reservations.remove(&conn);
                self.withdraw(conn);
            }
        }
    }

    /// Reports lost devices and addresses to the affected ids.
    fn look_at_addresses(&mut self) {
        let placed = |id: &CmId| id.binding.clone().filter(|_| !id.told);
        let mut bindings: Vec<Binding> = self.ids.values().filter_map(placed).collect();
        bindings.sort_by(|a, b| (a.address, &a.name).cmp(&(b.address, &b.name)));
        bindings.dedup();
        for binding in bindings {
            let presence = self.host.presence(&binding);
            if presence == Presence::There {
                continue;
            }
            let there = |id: &CmId| !id.told && id.binding.as_ref() == Some(&binding);
            for number in self.ids.numbers(there) {
                self.lost(number, presence, &binding);
            }
        }
    }

    /// Reports the loss of its address or device to an id.
    fn lost(&mut self, number: u32, presence: Presence, binding: &Binding) {
        let Some(id) = self.ids.get_mut(&number) else { return };
        id.told = true;
        if presence == Presence::AddressRemoved {
            let Binding { address, name, .. } = binding;
            log::warn!("rdma_cm: {address} is no address of {name} any more");
            return self.event(number, Event::new(EventKind::AddrChange, 0));
        }
        log::warn!("rdma_cm: the device {} is gone", binding.name);
        id.standing = Standing::DeviceRemoval;
        let conn = id.conn.take();
        self.event(number, Event::new(EventKind::DeviceRemoval, 0));
        if let Some((conn, _)) = conn {
            self.release(conn);
        }
    }

    /// Takes the farewell of a connection back from the survivor, because the connection is over.
    pub(crate) fn withdraw(&mut self, conn: adverb_cm::Id) {
        if self.entrusted.remove(&conn).is_some() {
            self.host.withdraw(conn);
        }
    }

    /// Releases a connection. The connection manager tells the peer.
    fn release(&mut self, conn: adverb_cm::Id) {
        self.by_conn.remove(&conn);
        if self.reservations.contains_key(&conn) {
            self.lingering.insert(conn);
        } else {
            self.withdraw(conn);
        }
        let now = self.host.now();
        // This cannot fail: only this function releases a connection, so the connection manager
        // knows `conn`.
        let _ = self.cm.release(now, conn);
    }

    /// The id of a file. ENOENT: no such id. EINVAL: the id belongs to another file.
    pub(crate) fn id(&mut self, file: u64, number: u32) -> Result<&mut CmId, Errno> {
        let id =
            self.ids.get_mut(&number).filter(|id| id.listener.is_none()).ok_or(Errno::ENOENT)?;
        match id.standing {
            _ if id.file != file => Err(Errno::EINVAL),
            Standing::DeviceRemoval => Err(Errno::EIO),
            _ => Ok(id),
        }
    }

    /// Queues an event of an id. Drops the event if the program has not accepted the id yet.
    pub(crate) fn event(&mut self, number: u32, event: Event) {
        let Some(id) = self.ids.get(&number).filter(|id| id.uid != 0) else { return };
        let queued = Queued { owner: number, uid: id.uid, group: None, request: None, event };
        self.files.push(id.file, queued);
    }

    /// Ends an id. Returns how many events of the id the program has read.
    pub(crate) fn destroy(&mut self, number: u32) -> u32 {
        let Some(id) = self.ids.remove(number) else { return 0 };
        for group in self.groups.numbers(|group| group.owner == number) {
            self.groups.remove(group);
        }
        let dropped = self.files.take(id.file, |e| e.owner == number);
        self.stop_listening(number, &id);
        self.release_port(number, &id);
        if let Some((conn, _)) = id.conn {
            self.release(conn);
        }
        for request in dropped.into_iter().filter_map(|event| event.request) {
            self.destroy(request);
        }
        id.events_reported
    }

    /// GET_EVENT: moves the oldest event to the caller.
    pub(crate) fn get_event(&mut self, file: u64, caller: &mut dyn Caller) -> Result<(), Errno> {
        let first = self.files.first(file).ok_or(Errno::EAGAIN)?;
        let about = first.group.or(first.request).unwrap_or(first.owner);
        caller.reply(&Reply::Event { uid: first.uid, about, event: &first.event })?;
        self.take_event(file).map(drop).ok_or(Errno::EAGAIN)
    }

    /// Removes and returns the oldest event of a file.
    pub(crate) fn take_event(&mut self, file: u64) -> Option<Queued> {
        let first = self.files.pop(file)?;
        if let Some(owner) = self.ids.get_mut(&first.owner) {
            owner.events_reported += 1;
            owner.backlog += u32::from(first.event.kind == EventKind::ConnectRequest);
        }
        if let Some(group) = first.group.and_then(|group| self.groups.get_mut(&group)) {
            group.events_reported += 1;
        }
        if let Some(request) = first.request.and_then(|request| self.ids.get_mut(&request)) {
            request.listener = None;
        }
        Some(first)
    }

    /// Counts of ids, groups, ports, claims, listeners and connections. All are zero after every
    /// file has been closed and the peers have answered.
    pub fn census(&self) -> [usize; 9] {
        [
            self.ids.len(),
            self.groups.len(),
            self.ports.len(),
            self.claims.len(),
            self.listeners.len(),
            self.by_conn.len(),
            self.reservations.len(),
            self.entrusted.len(),
            self.cm.len(),
        ]
    }
}

/// The errno for an error of the connection manager.
pub(crate) fn errno(e: CommandError) -> Errno {
    adverb_device::failed::tell_line(format_args!("rdma_cm: {e}"));
    match e {
        CommandError::TooManyConnections(_) => Errno::ENOMEM,
        CommandError::ServiceInUse(_) => Errno::EADDRINUSE,
        _ => Errno::EINVAL,
    }
}

#[cfg(test)]
impl<D: Host, T: Tokens> World<D, T> {
    pub(crate) fn waiting_events(&self) -> usize {
        self.files.events().count()
    }

    /// Checks the invariants between any two steps.
    pub(crate) fn check(&self) {
        for (number, id) in self.ids.iter() {
            assert!(self.files.tokens(id.file).is_some(), "id {number} has a file");
            if let Some((conn, _)) = id.conn {
                assert_eq!(self.by_conn.get(&conn), Some(number));
                assert!(self.cm.state(conn).is_some(), "its connection is known");
            }
            if let Some(key) = id.claim {
                assert!(self.claims.get(key).is_some());
            }
            let unread = |e: &Queued| e.request == Some(*number);
            let in_queue = self.files.events().any(unread);
            assert_eq!(
                id.listener.is_some(),
                in_queue,
                "a request waits to be read just as it is marked"
            );
        }
        assert_eq!(self.by_conn.len(), self.ids.values().filter(|id| id.conn.is_some()).count());
        let claimed = self.ids.values().filter(|id| id.claim.is_some()).count();
        assert_eq!(self.claims.all_ids().count(), claimed);
        for event in self.files.events() {
            assert!(self.ids.contains_key(&event.owner), "an event's id is alive");
            assert!(event.group.is_none_or(|group| self.groups.contains_key(&group)));
        }
        assert!(self.listeners.all_ids().all(|id| self.ids.contains_key(&id)));
    }
}
