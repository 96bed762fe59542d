//! Tests of the command as a user calls it.
mod common;
use common::{Scratch, adverb, command, program, said, text};
use std::os::unix::process::ExitStatusExt;

#[test]
fn run_passes_the_exit_status_on() {
    for status in [0, 7, 255] {
        let output = adverb(&["run", "--", "sh", "-c", &format!("exit {status}")]);
        assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "");
    }
    // The separator is optional. Options after the program's name belong to the program.
    assert_eq!(adverb(&["run", "sh", "-c", "exit 9"]).status.code(), Some(9));
}

#[test]
fn run_passes_a_signal_on() {
    let output = adverb(&["run", "--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(output.status.signal(), Some(15), "{:?}", output.status);
}

#[test]
fn run_says_what_cannot_be_started() {
    for (program, status, words) in [
        ("no-such-program-at-all", 127, "no such program"),
        ("/no/such/program", 127, "no such file"),
        ("/", 126, "is a directory"),
        ("/etc/passwd", 126, "may not be executed"),
    ] {
        let output = adverb(&["run", "--", program]);
        assert_eq!(output.status.code(), Some(status), "{program}");
        assert!(text(&output.stderr).contains(words), "{program}: {}", text(&output.stderr));
    }
}

#[test]
fn run_sets_what_the_program_and_its_children_need() {
    let output =
        adverb(&["run", "--log", "info", "--", "sh", "-c", "sh -c 'env; cat /proc/self/maps'"]);
    let out = text(&output.stdout);
    let value = |name: &str| {
        let line = out.lines().find_map(|l| l.strip_prefix(name).and_then(|r| r.strip_prefix('=')));
        line.unwrap_or_else(|| panic!("no {name} in {out}")).to_owned()
    };
    assert_eq!(value("ADVERB_LOG"), "info");
    let directory = std::path::PathBuf::from(value("LD_LIBRARY_PATH"));
    for name in ["libibverbs.so.1", "libibverbs.so", "librdmacm.so.1", "librdmacm.so"] {
        assert!(directory.join(name).is_file(), "no {name} in {}", directory.display());
    }
    let root = std::path::PathBuf::from(value("ADVERB_SYSROOT"));
    assert!(root.join("sys/class/infiniband_verbs/uverbs0/ibdev").is_file());
    let mapped = out.lines().any(|l| l.ends_with("libadverb_preload.so"));
    assert!(mapped, "the library is not preloaded: {out}");
}

#[test]
fn run_passes_faults_and_capture_on() {
    let directory = Scratch::new("command");
    let file = directory.join("a.pcapng");
    let run = |spec: &str, file: &std::path::Path| {
        let file = file.to_str().unwrap();
        adverb(&["run", "--fault", spec, "--capture", file, "--", "sh", "-c", "cd /; env"])
    };
    let out = said(&run("delay=2ms+-1ms, drop=1.50%", &file), 0);
    assert!(out.contains("ADVERB_FAULT=drop=1.5%,delay=2ms±1ms\n"), "{out}");
    assert!(out.contains(&format!("ADVERB_CAPTURE={}\n", file.display())), "{out}");
    for (spec, file, status, words) in [
        ("drop=1", file.clone(), 125, "drop=1%"),
        // Not even root can create a file there.
        ("drop=1%", "/proc/a.pcapng".into(), 125, "no capture can be written there"),
        ("drop=1%", directory.join("no/a.pcapng"), 125, "no such directory"),
        ("drop=1%", directory.to_owned(), 125, "not overwritten"),
    ] {
        let output = run(spec, &file);
        let out = said(&output, status);
        assert!(out.contains(words) && output.stdout.is_empty(), "{out}");
    }
}

/// Every option before the program's name belongs to `adverb run`, also an unknown one.
#[test]
fn run_refuses_what_it_does_not_know() {
    for (args, words) in [
        (&["run", "--faults", "drop=1%", "--", "echo", "started"][..], "--fault"),
        (&["run", "--faults", "echo", "started"], "--faults"),
        (&["run", "-x", "echo", "started"], "-x"),
        (&["run", "--log", "loud", "echo", "started"], "off, error, warn, info, debug and trace"),
        (&["run", "--log"], "--log"),
        (&["run"], "PROGRAM"),
    ] {
        let output = adverb(args);
        assert_eq!(output.status.code(), Some(125), "{args:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(words), "{args:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{args:?}");
    }
    // Every option after the program's name belongs to the program, with or without a separator.
    for args in [
        &["run", "echo", "--faults", "--log", "--"][..],
        &["run", "--", "echo", "--faults", "--log", "--"],
    ] {
        assert_eq!(text(&adverb(args).stdout), "--faults --log --\n", "{args:?}");
    }
    assert_eq!(adverb(&["devices", "--nothing"]).status.code(), Some(2));
    assert_eq!(adverb(&["run", "--help"]).status.code(), Some(0));
}

#[test]
fn run_refuses_a_level_that_does_not_exist() {
    let run = |value: &str, args: &[&str]| {
        let words = [&["run"], args, &["--", "echo", "started"]].concat();
        command(&words).env("ADVERB_LOG", value).output().expect("the command starts")
    };
    let output = run("loud", &[]);
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(text(&output.stdout), "");
    let words = "ADVERB_LOG is \"loud\": off, error, warn, info, debug and trace are possible";
    assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    // The option overrides the variable.
    for output in
        [run("loud", &["--log", "error"]), run("Debug", &[]), run(" warn ", &[]), run("", &[])]
    {
        assert_eq!(text(&output.stdout), "started\n", "{}", text(&output.stderr));
    }
}

/// The reader of the output may stop early, as `head -1` does.
#[test]
fn a_reader_that_has_ended_is_no_error() {
    for args in [
        &["devices"][..],
        &["devices", "--json"],
        &["--help"],
        &["run", "--help"],
        &["demo", "--no-measure"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = command(args).stdout(writer).output().expect("the command starts");
        assert_eq!(said(&output, 0), "", "{args:?}");
    }
    // Output lost for another reason is an error.
    let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let status = command(&["devices"]).stdout(full).status();
    assert_eq!(status.expect("the command starts").code(), Some(1));
}

#[test]
fn run_does_without_the_preload() {
    let output = adverb(&["run", "--no-preload", "--", "env"]);
    let out = text(&output.stdout);
    assert!(out.contains("LD_LIBRARY_PATH="), "{out}");
    assert!(!out.contains("LD_PRELOAD=") && !out.contains("ADVERB_SYSROOT="), "{out}");
}

/// The preloaded library and the drop-in library report the same devices.
#[test]
fn the_tree_agrees_with_the_library() {
    let output = adverb(&["run", "--", "sh", "-c", "printf %s \"$ADVERB_SYSROOT\""]);
    let root = std::path::PathBuf::from(text(&output.stdout)).join("sys/class/infiniband");
    let devices = adverb_device::device::list().unwrap();
    assert!(!devices.is_empty());
    for device in devices {
        for (path, wanted) in adverb_device::sysfs::attributes(&device) {
            let at = root.join(device.name()).join(&path);
            let found =
                std::fs::read_to_string(&at).unwrap_or_else(|e| panic!("{}: {e}", at.display()));
            assert_eq!(found.strip_suffix('\n'), Some(&*wanted), "{path} of {}", device.name());
        }
    }
}

#[test]
fn devices_lists_every_device() {
    let out = said(&adverb(&["devices"]), 0);
    for device in adverb_device::device::list().unwrap() {
        assert!(out.contains(device.name()), "{out}");
    }
    let json = text(&adverb(&["devices", "--json"]).stdout);
    assert!(json.starts_with("[{\"name\":\"adverb0\"") && json.ends_with("}]\n"), "{json}");
}

#[test]
fn the_demonstration_passes() {
    let out = said(&adverb(&["demo"]), 0);
    assert!(out.contains("19 checks passed"), "{out}");
    assert!(!out.contains("FAILED"), "{out}");
    for row in ["Send 8 B, polling", "RDMA Read 1 MiB"] {
        assert!(out.contains(row), "{out}");
    }
}

/// Both processes have one processor, which another program uses as well.
#[test]
fn the_demonstration_says_that_the_machine_was_busy() {
    let script = "cpu=$(taskset -cp $$ | sed 's/.*: *\\([0-9]*\\).*/\\1/') && \
                  taskset -cp $cpu $$ >/dev/null || exit 1; sh -c 'while :; do :; done' & other=$!; \"$0\" demo; \
                  status=$?; kill $other; exit $status";
    let demo = program("sh").args(["-c", script, env!("CARGO_BIN_EXE_adverb")]).output();
    let out = said(&demo.expect("sh starts"), 0);
    assert!(out.contains(" of the measurement, this process waited for a processor"), "{out}");
}

#[test]
fn the_demonstration_runs_on_the_device_asked_for() {
    let device = adverb_device::device::list().unwrap().pop().unwrap();
    for (args, status) in
        [(&["--no-measure", "--device", device.name()][..], 0), (&["--device", "nothing"], 1)]
    {
        let out = said(&adverb(&[&["demo"], args].concat()), status);
        assert!(out.contains(device.name()), "{out}");
    }
}

/// If the second process dies, the first process must not wait for ever.
#[test]
fn a_half_demonstration_ends() {
    let device = adverb_device::device::list().unwrap().pop().unwrap();
    // Its other side never speaks.
    said(&adverb(&["demo-second", "--device", device.name()]), 1);
}

#[test]
fn version_and_help() {
    assert_eq!(
        text(&adverb(&["--version"]).stdout),
        format!("adverb {}\n", env!("CARGO_PKG_VERSION"))
    );
    let help = text(&adverb(&["--help"]).stdout);
    for word in ["run", "devices", "demo"] {
        assert!(help.contains(word), "{help}");
    }
    assert!(!help.contains("demo-second"), "{help}");
}

/// CHK-13: the report files are written also if there is no report, and the exit status is the
/// program's. If they cannot be written, the command says so before the program starts.
#[test]
fn run_writes_the_reports_of_a_check_for_others() {
    let directory = Scratch::new("check-files");
    let [junit, sarif] =
        ["a.xml", "a.sarif"].map(|name| directory.join(name).display().to_string());
    let files = ["run", "--check", "--check-junit", &junit, "--check-sarif", &sarif, "--"];
    said(&adverb(&[&files[..], &["sh", "-c", "cd /; exit 7"]].concat()), 7);
    let report = directory.read("a.xml");
    assert!(report.starts_with("<?xml") && report.contains("failures=\"0\""), "{report}");
    let log: serde_json::Value = serde_json::from_str(&directory.read("a.sarif")).unwrap();
    assert_eq!(log["runs"][0]["results"], serde_json::json!([]));
    let output = adverb(&[&files[..], &["sh", "-c", "kill -TERM $$"]].concat());
    assert_eq!(output.status.signal(), Some(15), "{:?}", output.status);
    [&junit, &sarif].into_iter().for_each(|file| std::fs::remove_file(file).unwrap());
    said(&adverb(&[&files[..], &["/no/such/program"]].concat()), 127);
    assert_eq!(std::fs::read_dir(&*directory).unwrap().count(), 0, "nothing is left behind");
    for (args, words) in [
        (
            &["run", "--check", "--check-sarif", "/no/such/directory/a", "--", "echo", "started"][..],
            "no reports",
        ),
        (&["run", "--check-sarif", "a", "--", "echo", "started"], "--check"),
    ] {
        let output = adverb(args);
        let out = said(&output, 125);
        assert!(out.contains(words) && output.stdout.is_empty(), "{args:?}: {out}");
    }
}

/// A program built with musl runs with everything that `adverb run` and `adverb env` set up.
#[test]
fn a_program_built_with_musl_runs() {
    let directory = Scratch::new("musl");
    directory.write("p.c", "#include <stdio.h>\nint main(void) { puts(\"here\"); return 3; }\n");
    directory.shell("musl-gcc -o p p.c");
    let binary = directory.join("p").display().to_string();
    let script = "set -a; eval \"$(\"$1\" env --shell)\"; set +a; exec \"$2\"";
    let mut after_env = program("sh");
    after_env.args(["-c", script, "-", env!("CARGO_BIN_EXE_adverb"), &binary]);
    for mut command in [command(&["run", "--", &binary]), after_env] {
        let out = said(&command.output().expect("it starts"), 3);
        assert!(out.starts_with("here\n"), "{out}");
    }
}

/// The commands that the help lists.
fn commands() -> Vec<String> {
    let help = text(&adverb(&["--help"]).stdout);
    let list = help.split("Commands:\n").nth(1).expect("a list of commands");
    let lines = list.lines().take_while(|line| !line.is_empty());
    let all: Vec<_> =
        lines.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect();
    assert!(all.contains(&"run".to_owned()), "{help}");
    all
}

#[test]
fn completions_know_each_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = said(&adverb(&["completions", shell]), 0);
        for name in commands() {
            assert!(script.contains(&name), "{shell}: {name}");
        }
        assert!(script.contains("no-preload"), "{shell}: options of `adverb run`");
    }
}

#[test]
fn each_command_has_a_manual_page() {
    let page = said(&adverb(&["man"]), 0);
    assert!(page.contains(".TH adverb 1"), "{page}");
    let dir = Scratch::new("pages");
    said(&adverb(&["man", "--into", "/no/such/directory"]), 1);
    said(&adverb(&["man", "--into", dir.str()]), 0);
    assert_eq!(dir.read("adverb.1"), page);
    let names = std::fs::read_dir(&*dir).unwrap().map(|e| e.unwrap().file_name());
    let mut pages: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    let mut expected = commands();
    expected.retain(|name| name != "help");
    expected.iter_mut().for_each(|name| *name = format!("adverb-{name}.1"));
    expected.push("adverb.1".into());
    pages.sort();
    expected.sort();
    assert_eq!(pages, expected);
    let run = dir.read("adverb-run.1");
    assert!(run.contains("check\\-suppress"), "{run}");
}
