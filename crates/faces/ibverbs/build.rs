//! Gives the shared object its name and declares its version nodes.
//!
//! The script declares *empty* nodes: naming symbols in it would collide with the script rustc
//! makes itself. Which symbol belongs to which node is said by the `.symver` lines of
//! `src/exports/`.

mod linker;

use std::fmt::Write;
use std::path::PathBuf;

/// Public nodes after 1.0; each inherits from the one before.
const PUBLIC: [&str; 15] = [
    "1.1", "1.5", "1.6", "1.7", "1.8", "1.9", "1.10", "1.11", "1.12", "1.13", "1.14", "1.15",
    "1.16", "1.17", "1.18",
];

/// Private nodes of rdma-core 22 to 65; each stands alone.
const PRIVATE: [u32; 8] = [22, 25, 33, 34, 57, 59, 64, 65];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let mut script = String::from("IBVERBS_1.0 { };\n");
    let mut parent = "1.0";
    for node in PUBLIC {
        writeln!(script, "IBVERBS_{node} {{ }} IBVERBS_{parent};").expect("writing to a string");
        parent = node;
    }
    for node in PRIVATE {
        writeln!(script, "IBVERBS_PRIVATE_{node} {{ }};").expect("writing to a string");
    }
    // What we offer beside rdma-core (include/adverb.h).
    script += "ADVERB_1.0 { };\n";
    // What librdmacm.so.1 and the preloaded object of the same build call.
    script += "ADVERB_PRIVATE { };\n";
    let path = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"))
        .join("libibverbs.map");
    std::fs::write(&path, script).expect("OUT_DIR is writable");

    let arg = |text: &str| println!("cargo:rustc-cdylib-link-arg={text}");
    arg(&format!("-Wl,--version-script={}", path.display()));
    arg("-Wl,-soname,libibverbs.so.1");
    // Programs keep pointers to our code in objects and threads of ours may run: never unload.
    arg("-Wl,-z,nodelete");
    // glibc ends the process when it has no memory to note a destructor of a thread-local variable.
    // The standard library notes destructors itself where the C library's function is missing, in
    // memory of the global allocator, and runs them by a key of pthreads.
    arg("-Wl,--defsym=__cxa_thread_atexit_impl=0");
    linker::lld();
}
