//! The preload in front of a C program, on and off.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

const NAMES: &str = include_str!("../src/names.txt");

const ON: &str = "\
stat char 4242
statx 1
access 0
faccessat 0
directory 1
open RoCE v2
openat 1
fopen lo
opendir 1
realpath /sys/devices/virtual/infiniband/adverb77
realpath /sys/devices/virtual/infiniband/adverb77
again 0
readlink ../../devices/virtual/infiniband/adverb77
absent -1 2
other -1 2
real 1
";

fn library() -> PathBuf {
    // The test runs from `deps`, where cargo puts the shared object of the library under test.
    let exe = std::env::current_exe().expect("the test has a path");
    let file = exe.parent().expect("a directory").join("libadverb_preload.so");
    assert!(file.is_file(), "{} has not been built", file.display());
    file
}

/// The C program, compiled once for all tests of this file, plain and with fortified calls.
fn program(fortify: bool) -> &'static Path {
    static PLAIN: LazyLock<PathBuf> = LazyLock::new(|| compile("cc", "look", &["-O0"]));
    static FORTIFIED: LazyLock<PathBuf> = LazyLock::new(|| {
        compile("cc", "look_fortified", &["-O2", "-D_FORTIFY_SOURCE=2", "-D_FILE_OFFSET_BITS=64"])
    });
    if fortify { &FORTIFIED } else { &PLAIN }
}

fn compile(compiler: &str, name: &str, flags: &[&str]) -> PathBuf {
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/look.c");
    let status =
        Command::new(compiler).args(flags).args(["-w", "-o"]).arg(&output).arg(source).status();
    assert!(status.expect("a C compiler: scripts/test-deps installs gcc and musl-tools").success());
    output
}

/// A directory tree as the launcher makes it.
fn tree(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&root);
    let file = |path: &str, text: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("writable");
        std::fs::write(path, text).expect("writable");
    };
    file("dev/infiniband/uverbs77", "");
    let device = "sys/devices/virtual/infiniband/adverb77";
    file(&format!("{device}/ports/1/gid_attrs/types/0"), "RoCE v2\n");
    file(&format!("{device}/ports/1/gid_attrs/ndevs/0"), "lo\n");
    file(&format!("{device}/device/net/lo/address"), "00:00:00:00:00:00\n");
    std::fs::create_dir_all(root.join("sys/class/infiniband")).expect("writable");
    std::os::unix::fs::symlink(
        "../../devices/virtual/infiniband/adverb77",
        root.join("sys/class/infiniband/adverb77"),
    )
    .expect("writable");
    root
}

fn run(program: &Path, root: Option<&Path>) -> String {
    said(Command::new(program).env("LD_PRELOAD", library()), root)
}

/// What a program says that sees the prepared tree `root`.
fn said(command: &mut Command, root: Option<&Path>) -> String {
    command.env_remove("ADVERB_SYSROOT").envs(root.map(|root| ("ADVERB_SYSROOT", root)));
    let output = command.output().expect("the program runs: install the package binutils");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {errors}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn a_program_sees_the_prepared_tree_and_so_does_its_child() {
    let root = tree("tree");
    for fortify in [false, true] {
        assert_eq!(run(program(fortify), Some(&root)), format!("{ON}child\n{ON}"));
    }
    // A slash at the end of the variable makes no difference.
    assert_eq!(run(program(false), Some(&root.join(""))), format!("{ON}child\n{ON}"));
}

#[test]
fn without_the_variable_nothing_changes() {
    let with = run(program(false), None);
    assert_eq!(with, said(&mut Command::new(program(false)), None));
    assert!(with.contains("stat errno 2\n"), "{with}");
}

#[test]
fn an_empty_tree_changes_nothing() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("empty");
    std::fs::create_dir_all(&root).expect("writable");
    assert_eq!(run(program(false), Some(&root)), run(program(false), None));
}

