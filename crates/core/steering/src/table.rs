//! The rules of a port, and who gets a frame by them.
use crate::frame::Frame;
use crate::rules::{Kind, Rule};
use alloc::vec::Vec;

/// Names a rule of a table; no two of a table are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleId(u64);

/// How a port came by a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It was sent to this port.
    Arrived,
    /// It leaves by this port: sniffers hear it, nobody else.
    Leaving,
}

struct Entry<T> {
    id: RuleId,
    rule: Rule,
    target: T,
}

/// Rules with their targets.
pub struct Table<T> {
    /// By priority, and by age within one.
    entries: Vec<Entry<T>>,
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
    /// No rules.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule.
    pub fn add(&mut self, rule: Rule, target: T) -> RuleId {
        let id = RuleId(self.next);
        self.next += 1;
        let at = self.entries.partition_point(|e| e.rule.priority <= rule.priority);
        self.entries.insert(at, Entry { id, rule, target });
        id
    }

    /// Takes a rule away, if it is there.
    pub fn remove(&mut self, id: RuleId) -> Option<T> {
        let at = self.entries.iter().position(|e| e.id == id)?;
        Some(self.entries.remove(at).target)
    }

    /// Rules there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    /// No rules?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Who gets a frame: every sniffer; of the normal rules those of the first priority that take
    /// it, one copy each (and of later ones while none of them traps it); where there is none, the
    /// default rules.
    pub fn choose<'a>(&'a self, frame: &Frame, heard: Heard) -> impl Iterator<Item = &'a T> + use<'a, T> {
        let mut chosen: Vec<&'a Entry<T>> = Vec::new();
        let mut of = |kinds: &[Kind], until: Option<u16>| {
            let takes = |e: &&Entry<T>| {
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
            let traps = |e: &&Entry<T>| e.rule.kind == Kind::Normal && e.rule.traps && e.rule.takes(frame);
            let trap = self.entries.iter().find(traps).map(|e| e.rule.priority);
            of(&[Kind::Normal], trap);
            if trap.is_none() {
                of(&[Kind::AllDefault, Kind::McDefault], None);
            }
        }
        let dropped = chosen.iter().find(|e| e.rule.drops).map(|e| e.rule.priority);
        chosen
            .into_iter()
            .filter(move |e| e.rule.kind == Kind::Sniffer || dropped.is_none_or(|at| e.rule.priority < at))
            .map(|e| &e.target)
    }
}
