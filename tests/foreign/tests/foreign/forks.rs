//! The device allocates nothing around a fork (MEM-6, MEM-7). A program linked with a counter of
//! allocator calls forks in every way, with many shared blocks.

use std::time::Duration;

use adverb_foreign::cases::{on_rig, rig};
use adverb_foreign::cc::{compile_with, source_dir};
use adverb_foreign::process::Program;
use adverb_foreign::suite::{Case, case};
use adverb_foreign::{Verdict, require};

/// A fork that waits for the allocator, while its own thread is inside the allocator, hangs
/// forever.
const LIMIT: Duration = Duration::from_secs(60);
const CASES: [&str; 5] = ["every_way", "spawned", "on_a_block", "in_a_handler", "refused"];
/// Blocks of a program under `--check` are not shared, so none of its forks is refused.
const CHECKED: [&str; 4] = ["every_way", "spawned", "on_a_block", "in_a_handler"];
/// The report of `--check` for the function `fork`, the only way to fork that calls handlers.
const REPORT: &str =
    "check: registered-memory-forked: the process forks while 1 registered region is shared";

pub fn cases() -> Vec<Case> {
    let plain = CASES.map(|name| case(name, move || one(name)));
    let checked = CHECKED.map(|name| case(format!("check/{name}"), move || checked(name)));
    let in_malloc = case("a_fork_in_malloc_ends_by_a_signal", in_malloc);
    plain.into_iter().chain(checked).chain([in_malloc]).collect()
}

/// Under `adverb run --check` the same holds. The report comes after the fork, from the parent.
fn checked(name: &str) -> Verdict {
    let out = program(name)?.flag("--check").run_ok(LIMIT)?;
    out.require_words(&[&format!("ok {name}")])?;
    let reports = out.text.matches(REPORT).count();
    require!(reports == usize::from(name == "every_way"), "{reports} reports: {}", out.describe());
    let named = out.text.lines().filter(|l| l.contains(REPORT)).all(|l| {
        l.contains(" in by_fork, forks.c:")
            && l.contains(" from ")
            && l.contains("in touch_blocks, forks.c:")
    });
    out.require(named)
}

fn in_malloc() -> Verdict {
    let out = rig::<&str>("fork_in_malloc", &[], &[])?.run(LIMIT)?;
    out.require(out.ok() && out.text.contains("ok fork in malloc"))
}

fn one(name: &str) -> Verdict {
    let out = program(name)?.run_ok(LIMIT)?;
    out.require_words(&[&format!("ok {name}")])?;
    let said = out.text.contains("adverb: warn: fork fails: there are no descriptors");
    out.require(said == (name == "refused"))
}

/// The program with a case, and the library with the counter.
fn program(name: &str) -> Result<Program, String> {
    let source = |name: &str| source_dir().join(format!("{name}.c"));
    let counter = compile_with(
        "cc",
        &["-O1", "-shared", "-fPIC"],
        &source("allocations"),
        "liballocations.so",
    )?;
    let directory = counter.parent().ok_or("a file has a directory")?.display().to_string();
    let (search, path) = (format!("-L{directory}"), format!("-Wl,-rpath,{directory}"));
    let flags = ["-O1", "-Wl,--no-as-needed", &search, &path, "-lallocations"];
    on_rig(Program::of_file(&compile_with("cc", &flags, &source("forks"), "forks")?).arg(name))
}
