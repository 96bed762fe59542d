//! Names the shared object, declares its version nodes, and builds a stand-in for `libibverbs.so.1`
//! to link with.
//!
//! The version script declares *empty* nodes, because symbols in the script would collide with the
//! script of rustc. The `.symver` lines in `src/exports.rs` assign each symbol to its node.
//!
//! The shared object needs `libibverbs.so.1` by name and with versions, like rdma-core's. A crate
//! cannot link with the `cdylib` of another crate. So this script builds a library of the same name
//! and nodes with empty functions, and at run time the loader finds the real library.

mod linker;

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Each node inherits from the node before.
const NODES: [&str; 6] = ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5"];

/// Symbols needed from `libibverbs.so.1`, by node.
const TAKEN: [(&str, &[&str]); 4] = [
    (
        "IBVERBS_1.0",
        &["ibv_copy_qp_attr_from_kern", "ibv_create_comp_channel", "ibv_destroy_comp_channel"],
    ),
    (
        "IBVERBS_1.1",
        &[
            "ibv_alloc_pd",
            "ibv_attach_mcast",
            "ibv_copy_ah_attr_from_kern",
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
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut script = String::new();
    let mut parent = String::new();
    for node in NODES {
        writeln!(script, "RDMACM_{node} {{ }}{parent};").expect("writing to a string");
        parent = format!(" RDMACM_{node}");
    }
    let map = out.join("librdmacm.map");
    std::fs::write(&map, script).expect("OUT_DIR is writable");
    let verbs = stand_in(&out);

    let arg = |text: &str| println!("cargo:rustc-cdylib-link-arg={text}");
    arg(&format!("-Wl,--version-script={}", map.display()));
    arg("-Wl,-soname,librdmacm.so.1");
    arg(&verbs.display().to_string());
    // Programs keep pointers to our code in objects, so the object must never be unloaded.
    arg("-Wl,-z,nodelete");
    // glibc ends the process if it has no memory to register a destructor of a thread-local
    // variable. Without this function of the C library, the standard library registers destructors
    // itself, in memory of the global allocator, and runs them through a pthread key.
    arg("-Wl,--defsym=__cxa_thread_atexit_impl=0");
    // The tests call no function of the stand-in.
    println!("cargo:rustc-link-arg-tests={}", verbs.display());
    println!("cargo:rustc-link-arg-tests=-Wl,-rpath,{}", out.display());
    linker::lld();
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
    std::fs::write(&source, c).expect("OUT_DIR is writable");
    std::fs::write(&map, nodes).expect("OUT_DIR is writable");
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
