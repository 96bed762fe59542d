//! Reads the parts of a run.
use crate::Record;
use crate::part::{LINES, NUMBERS};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// The records of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessRecords {
    /// In the order of their times.
    pub records: Vec<Record>,
    /// Unreadable lines: the last line of a killed process may be incomplete.
    pub cut: usize,
}

impl ProcessRecords {
    /// Reads lines. Zeros mark a range that a thread had reserved but not written.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn of(mut text: impl BufRead) -> io::Result<ProcessRecords> {
        let mut part = ProcessRecords::default();
        let mut line = Vec::new();
        while text.read_until(b'\n', &mut line)? > 0 {
            for piece in line.split(|b| matches!(b, 0 | b'\n')).filter(|piece| !piece.is_empty()) {
                match serde_json::from_slice(piece) {
                    Ok(record) => part.records.push(record),
                    Err(_) => part.cut += 1,
                }
            }
            line.clear();
        }
        part.records.sort_by_key(Record::time);
        Ok(part)
    }

    fn read(path: &Path) -> io::Result<ProcessRecords> {
        let mut file = BufReader::new(File::open(path)?);
        let mut header = [0; LINES as usize];
        match file.read_exact(&mut header) {
            // The process has just created the file.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(ProcessRecords::default());
            }
            done => done?,
        }
        let [used, dropped, dropped_at, ended] = std::array::from_fn::<u64, NUMBERS, _>(|n| {
            let word = header[n * 8..].first_chunk().copied();
            word.map_or(0, u64::from_ne_bytes)
        });
        let mut part = ProcessRecords::of(file.take(used.saturating_sub(LINES)))?;
        if dropped > 0 {
            part.records.push(Record::Dropped { t: dropped_at, records: dropped });
        }
        if ended > 0 {
            part.records.push(Record::End { t: ended });
        }
        part.records.sort_by_key(Record::time);
        Ok(part)
    }
}

/// Reads all parts in a directory, the part of the oldest process first.
///
/// # Errors
/// The error of the operating system.
pub fn read(directory: &Path) -> io::Result<Vec<ProcessRecords>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "part") {
            all.push(ProcessRecords::read(&path)?);
        }
    }
    all.retain(|part| !part.records.is_empty());
    let began = |part: &ProcessRecords| {
        part.records.iter().find(|r| matches!(r, Record::Process { .. })).map(Record::time)
    };
    all.sort_by_key(began);
    Ok(all)
}
