//! The loader loads the auditor before the program, with a second copy of each library that the
//! auditor needs. So the auditor needs nothing: no C library, no start files, no unwinding. The
//! linker resolves `rust_eh_personality`, which is never called, to `la_version`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for arg in ["-nostartfiles", "-Wl,--defsym=rust_eh_personality=la_version"] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}
