//! Gives the shared object its name, its version nodes and its exports, from `symbols.txt`. Builds
//! a stand-in for `libibverbs.so.1` to link with.
//!
//! The shared object needs `libibverbs.so.1` by name and with versions, like rdma-core's. A crate
//! cannot link with the `cdylib` of another crate. So this script builds a library of the same name
//! and nodes with empty functions, and at run time the loader finds the real library.

mod linker;
mod versioned;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Every exported name.
const TABLE: &str = include_str!("symbols.txt");

/// Symbols needed from `libibverbs.so.1`, by node.
const TAKEN: [(&str, &[&str]); 4] = [
    ("IBVERBS_1.0", &["ibv_create_comp_channel", "ibv_destroy_comp_channel"]),
    (
        "IBVERBS_1.1",
        &[
            "ibv_alloc_pd",
            "ibv_attach_mcast",
            "ibv_create_cq",
            "ibv_create_qp",
            "ibv_create_srq",
            "ibv_dealloc_pd",
            "ibv_destroy_cq",
            "ibv_destroy_qp",
            "ibv_destroy_srq",
            "ibv_detach_mcast",
            "ibv_free_device_list",
            "ibv_get_device_guid",
            "ibv_get_device_list",
            "ibv_modify_qp",
            "ibv_open_device",
            "ibv_query_device",
        ],
    ),
    ("IBVERBS_1.9", &["ibv_get_device_index"]),
    (
        "ADVERB_PRIVATE",
        &[
            "adverb_ucma_open",
            "adverb_ucma_perform",
            "adverb_ucma_close",
            "adverb_ucma_event_acknowledged",
            "adverb_ucma_event_at",
            "adverb_ucma_event_read",
            "adverb_ucma_event_taken",
            "adverb_ucma_events_awaited",
        ],
    ),
];

fn main() {
    let mut exports = versioned::Exports::default();
    let mut nodes = BTreeSet::new();
    for row @ [name, node, _, target] in versioned::rows(TABLE) {
        let function = match target {
            "rsocket::no_rsocket" | "rsocket::rsocket" => target.to_owned(),
            module => format!("{module}::{name}"),
        };
        exports.add(row, &[node.to_owned()], &function);
        nodes.insert(node.to_owned());
    }
    let nodes = versioned::chain(nodes.into_iter());
    let out = versioned::link("librdmacm.so.1", &nodes, &exports);
    let verbs = stand_in(&out).display().to_string();
    println!("cargo:rustc-cdylib-link-arg={verbs}");
    // The tests call no function of the stand-in.
    println!("cargo:rustc-link-arg-tests={verbs}");
    println!("cargo:rustc-link-arg-tests=-Wl,-rpath,{}", out.display());
}

/// Builds a shared object with the name, nodes and functions in [`TAKEN`].
fn stand_in(out: &Path) -> PathBuf {
    let (source, map, library) =
        (out.join("verbs.c"), out.join("verbs.map"), out.join("libibverbs.so"));
    let (mut c, mut nodes) = (String::new(), String::new());
    for (node, names) in TAKEN {
        let mut listed = String::new();
        for name in names {
            writeln!(c, "void {name}(void) {{}}").expect("writing to a string");
            write!(listed, " {name};").expect("writing to a string");
        }
        let names = if listed.is_empty() { listed } else { format!(" global:{listed}") };
        writeln!(nodes, "{node} {{{names} }};").expect("writing to a string");
    }
    versioned::write(&source, &c);
    versioned::write(&map, &nodes);
    // The compiler for the target: CC_<target>, CC, or the compiler derived from the target's name.
    let cc = cc::Build::new().get_compiler();
    let run = cc
        .to_command()
        .args(["-shared", "-nostdlib", "-fPIC", "-w", "-Wl,-soname,libibverbs.so.1"])
        .arg(format!("-Wl,--version-script={}", map.display()))
        .arg("-o")
        .arg(&library)
        .arg(&source)
        .status();
    let cc = cc.path().display();
    match run {
        Ok(status) if status.success() => library,
        Ok(status) => panic!("{cc}: {status}: it has to make the library to link with"),
        Err(why) => panic!("{cc}: {why}: a C compiler for the target is needed"),
    }
}
