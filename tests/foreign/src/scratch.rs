//! Directories for the files of a case.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A new directory, removed on drop.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A directory of the system's temporary files, with `name` in its name.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn new(name: &str) -> Result<Scratch, String> {
        Self::below(&std::env::temp_dir(), name)
    }

    /// A directory of `parent`.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn below(parent: &Path, name: &str) -> Result<Scratch, String> {
        // Cases run side by side, and some share a name.
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let (pid, number) = (std::process::id(), NUMBERS.fetch_add(1, Ordering::Relaxed));
        let path = parent.join(format!("adverb-foreign-{name}-{pid}-{number}"));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Scratch(path))
    }

    /// A file of the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The path of a file, for a command line.
    pub fn path(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    /// All files, sorted by name.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn files(&self) -> Result<Vec<PathBuf>, String> {
        let entries = std::fs::read_dir(&self.0).map_err(|e| e.to_string())?;
        let mut all: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
        all.sort();
        Ok(all)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
