//! The hash table under the key table: open addressing in one `Vec`. The hash is the key index,
//! which is already random.
use crate::room::{self, OutOfMemory};
use crate::types::Key;
use alloc::vec::Vec;
use core::iter::repeat_with;

/// Most keys: half of the 24-bit index space, so that a free index is always near.
pub(super) const MAX_KEYS: u32 = 1 << 23;
/// Slots of the first allocation; always a power of two.
const FIRST: usize = 16;

#[derive(Debug)]
struct Slot<T> {
    key: Key,
    value: T,
}

/// Values by key index. The table is at most half full, so that a look-up, hit or miss, touches one
/// or two neighbouring slots.
#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<Option<Slot<T>>>,
    len: usize,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots { slots: Vec::new(), len: 0 }
    }
}

impl<T> Slots<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a value under the key `random`, or with the next free index. Index 0 is never used,
    /// because programs take a key of 0 for "none". `None`: the table is full, or there is no
    /// memory.
    pub(super) fn insert(&mut self, value: T, random: u32) -> Option<Key> {
        if self.len >= MAX_KEYS as usize {
            return None;
        }
        if (self.len + 1) * 2 > self.slots.len() {
            self.grow().ok()?;
        }
        let mut index = random >> 8;
        while index == 0 || self.find(index).is_some() {
            index = (index + 1) & 0x00ff_ffff;
        }
        let key = index << 8 | random & 0xff;
        self.place(Slot { key, value });
        self.len += 1;
        Some(key)
    }

    /// The value at the key's index, with its current key (the tags may differ).
    #[inline]
    pub(super) fn get(&self, key: Key) -> Option<(Key, &T)> {
        let at = self.find(key >> 8)?;
        self.slots[at].as_ref().map(|s| (s.key, &s.value))
    }

    /// Like [`Slots::get`]. The caller may change the key's tag, but not its index.
    pub(super) fn get_mut(&mut self, key: Key) -> Option<(&mut Key, &mut T)> {
        let at = self.find(key >> 8)?;
        self.slots[at].as_mut().map(|s| (&mut s.key, &mut s.value))
    }

    /// Removes the value at the key's index and closes the gap. Without tombstones, later misses
    /// stay fast.
    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        let mut gap = self.find(key >> 8)?;
        let removed = self.slots[gap].take().map(|s| s.value);
        self.len -= 1;
        let mut at = gap;
        loop {
            at = (at + 1) & self.mask();
            let Some(slot) = &self.slots[at] else { return removed };
            let home = self.home(slot.key >> 8);
            // The slot may move back only if its home is not between the gap (exclusive) and the
            // slot, cyclically.
            let from_home = at.wrapping_sub(home) & self.mask();
            let from_gap = at.wrapping_sub(gap) & self.mask();
            if from_home >= from_gap {
                self.slots.swap(gap, at);
                gap = at;
            }
        }
    }

    /// Keys of the values that satisfy `wanted`.
    pub(super) fn keys_where(&self, wanted: impl Fn(&T) -> bool) -> Vec<Key> {
        self.slots.iter().flatten().filter(|s| wanted(&s.value)).map(|s| s.key).collect()
    }

    #[inline]
    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    #[inline]
    fn home(&self, index: u32) -> usize {
        index as usize & self.mask()
    }

    #[inline]
    fn find(&self, index: u32) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.home(index);
        // The loop ends, because at least half of the slots are empty.
        loop {
            match &self.slots[at] {
                None => return None,
                Some(slot) if slot.key >> 8 == index => return Some(at),
                Some(_) => at = (at + 1) & self.mask(),
            }
        }
    }

    /// Puts a slot with a new index into the first empty place.
    fn place(&mut self, slot: Slot<T>) {
        let mut at = self.home(slot.key >> 8);
        while self.slots[at].is_some() {
            at = (at + 1) & self.mask();
        }
        self.slots[at] = Some(slot);
    }

    fn grow(&mut self) -> Result<(), OutOfMemory> {
        let size = (self.slots.len() * 2).max(FIRST);
        let mut larger = room::list(size)?;
        larger.extend(repeat_with(|| None).take(size));
        for slot in core::mem::replace(&mut self.slots, larger).into_iter().flatten() {
            self.place(slot);
        }
        Ok(())
    }
}
