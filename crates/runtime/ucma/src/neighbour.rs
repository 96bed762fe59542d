//! Neighbour discovery of ids, for a destination on a link with an unknown neighbour. As in
//! Linux, the address is resolved when the neighbour has answered. The address is an error if the
//! neighbour does not answer within the program's time limit.
use crate::address::Address;
use crate::event::{Event, EventKind};
use crate::host::{Binding, Host, Tokens};
use crate::id::{Asking, Standing};
use crate::world::World;
use adverb_cm::Time;
use nix::errno::Errno;
use std::net::SocketAddr;
use std::time::Duration;

/// Delay from the discovery request to the first check. Each later delay is twice as long, up to
/// `LONGEST_LOOK`.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LONGEST_LOOK: Duration = Duration::from_millis(50);
/// The kernel gives up after three requests, one second apart. After this time the kernel must
/// start again.
const ASK_EVERY: Duration = Duration::from_secs(3);

impl<D: Host, T: Tokens> World<D, T> {
    /// `true`: the id waits for the neighbour. `false`: the neighbour is known, or there is no
    /// neighbour to ask.
    pub(crate) fn ask_neighbour(
        &mut self,
        number: u32,
        binding: &Binding,
        destination: Address,
        patience: Duration,
    ) -> bool {
        let Some(to) = on_link(destination, binding) else { return false };
        if self.host.is_local(to.ip()) || self.host.knows_neighbour(to) {
            return false;
        }
        self.host.ask_neighbour(binding, to);
        let now = self.host.now();
        let Some(id) = self.ids.get_mut(&number) else { return false };
        id.standing = Standing::AddrQuery;
        id.asking = Some(Asking {
            binding: binding.clone(),
            destination,
            until: now + patience,
            look_at: now + FIRST_LOOK.min(patience),
            look_after: FIRST_LOOK * 2,
            ask_at: now + ASK_EVERY,
        });
        true
    }

    /// When the next id is to be checked.
    pub(crate) fn next_look_at_neighbours(&self) -> Option<Time> {
        self.ids.values().filter_map(|id| id.asking.as_ref()).map(|asking| asking.look_at).min()
    }

    /// Continues with the ids after the neighbour's answer or the time limit.
    pub(crate) fn look_at_neighbours(&mut self, now: Time) {
        let is_due = |asking: &Asking| asking.look_at <= now;
        let due = self.ids.numbers(|id| id.asking.as_ref().is_some_and(is_due));
        for number in due {
            let Some(asking) = self.ids.get_mut(&number).and_then(|id| id.asking.take()) else {
                continue;
            };
            let to = on_link(asking.destination, &asking.binding);
            if to.is_none_or(|to| self.host.knows_neighbour(to)) {
                self.resolved(number, asking.binding, asking.destination);
                self.event(number, Event::new(EventKind::AddrResolved, 0));
            } else if now >= asking.until {
                self.no_neighbour(number, &asking);
            } else {
                self.ask_on(number, now, asking);
            }
        }
    }

    fn ask_on(&mut self, number: u32, now: Time, mut asking: Asking) {
        if let Some(to) = on_link(asking.destination, &asking.binding)
            && now >= asking.ask_at
        {
            self.host.ask_neighbour(&asking.binding, to);
            asking.ask_at = now + ASK_EVERY;
        }
        asking.look_at = asking.until.min(now + asking.look_after);
        asking.look_after = LONGEST_LOOK.min(asking.look_after * 2);
        if let Some(id) = self.ids.get_mut(&number) {
            id.asking = Some(asking);
        }
    }

    fn no_neighbour(&mut self, number: u32, asking: &Asking) {
        if let Some(id) = self.ids.get_mut(&number) {
            id.standing = Standing::AddrBound;
        }
        if let Some(ip) = asking.destination.ip() {
            log::warn!(
                "rdma_resolve_addr: no host on the link of {} answers for {ip} (ARP, neighbour \
                 discovery): is the host up, and on this link? (ADDR_ERROR, status -{})",
                asking.binding.name,
                Errno::ETIMEDOUT as i32
            );
        }
        self.event(number, Event::new(EventKind::AddrError, -(Errno::ETIMEDOUT as i32)));
    }
}

/// The destination, with the interface of `binding` added to a link-local address without scope. A
/// wildcard destination gives `None`, because a wildcard means the local address.
fn on_link(destination: Address, binding: &Binding) -> Option<SocketAddr> {
    match destination.with_scope(binding.scope_id) {
        any if any.is_any() => None,
        Address::Ip(ip) => Some(ip),
        Address::Ib { .. } => None,
    }
}
