//! Our mirrors against the C header: every type, field and constant, as the C compiler sees them.
//!
//! The header is that of the package `libibverbs-dev`, or of the tree named by
//! `ADVERB_VERBS_INCLUDE` (a directory with `infiniband/verbs.h` in it); `ADVERB_VERBS_VERSION`
//! then says which one it is. `versions.txt` holds what is known to differ at rdma-core 17 and 44.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

#[path = "common/probes.rs"]
mod probes;

use ibverbs::abi::{self, TypeLayout};
use probes::{Differences, differences, probes};

const VERSIONS: &str = include_str!("versions.txt");

/// The committed differences, by version.
fn committed() -> BTreeMap<&'static str, Differences> {
    let mut versions = BTreeMap::from([("65", Differences::new())]);
    for line in VERSIONS.lines().filter(|l| !l.starts_with('#') && !l.is_empty()) {
        let (version, difference) = line.split_once(' ').expect("a version and a difference");
        versions.entry(version).or_default().insert(difference.to_owned());
    }
    versions
}

fn header_dir() -> Option<PathBuf> {
    let dir = std::env::var_os("ADVERB_VERBS_INCLUDE").map(PathBuf::from);
    let file = dir.clone().unwrap_or_else(|| "/usr/include".into()).join("infiniband/verbs.h");
    assert!(file.is_file(), "{} is missing: install the package libibverbs-dev", file.display());
    dir
}

#[test]
fn the_mirrors_are_what_the_header_says() {
    let dir = header_dir();
    let found = differences(
        dir.as_deref(),
        &["infiniband/verbs.h"],
        &probes(abi::LAYOUTS, abi::CONSTANTS),
        "layout_probe",
    );
    let versions = committed();
    if let Ok(version) = std::env::var("ADVERB_VERBS_VERSION") {
        let expected = versions.get(version.as_str()).expect("a version of versions.txt, or 65");
        let list = |set: BTreeSet<&String>| {
            set.into_iter().map(|d| format!("\n{version} {d}")).collect::<String>()
        };
        let (new, ended) =
            (found.difference(expected).collect(), expected.difference(&found).collect());
        assert!(
            found == *expected,
            "unexpected:{}\nexpected but not found:{}",
            list(new),
            list(ended)
        );
        return;
    }
    if versions.values().any(|expected| *expected == found) {
        return;
    }
    // A release between those of the table: what it lacks, 17 or 44 lacked; what is smaller there,
    // was smaller or not yet there.
    let known: BTreeSet<_> = versions.values().flatten().map(|d| what_and_key(d)).collect();
    for difference in &found {
        let (what, key) = what_and_key(difference);
        let new_then = what == "size" && known.contains(&("absent", key));
        assert!(
            known.contains(&(what, key)) || new_then,
            "no known version has this: {difference}"
        );
    }
}

fn what_and_key(difference: &str) -> (&str, &str) {
    let mut words = difference.split(' ');
    (words.next().expect("what differs"), words.next().expect("where"))
}

#[test]
fn the_mirrors_of_the_kernels_types_are_what_its_headers_say() {
    let types: Vec<TypeLayout> =
        abi::KERNEL_LAYOUTS.iter().copied().filter(|t| t.name.starts_with("ib_")).collect();
    assert_eq!(types.len(), 4);
    let includes = ["rdma/ib_user_verbs.h", "rdma/ib_user_sa.h"];
    let found = differences(None, &includes, &probes(&[&types], &[]), "kernel_probe");
    assert_eq!(found, Differences::new());
}

#[test]
fn the_path_record_is_what_the_header_says() {
    let dir = header_dir();
    let types: Vec<TypeLayout> =
        abi::KERNEL_LAYOUTS.iter().copied().filter(|t| t.name.starts_with("ibv_")).collect();
    assert_eq!(types.len(), 1);
    let found =
        differences(dir.as_deref(), &["infiniband/sa.h"], &probes(&[&types], &[]), "sa_probe");
    assert_eq!(found, Differences::new());
}

/// The sizes of old versions follow from our mirrors without the members those versions lack. This
/// needs no header.
#[test]
fn old_sizes_follow_from_the_mirrors() {
    let mut checked = 0;
    for (version, differences) in committed() {
        for ty in abi::LAYOUTS.iter().copied().flatten() {
            let lacks = |key: &str| differences.contains(&format!("absent {key}"));
            if lacks(ty.name) {
                continue;
            }
            // The `_compat_` slots were there at 17, under other names.
            let there = |f: &str| f.starts_with("_compat_") || !lacks(&format!("{}.{f}", ty.name));
            let fields: Vec<_> = ty.fields.iter().filter(|f| there(f.name)).collect();
            let end = fields.iter().map(|f| f.offset + f.size).max().unwrap_or(0);
            let start = if ty.name == "verbs_context" {
                fields.iter().map(|f| f.offset).min().unwrap_or(0)
            } else {
                0
            };
            let prefix = format!("size {} ", ty.name);
            let old =
                differences.iter().find_map(|d| d.strip_prefix(&prefix)?.parse::<usize>().ok());
            let size = (end - start).next_multiple_of(ty.align);
            assert_eq!(size, old.unwrap_or(ty.size), "{} at rdma-core {version}", ty.name);
            checked += 1;
        }
    }
    assert!(checked > 200, "only {checked} sizes were checked");
}

/// The figures that the ABI rules of `abi/mod.rs` rest on.
#[test]
fn the_fixed_figures_hold() {
    use core::mem::offset_of;
    assert_eq!(size_of::<abi::ibv_context>(), 328);
    assert_eq!(offset_of!(abi::ibv_context, abi_compat), 320);
    assert_eq!(size_of::<abi::verbs_context>(), 696);
    let context = offset_of!(abi::verbs_context, context);
    assert_eq!(context - offset_of!(abi::verbs_context, sz), 8);
    assert_eq!(context - offset_of!(abi::verbs_context, query_port), 320);
    assert_eq!(context - offset_of!(abi::verbs_context, free_buf), 368);
    assert_eq!(size_of::<abi::ibv_context_ops>(), 32 * 8);
    assert_eq!(size_of::<abi::ibv_device>(), 664);
    assert_eq!(
        abi::COMPAT_PORT_ATTR_SIZE,
        offset_of!(abi::ibv_port_attr, port_cap_flags2).next_multiple_of(4)
    );
}
