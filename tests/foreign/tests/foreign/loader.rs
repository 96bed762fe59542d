//! Programs with a private copy of libibverbs: the program sees the device, or prints the reason
//! why not.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use adverb_foreign::Verdict;
use adverb_foreign::cc::source_dir;
use adverb_foreign::process::{Program, output_of, target_dir};
use adverb_foreign::suite::{Case, case};

const LIMIT: Duration = Duration::from_secs(60);
/// The name of a copy as made by a tool for wheels.
const HASHED: &str = "libibverbs-0a1b2c3d.so.1.14.44.0";

/// Programs that see the device: the case, the program and its arguments, and an option of `adverb
/// run`. A word `@NAME` stands for a file of the directory.
const SEE: [(&str, &str, &str); 6] = [
    ("a_module_with_a_copy_under_a_hashed_name", "@loader module @module.so", ""),
    ("a_program_linked_with_a_copy_by_a_run_path", "@own_runpath own", "--replace"),
    ("a_program_linked_with_a_copy_by_an_rpath", "@own_rpath own", "--replace"),
    ("a_run_path_without_an_option", "@own_runpath own", ""),
    ("an_rpath_without_an_option", "@own_rpath own", ""),
    ("a_program_linked_with_a_copy_by_its_absolute_path", "@own_absolute own", ""),
];

pub fn cases() -> Vec<Case> {
    let see = SEE.map(|(name, line, option)| {
        case(format!("SYS-3/{name}"), move || {
            let program = built()?.line(line);
            sees(if option.is_empty() { program } else { program.flag(option) })
        })
    });
    let others = [
        case("SYS-3/a_copy_opened_by_its_absolute_path", || {
            sees(built()?.line(&format!("@loader file @x.libs/{HASHED}")))
        }),
        case("SYS-3/the_systems_library_opened_by_its_absolute_path", || {
            sees(built()?.line("@loader file").arg(system_library()?))
        }),
        case("SYS-3/python_opens_the_systems_library_by_its_absolute_path", python),
        case("SYS-3/a_copy_stays_where_the_user_wants_it", || {
            let program = built()?.line("@loader module @module.so").flag("--no-replace");
            program.run(LIMIT)?.require_words(&["devices: 0"])
        }),
        case("SYS-3/a_program_linked_statically_is_told", || {
            told("static", "is linked statically")
        }),
        case("SYS-3/a_program_with_a_copy_in_itself_is_told", || {
            told("inside", "contains a copy of libibverbs")
        }),
        case("SYS-3/a_program_that_can_be_helped_is_told_nothing", || {
            let out = built()?.line("@loader module @module.so").run(LIMIT)?;
            out.require(!out.describe().contains("warning"))
        }),
    ];
    see.into_iter().chain(others).collect()
}

/// A directory with programs and libraries, laid out like an unpacked wheel.
#[derive(Clone)]
struct Built(PathBuf);

impl Built {
    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// The program of a line, with the paths of its files.
    fn line(&self, line: &str) -> Program {
        Program::of_line(&line.replace('@', &self.file("")))
    }
}

fn built() -> Result<Built, String> {
    static BUILT: OnceLock<Result<Built, String>> = OnceLock::new();
    BUILT.get_or_init(build).clone()
}

fn cc(args: &[&str]) -> Verdict {
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1"]).args(args);
    output_of(&mut command, "cc").map(drop)
}

