//! Addresses, routes and listeners of ids.
use crate::address::Address;
use crate::event::{Event, EventKind};
use crate::host::{Binding, Claim, Host, Tokens};
use crate::id::{CmId, Route, Standing};
use crate::ports::{EPHEMERAL, Holder};
use crate::world::{MAX_BACKLOG, World};
use adverb_cm::ip::service_id;
use nix::errno::Errno;
use std::net::SocketAddr;
use std::time::Duration;

impl<D: Host, T: Tokens> World<D, T> {
    /// BIND, BIND_IP.
    pub(crate) fn bind(&mut self, file: u64, number: u32, address: Address) -> Result<(), Errno> {
        let id = self.id(file, number)?;
        if id.standing != Standing::Idle {
            return Err(Errno::EINVAL);
        }
        self.bind_idle(number, address, true)
    }

    /// `claim`: claim the port among all processes as well, not only among the ids of this process.
    fn bind_idle(&mut self, number: u32, address: Address, claim: bool) -> Result<(), Errno> {
        let binding = self.binding_of_source(address)?;
        // Without a device of its own, a loopback address is a wildcard, as in Linux.
        let address = match binding {
            None => address.any_of_family().with_port(address.port()),
            Some(_) => address,
        };
        let id = self.ids.get_mut(&number).ok_or(Errno::ENOENT)?;
        id.source = Some(address);
        let only = id.family_only.unwrap_or(matches!(address, Address::Ip(SocketAddr::V4(_))));
        let (space, reuse) = (id.space(), id.reuse);
        let holder = |address| Holder { id: number, address, reuse, family_only: only };
        let taken = if address.port() == 0 {
            self.take_any_port(number, space, holder(address), claim)
        } else {
            self.take_port(number, space, address.port(), holder(address), claim)
        };
        let id = self.ids.get_mut(&number).ok_or(Errno::ENOENT)?;
        match taken {
            Ok(port) => {
                id.source = Some(address.with_port(port));
                id.family_only = Some(only);
                id.binding = binding;
                id.standing = Standing::AddrBound;
                Ok(())
            }
            Err(e) => {
                id.source = None;
                Err(e)
            }
        }
    }

    /// The device of an address to bind; `None` for a wildcard address. A loopback address belongs
    /// to the device that has it, and is a wildcard if no device has it. This differs from Linux,
    /// where no device has a loopback address. Programs tested on one host expect a device after
    /// binding a loopback address.
    fn binding_of_source(&self, address: Address) -> Result<Option<Binding>, Errno> {
        if address.is_link_local() && address.scope() == 0 {
            return Err(Errno::EINVAL);
        }
        match address.ip() {
            _ if address.is_any() => Ok(None),
            Some(ip) => match self.host.binding_of(ip, address.scope()) {
                Err(Errno::EADDRNOTAVAIL) if address.is_localhost() => Ok(None),
                found => found.map(Some),
            },
            // A GID of another machine.
            None => Err(Errno::ENODEV),
        }
    }

    /// Takes a free port, for ids with port 0.
    fn take_any_port(
        &mut self,
        number: u32,
        space: u16,
        holder: Holder,
        claim: bool,
    ) -> Result<u16, Errno> {
        let (first, count) = (*EPHEMERAL.start(), EPHEMERAL.len() as u32);
        let start = self.host.random() % count;
        for n in 0..count {
            let port = first + ((start + n) % count) as u16;
            if !self.ports.is_free(space, port) {
                continue;
            }
            match self.take_port(number, space, port, holder, claim) {
                Err(Errno::EADDRINUSE) => {}
                other => return other,
            }
        }
        Err(Errno::EADDRNOTAVAIL)
    }

    fn take_port(
        &mut self,
        number: u32,
        space: u16,
        port: u16,
        holder: Holder,
        claim: bool,
    ) -> Result<u16, Errno> {
        self.ports.take(space, port, holder)?;
        let id = self.ids.get_mut(&number).ok_or(Errno::ENOENT)?;
        id.held = Some((space, port));
        if claim && let Err(e) = self.claim(number, space, port) {
            self.ports.release(space, port, number);
            if let Some(id) = self.ids.get_mut(&number) {
                id.held = None;
            }
            return Err(e);
        }
        Ok(port)
    }

    /// Claims the port of an id among all processes. A second call for the same id does nothing.
    fn claim(&mut self, number: u32, space: u16, port: u16) -> Result<(), Errno> {
        let id = self.ids.get_mut(&number).ok_or(Errno::ENOENT)?;
        if id.claim.is_some() {
            return Ok(());
        }
        let key = (service_id(space, port), id.claimed_address());
        self.claims.add(key, number, || self.host.claim(key.0, key.1, id.reuse))?;
        id.claim = Some(key);
        Ok(())
    }

    pub(crate) fn release_port(&mut self, number: u32, id: &CmId) {
        if let Some((space, port)) = id.held {
            self.ports.release(space, port, number);
        }
        if let Some(key) = id.claim {
            self.claims.remove(key, number);
        }
    }

