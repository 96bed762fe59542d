//! Our mirrors against the C header: every type, field and constant, as the C compiler sees them.
//!
//! The header is that of the package `libibverbs-dev`, or of the tree named by
//! `ADVERB_VERBS_INCLUDE` (a directory with `infiniband/verbs.h` in it); `ADVERB_VERBS_VERSION`
//! then says which one it is. `versions.txt` holds what is known to differ at rdma-core 17 and 44.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use ibverbs::abi::{self, Constant, TypeLayout};

const VERSIONS: &str = include_str!("versions.txt");

/// What differs between a header and our mirrors: `absent X`, `size T n`, `offset T.f n`, `width
/// T.f n`, `value C n`.
type Differences = BTreeSet<String>;

/// One line of the C program, what it asks, and the answer we expect.
struct Probe {
    key: String,
    statement: String,
    expected: String,
}

fn probes(types: &[&[TypeLayout]], constants: &[&[Constant]]) -> Vec<Probe> {
    let mut probes = Vec::new();
    let mut probe = |key: String, what: &str, expression: String, expected: i64| {
        let statement = format!("printf(\"{what} {key} %lld\\n\", (long long)({expression}));");
        probes.push(Probe {
            key: key.clone(),
            statement,
            expected: format!("{what} {key} {expected}"),
        });
    };
    for ty in types.iter().copied().flatten() {
        let c = ty.c_name;
        probe(ty.name.into(), "size", format!("sizeof({c})"), ty.size as i64);
        probe(ty.name.into(), "align", format!("_Alignof({c})"), ty.align as i64);
        // This type grows at its front: only distances from its last member are fixed.
        let from_context = ty.name == "verbs_context";
        let base = if from_context { ty.fields.last().expect("a member").offset } else { 0 };
        for field in ty.fields {
            let (key, f) = (format!("{}.{}", ty.name, field.name), field.name);
            let offset = if from_context {
                format!("(long)offsetof({c}, {f}) - (long)offsetof({c}, context)")
            } else {
                format!("offsetof({c}, {f})")
            };
            probe(key.clone(), "offset", offset, field.offset as i64 - base as i64);
            probe(key, "width", format!("sizeof((({c} *)0)->{f})"), field.size as i64);
        }
    }
    for constant in constants.iter().copied().flatten() {
        probe(constant.name.into(), "value", constant.name.into(), constant.value);
    }
    probes
}

fn source(includes: &[&str], probes: &[Probe], skip: &BTreeSet<usize>) -> (String, usize) {
    let mut text = String::from(
        "#define _GNU_SOURCE\n#include <stddef.h>\n#include <stdio.h>\n#include <time.h>\n",
    );
    for include in includes {
        writeln!(text, "#include <{include}>").expect("a string");
    }
    // Nested types that the header does not name are written as `__typeof__` of a member.
    text.push_str("int main(void) {\n");
    let first = text.lines().count() + 1;
    for (i, probe) in probes.iter().enumerate() {
        writeln!(text, "{}", if skip.contains(&i) { "" } else { &probe.statement })
            .expect("a string");
    }
    text.push_str("return 0; }\n");
    (text, first)
}

fn compile(include_dir: Option<&Path>, file: &Path, output: &Path) -> Result<(), String> {
    let mut cc = Command::new("cc");
    if let Some(dir) = include_dir {
        cc.arg("-I").arg(dir);
    }
    // Old headers define unnamed-bitfield tricks that newer compilers warn about; only errors
    // matter here.
    let run =
        cc.args(["-w", "-fmax-errors=0", "-o"]).arg(output).arg(file).env("LC_ALL", "C").output();
    let run = run.expect("a C compiler: install the package gcc (or clang) that provides `cc`");
    if run.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&run.stderr).into_owned())
    }
}

/// Compiles and runs the probes. Lines that do not compile are things the header lacks.
fn differences(
    include_dir: Option<&Path>,
    includes: &[&str],
    probes: &[Probe],
    name: &str,
) -> Differences {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (file, program) = (dir.join(format!("{name}.c")), dir.join(name));
    let mut absent = BTreeSet::new();
    loop {
        let (text, first) = source(includes, probes, &absent);
        std::fs::write(&file, text).expect("a writable target directory");
        let Err(errors) = compile(include_dir, &file, &program) else { break };
        let before = absent.len();
        for line in errors.lines().filter(|l| l.contains(" error: ")) {
            let rest = line.strip_prefix(&format!("{}:", file.display()));
            let number =
                rest.and_then(|r| r.split(':').next()).and_then(|n| n.parse::<usize>().ok());
            absent.extend(number.and_then(|n| n.checked_sub(first)).filter(|&i| i < probes.len()));
        }
        assert!(absent.len() > before, "the header itself does not compile:\n{errors}");
    }
    let run = Command::new(&program).output().expect("the probe program runs");
    assert!(run.status.success(), "the probe program failed");
    let printed = String::from_utf8(run.stdout).expect("ASCII");
    let present = probes.iter().enumerate().filter(|(i, _)| !absent.contains(i)).map(|(_, p)| p);
    let mut found = Differences::new();
    let mut lines = printed.lines();
    for probe in present {
        let line = lines.next().expect("a line for each probe");
        if line != probe.expected {
            found.insert(line.to_owned());
        }
    }
    found.extend(absent.iter().map(|&i| format!("absent {}", probes[i].key)));
    found
}

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
    assert_eq!(size_of::<abi::DeviceCell>(), 672);
    assert_eq!(
        abi::COMPAT_PORT_ATTR_SIZE,
        offset_of!(abi::ibv_port_attr, port_cap_flags2).next_multiple_of(4)
    );
}
