//! Ports in use by the ids of this process, by port space.
use crate::address::Address;
use nix::errno::Errno;
use std::collections::BTreeMap;

/// The range of ports in place of port 0: the default range of Linux.
pub const EPHEMERAL: std::ops::RangeInclusive<u16> = 32768..=60999;

/// An id at a port.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    /// The id.
    pub id: u32,
    /// The address of the id.
    pub address: Address,
    /// May other ids that also set this have the same address?
    pub reuse: bool,
    /// Is the port taken for the address family of this id only?
    pub family_only: bool,
}

impl Holder {
    /// Does this holder conflict with `other`?
    fn conflicts(&self, other: &Holder) -> Result<(), Errno> {
        if self.reuse && other.reuse {
            return Ok(());
        }
        let families_differ = !self.address.same_family(&other.address);
        if families_differ && self.family_only && other.family_only {
            return Ok(());
        }
        if self.address.is_any() || other.address.is_any() {
            return Err(Errno::EADDRNOTAVAIL);
        }
        let same = self.address.ip() == other.address.ip()
            && self.address.scope() == other.address.scope();
        if same { Err(Errno::EADDRINUSE) } else { Ok(()) }
    }
}

/// The ports in use and their holders.
#[derive(Debug, Default)]
pub struct Ports {
    held: BTreeMap<(u16, u16), Vec<Holder>>,
}

impl Ports {
    /// Takes a port of a space.
    ///
    /// # Errors
    /// EADDRINUSE: another id has the same address. EADDRNOTAVAIL: one of the two addresses is a
    /// wildcard.
    pub fn take(&mut self, space: u16, port: u16, holder: Holder) -> Result<(), Errno> {
        let there = self.held.entry((space, port)).or_default();
        let free = there.iter().try_for_each(|other| holder.conflicts(other));
        if free.is_ok() {
            there.push(holder);
        }
        if there.is_empty() {
            self.held.remove(&(space, port));
        }
        free
    }

    /// May an id listen on its port? Not while another id has the same address, even if both share
    /// the address.
    ///
    /// # Errors
    /// As of [`Ports::take`].
    pub fn may_listen(&self, space: u16, port: u16, id: u32) -> Result<(), Errno> {
        let there = self.held.get(&(space, port)).map_or(&[][..], Vec::as_slice);
        let Some(own) = there.iter().find(|h| h.id == id) else { return Ok(()) };
        let alone = Holder { reuse: false, ..*own };
        there.iter().filter(|h| h.id != id).try_for_each(|other| alone.conflicts(other))
    }

    /// An id at its port.
    pub fn holder_mut(&mut self, space: u16, port: u16, id: u32) -> Option<&mut Holder> {
        self.held.get_mut(&(space, port))?.iter_mut().find(|h| h.id == id)
    }

    /// Gives a port back.
    pub fn release(&mut self, space: u16, port: u16, id: u32) {
        if let Some(there) = self.held.get_mut(&(space, port)) {
            there.retain(|h| h.id != id);
            if there.is_empty() {
                self.held.remove(&(space, port));
            }
        }
    }

    /// Is the port free?
    pub fn is_free(&self, space: u16, port: u16) -> bool {
        !self.held.contains_key(&(space, port))
    }

    /// Number of ports in use.
    pub fn len(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(id: u32, address: &str) -> Holder {
        Holder {
            id,
            address: Address::Ip(address.parse().unwrap()),
            reuse: false,
            family_only: false,
        }
    }

    #[test]
    fn ucm_3_a_port_has_one_holder_an_address() {
        let mut ports = Ports::default();
        assert_eq!(ports.take(1, 80, holder(0, "10.0.0.1:80")), Ok(()));
        assert_eq!(ports.take(1, 80, holder(1, "10.0.0.1:80")), Err(Errno::EADDRINUSE));
        assert_eq!(ports.take(1, 80, holder(1, "10.0.0.2:80")), Ok(()));
        assert_eq!(ports.take(1, 80, holder(2, "0.0.0.0:80")), Err(Errno::EADDRNOTAVAIL));
        assert_eq!(ports.take(2, 80, holder(3, "10.0.0.1:80")), Ok(()), "another space");
        ports.release(1, 80, 0);
        ports.release(1, 80, 1);
        assert!(ports.is_free(1, 80) && ports.len() == 1);
    }

    #[test]
    fn ucm_3_sharing_takes_two_and_ends_with_listening() {
        let mut ports = Ports::default();
        let shared = |id, address| Holder { reuse: true, ..holder(id, address) };
        assert_eq!(ports.take(1, 80, shared(0, "10.0.0.1:80")), Ok(()));
        assert_eq!(ports.take(1, 80, holder(1, "10.0.0.1:80")), Err(Errno::EADDRINUSE));
        assert_eq!(ports.take(1, 80, shared(1, "10.0.0.1:80")), Ok(()));
        assert_eq!(ports.may_listen(1, 80, 0), Err(Errno::EADDRINUSE));
        ports.release(1, 80, 1);
        assert_eq!(ports.may_listen(1, 80, 0), Ok(()));
    }

    #[test]
    fn ucm_3_families_part_only_if_both_say_so() {
        let mut ports = Ports::default();
        let only = |id, address| Holder { family_only: true, ..holder(id, address) };
        assert_eq!(ports.take(1, 80, only(0, "0.0.0.0:80")), Ok(()));
        assert_eq!(ports.take(1, 80, holder(1, "[::]:80")), Err(Errno::EADDRNOTAVAIL));
        assert_eq!(ports.take(1, 80, only(1, "[::]:80")), Ok(()));
    }
}
