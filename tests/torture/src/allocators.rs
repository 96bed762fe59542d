//! Debian's allocators, as replacements of the C library's.

use std::path::{Path, PathBuf};

/// An allocator, and the file to preload (none for the C library's own).
#[derive(Clone, Debug)]
pub struct Allocator {
    /// Name on the command line.
    pub name: String,
    /// `None` for glibc's allocator.
    pub library: Option<PathBuf>,
}

/// Names, files and Debian packages.
const KNOWN: [(&str, &str, &str); 3] = [
    ("jemalloc", "libjemalloc.so.2", "libjemalloc2"),
    ("tcmalloc", "libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
    ("mimalloc", "libmimalloc.so.2", "libmimalloc2.0"),
];

/// The allocators named in a list with commas.
///
/// # Errors
/// An unknown name, or an allocator without an installed package.
pub fn parse(list: &str) -> Result<Vec<Allocator>, String> {
    list.split(',').map(str::trim).filter(|n| !n.is_empty()).map(find).collect()
}

fn find(name: &str) -> Result<Allocator, String> {
    if name == "glibc" {
        return Ok(Allocator { name: name.to_string(), library: None });
    }
    let (_, file, package) = KNOWN.iter().find(|k| k.0 == name).ok_or_else(|| {
        format!("no allocator {name:?}: there are glibc, jemalloc, tcmalloc and mimalloc")
    })?;
    let places = [format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH), "/usr/lib".to_string()];
    places
        .iter()
        .map(|dir| Path::new(dir).join(file))
        .find(|p| p.exists())
        .map(|p| Allocator { name: name.to_string(), library: Some(p) })
        .ok_or_else(|| {
            format!("{file} is not installed: run scripts/test-deps (package {package})")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_refused_by_name() {
        assert!(parse("glibc,dlmalloc").unwrap_err().contains("dlmalloc"));
        assert_eq!(parse("glibc").unwrap().len(), 1);
        assert!(parse("glibc").unwrap()[0].library.is_none());
    }
}
