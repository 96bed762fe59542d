//! Asks the C compiler for the sizes, offsets and values of a header.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use adverb_abi::{Constant, TypeLayout};

/// What differs between a header and our mirrors: `absent X`, `size T n`, `offset T.f n`, `width
/// T.f n`, `value C n`.
pub type Differences = BTreeSet<String>;

/// One line of the C program, what it asks, and the answer we expect.
pub struct Probe {
    key: String,
    statement: String,
    expected: String,
}

pub fn probes(types: &[&[TypeLayout]], constants: &[&[Constant]]) -> Vec<Probe> {
    let mut probes = Vec::new();
    let mut probe = |key: String, what: &str, expression: String, expected: i64| {
        let statement = format!("printf(\"{what} {key} %lld\\n\", (long long)({expression}));");
        probes.push(Probe {
            key: key.clone(),
            statement,
            expected: format!("{what} {key} {expected}"),
        });
    };
    for ty in types.iter().copied().flatten() {
        let c = ty.c_name;
        probe(ty.name.into(), "size", format!("sizeof({c})"), ty.size as i64);
        probe(ty.name.into(), "align", format!("_Alignof({c})"), ty.align as i64);
        // This type grows at its front: only distances from its last member are fixed.
        let from_context = ty.name == "verbs_context";
        let base = if from_context { ty.fields.last().expect("a member").offset } else { 0 };
        for field in ty.fields {
            let (key, f) = (format!("{}.{}", ty.name, field.name), field.name);
            let offset = if from_context {
                format!("(long)offsetof({c}, {f}) - (long)offsetof({c}, context)")
            } else {
                format!("offsetof({c}, {f})")
            };
            probe(key.clone(), "offset", offset, field.offset as i64 - base as i64);
            probe(key, "width", format!("sizeof((({c} *)0)->{f})"), field.size as i64);
        }
    }
    for constant in constants.iter().copied().flatten() {
        probe(constant.name.into(), "value", constant.name.into(), constant.value);
    }
    probes
}

fn source(includes: &[&str], probes: &[Probe], skip: &BTreeSet<usize>) -> (String, usize) {
    let mut text = String::from(
        "#define _GNU_SOURCE\n#include <stddef.h>\n#include <stdio.h>\n#include <time.h>\n",
    );
    for include in includes {
        writeln!(text, "#include <{include}>").expect("a string");
    }
    // Nested types that the header does not name are written as `__typeof__` of a member.
    text.push_str("int main(void) {\n");
    let first = text.lines().count() + 1;
    for (i, probe) in probes.iter().enumerate() {
        writeln!(text, "{}", if skip.contains(&i) { "" } else { &probe.statement })
            .expect("a string");
    }
    text.push_str("return 0; }\n");
    (text, first)
}

fn compile(include_dir: Option<&Path>, file: &Path, output: &Path) -> Result<(), String> {
    let mut cc = Command::new("cc");
    if let Some(dir) = include_dir {
        cc.arg("-I").arg(dir);
    }
    // Old headers define unnamed-bitfield tricks that newer compilers warn about; only errors
    // matter here.
    let run =
        cc.args(["-w", "-fmax-errors=0", "-o"]).arg(output).arg(file).env("LC_ALL", "C").output();
    let run = run.expect("a C compiler: install the package gcc (or clang) that provides `cc`");
    if run.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&run.stderr).into_owned())
    }
}

/// Compiles and runs the probes. Lines that do not compile are things the header lacks.
pub fn differences(
    include_dir: Option<&Path>,
    includes: &[&str],
    probes: &[Probe],
    name: &str,
) -> Differences {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (file, program) = (dir.join(format!("{name}.c")), dir.join(name));
    let mut absent = BTreeSet::new();
    loop {
        let (text, first) = source(includes, probes, &absent);
        std::fs::write(&file, text).expect("a writable target directory");
        let Err(errors) = compile(include_dir, &file, &program) else { break };
        let before = absent.len();
        for line in errors.lines().filter(|l| l.contains(" error: ")) {
            let rest = line.strip_prefix(&format!("{}:", file.display()));
            let number =
                rest.and_then(|r| r.split(':').next()).and_then(|n| n.parse::<usize>().ok());
            absent.extend(number.and_then(|n| n.checked_sub(first)).filter(|&i| i < probes.len()));
        }
        assert!(absent.len() > before, "the header itself does not compile:\n{errors}");
    }
    let run = Command::new(&program).output().expect("the probe program runs");
    assert!(run.status.success(), "the probe program failed");
    let printed = String::from_utf8(run.stdout).expect("ASCII");
    let present = probes.iter().enumerate().filter(|(i, _)| !absent.contains(i)).map(|(_, p)| p);
    let mut found = Differences::new();
    let mut lines = printed.lines();
    for probe in present {
        let line = lines.next().expect("a line for each probe");
        if line != probe.expected {
            found.insert(line.to_owned());
        }
    }
    found.extend(absent.iter().map(|&i| format!("absent {}", probes[i].key)));
    found
}
