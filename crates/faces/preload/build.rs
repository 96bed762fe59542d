//! Names the interposed functions, in the shared object only.
//!
//! The crate is also an rlib. If its functions were named `open` or `stat` in the object files,
//! every program that links the rlib would get them instead of the C library's. So the functions
//! have other names, and the linker adds the C library's names as aliases in the shared object.
//!
//! The object is loaded into any kind of program, so it must need only the C library. It must not
//! need unwinding, which programs built with musl do not have. It must not need thread-local
//! variables, which need glibc's loader. Nothing here panics. Nevertheless, rustc's list of exports
//! keeps the unwinding routine, and this routine keeps half of the standard library. So the linker
//! gives the routine's name to a function that is never called, and drops the rest.
//!
//! The linker sees a C library with only the functions in `src/needs.txt`, and empty versions of
//! the other libraries that rustc names. So in every profile the link fails if the object needs
//! more, and the linker names the function.
//!
//! A package of this crate has the profile of the program that builds the package. In most profiles
//! the object needs more, so a build of a package links with the libraries of the machine.

mod linker;

use std::fmt::Write;
use std::path::{Path, PathBuf};

const NEEDS: &str = include_str!("src/needs.txt");
const NAMES: &str = include_str!("src/names.txt");

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/names.txt");
    println!("cargo:rerun-if-changed=src/needs.txt");
    let names: Vec<&str> = NAMES.split_whitespace().collect();
    let arg = |text: &str| println!("cargo:rustc-cdylib-link-arg={text}");
    for name in &names {
        arg(&format!("-Wl,--defsym={name}=adverb_preload_{name}"));
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let path = out.join("preload.map");
    std::fs::write(&path, format!("{{ global: {}; }};\n", names.join("; ")))
        .expect("OUT_DIR is writable");
    arg(&format!("-Wl,--version-script={}", path.display()));
    // Two installations may be in one process (`adverb env` of one, `adverb run` of another). Each
    // object calls its own functions. Otherwise the second object would call the functions of the
    // first, whose next function is in the second.
    arg("-Wl,-Bsymbolic");
    arg("-Wl,-z,nodelete");
    arg("-Wl,-z,defs");
    if !is_package() {
        arg(&format!("-L{}", libraries(&out).display()));
        arg("-Wl,--defsym=rust_eh_personality=adverb_preload_no_unwinding");
    }
    linker::lld();
}

/// Was this source packed for a registry? `cargo package` adds this file.
fn is_package() -> bool {
    Path::new("Cargo.toml.orig").is_file()
}

/// Makes a directory with a C library of only [`NEEDS`], and empty versions of the other libraries
/// that rustc names. The linker searches this directory first.
///
/// The functions of the loader, such as `dlsym`, are in `libdl.so.2`. Before glibc 2.34 they are
/// nowhere else. A newer glibc has an empty library of this name, and musl takes it for its own.
fn libraries(out: &Path) -> PathBuf {
    let directory = out.join("needs");
    std::fs::create_dir_all(&directory).expect("OUT_DIR is writable");
    let (of_dl, of_c): (Vec<_>, Vec<_>) =
        NEEDS.split_whitespace().partition(|name| name.starts_with("dl"));
    stand_in(&directory, "libdl", "libdl.so.2", &of_dl);
    stand_in(&directory, "libc", "libc.so.6", &of_c);
    for name in ["gcc_s", "util", "rt", "pthread", "m"] {
        std::fs::write(directory.join(format!("lib{name}.so")), "/* Nothing. */\n")
            .expect("OUT_DIR is writable");
    }
    directory
}

/// Makes a library with empty functions.
fn stand_in(directory: &Path, library: &str, soname: &str, names: &[&str]) {
    let source = directory.join(format!("{library}.c"));
    let mut c = String::new();
    for name in names {
        writeln!(c, "void {name}(void) {{}}").expect("writing to a string");
    }
    std::fs::write(&source, c).expect("OUT_DIR is writable");
    // The compiler for the target: CC_<target>, CC, or the compiler derived from the target's name.
    let cc = cc::Build::new().get_compiler();
    let run = cc
        .to_command()
        .args(["-shared", "-nostdlib", "-fPIC", "-fno-builtin", "-w"])
        .arg(format!("-Wl,-soname,{soname}"))
        .arg("-o")
        .args([directory.join(format!("{library}.so")), source])
        .status();
    assert!(
        run.is_ok_and(|status| status.success()),
        "{}: a C compiler for the target is needed",
        cc.path().display()
    );
}
