//! The box of a hunted program: namespaces that another process has made.
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::path::PathBuf;

/// Moves this process into the namespaces of these files, in their order.
pub fn enter(files: &[PathBuf]) -> Result<(), String> {
    if files.is_empty() {
        return Ok(());
    }
    let directory = std::env::current_dir().map_err(|e| format!("the working directory: {e}"))?;
    // The later files are not reachable from the namespace of mounts.
    let at = |file: &PathBuf| format!("{}: ", file.display());
    let open = |file: &PathBuf| File::open(file).map_err(|e| at(file) + &e.to_string());
    let opened = files.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    for (file, namespace) in files.iter().zip(opened) {
        setns(namespace, CloneFlags::empty()).map_err(|e| at(file) + e.desc())?;
    }
    // A new namespace of mounts begins at its root directory.
    std::env::set_current_dir(&directory).map_err(crate::out::at(&directory))
}
