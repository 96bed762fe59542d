//! A built shared object, and the names in it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names, each with its version node.
pub type Names = BTreeSet<(String, String)>;

/// The library under test.
pub fn library(name: &str) -> PathBuf {
    // The test runs from `deps`, where cargo puts the shared object of the library under test.
    let exe = std::env::current_exe().expect("the test has a path");
    let file = exe.parent().expect("a directory").join(name);
    assert!(file.is_file(), "{} has not been built", file.display());
    file
}

/// What a tool of binutils says of a file.
pub fn said(tool: &str, option: &str, file: &Path) -> String {
    let run = Command::new(tool).arg(option).arg(file).output();
    String::from_utf8(run.expect("install the package binutils").stdout).expect("ASCII")
}

/// The names of `symbols.txt`, as `build.rs` writes it.
pub fn committed(symbols: &str) -> Names {
    let rows = symbols.lines().map(|l| l.split_once(' ').expect("a name and a node"));
    rows.map(|(name, node)| (name.to_owned(), node.to_owned())).collect()
}

/// The names that a file defines, or those that it needs. A node that is not the default is in
/// brackets.
pub fn bracketed(file: &Path, defined: bool) -> Names {
    let text = said("objdump", "-T", file);
    // `ADDRESS FLAGS SECTION<tab>SIZE  NODE NAME`
    let lines = text.lines().filter(|l| l.starts_with('0') && !l.contains("*ABS*"));
    lines
        .filter(|l| l.contains("*UND*") != defined)
        .map(|l| {
            let mut words = l.split_whitespace().rev();
            (words.next().expect("a name").to_owned(), words.next().expect("a node").to_owned())
        })
        .collect()
}

/// The names that a file defines, or those that it needs.
pub fn names(file: &Path, defined: bool) -> Names {
    let plain = |node: String| node.trim_matches(['(', ')']).to_owned();
    bracketed(file, defined).into_iter().map(|(name, node)| (name, plain(node))).collect()
}

/// A library exports these names and no others.
#[track_caller]
pub fn exports(library: &Path, committed: &Names) {
    let exported = names(library, true);
    let missing: Vec<_> = committed.difference(&exported).collect();
    let unexpected: Vec<_> = exported.difference(committed).collect();
    assert!(
        missing.is_empty() && unexpected.is_empty(),
        "missing {missing:?}, unexpected {unexpected:?}"
    );
}
