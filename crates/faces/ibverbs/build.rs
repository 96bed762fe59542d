//! Gives the shared object its name, its version nodes and its exports, from the tables in
//! `symbols`.
//!
//! The script declares *empty* nodes: naming symbols in it would collide with the script rustc
//! makes itself. The `.symver` lines of `src/exports` say which symbol belongs to which node.

mod linker;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;

/// Every exported name.
const TABLES: [&str; 2] = [include_str!("symbols/public.txt"), include_str!("symbols/private.txt")];

/// The linker's script, the trampolines of `src/exports`, and a line for each name and node.
#[derive(Default)]
struct Made {
    nodes: String,
    exports: String,
    symbols: String,
}

fn make() -> Result<Made, std::fmt::Error> {
    let rows: Vec<[&str; 4]> = TABLES
        .iter()
        .flat_map(|table| table.lines().filter(|line| !line.starts_with('#')))
        .map(|line| line.split(' ').collect::<Vec<_>>().try_into().expect("four columns"))
        .collect();
    let numbers = |behind: &str| -> BTreeSet<u32> {
        let nodes = rows.iter().flat_map(|row| row[1].split('-'));
        nodes.filter_map(|node| node.strip_prefix(behind)?.parse().ok()).collect()
    };
    let private = numbers("");
    let mut made = Made::default();
    // Each public node inherits from the node before. The others stand alone.
    let mut parent = String::new();
    for minor in numbers("IBVERBS_1.") {
        writeln!(made.nodes, "IBVERBS_1.{minor} {{ }}{parent};")?;
        parent = format!(" IBVERBS_1.{minor}");
    }
    for number in &private {
        writeln!(made.nodes, "IBVERBS_PRIVATE_{number} {{ }};")?;
    }
    // What we offer beside rdma-core (include/adverb.h), and what librdmacm.so.1 and the preloaded
    // object of the same build call.
    made.nodes += "ADVERB_1.0 { };\nADVERB_PRIVATE { };\n";
    for [name, nodes, call, target] in rows {
        let (first, last) = nodes.split_once('-').unwrap_or((nodes, nodes));
        let nodes: Vec<_> = match (first.parse::<u32>(), last.parse()) {
            (Ok(first), Ok(last)) => {
                private.range(first..=last).map(|n| format!("IBVERBS_PRIVATE_{n}")).collect()
            }
            _ => vec![nodes.to_owned()],
        };
        let older = nodes.len() - 1;
        let versions: Vec<_> = std::iter::repeat_n("@", older).chain(["@@"]).zip(&nodes).collect();
        if call == "data" {
            let versions = versions.iter().map(|(at, node)| format!("{node:?} {at:?} "));
            writeln!(made.exports, "data_object!({name:?}: {});", versions.collect::<String>())?;
        }
        let told = if call == "told" { "told " } else { "" };
        let function = match target.contains("::") {
            true => format!("{target}::{name}"),
            false => format!("exports::private::{target}"),
        };
        for (at, node) in versions {
            writeln!(made.symbols, "{name} {node}")?;
            if call != "data" {
                writeln!(
                    made.exports,
                    "trampoline!({told}{name:?}, {node:?}, {at:?}, crate::{function});"
                )?;
            }
        }
    }
    Ok(made)
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let made = make().expect("writing to a string");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let write = |name: &str, text: &str| {
        let path = out.join(name);
        std::fs::write(&path, text).expect("OUT_DIR is writable");
        path
    };
    let path = write("libibverbs.map", &made.nodes);
    write("exports.rs", &made.exports);
    write("symbols.txt", &made.symbols);

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
