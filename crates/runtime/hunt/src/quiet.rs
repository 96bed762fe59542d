//! Decides whether a hunted run can still make progress by itself: from the threads of all its
//! processes, as the kernel shows them in `/proc`.
//!
//! Each process of a hunt writes its number to the log of the run (`process::Hunt`). A call
//! that waits, or a held completion, then need not wait for a fixed time of silence.
use adverb_threads::{Movement, Process, ProcessLook};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The word before the number of a process in the log.
pub(crate) const PROCESS: &str = "process";
/// The most bytes read from the log at a time.
const PIECE: usize = 1 << 12;

/// Looks at the processes of a run again and again.
#[derive(Debug, Default)]
pub(crate) struct Looker {
    /// Bytes of the log read so far, and the last incomplete line.
    read: u64,
    rest: Vec<u8>,
    processes: BTreeSet<i32>,
    first: HashMap<i32, ProcessLook>,
    last: HashMap<i32, ProcessLook>,
}

impl Looker {
    /// Progress was made: the silent time begins again.
    pub(crate) fn restart(&mut self) {
        self.first.clear();
        self.last.clear();
    }

    /// Looks once. Since [`Looker::restart`], have all processes of the run come to rest? `false`
    /// as well if the kernel does not tell.
    pub(crate) fn is_quiet(&mut self, log: &File, enough: Duration) -> bool {
        self.read_log(log);
        let mut quiet = !self.processes.is_empty();
        for process in self.processes.clone() {
            if std::fs::read_link(format!("/proc/{process}/exe")).is_err() {
                // The process has ended.
                self.processes.remove(&process);
                continue;
            }
            let Some(now) = ProcessLook::of(Process::Number(process)) else { return false };
            let first = self.first.entry(process).or_insert_with(|| now.clone());
            let last = self.last.insert(process, now.clone());
            quiet &= last.is_some_and(|last| now.movement(first, &last, enough) != Movement::Moves);
        }
        quiet
    }

    fn read_log(&mut self, log: &File) {
        let mut bytes = [0; PIECE];
        while let Ok(n @ 1..) = log.read_at(&mut bytes, self.read) {
            self.read += n as u64;
            self.rest.extend(&bytes[..n]);
        }
        let Some(end) = self.rest.iter().rposition(|b| *b == b'\n') else { return };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        for line in whole.split(|b| *b == b'\n') {
            if let Some((PROCESS, id)) =
                std::str::from_utf8(line).ok().and_then(|line| line.split_once(' '))
            {
                self.processes.extend(id.parse::<i32>());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENOUGH: Duration = Duration::from_micros(400);

    /// A process that is not named in the log is not looked at, and without a process
    /// nothing is known.
    #[test]
    fn the_log_names_the_processes() {
        let path = std::env::temp_dir().join(format!("adverb-quiet-{}", std::process::id()));
        let log = File::options().read(true).append(true).create(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut looker = Looker::default();
        assert!(!looker.is_quiet(&log, ENOUGH));
        let mut say = &log;
        let own = std::process::id().cast_signed();
        std::io::Write::write_all(&mut say, format!("beat 1 2\nprocess {own}\nproc").as_bytes())
            .unwrap();
        looker.read_log(&log);
        assert_eq!(looker.processes, BTreeSet::from([own]));
        std::io::Write::write_all(&mut say, b"ess 7\n").unwrap();
        looker.read_log(&log);
        assert_eq!(looker.processes, BTreeSet::from([7, own]));
    }
}