#[test]
fn stock_tools_see_the_tree() {
    let root = tree("tools");
    let shell = "ls /sys/class/infiniband/adverb77/device/net/; cat /sys/class/infiniband/adverb77/ports/1/gid_attrs/types/0; test -c /dev/infiniband/uverbs77 && echo char";
    let mut tools = Command::new("sh");
    tools.args(["-c", shell]).env("LD_PRELOAD", library());
    assert_eq!(said(&mut tools, Some(&root)), "lo\nRoCE v2\nchar\n");
}

/// SYS-3: two installations in one process. Each object calls its own functions.
#[test]
fn two_copies_work_in_one_process() {
    let root = tree("two_copies");
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libadverb_preload.so");
    std::fs::copy(library(), &copy).expect("writable");
    let mut program = Command::new(program(false));
    program.env("LD_PRELOAD", format!("{}:{}", library().display(), copy.display()));
    assert_eq!(said(&mut program, Some(&root)), format!("{ON}child\n{ON}"));
}

#[test]
fn exactly_the_listed_names_are_interposed() {
    let mut listed: Vec<&str> = NAMES.split_whitespace().collect();
    listed.sort_unstable();
    let text = said(Command::new("nm").args(["-D", "--defined-only"]).arg(library()), None);
    let names = text.lines().filter_map(|l| l.split_whitespace().last());
    let names = names.filter(|n| !n.starts_with("inner_") && *n != "adverb_preload_no_unwinding");
    let (own, mut exported): (Vec<&str>, Vec<&str>) =
        names.partition(|n| n.starts_with("adverb_preload_"));
    let mut defined: Vec<&str> = own.iter().map(|n| &n["adverb_preload_".len()..]).collect();
    defined.sort_unstable();
    exported.sort_unstable();
    assert_eq!((&defined, &exported), (&listed, &listed));
}

/// If the object needed anything besides the C library, some program would lack it. Before glibc
/// 2.34, `dlsym` is in a library of its own, which a program need not have loaded.
#[test]
fn nothing_but_the_c_library_is_needed() {
    let dynamic = said(Command::new("readelf").args(["--dynamic", "--wide"]).arg(library()), None);
    let needed: Vec<&str> = dynamic.lines().filter(|l| l.contains("(NEEDED)")).collect();
    let is = |at: usize, name: &str| needed.get(at).is_some_and(|line| line.contains(name));
    assert!(needed.len() == 2 && is(0, "[libdl.so.2]") && is(1, "[libc.so.6]"), "{needed:?}");
    let symbols = said(Command::new("nm").args(["-D", "--undefined-only"]).arg(library()), None);
    assert!(symbols.contains("dlsym"), "{symbols}");
    for absent in ["_Unwind_", "__tls_get_addr", "malloc", "pthread_"] {
        assert!(!symbols.contains(absent), "{absent} is needed: does something panic?\n{symbols}");
    }
}

#[test]
fn a_program_built_with_musl_sees_the_tree() {
    let root = tree("musl");
    let program = compile("musl-gcc", "look_musl", &["-O1", "-D_GNU_SOURCE"]);
    // Whether musl has `statx` depends on its version.
    let (on, seen) =
        (ON.replace("statx 1\n", ""), run(&program, Some(&root)).replace("statx 1\n", ""));
    assert_eq!(seen, format!("{on}child\n{on}"));
}

#[test]
fn only_paths_of_an_rdma_driver_are_ours() {
    for path in [
        "/dev/infiniband",
        "/dev/infiniband/uverbs0",
        "/sys/class/infiniband_verbs/uverbs0",
        "/sys/class/infiniband",
    ] {
        assert!(adverb_preload::is_ours(path.as_bytes()), "{path}");
    }
    for path in
        ["", "/", "/dev", "/dev/infinibandx", "/dev/null", "/sys/class/net", "sys/class/infiniband"]
    {
        assert!(!adverb_preload::is_ours(path.as_bytes()), "{path}");
    }
}
