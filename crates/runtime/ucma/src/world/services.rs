//! What this process has among all processes: claims of services, and listeners.
use crate::id::ClaimKey;
use adverb_cm::Listener;
use nix::errno::Errno;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// The claims.
pub(crate) type Claims<C> = Shared<ClaimKey, C>;
/// The listeners, by service id.
pub(crate) type Listeners = Shared<u64, Listener>;

/// Values by key, each with the ids that share it. A value lasts as long as one of its ids.
#[derive(Debug)]
pub(crate) struct Shared<K, V>(BTreeMap<K, (V, BTreeSet<u32>)>);

impl<K, V> Default for Shared<K, V> {
    fn default() -> Self {
        Shared(BTreeMap::new())
    }
}

impl<K: Ord + Copy, V> Shared<K, V> {
    /// Adds an id. `make` makes the value for the first id.
    pub fn add(
        &mut self,
        key: K,
        id: u32,
        make: impl FnOnce() -> Result<V, Errno>,
    ) -> Result<(), Errno> {
        match self.0.entry(key) {
            Entry::Occupied(shared) => drop(shared.into_mut().1.insert(id)),
            Entry::Vacant(place) => drop(place.insert((make()?, BTreeSet::from([id])))),
        }
        Ok(())
    }

    /// Removes an id. Returns the value if no id is left.
    pub fn remove(&mut self, key: K, id: u32) -> Option<V> {
        let (_, ids) = self.0.get_mut(&key)?;
        ids.remove(&id);
        if !ids.is_empty() {
            return None;
        }
        self.0.remove(&key).map(|(value, _)| value)
    }

    pub fn get(&self, key: K) -> Option<&V> {
        self.0.get(&key).map(|(value, _)| value)
    }

    /// The ids of a value.
    pub fn ids(&self, key: K) -> impl Iterator<Item = u32> + Clone {
        self.0.get(&key).into_iter().flat_map(|(_, ids)| ids).copied()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[cfg(test)]
    pub fn all_ids(&self) -> impl Iterator<Item = u32> {
        self.0.values().flat_map(|(_, ids)| ids).copied()
    }
}

impl Listeners {
    /// The service id of a listener.
    pub fn service(&self, listener: Listener) -> Option<u64> {
        self.0.iter().find(|(_, (of, _))| *of == listener).map(|(&service, _)| service)
    }
}
