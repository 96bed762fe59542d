//! What this process has among all processes: claims of services, and listeners.
use crate::id::ClaimKey;
use adverb_cm::Listener;
use nix::errno::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// The claims. A claim lasts as long as one of its ids.
#[derive(Debug)]
pub(crate) struct Claims<C>(BTreeMap<ClaimKey, Claimed<C>>);

#[derive(Debug)]
struct Claimed<C> {
    ids: usize,
    claim: C,
}

impl<C> Default for Claims<C> {
    fn default() -> Self {
        Claims(BTreeMap::new())
    }
}

impl<C> Claims<C> {
    /// Adds an id to a claim. `make` makes the claim for the first id.
    pub fn add(
        &mut self,
        key: ClaimKey,
        make: impl FnOnce() -> Result<C, Errno>,
    ) -> Result<(), Errno> {
        match self.0.get_mut(&key) {
            Some(claimed) => claimed.ids += 1,
            None => drop(self.0.insert(key, Claimed { ids: 1, claim: make()? })),
        }
        Ok(())
    }

    /// Removes an id from a claim. The claim of the last id ends.
    pub fn remove(&mut self, key: &ClaimKey) {
        let Some(claimed) = self.0.get_mut(key) else { return };
        claimed.ids -= 1;
        if claimed.ids == 0 {
            self.0.remove(key);
        }
    }

    pub fn get(&self, key: &ClaimKey) -> Option<&C> {
        self.0.get(key).map(|claimed| &claimed.claim)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// How many ids the claims have.
    #[cfg(test)]
    pub fn ids(&self) -> usize {
        self.0.values().map(|claimed| claimed.ids).sum()
    }
}

/// The listeners. Each has a service id of its own, and at least one listening id.
#[derive(Debug, Default)]
pub(crate) struct Listeners(BTreeMap<u64, Listening>);

#[derive(Debug)]
struct Listening {
    listener: Listener,
    ids: BTreeSet<u32>,
}

impl Listeners {
    /// Adds an id. `make` makes the listener of the service for the first id.
    pub fn add(
        &mut self,
        service: u64,
        id: u32,
        make: impl FnOnce() -> Result<Listener, Errno>,
    ) -> Result<(), Errno> {
        match self.0.get_mut(&service) {
            Some(listening) => drop(listening.ids.insert(id)),
            None => {
                let listening = Listening { listener: make()?, ids: BTreeSet::from([id]) };
                self.0.insert(service, listening);
            }
        }
        Ok(())
    }

    /// Removes an id. Returns the listener if no id is left, and the listener ends.
    pub fn remove(&mut self, service: u64, id: u32) -> Option<Listener> {
        let listening = self.0.get_mut(&service)?;
        listening.ids.remove(&id);
        if !listening.ids.is_empty() {
            return None;
        }
        self.0.remove(&service).map(|listening| listening.listener)
    }

    /// The service id of a listener.
    pub fn service(&self, listener: Listener) -> Option<u64> {
        self.0.iter().find(|(_, of)| of.listener == listener).map(|(&service, _)| service)
    }

    /// The listening ids of a service.
    pub fn ids(&self, service: u64) -> impl Iterator<Item = u32> + Clone {
        self.0.get(&service).into_iter().flat_map(|listening| &listening.ids).copied()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[cfg(test)]
    pub fn all_ids(&self) -> impl Iterator<Item = u32> {
        self.0.values().flat_map(|listening| &listening.ids).copied()
    }
}
