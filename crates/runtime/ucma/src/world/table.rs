//! Ids and groups by number.
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

/// Values by number. The lowest free number is next, as in the kernel.
#[derive(Debug)]
pub(crate) struct Table<V> {
    values: BTreeMap<u32, V>,
    freed: BTreeSet<u32>,
    next: u32,
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        Table { values: BTreeMap::new(), freed: BTreeSet::new(), next: 0 }
    }
}

impl<V> Table<V> {
    pub fn add(&mut self, value: V) -> u32 {
        let number = self.freed.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        self.values.insert(number, value);
        number
    }

    pub fn remove(&mut self, number: u32) -> Option<V> {
        let value = self.values.remove(&number)?;
        self.freed.insert(number);
        Some(value)
    }

    pub fn get_mut(&mut self, number: &u32) -> Option<&mut V> {
        self.values.get_mut(number)
    }

    /// The numbers of the matching values.
    pub fn numbers(&self, matches: impl Fn(&V) -> bool) -> Vec<u32> {
        self.values.iter().filter(|(_, value)| matches(value)).map(|(&number, _)| number).collect()
    }
}

impl<V> Deref for Table<V> {
    type Target = BTreeMap<u32, V>;
    fn deref(&self) -> &Self::Target {
        &self.values
    }
}
