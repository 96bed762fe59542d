//! For build scripts: the linker of a shared object with a version script of its own.
//!
//! rustc gives each shared object a version script. GNU `ld` refuses a second one, and LLVM's `lld`
//! takes it. rustc links with the `lld` that it brings along on x86-64 alone, so build scripts ask
//! for `lld` themselves: the one that rustc brings along, or else the one that is installed.

use std::path::PathBuf;
use std::process::Command;

/// Has `lld` link this crate's shared object.
pub fn lld() {
    println!("cargo:rerun-if-changed=../preload/linker.rs");
    let arg = |text: &str| println!("cargo:rustc-cdylib-link-arg={text}");
    if let Some(directory) = brought_along() {
        arg(&format!("-B{}", directory.display()));
    } else if !is_installed() {
        println!(
            "cargo:warning=lld is needed to link: rustc brings none along here; install the package lld"
        );
    }
    arg("-fuse-ld=lld");
}

/// The directory with the `ld.lld` of rustc; distributions leave `ld.lld` out.
fn brought_along() -> Option<PathBuf> {
    let rustc = std::env::var_os("RUSTC").expect("cargo sets RUSTC");
    let run = Command::new(rustc).args(["--print", "target-libdir"]).output().ok()?;
    let libraries = PathBuf::from(String::from_utf8(run.stdout).ok()?.trim());
    let directory = libraries.parent()?.join("bin/gcc-ld");
    directory.join("ld.lld").is_file().then_some(directory)
}

fn is_installed() -> bool {
    Command::new("ld.lld").arg("--version").output().is_ok_and(|run| run.status.success())
}
