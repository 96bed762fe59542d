//! The built shared object: its name, its exports, and the symbols it needs from `libibverbs.so.1`.

use std::path::{Path, PathBuf};

#[path = "common/object.rs"]
mod object;

fn library() -> PathBuf {
    object::library("librdmacm.so")
}

/// RCM-1: the object exports every name of rdma-core at its node, and no other name.
#[test]
fn every_name_is_at_its_node() {
    let committed = object::committed(include_str!(concat!(env!("OUT_DIR"), "/symbols.txt")));
    object::exports(&library(), &committed);
    assert_eq!(committed.len(), 74);
    assert_eq!(committed.iter().filter(|(name, _)| name.starts_with("rdma_")).count(), 44);
}

/// RCM-1: every symbol of the distribution's library is exported with the same version.
#[test]
fn the_distributions_names_are_here() {
    let theirs =
        ["x86_64", "aarch64"].map(|arch| format!("/usr/lib/{arch}-linux-gnu/librdmacm.so.1"));
    let theirs = theirs.iter().map(Path::new).find(|p| p.is_file());
    let theirs = theirs.expect("librdmacm.so.1: run scripts/test-deps");
    let (ours, theirs) = (object::names(&library(), true), object::names(theirs, true));
    let missing: Vec<_> = theirs.difference(&ours).collect();
    assert!(theirs.len() >= 68 && missing.is_empty(), "of {}: {missing:?}", theirs.len());
}

/// RCM-1: the object has the name for which programs look, and needs libibverbs by version.
#[test]
fn it_needs_libibverbs_by_version() {
    let head = object::said("objdump", "-p", &library());
    let said = |key: &str, value: &str| {
        head.lines().any(|l| l.split_whitespace().collect::<Vec<_>>() == [key, value])
    };
    assert!(said("SONAME", "librdmacm.so.1") && said("NEEDED", "libibverbs.so.1"), "{head}");
    let taken = object::names(&library(), false);
    let verbs: Vec<_> = taken.iter().filter(|(n, _)| n.starts_with("ibv_")).collect();
    assert_eq!(verbs.len(), 19, "{verbs:?}");
    assert!(verbs.iter().all(|(_, node)| node.starts_with("IBVERBS_1.")), "{verbs:?}");
}
