//! Gives the interposed functions their names, in the shared object only.
//!
//! The crate is also an rlib. Were its functions named `open` or `stat` in the object files, every
//! program that links the rlib would get them in place of the C library's. So they have names of
//! their own, and the linker adds the C library's names as aliases when it makes the shared object.
//!
//! The object is loaded into programs of any kind, so it must need nothing but the C library: no
//! unwinding (programs built with musl do not have it), no thread-local variables (these need
//! glibc's loader). Nothing here panics. What rustc lists as exported keeps the routine for
//! unwinding alive nevertheless, and that keeps half of the standard library. The linker gives its
//! name to a function that is never called, and drops the rest. A test looks at what is left.

use std::path::PathBuf;

const NAMES: &str = include_str!("src/names.txt");

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/names.txt");
    let names: Vec<&str> = NAMES.split_whitespace().collect();
    let arg = |text: &str| println!("cargo:rustc-cdylib-link-arg={text}");
    for name in &names {
        arg(&format!("-Wl,--defsym={name}=adverb_preload_{name}"));
    }
    let path = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("preload.map");
    std::fs::write(&path, format!("{{ global: {}; }};\n", names.join("; "))).expect("OUT_DIR is writable");
    arg(&format!("-Wl,--version-script={}", path.display()));
    arg("-Wl,-z,nodelete");
    arg("-Wl,--defsym=rust_eh_personality=adverb_preload_no_unwinding");
    if std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        // The default linker elsewhere refuses two version scripts.
        arg("-fuse-ld=lld");
    }
}
