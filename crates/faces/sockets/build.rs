//! Gives the functions their names in the shared object only. A program that links the rlib must
//! use the C library's functions.

mod linker;

use std::path::PathBuf;

const NAMES: &str = include_str!("src/names.txt");

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/names.txt");
    let names: Vec<&str> = NAMES.split_whitespace().collect();
    let arg = |text: &str| println!("cargo:rustc-cdylib-link-arg={text}");
    for name in &names {
        arg(&format!("-Wl,--defsym={name}=adverb_sockets_{name}"));
    }
    let path =
        PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("sockets.map");
    std::fs::write(&path, format!("{{ global: {}; }};\n", names.join("; ")))
        .expect("OUT_DIR is writable");
    arg(&format!("-Wl,--version-script={}", path.display()));
    arg("-Wl,-z,nodelete");
    linker::lld();
}
