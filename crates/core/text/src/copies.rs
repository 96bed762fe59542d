//! Recognises copies of the replaced libraries by the file name.
//!
//! ```
//! use adverb_text::copies::{Library, library};
//!
//! assert_eq!(library(b"/wheel.libs/libibverbs-1a2b3c4d.so.1.14.44.0"), Some(Library::Verbs));
//! assert_eq!(library(b"/lib/libc.so.6"), None);
//! ```

/// A drop-in library in place of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// `libibverbs.so.1`.
    Verbs,
    /// `librdmacm.so.1`.
    Manager,
}

impl Library {
    /// All libraries.
    pub const ALL: [Library; 2] = [Library::Verbs, Library::Manager];

    /// The name under which programs load the library.
    #[inline]
    pub fn file(self) -> &'static [u8] {
        match self {
            Library::Verbs => b"libibverbs.so.1",
            Library::Manager => b"librdmacm.so.1",
        }
    }
}

/// The library of a copy with this path: `DIRECTORY/libibverbs.so`, with any version after it, and
/// optionally a hyphen and a hash in the middle, as from tools for wheels. A name without a
/// directory is not a copy, because the loader still has to search for the file.
#[inline]
pub fn library(path: &[u8]) -> Option<Library> {
    let mut parts = path.rsplit(|b| *b == b'/');
    let name = parts.next()?;
    parts.next()?;
    Library::ALL.into_iter().find(|library| {
        let stem = library.file().strip_suffix(b".so.1").unwrap_or_default();
        let Some(rest) = name.strip_prefix(stem) else { return false };
        let rest = match rest.strip_prefix(b"-") {
            Some(hash) => {
                let len = hash.iter().take_while(|b| b.is_ascii_alphanumeric()).count();
                hash.get(len..).filter(|_| len > 0).unwrap_or_default()
            }
            None => rest,
        };
        let Some(version) = rest.strip_prefix(b".so") else { return false };
        version.is_empty()
            || version.first() == Some(&b'.')
                && version.iter().all(|b| b.is_ascii_digit() || *b == b'.')
    })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn copies_are_known_by_their_names() {
        for name in [
            "/usr/lib/x86_64-linux-gnu/libibverbs.so.1",
            "./libibverbs.so",
            "/x/nixl.libs/libibverbs-1a2B3c4d.so.1.14.44.0",
        ] {
            assert_eq!(library(name.as_bytes()), Some(Library::Verbs), "{name}");
        }
        assert_eq!(library(b"/x/librdmacm-0f.so.1"), Some(Library::Manager));
        for name in [
            "libibverbs.so.1",
            "/x/libibverbs",
            "/x/libibverbs.a",
            "/x/libibverbs-.so.1",
            "/x/libibverbs-ab-cd.so.1",
            "/x/libibverbs.so.1.bak",
            "/x/libibverbs.sold",
            "/x/mylibibverbs.so.1",
            "/libibverbs.so.1/libmlx5.so",
            "",
            "/",
        ] {
            assert_eq!(library(name.as_bytes()), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_name_or_not(path in prop::collection::vec(any::<u8>(), 0..64)) {
            let slash = path.contains(&b'/');
            prop_assert!(library(&path).is_none() || slash);
        }
    }
}
