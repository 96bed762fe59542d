//! For build scripts: a shared object with versioned symbols, from tables of its names.
//!
//! A row of a table has four columns: name, version nodes, how a call is made, and the function.
//! The linker's script declares *empty* nodes: naming symbols in it would collide with the script
//! that rustc makes itself. The `.symver` lines of `src/exports` say which symbol belongs to which
//! node.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Name, version nodes, how a call is made, and the function.
pub type Row<'a> = [&'a str; 4];

/// The rows of a table.
pub fn rows(table: &str) -> impl Iterator<Item = Row<'_>> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(' ').collect::<Vec<_>>().try_into().expect("four columns"))
}

/// The declarations of nodes. Each node inherits from the node before.
pub fn chain(nodes: impl Iterator<Item = String>) -> String {
    let (mut all, mut parent) = (String::new(), String::new());
    for node in nodes {
        writeln!(all, "{node} {{ }}{parent};").expect("writing to a string");
        parent = format!(" {node}");
    }
    all
}

/// The exports of `src/exports`, and a line for each name and node.
#[derive(Default)]
pub struct Exports {
    macros: String,
    symbols: String,
}

impl Exports {
    /// Adds a name at these nodes. The last node is the default version.
    pub fn add(&mut self, [name, _, call, _]: Row<'_>, nodes: &[String], function: &str) {
        let older = nodes.len() - 1;
        let versions: Vec<_> = std::iter::repeat_n("@", older).chain(["@@"]).zip(nodes).collect();
        for (_, node) in &versions {
            writeln!(self.symbols, "{name} {node}").expect("writing to a string");
        }
        if call == "data" {
            let versions = versions.iter().map(|(at, node)| format!("{node:?} {at:?} "));
            self.macros += &format!("data_object!({name:?}: {});\n", versions.collect::<String>());
            return;
        }
        let call = if call == "plain" { "" } else { call };
        for (at, node) in versions {
            self.macros +=
                &format!("trampoline!({call} {name:?}, {node:?}, {at:?}, crate::{function});\n");
        }
    }
}

/// Writes the files, and makes the linker use them. Answers the directory of the files.
pub fn link(soname: &str, nodes: &str, exports: &Exports) -> PathBuf {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=versioned.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    write(&out.join("exports.rs"), &exports.macros);
    write(&out.join("symbols.txt"), &exports.symbols);
    let script = out.join("nodes.map");
    write(&script, nodes);
    let arg = |text: &str| println!("cargo:rustc-cdylib-link-arg={text}");
    arg(&format!("-Wl,--version-script={}", script.display()));
    arg(&format!("-Wl,-soname,{soname}"));
    // Programs keep pointers to the library's code in objects, and threads of the library may run:
    // never unload.
    arg("-Wl,-z,nodelete");
    // glibc ends the process if it has no memory to register a destructor of a thread-local
    // variable. Without this function of the C library, the standard library registers destructors
    // itself, in memory of the global allocator, and runs them through a pthread key.
    arg("-Wl,--defsym=__cxa_thread_atexit_impl=0");
    crate::linker::lld();
    out
}

pub fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("OUT_DIR is writable");
}