    /// RESOLVE_ADDR, RESOLVE_IP. The answer of the network comes as an event. `patience` limits how
    /// long the id waits for the neighbour on the way to the destination to answer. `None`: the id
    /// does not wait for a neighbour.
    pub(crate) fn resolve_addr(
        &mut self,
        file: u64,
        number: u32,
        source: Option<Address>,
        destination: Address,
        patience: Option<Duration>,
    ) -> Result<(), Errno> {
        let id = self.id(file, number)?;
        match id.standing {
            Standing::AddrBound => {}
            Standing::Idle => {
                let source = source.unwrap_or_else(|| destination.any_of_family());
                self.bind_idle(number, source, false)?;
            }
            _ => return Err(Errno::EINVAL),
        }
        let id = self.ids.get(&number).ok_or(Errno::ENOENT)?;
        let source = id.source.ok_or(Errno::EINVAL)?;
        if !source.same_family(&destination) {
            return Err(Errno::EINVAL);
        }
        let found = match (source, destination) {
            (Address::Ip(source), Address::Ip(destination)) => {
                let from = Some(source).filter(|a| !a.ip().is_unspecified());
                self.host.binding_toward(from, destination)
            }
            _ => Err(Errno::ENODEV),
        };
        let event = match found {
            Ok(binding) => {
                if let Some(patience) = patience
                    && self.ask_neighbour(number, &binding, destination, patience)
                {
                    return Ok(());
                }
                self.resolved(number, binding, destination);
                Event::new(EventKind::AddrResolved, 0)
            }
            Err(e) => {
                log::warn!(
                    "rdma_resolve_addr: {} cannot be reached: {} (ADDR_ERROR, status -{})",
                    destination
                        .ip()
                        .map_or_else(|| "an InfiniBand address".into(), |ip| ip.to_string()),
                    e.desc(),
                    e as i32
                );
                Event::new(EventKind::AddrError, -(e as i32))
            }
        };
        self.event(number, event);
        Ok(())
    }

    pub(crate) fn resolved(&mut self, number: u32, binding: Binding, destination: Address) {
        let Some(id) = self.ids.get_mut(&number) else { return };
        let Some(source) = id.source else { return };
        let at =
            |port| Address::Ip(SocketAddr::new(binding.address, port)).with_scope(binding.scope_id);
        // A wildcard destination means the local address itself, and so does a loopback destination
        // of an id at another address. Linux: `cma_resolve_loopback`.
        let destination = match destination {
            own if own.is_any() => at(own.port()),
            own if own.is_localhost() && !binding.address.is_loopback() => at(own.port()),
            other => other.with_scope(binding.scope_id),
        };
        id.source = Some(at(source.port()));
        id.destination = Some(destination);
        id.binding = Some(binding);
        id.standing = Standing::AddrResolved;
    }

    /// RESOLVE_ROUTE. On Ethernet the route is known at once. The program may have its own `route`.
    pub(crate) fn resolve_route(
        &mut self,
        file: u64,
        number: u32,
        route: Option<Route>,
    ) -> Result<(), Errno> {
        let id = self.id(file, number)?;
        if id.standing != Standing::AddrResolved {
            return Err(Errno::EINVAL);
        }
        id.route = route.or_else(|| id.binding.as_ref().map(|binding| id.route_over(binding)));
        id.standing = Standing::RouteResolved;
        self.event(number, Event::new(EventKind::RouteResolved, 0));
        Ok(())
    }

    /// RESOLVE_IB_SERVICE. The request is for a subnet administrator, and Ethernet has none.
    pub(crate) fn resolve_ib_service(&mut self, file: u64, number: u32) -> Result<(), Errno> {
        let id = self.id(file, number)?;
        if id.standing == Standing::AddrResolved {
            Err(Errno::EOPNOTSUPP)
        } else {
            Err(Errno::EINVAL)
        }
    }

    /// LISTEN.
    pub(crate) fn listen(&mut self, file: u64, number: u32, backlog: u32) -> Result<(), Errno> {
        let id = self.id(file, number)?;
        id.backlog = if backlog > 0 && backlog < MAX_BACKLOG { backlog } else { MAX_BACKLOG };
        if id.standing == Standing::Idle {
            let any = Address::Ip("0.0.0.0:0".parse().map_err(|_| Errno::EINVAL)?);
            self.bind_idle(number, any, true)?;
        }
        let id = self.ids.get(&number).ok_or(Errno::ENOENT)?;
        let (Standing::AddrBound, Some((space, port))) = (id.standing, id.held) else {
            return Err(Errno::EINVAL);
        };
        self.ports.may_listen(space, port, number)?;
        self.claim(number, space, port)?;
        let key = self.ids.get(&number).and_then(|id| id.claim).ok_or(Errno::EINVAL)?;
        if let Some(claim) = self.claims.get(key) {
            claim.listen()?;
        }
        if let Some(holder) = self.ports.holder_mut(space, port, number) {
            holder.reuse = false;
        }
        self.listeners
            .add(key.0, number, || self.cm.listen(key.0, None).map_err(crate::world::errno))?;
        if let Some(id) = self.ids.get_mut(&number) {
            id.standing = Standing::Listen;
        }
        Ok(())
    }

    pub(crate) fn stop_listening(&mut self, number: u32, id: &CmId) {
        let Some((service, _)) = id.claim else { return };
        if let Some(listener) = self.listeners.remove(service, number) {
            // `unlisten` cannot fail: `listen` made the listener together with this entry.
            let _ = self.cm.unlisten(listener);
        }
    }

    /// The listener for a request to this address. An id bound to exactly this address comes before
    /// an id bound to a wildcard address.
    pub(crate) fn listener_for(&self, service: u64, to: Address) -> Option<u32> {
        let all = || self.listeners.ids(service).filter_map(|n| Some((n, self.ids.get(&n)?)));
        let at = |id: &CmId| {
            id.source.is_some_and(|s| {
                s.ip() == to.ip() && (!s.is_link_local() || s.scope() == to.scope())
            })
        };
        let for_all = |id: &CmId| {
            let source = id.source.filter(Address::is_any);
            source.is_some_and(|s| {
                s.same_family(&to)
                    || matches!(s, Address::Ib { .. })
                    || s.ip().is_some_and(|ip| ip.is_ipv6()) && id.family_only == Some(false)
            })
        };
        let exact = all().find(|(_, id)| at(id));
        exact.or_else(|| all().find(|(_, id)| for_all(id))).map(|(number, _)| number)
    }
}
