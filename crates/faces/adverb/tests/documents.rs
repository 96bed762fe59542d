//! The README's example is a test of this crate, word for word.

#[test]
fn the_readme_shows_a_test_that_runs() {
    let readme = include_str!("../../../../README.md");
    let code = include_str!("newcomer.rs");
    assert!(
        readme.contains(&format!("```rust\n{code}```")),
        "README.md and tests/newcomer.rs differ"
    );
}

/// Requirement ids mean nothing to users.
#[test]
fn the_documentation_has_no_ids_of_requirements() {
    fn check(folder: &std::path::Path) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                check(&path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let shown = |l: &&str| {
                path.extension().is_some_and(|e| e == "md")
                    || ["///", "//!"].iter().any(|c| l.trim_start().starts_with(c))
            };
            for line in text.lines().filter(shown) {
                let id = |word: &str| {
                    let parts = word.split_once('-');
                    parts.is_some_and(|(kind, number)| {
                        ["CQN", "CHN", "EXT", "DEF", "NDK", "MEM", "TRU", "CM", "UCM"]
                            .contains(&kind)
                            && number.parse::<u32>().is_ok()
                    })
                };
                let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
                assert!(!words.into_iter().any(id), "{}: {line}", path.display());
            }
        }
    }
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    check(&here.join("src"));
    check(&here.join("docs"));
}
