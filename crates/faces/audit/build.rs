//! The auditor is loaded before the program and everything that it needs would be loaded for it
//! once more, apart from the program's own. So it needs nothing: no C library, no start files, no
//! unwinding (the linker gives that name to a function that is never called).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for arg in ["-nostartfiles", "-Wl,--defsym=rust_eh_personality=la_version"] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}
