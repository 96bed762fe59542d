//! Processes, as `/proc` lists them.

use std::fmt::Display;

/// A process, from `/proc/PID/stat`: its number, the letter of its state (`Z` or `X` after its
/// end), its parent, its group, and its start in ticks since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    pub pid: i32,
    pub state: char,
    pub parent: i32,
    pub group: i32,
    pub start: u64,
}

impl ProcessStat {
    /// The process with this number, or `self`. `None` if there is none, or the kernel does not
    /// show it.
    #[must_use]
    pub fn of(process: impl Display) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
    }

    /// Whether the process has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    fn parse(text: &str) -> Option<Self> {
        // pid (name) state parent group …; the name may contain any character.
        let (head, rest) = text.rsplit_once(") ")?;
        let mut fields = rest.split_ascii_whitespace();
        Some(Self {
            pid: head.split(' ').next()?.parse().ok()?,
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
            start: fields.nth(16)?.parse().ok()?,
        })
    }
}

/// The numbers of all processes. The list is no snapshot: a process forked meanwhile may be
/// missing.
pub fn processes() -> impl Iterator<Item = i32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a process runs the same executable as this process. `None` if the kernel does not show
/// it.
#[must_use]
pub fn runs_own_executable(pid: i32) -> Option<bool> {
    let exe = |of: &str| std::fs::read_link(format!("/proc/{of}/exe")).ok();
    exe(&pid.to_string()).map(|theirs| exe("self") == Some(theirs))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_contain_any_character() {
        let text = "7 (a) Z (b) S 5 6 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 4711 8 9\n";
        let expected = ProcessStat { pid: 7, state: 'S', parent: 5, group: 6, start: 4711 };
        assert_eq!(ProcessStat::parse(text), Some(expected));
        assert_eq!(ProcessStat::parse("7 (a) S 5"), None);
        assert!(ProcessStat::of("self").is_some_and(|own| processes().any(|pid| pid == own.pid)));
    }
}
