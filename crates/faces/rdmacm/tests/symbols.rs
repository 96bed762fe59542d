//! The built shared object: its name, its exports, and the symbols it needs from `libibverbs.so.1`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name and node of each row of `symbols.txt`, written by `build.rs`.
const SYMBOLS: &str = include_str!(concat!(env!("OUT_DIR"), "/symbols.txt"));

fn library() -> PathBuf {
    // The test runs from `deps`, where cargo puts the shared object of the library under test.
    let exe = std::env::current_exe().expect("the test has a path");
    let file = exe.parent().expect("a directory").join("librdmacm.so");
    assert!(file.is_file(), "{} has not been built", file.display());
    file
}

fn objdump(option: &str, file: &Path) -> String {
    let run = Command::new("objdump").arg(option).arg(file).output();
    String::from_utf8(run.expect("objdump: install the package binutils").stdout).expect("ASCII")
}

/// Name and version node of the symbols that a file defines, or of the symbols it needs.
fn symbols(file: &Path, defined: bool) -> BTreeSet<(String, String)> {
    let text = objdump("-T", file);
    // `ADDRESS FLAGS SECTION<tab>SIZE  NODE NAME`, the node in brackets when it is not the default.
    let lines = text.lines().filter(|l| l.starts_with('0') && !l.contains("*ABS*"));
    lines
        .filter(|l| l.contains("*UND*") != defined)
        .map(|l| {
            let mut words = l.split_whitespace().rev();
            let name = words.next().expect("a name").to_owned();
            (name, words.next().expect("a node").trim_matches(['(', ')']).to_owned())
        })
        .collect()
}

fn committed() -> BTreeSet<(String, String)> {
    SYMBOLS
        .lines()
        .map(|l| l.split_once(' ').expect("a name and a node"))
        .map(|(name, node)| (name.to_owned(), node.to_owned()))
        .collect()
}

/// RCM-1: the object exports every name of rdma-core at its node, and no other name.
#[test]
fn every_name_is_at_its_node() {
    let (exported, committed) = (symbols(&library(), true), committed());
    let missing: Vec<_> = committed.difference(&exported).collect();
    let unexpected: Vec<_> = exported.difference(&committed).collect();
    assert!(
        missing.is_empty() && unexpected.is_empty(),
        "missing {missing:?}, unexpected {unexpected:?}"
    );
    assert_eq!(committed.len(), 74);
    assert_eq!(committed.iter().filter(|(name, _)| name.starts_with("rdma_")).count(), 44);
}

/// RCM-1: every symbol of the distribution's library is exported with the same version.
#[test]
fn the_distributions_names_are_here() {
    let theirs = ["x86_64", "aarch64"]
        .map(|arch| PathBuf::from(format!("/usr/lib/{arch}-linux-gnu/librdmacm.so.1")))
        .into_iter()
        .find(|p| p.is_file());
    let theirs = theirs.expect("librdmacm.so.1: run scripts/test-deps");
    let (ours, theirs) = (symbols(&library(), true), symbols(&theirs, true));
    let missing: Vec<_> = theirs.difference(&ours).collect();
    assert!(theirs.len() >= 68 && missing.is_empty(), "of {}: {missing:?}", theirs.len());
}

/// RCM-1: the object has the name for which programs look, and needs libibverbs by version.
#[test]
fn it_needs_libibverbs_by_version() {
    let head = objdump("-p", &library());
    let said = |key: &str, value: &str| {
        head.lines().any(|l| l.split_whitespace().collect::<Vec<_>>() == [key, value])
    };
    assert!(said("SONAME", "librdmacm.so.1") && said("NEEDED", "libibverbs.so.1"), "{head}");
    let taken = symbols(&library(), false);
    let verbs: Vec<_> = taken.iter().filter(|(n, _)| n.starts_with("ibv_")).collect();
    assert_eq!(verbs.len(), 19, "{verbs:?}");
    assert!(verbs.iter().all(|(_, node)| node.starts_with("IBVERBS_1.")), "{verbs:?}");
}
