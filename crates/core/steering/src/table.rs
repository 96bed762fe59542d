//! The rules of a port, and the targets of a frame.
use crate::frame::Frame;
use crate::rules::{Kind, Rule};
use alloc::vec::Vec;

/// Identifies a rule, uniquely within a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleId(u64);

/// How a port got a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The frame was sent to this port.
    Arrived,
    /// The frame leaves by this port. Only sniffers get it.
    Leaving,
}

struct RuleEntry<T> {
    id: RuleId,
    rule: Rule,
    target: T,
}

/// Rules with their targets.
pub struct Table<T> {
    /// In the order of priority, and by age within a priority.
    entries: Vec<RuleEntry<T>>,
    next: u64,
}

impl<T> core::fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.entries.iter().map(|e| &e.rule)).finish()
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { entries: Vec::new(), next: 0 }
    }
}

impl<T> Table<T> {
    /// Adds a rule.
    pub fn add(&mut self, rule: Rule, target: T) -> RuleId {
        let id = RuleId(self.next);
        self.next += 1;
        let at = self.entries.partition_point(|e| e.rule.priority <= rule.priority);
        self.entries.insert(at, RuleEntry { id, rule, target });
        id
    }

    /// Removes a rule, if it exists.
    pub fn remove(&mut self, id: RuleId) -> Option<T> {
        let at = self.entries.iter().position(|e| e.id == id)?;
        Some(self.entries.remove(at).target)
    }

    /// Number of rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    /// Is the table empty?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The targets of a frame. Every sniffer gets the frame. Matching normal rules get a copy each,
    /// in the order of priority, up to the priority of the first rule that traps the frame. If no
    /// matching rule traps the frame, the default rules get it as well. A dropping rule removes all
    /// targets of its own and later priorities, except sniffers.
    pub fn choose<'a>(
        &'a self,
        frame: &Frame,
        heard: Heard,
    ) -> impl Iterator<Item = &'a T> + use<'a, T> {
        let mut chosen: Vec<&'a RuleEntry<T>> = Vec::new();
        let mut of = |kinds: &[Kind], until: Option<u16>| {
            let takes = |e: &&RuleEntry<T>| {
                kinds.contains(&e.rule.kind)
                    && until.is_none_or(|until| e.rule.priority <= until)
                    && e.rule.takes(frame)
            };
            let before = chosen.len();
            chosen.extend(self.entries.iter().filter(takes));
            chosen.len() > before
        };
        of(&[Kind::Sniffer], None);
        if heard == Heard::Arrived {
            let traps = |e: &&RuleEntry<T>| {
                e.rule.kind == Kind::Normal && e.rule.traps && e.rule.takes(frame)
            };
            let trap = self.entries.iter().find(traps).map(|e| e.rule.priority);
            of(&[Kind::Normal], trap);
            if trap.is_none() {
                of(&[Kind::AllDefault, Kind::McDefault], None);
            }
        }
        let dropped = chosen.iter().find(|e| e.rule.drops).map(|e| e.rule.priority);
        chosen
            .into_iter()
            .filter(move |e| {
                e.rule.kind == Kind::Sniffer || dropped.is_none_or(|at| e.rule.priority < at)
            })
            .map(|e| &e.target)
    }
}
