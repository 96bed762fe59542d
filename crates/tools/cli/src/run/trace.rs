//! `--trace`: the program runs as a child. When it has ended, the parts of all processes are merged
//! into a single file.
use super::{beside, random};
use crate::out::at;
use adverb_trace::{Story, VARIABLE, lines, perfetto, read};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// The files of a trace.
pub struct Trace {
    file: Begun,
    lines: Begun,
    /// The directory with the parts of the processes.
    parts: PathBuf,
}

/// A file made by this run, and the file's path. Another file may have this path later.
struct Begun {
    path: PathBuf,
    to: File,
}

impl Begun {
    /// Makes the file and writes the marker by which a later run recognizes the file as a trace.
    fn make(path: PathBuf, marker: &[u8]) -> Result<Begun, String> {
        let made = make_room(&path, marker).and_then(|()| {
            let mut to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            to.write_all(marker)?;
            Ok(to)
        });
        match made {
            Ok(to) => Ok(Begun { path, to }),
            Err(e) => Err(format!("{}: no trace can be written there: {e}", path.display())),
        }
    }
}

impl Trace {
    /// Makes the files. So errors are reported before the program starts.
    pub fn begin(file: &Path) -> Result<Trace, String> {
        let no_trace = |e| format!("{}: no trace can be written there: {e}", file.display());
        let file = std::path::absolute(file).map_err(no_trace)?;
        let begun = (
            Begun::make(file.clone(), &perfetto::marker())?,
            Begun::make(beside(&file, ".jsonl"), lines::MARKER.as_bytes())?,
        );
        let parts = beside(&file, &format!(".{:016x}.parts", random()?));
        // Data between programs is not for other users to read.
        DirBuilder::new().mode(0o700).create(&parts).map_err(at(&parts))?;
        Ok(Trace { file: begun.0, lines: begun.1, parts })
    }

    /// The variable with the directory for the program's part.
    pub fn variable(&self) -> (&'static str, OsString) {
        (VARIABLE, self.parts.clone().into())
    }

    /// Merges the parts and prints a summary. A separate process does the merge. The merge may need
    /// more memory than there is, and the program's exit status must not be lost with it.
    pub fn end(&self) -> Result<(), String> {
        let merged = adverb_survivor::in_a_copy(|| match self.merge() {
            Ok(story) => {
                crate::out::errln!("adverb run: trace: {}", summary(&story, &self.file.path));
                true
            }
            Err(e) => {
                crate::out::errln!("adverb run: warning: the trace cannot be written: {e}");
                false
            }
        });
        let why = match merged {
            Ok(true) => {
                let _ = fs::remove_dir_all(&self.parts);
                return Ok(());
            }
            Ok(false) => "the trace is incomplete (perhaps for lack of memory)".into(),
            Err(e) => format!("the trace cannot be put together: {e}"),
        };
        Err(format!("{why}; the records stay in {}", self.parts.display()))
    }

    fn merge(&self) -> io::Result<Story> {
        let story = Story::of(&read(&self.parts)?);
        let mut out = BufWriter::new(&self.file.to);
        perfetto::write(&story, &mut out)?;
        out.flush()?;
        let mut out = BufWriter::new(&self.lines.to);
        lines::write(&story, &mut out)?;
        out.flush()?;
        Ok(story)
    }

    /// Removes all files after a failed start of the program.
    pub fn forget(&self) {
        let _ = fs::remove_dir_all(&self.parts);
        for begun in [&self.file, &self.lines] {
            let _ = fs::remove_file(&begun.path);
        }
    }
}

/// Removes an earlier trace. A file of another kind is not overwritten.
fn make_room(path: &Path, marker: &[u8]) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    let begins = || -> io::Result<bool> {
        let mut begins = Vec::new();
        File::open(path)?.take(marker.len() as u64).read_to_end(&mut begins)?;
        Ok(begins == marker)
    };
    if found.is_file() && (found.len() == 0 || begins()?) {
        return fs::remove_file(path);
    }
    let text = "this file is no earlier trace, and is not overwritten";
    Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
}

/// Runs the program to the end. Returns the exit status, or the error if the program did not start.
pub fn run(command: &mut Command) -> io::Result<ExitStatus> {
    adverb_survivor::prepare(command);
    // Spawn before `wait` blocks signals, because the program inherits the signal mask.
    adverb_survivor::wait(&command.spawn()?)
}

fn summary(story: &Story, file: &Path) -> String {
    let number =
        |n: usize, one: &str| if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") };
    let arrows = story.arrows().count();
    let (processes, things) = (story.processes.len(), story.nodes.len());
    let mut text = format!(
        "{} of {}, {}, in {}; ui.perfetto.dev opens it",
        number(things, "thing"),
        if processes == 1 { "1 process".into() } else { format!("{processes} processes") },
        number(arrows, "arrow"),
        file.display()
    );
    for told in &story.processes {
        if told.dropped > 0 {
            text += &format!(
                "; {} of {} were lost for lack of room",
                number(told.dropped as usize, "record"),
                told.pid
            );
        }
        if !told.ended {
            text += &format!("; {} ({}) did not end in order", told.pid, told.name.escape_debug());
        }
    }
    if processes == 0 {
        text = format!("no process opened a device, so {} is empty", file.display());
    }
    text
}
