//! The suite of a newer rdma-core than Debian's, built from PyPI's source archive of pyverbs, which
//! contains all of rdma-core. Its generic tests run one by one on the drop-in libraries.

use std::path::{Path, PathBuf};
use std::time::Duration;

use adverb_foreign::pyverbs::{Report, Word, absorb};
use adverb_foreign::suite::{Case, case, short};
use adverb_foreign::{Verdict, require};
use adverb_programs::data_dir;
use adverb_programs::fetch::{self, PYTHON};
use adverb_programs::huge::Huge;
use adverb_programs::skips::{ignored, parse};
use adverb_programs::stage::{DEVICE, PATHS, Stage};

const LIMIT: Duration = Duration::from_secs(600);
/// The release of rdma-core.
const VERSION: &str = "59.0";
/// The newest Cython that compiles this release.
const CYTHON: &str = "cython==3.0.12";
const NAMES: &str = include_str!("../../data/pyverbs_head.txt");
/// Number of free huge pages for the suite.
const HUGE_PAGES: usize = 16;
/// Tests without `ok`, with the reason. The reason of missing huge pages counts only if none can be
/// reserved.
const LEFT_OUT: &str = include_str!("../../data/pyverbs_head_left_out.txt");

pub fn cases() -> Vec<Case> {
    let cases = PATHS.map(|path| {
        let name = format!("{path}/generic");
        if short() {
            ignored(name, "rdma-core is built for it, which takes minutes: make programs")
        } else {
            case(name, move || generic(path))
        }
    });
    cases.into()
}

/// `build/python`, the tests, and `lib` with the libraries of this release except libibverbs.
fn built() -> Result<PathBuf, String> {
    fetch::once("pyverbs-head", |dir| {
        let source = fetch::sdist(dir, "pyverbs", VERSION)?;
        fetch::venv(dir, &[CYTHON])?;
        let script = r#"
            . ./venv/bin/activate
            cmake -S "$1/rdma-core" -B build -GNinja -DNO_MAN_PAGES=1 -DCMAKE_SKIP_RPATH=ON -DCMAKE_BUILD_TYPE=Release
            ninja -C build -j2
            mkdir lib
            for l in mlx5 mlx4 efa mana hns rdmacm ibumad; do cp -a build/lib/lib$l.so.* lib/; done
            cp -a "$1/rdma-core/tests" tests
        "#;
        fetch::sh(dir, script, &[&source.display().to_string()]).map(|_| ())
    })
}

fn generic(path: &str) -> Verdict {
    let dir = built()?;
    let results = dir.join(format!("results.{path}"));
    std::fs::write(&results, "").map_err(|e| format!("{}: {e}", results.display()))?;
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("../foreign/data/pyverbs_run.py");
    let names = data_dir().join("pyverbs_head.txt");
    let huge = Huge::reserve(HUGE_PAGES);
    let [names, driver, tests, results_of] =
        [&names, &driver, &dir.join("tests"), &results].map(|path| path.display().to_string());
    let script = "list=$1; shift; exec \"$@\" <\"$list\"";
    let line = ["sh", "-c", script, "sh", &names, PYTHON, &driver, &tests, &results_of];
    let done = Stage::new(path)
        .env("PYTHONPATH", dir.join("build/python").display().to_string())
        .env("LD_LIBRARY_PATH", dir.join("lib").display().to_string())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .dir(&dir)
        .run(&[&line[..], &["--dev", DEVICE, "--port", "1", "--gid", "0"]].concat(), LIMIT)?;
    let text = std::fs::read_to_string(&results).map_err(|e| e.to_string())?;
    let mut report = Report::new();
    absorb(&text, done.timed_out, &done.describe(), &mut report);
    let mut left_out = parse(LEFT_OUT);
    left_out.retain(|(_, why)| huge.is_none() || !why.contains("huge pages"));
    let mut wrong = Vec::new();
    let mut ok = 0;
    for name in NAMES.lines() {
        let listed =
            left_out.iter().find(|(n, _)| *n == name || name.starts_with(&format!("{n}.")));
        match (report.get(name), listed) {
            (Some((Word::Ok, _)), _) => ok += 1,
            (Some((Word::Skip, _)), Some((_, why))) => {
                println!("pyverbs {VERSION} {path} skip: {name}: {why}");
            }
            (result, _) => wrong.push(format!("{name}: {result:?}")),
        }
    }
    println!(
        "pyverbs {VERSION} {path}: {} tests, {ok} ok, {} wrong",
        NAMES.lines().count(),
        wrong.len()
    );
    require!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), done.describe());
    Ok(())
}
