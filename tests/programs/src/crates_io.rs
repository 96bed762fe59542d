//! Crates of crates.io with their tests and examples. Each is built once from the published
//! sources, with the published lock file.

use std::path::{Path, PathBuf};

use crate::fetch;

/// A crate with tests to run.
#[derive(Clone, Copy, Debug)]
pub struct Crate {
    /// Name on crates.io.
    pub name: &'static str,
    /// Version.
    pub version: &'static str,
    /// Arguments of `cargo test`: features, targets.
    pub args: &'static [&'static str],
}

/// A program: kind and name of the target, and the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// `lib`, `test` or `example`.
    pub kind: String,
    pub target: String,
    pub path: PathBuf,
}

/// A manifest with this crate as the only dependency.
fn manifest(krate: &Crate) -> String {
    format!(
        "[package]\nname = \"fetcher\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\n[workspace]\n\n\
         [lib]\npath = \"lib.rs\"\n\n[dependencies]\n{} = \"={}\"\n",
        krate.name, krate.version
    )
}

/// Fetches the sources, and compiles the tests against Debian's headers and libraries of rdma-core.
///
/// # Errors
/// The messages of cargo.
pub fn built(krate: &Crate) -> Result<Vec<Binary>, String> {
    let dir = fetch::once(&format!("crate-{}-{}", krate.name, krate.version), |dir| {
        let fetcher = dir.join("fetcher");
        let fail = |e: std::io::Error| format!("{}: {e}", fetcher.display());
        std::fs::create_dir_all(&fetcher).map_err(fail)?;
        std::fs::write(fetcher.join("Cargo.toml"), manifest(krate)).map_err(fail)?;
        std::fs::write(fetcher.join("lib.rs"), "").map_err(fail)?;
        let script = r#"
            at=$(cargo metadata --quiet --format-version 1 --manifest-path fetcher/Cargo.toml |
                grep -o "\"manifest_path\":\"[^\"]*/$1/Cargo.toml\"" | cut -d'"' -f4)
            cp -r "$(dirname "$at")" source
            printf '\n[workspace]\n' >>source/Cargo.toml
        "#;
        fetch::sh(dir, script, &[&format!("{}-{}", krate.name, krate.version)]).map(|_| ())
    })?;
    compile(&dir, krate)
}

/// Compiles the tests unless they are compiled, and finds the programs in cargo's messages.
fn compile(dir: &Path, krate: &Crate) -> Result<Vec<Binary>, String> {
    let script = r#"
        export RDMA_CORE_INCLUDE_DIR=/usr/include IBVERBS_HEADER_DIR=/usr/include/infiniband CARGO_TARGET_DIR="$PWD/target"
        export RDMA_CORE_LIB_DIR="/usr/lib/$(uname -m)-linux-gnu" CARGO_PROFILE_DEV_DEBUG=0
        cargo test --no-run --locked --message-format json-render-diagnostics --manifest-path source/Cargo.toml "$@"
    "#;
    let binaries = executables(&fetch::sh(dir, script, krate.args)?);
    if binaries.is_empty() { Err(format!("{} has no tests", krate.name)) } else { Ok(binaries) }
}

/// The programs in cargo's messages.
fn executables(messages: &str) -> Vec<Binary> {
    let field = |text: &str, key: &str| {
        let (_, rest) = text.split_once(key)?;
        rest.split_once('"').map(|(value, _)| value.to_string())
    };
    messages
        .lines()
        .filter(|l| l.starts_with("{\"reason\":\"compiler-artifact\""))
        .filter_map(|l| {
            let path = field(l, "\"executable\":\"")?;
            let (_, target) = l.split_once("\"target\":{")?;
            let kind = field(target, "\"kind\":[\"")?;
            Some(Binary { kind, target: field(target, "\"name\":\"")?, path: path.into() })
        })
        .collect()
}

/// Names of tests in the output of libtest, each with its result: `ok`, `FAILED`, `ignored`.
pub fn results(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter_map(|l| {
            let (name, word) = l.strip_prefix("test ")?.rsplit_once(" ... ")?;
            let name = name.trim_end_matches(" - should panic");
            Some((name.to_string(), word.split([',', ' ']).next()?.to_string()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_cargos_messages() {
        let text = "   Compiling x\n\
            {\"reason\":\"compiler-artifact\",\"package_id\":\"x\",\"target\":{\"kind\":[\"lib\"],\"name\":\"x\"},\"profile\":{\"opt_level\":\"0\",\"test\":false},\"executable\":null}\n\
            {\"reason\":\"compiler-artifact\",\"package_id\":\"x\",\"target\":{\"kind\":[\"test\"],\"name\":\"loopback\"},\"profile\":{\"opt_level\":\"0\",\"test\":true},\"executable\":\"/t/loopback-1\"}\n";
        let found = executables(text);
        let want =
            Binary { kind: "test".into(), target: "loopback".into(), path: "/t/loopback-1".into() };
        assert_eq!(found, [want]);
    }

    #[test]
    fn words_of_libtest_are_read() {
        let text = "running 3 tests\ntest a::b ... ok\ntest c - should panic ... FAILED\ntest d ... ignored, why\n";
        let want = [("a::b", "ok"), ("c", "FAILED"), ("d", "ignored")];
        assert_eq!(results(text), want.map(|(n, w)| (n.to_string(), w.to_string())));
    }
}
