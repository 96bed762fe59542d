//! Compiles C programs against the headers with warnings as errors, links them with the library
//! under test, and runs them.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const WARNINGS: [&str; 3] = ["-Wall", "-Wextra", "-Werror"];
/// Time limit of a program. No program takes a second, but the machine may be under load, and a
/// hanging program must end.
const LIMIT: Duration = Duration::from_secs(60);

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn out_dir() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ndkpi-c");
    std::fs::create_dir_all(&dir).expect("the target directory is writable");
    dir
}

/// A directory with the library under its installed names. Cargo puts the library beside the test,
/// under the name that the linker searches. The loader searches the library's SONAME.
fn library_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let exe = std::env::current_exe().expect("the test has a path");
        let built = exe.parent().expect("a directory").join("libndkpi.so");
        assert!(built.is_file(), "there is no {}", built.display());
        let test = exe.file_name().expect("a name").to_string_lossy();
        let dir = out_dir().join(format!("lib.{test}"));
        std::fs::create_dir_all(&dir).expect("writable");
        for link in ["libndkpi.so", "libndkpi.so.1"].map(|name| dir.join(name)) {
            // The link stays for the next run.
            if std::fs::read_link(&link).ok().as_ref() != Some(&built) {
                let _ = std::fs::remove_file(&link);
                std::os::unix::fs::symlink(&built, link).expect("writable");
            }
        }
        dir
    })
}

/// The built library.
pub fn library() -> PathBuf {
    library_dir().join("libndkpi.so")
}

fn compiler(language: &str) -> Command {
    let (variable, default) = if language == "c++" { ("CXX", "c++") } else { ("CC", "cc") };
    let mut cc = Command::new(std::env::var(variable).unwrap_or_else(|_| default.to_owned()));
    cc.args(WARNINGS).arg("-I").arg(here().join("include"));
    cc
}

fn succeed(mut cc: Command, what: &str) {
    let output = cc.output().unwrap_or_else(|e| panic!("{cc:?}: {e}"));
    assert!(
        output.status.success(),
        "{what} does not compile:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Checks that `text` compiles in a language and dialect.
pub fn check(text: &str, language: &str, flags: &[String]) {
    let file = out_dir().join(format!("check.{}.c", std::process::id()));
    std::fs::write(&file, text).expect("writable");
    let mut cc = compiler(language);
    cc.args(flags).args(["-fsyntax-only", "-x", language]).arg(&file);
    succeed(cc, &format!("{text}as {language} {flags:?}"));
}

/// Compiles and runs a short program that needs no library. Returns its output.
pub fn run_source(name: &str, text: &str) -> String {
    let file = out_dir().join(format!("{name}.c"));
    let program = out_dir().join(name);
    std::fs::write(&file, text).expect("writable");
    let mut cc = compiler("c");
    cc.arg("-std=c99").arg("-o").arg(&program).arg(&file);
    succeed(cc, name);
    run(&program, &[])
}

/// Compiles C files into a program linked with the library: files of this crate (`tests/c/NAME.c`),
/// or other files by path.
pub fn build(name: &str, sources: &[PathBuf]) -> PathBuf {
    let program = out_dir().join(name);
    let library = library_dir();
    let mut cc = compiler("c");
    cc.args(["-std=gnu11", "-g", "-O1", "-pthread", "-I"])
        .arg(here().join("tests/c"))
        .arg("-o")
        .arg(&program);
    cc.args(sources).arg("-L").arg(library).arg("-lndkpi");
    cc.arg(format!("-Wl,-rpath,{}", library.display()));
    succeed(cc, name);
    program
}

/// A source of `tests/c`.
pub fn source(name: &str) -> PathBuf {
    here().join("tests/c").join(format!("{name}.c"))
}

/// Runs a program and returns its output. If the program fails or takes too long, panics with all
/// of its output.
pub fn run(program: &Path, args: &[&str]) -> String {
    let mut child = Command::new(program)
        .args(args)
        .env("ADVERB_LOG", "warn")
        // Cargo's own value names a directory that may contain an older build of the library.
        .env("LD_LIBRARY_PATH", library_dir())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{}: {e}", program.display()));
    // Read on separate threads, because a full pipe would stop the program.
    let mut out = child.stdout.take().expect("piped");
    let mut err = child.stderr.take().expect("piped");
    let out = std::thread::spawn(move || read(&mut out));
    let err = std::thread::spawn(move || read(&mut err));
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().expect("our child") {
            break Some(status);
        }
        if Instant::now() > deadline {
            child.kill().expect("our child");
            child.wait().expect("our child");
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let (out, err) = (out.join().expect("a reader"), err.join().expect("a reader"));
    let ended = status.map_or("was ended after a minute".to_owned(), |s| s.to_string());
    assert!(
        status.is_some_and(|s| s.success()),
        "{} {args:?}: {ended}\n{out}\n{err}",
        program.display()
    );
    out
}

fn read(pipe: &mut impl Read) -> String {
    let mut text = Vec::new();
    // An error ends the text. The exit status shows the failure.
    let _ = pipe.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}
