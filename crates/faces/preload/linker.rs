//! For build scripts: the linker for a shared object with its own version script.
//!
//! rustc gives each shared object a version script. GNU `ld` refuses a second script; LLVM's `lld`
//! accepts it. rustc links with its bundled `lld` only on x86-64. So build scripts ask for `lld`
//! themselves: rustc's bundled `lld`, or else the installed `lld`.

use std::path::PathBuf;
use std::process::Command;

/// Makes `lld` link this crate's shared object.
pub fn lld() {
    println!("cargo:rerun-if-changed=linker.rs");
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

/// The directory with rustc's `ld.lld`; distributions do not include `ld.lld`.
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