fn build() -> Result<Built, String> {
    let at = Built(target_dir()?.join(format!("foreign-c/loader-{}", std::process::id())));
    let io = |e: std::io::Error| e.to_string();
    std::fs::create_dir_all(at.0.join("x.libs")).map_err(io)?;
    let source = |name: &str| source_dir().join(name).display().to_string();
    std::fs::write(
        at.0.join("copy.map"),
        "IBVERBS_1.0 { local: *; };\nIBVERBS_1.1 { global: ibv_get_device_list; ibv_get_device_name; } IBVERBS_1.0;\n",
    )
    .map_err(io)?;
    let (copy, module, loader) =
        (source("loader_copy.c"), source("loader_module.c"), source("loader.c"));
    let script = format!("-Wl,--version-script={}", at.file("copy.map"));
    let shared = ["-shared", "-fPIC", &*script];
    let (hashed, plain) = (at.file(&format!("x.libs/{HASHED}")), at.file("x.libs/libibverbs.so.1"));
    cc(&[&shared[..], &["-Wl,-soname", &format!("-Wl,{HASHED}"), &copy, "-o", &hashed]].concat())?;
    cc(&[&shared[..], &["-Wl,-soname,libibverbs.so.1", &copy, "-o", &plain]].concat())?;
    let path = "-Wl,-rpath,$ORIGIN/x.libs";
    cc(&["-shared", "-fPIC", &module, &hashed, path, "-o", &at.file("module.so")])?;
    cc(&[&loader, "-ldl", "-o", &at.file("loader")])?;
    cc(&[
        "-DOWN",
        &loader,
        &hashed,
        "-ldl",
        path,
        "-Wl,--enable-new-dtags",
        "-o",
        &at.file("own_runpath"),
    ])?;
    // This kind of path comes before LD_LIBRARY_PATH.
    cc(&[
        "-DOWN",
        &loader,
        &plain,
        "-ldl",
        path,
        "-Wl,--disable-new-dtags",
        "-o",
        &at.file("own_rpath"),
    ])?;
    // A library without a SONAME is loaded by the path from its link.
    let nameless = at.file("x.libs/libibverbs.so");
    cc(&[&shared[..], &[&copy, "-o", &nameless]].concat())?;
    cc(&["-DOWN", &loader, &nameless, "-ldl", "-o", &at.file("own_absolute")])?;
    let empty = at.file("empty.c");
    std::fs::write(&empty, "int main(void) { return 0; }\n").map_err(io)?;
    cc(&["-static", &empty, "-o", &at.file("static")])?;
    inside(&at, &loader)?;
    Ok(at)
}

/// A program with Debian's libibverbs.a linked in. The archive needs libnl, whose link files are in
/// a separate package.
fn inside(at: &Built, loader: &str) -> Result<(), String> {
    let list = "-DOWN";
    let libraries =
        ["-l:libibverbs.a", "-l:libnl-route-3.so.200", "-l:libnl-3.so.200", "-ldl", "-lpthread"];
    cc(&[&[list, loader][..], &libraries, &["-o", &at.file("inside")]].concat())
}

/// The system's own library, by its path.
fn system_library() -> Result<String, String> {
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"]
        .iter()
        .map(|dir| format!("{dir}/libibverbs.so.1"))
        .find(|path| Path::new(path).exists())
        .ok_or_else(|| "no libibverbs.so.1 of the system's: run scripts/test-deps".into())
}

fn sees(program: Program) -> Verdict {
    let out = program.run_ok(LIMIT)?;
    out.require_words(&["device adverb"])?;
    // Without the command the program sees no device, because its copy knows none on this machine.
    let bare = program.bare().run(LIMIT)?;
    bare.require(!bare.text.contains("device adverb"))
}

fn python() -> Verdict {
    let script = "import ctypes, sys; l = ctypes.CDLL(sys.argv[1]); n = ctypes.c_int(-1); \
                  l.ibv_get_device_list.restype = ctypes.c_void_p; l.ibv_get_device_list(ctypes.byref(n)); \
                  print('devices:', n.value)";
    let out = Program::new("python3", &["-c", script, &system_library()?]).run_ok(LIMIT)?;
    out.require(out.text.contains("devices: ") && !out.text.contains("devices: 0"))
}

fn told(program: &str, words: &str) -> Verdict {
    built()?.line(&format!("@{program} own")).run(LIMIT)?.require_words(&[words])
}
