//! Tests of the command as a user calls it.
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

fn adverb(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adverb"));
    command
        .args(args)
        .env_remove("ADVERB_LOG")
        .env_remove("LD_PRELOAD")
        .env_remove("LD_LIBRARY_PATH");
    command.output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

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
    let directory = std::env::temp_dir().join(format!("adverb-command-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("a.pcapng");
    let run = |spec: &str, file: &std::path::Path| {
        adverb(&[
            "run",
            "--fault",
            spec,
            "--capture",
            file.to_str().unwrap(),
            "--",
            "sh",
            "-c",
            "cd /; env",
        ])
    };
    let output = run("delay=2ms+-1ms, drop=1.50%", &file);
    let out = text(&output.stdout);
    assert!(
        out.contains("ADVERB_FAULT=drop=1.5%,delay=2ms±1ms\n"),
        "{out}{}",
        text(&output.stderr)
    );
    assert!(out.contains(&format!("ADVERB_CAPTURE={}\n", file.display())), "{out}");
    for (spec, file, status, words) in [
        ("drop=1", file.clone(), 125, "drop=1%"),
        // Not even root can create a file there.
        ("drop=1%", "/proc/a.pcapng".into(), 125, "no capture can be written there"),
        ("drop=1%", directory.join("no/a.pcapng"), 125, "no such directory"),
        ("drop=1%", directory.clone(), 125, "not overwritten"),
    ] {
        let output = run(spec, &file);
        assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
        assert!(
            text(&output.stderr).contains(words) && output.stdout.is_empty(),
            "{}",
            text(&output.stderr)
        );
    }
    std::fs::remove_dir_all(directory).unwrap();
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
        let mut command = Command::new(env!("CARGO_BIN_EXE_adverb"));
        command.arg("run").args(args).args(["--", "echo", "started"]).env("ADVERB_LOG", value);
        command.output().expect("the command starts")
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
        let output = Command::new(env!("CARGO_BIN_EXE_adverb"))
            .args(args)
            .env_remove("ADVERB_LOG")
            .stdout(writer)
            .stderr(std::process::Stdio::piped())
            .spawn()
            .and_then(|child| child.wait_with_output())
            .expect("the command starts");
        assert!(output.status.success(), "{args:?}: {:?} {}", output.status, text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{args:?}");
    }
    // Output lost for another reason is an error.
    let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let status = Command::new(env!("CARGO_BIN_EXE_adverb")).arg("devices").stdout(full).status();
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
    let output = adverb(&["devices"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for device in adverb_device::device::list().unwrap() {
        assert!(text(&output.stdout).contains(device.name()), "{}", text(&output.stdout));
    }
    let json = text(&adverb(&["devices", "--json"]).stdout);
    assert!(json.starts_with("[{\"name\":\"adverb0\"") && json.ends_with("}]\n"), "{json}");
}

#[test]
fn the_demonstration_passes() {
    let output = adverb(&["demo"]);
    let out = text(&output.stdout);
    assert!(output.status.success(), "{out}{}", text(&output.stderr));
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
    let demo = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_adverb")]).output();
    let demo = demo.expect("sh starts");
    assert!(demo.status.success(), "{}", text(&demo.stderr));
    let out = text(&demo.stdout);
    assert!(out.contains(" of the measurement, this process waited for a processor"), "{out}");
}

#[test]
fn the_demonstration_runs_on_the_device_asked_for() {
    let device = adverb_device::device::list().unwrap().pop().unwrap();
    let output = adverb(&["demo", "--no-measure", "--device", device.name()]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains(device.name()));
    let output = adverb(&["demo", "--device", "nothing"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(device.name()), "{}", text(&output.stderr));
}

/// If the second process dies, the first process must not wait for ever.
#[test]
fn a_half_demonstration_ends() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adverb"));
    let device = adverb_device::device::list().unwrap().pop().unwrap();
    let output =
        command.args(["demo-second", "--device", device.name()]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1), "its other side never spoke");
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

/// HUN-7: `--pair` hunts two commands at once and names the command that failed. A server that
/// keeps running after the end of its client is then ended.
#[test]
fn hunt_names_the_one_of_a_pair_that_failed() {
    for (args, status, words) in [
        (&["hunt", "--pair", "--", "true"][..], 125, "--pair takes two commands"),
        (&["hunt", "--pair", "--", "true", "--"], 125, "--pair takes two commands"),
        (&["hunt", "--pair", "--", "true", "--", "false"], 1, "the client ends with status 1"),
        (
            &["hunt", "--pair", "sh", "-c", "exit 3", "--", "true"],
            1,
            "the server ends with status 3",
        ),
        (
            &["hunt", "--pair", "--", "true", "--", "/no/such/program"],
            125,
            "the client's command cannot be run",
        ),
        (&["hunt", "--pair", "--", "tail", "-f", "/dev/null", "--", "true"], 4, "no verbs call"),
    ] {
        let output = adverb(args);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
}

/// HUN-7: the client of a pair starts when the server listens, however long the server takes.
#[test]
fn hunt_waits_until_the_server_listens() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = format!(
        "import socket, time; time.sleep(1); s = socket.create_server(('127.0.0.1', {port})); s.accept()"
    );
    let client = format!("import socket; socket.create_connection(('127.0.0.1', {port}))");
    let words = ["hunt", "--pair", "--", "python3", "-c", &server, "--", "python3", "-c", &client];
    let output = adverb(&words);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("no verbs call"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

/// HUN-8: the result files are written whether or not a failure was found. If they cannot be
/// written, the command says so.
#[test]
fn hunt_writes_its_result_for_others() {
    let directory = std::env::temp_dir().join(format!("adverb-hunt-files-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let [junit, sarif] =
        ["a.xml", "a.sarif"].map(|name| directory.join(name).display().to_string());
    for (program, status, failures, results) in [
        ("false", 1, "failures=\"1\"", 1),
        ("true", 4, "failures=\"0\" errors=\"0\" skipped=\"1\"", 0),
    ] {
        let output = adverb(&["hunt", "--junit", &junit, "--sarif", &sarif, "--", program]);
        assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
        let report = std::fs::read_to_string(&junit).unwrap();
        assert!(report.starts_with("<?xml") && report.contains(failures), "{report}");
        let log: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&sarif).unwrap()).unwrap();
        assert_eq!(log["runs"][0]["results"].as_array().map(Vec::len), Some(results), "{log}");
    }
    let output = adverb(&["hunt", "--junit", "/no/such/directory/a.xml", "--", "true"]);
    assert_eq!(output.status.code(), Some(125), "{}", text(&output.stderr));
    std::fs::remove_dir_all(directory).unwrap();
}

/// CHK-13: the report files are written also if there is no report, and the exit status is the
/// program's. If they cannot be written, the command says so before the program starts.
#[test]
fn run_writes_the_reports_of_a_check_for_others() {
    let directory = std::env::temp_dir().join(format!("adverb-check-files-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let [junit, sarif] =
        ["a.xml", "a.sarif"].map(|name| directory.join(name).display().to_string());
    let files = ["run", "--check", "--check-junit", &junit, "--check-sarif", &sarif, "--"];
    let output = adverb(&[&files[..], &["sh", "-c", "cd /; exit 7"]].concat());
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let report = std::fs::read_to_string(&junit).unwrap();
    assert!(report.starts_with("<?xml") && report.contains("failures=\"0\""), "{report}");
    let log: serde_json::Value = serde_json::from_slice(&std::fs::read(&sarif).unwrap()).unwrap();
    assert_eq!(log["runs"][0]["results"], serde_json::json!([]));
    let output = adverb(&[&files[..], &["sh", "-c", "kill -TERM $$"]].concat());
    assert_eq!(output.status.signal(), Some(15), "{:?}", output.status);
    [&junit, &sarif].into_iter().for_each(|file| std::fs::remove_file(file).unwrap());
    let output = adverb(&[&files[..], &["/no/such/program"]].concat());
    assert_eq!(output.status.code(), Some(127), "{}", text(&output.stderr));
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0, "nothing is left behind");
    for (args, words) in [
        (
            &["run", "--check", "--check-sarif", "/no/such/directory/a", "--", "echo", "started"][..],
            "no reports",
        ),
        (&["run", "--check-sarif", "a", "--", "echo", "started"], "--check"),
    ] {
        let output = adverb(args);
        assert_eq!(
            (output.status.code(), text(&output.stdout)),
            (Some(125), String::new()),
            "{args:?}"
        );
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
    std::fs::remove_dir_all(directory).unwrap();
}

/// HUN-3: the command says why a program cannot be hunted. A program failing by itself is found
/// at once.
#[test]
fn hunt_says_what_it_cannot_hunt() {
    for (args, status, words) in [
        (&["hunt", "--", "/no/such/program"][..], 125, "cannot be run"),
        (&["hunt", "--time", "soon", "--", "true"], 125, "possible"),
        (&["hunt", "--", "true"], 4, "no verbs call"),
        (&["hunt", "--", "false"], 1, "without any choice: the program ends with status 1"),
        (&["hunt", "--", "sh", "-c", "kill -SEGV $$"], 1, "SIGSEGV"),
        (&["run", "--replay", "/no/such/file", "--", "true"], 125, "/no/such/file"),
        (&["run", "--replay", "/dev/null", "--", "true"], 125, "schedule"),
        (&["run", "--replay", "7", "--", "true"], 0, ""),
    ] {
        let output = adverb(args);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
}

/// Runs a script in a separate network namespace, with ADVERB as the command.
fn apart(script: &str) -> Output {
    let mut command = Command::new("unshare");
    let root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    command.args(if root { &["-n"][..] } else { &["-rn"] });
    command.args(["sh", "-c", script]).env("ADVERB", env!("CARGO_BIN_EXE_adverb"));
    command.env_remove("ADVERB_LOG").output().expect("unshare starts")
}

/// DOC-1, DOC-2: without an interface that is up there is no device, and the exit status says so.
#[test]
fn doctor_finds_that_there_is_no_interface() {
    let output = apart("$ADVERB doctor");
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}{}", text(&output.stderr));
    assert!(out.contains("FAIL  interface") && out.contains("ip link set lo up"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
}

/// DOC-1, DOC-2, DOC-3: with the loopback interface, the checks pass. The lines and the JSON say
/// the same.
#[test]
fn doctor_says_the_same_in_json() {
    let output = apart("ip link set lo up; $ADVERB doctor; $ADVERB doctor --json");
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}{}", text(&output.stderr));
    let (lines, json) = out.trim_end().rsplit_once('\n').expect("lines, then JSON");
    let all: serde_json::Value = serde_json::from_str(json).unwrap();
    let all = all.as_array().unwrap();
    for finding in all {
        let (state, what) = (finding["state"].as_str().unwrap(), finding["what"].as_str().unwrap());
        let head = |line: &str| line.to_lowercase().starts_with(&format!("{state:4}  {what:11} "));
        assert!(lines.lines().any(head), "no {finding} in {lines}");
        assert_eq!(finding["remedy"].is_string(), state != "ok", "{finding}");
    }
    for what in [
        "kernel",
        "libraries",
        "interface",
        "packets",
        "port",
        "processes",
        "descriptors",
        "memory",
    ] {
        assert!(all.iter().any(|finding| finding["what"] == what), "no {what} in {lines}");
    }
    let port = all.iter().find(|finding| finding["what"] == "port").unwrap();
    assert_eq!((&port["state"], &port["found"]), (&"ok".into(), &"UDP port 4791 is free".into()));
}

/// DOC-2: a small MTU is found. A test cannot set up a firewall.
#[test]
fn doctor_finds_a_small_mtu() {
    let output = apart("ip link set lo up; ip link set lo mtu 900; $ADVERB doctor");
    let out = text(&output.stdout);
    assert!(out.contains("warn  interface") && out.contains("ip link set lo mtu 1500"), "{out}");
}

/// DOC-3: another program has the port. Here a Python script is the other program.
#[test]
fn doctor_names_who_has_the_port() {
    let script = "ip link set lo up; python3 -c 'import \
                  socket,time
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); \
                  s.bind((\"\",4791)); print(1,flush=True); time.sleep(60)' > \"$OUT\" & until [ \
                  -s \"$OUT\" ]; do sleep 0.05; done; $ADVERB doctor; status=$?; kill $!; rm \
                  \"$OUT\"; exit $status";
    let out = std::env::temp_dir().join(format!("adverb-doctor-port-{}", std::process::id()));
    let output = apart(&format!("OUT={}; {script}", out.display()));
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}{}", text(&output.stderr));
    assert!(out.contains("FAIL  port") && out.contains("python3"), "{out}");
}

/// DOC-5: a limit on descriptors.
#[test]
fn doctor_finds_a_small_limit() {
    let output = apart("ip link set lo up; ulimit -n 64; $ADVERB doctor");
    let out = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "a warning is no failure: {out}{}",
        text(&output.stderr)
    );
    assert!(out.contains("warn  descriptors") && out.contains("ulimit -n 4096"), "{out}");
}

/// Two hosts, `there` and `here`, and a bridge between them. The interfaces accept longer packets
/// than the bridge forwards.
const BRIDGED: &str = r#"set -e
apart() { unshare -n sleep 300 & last=$!; until [ "$(readlink /proc/$last/ns/net)" != "$here" ]; do sleep 0.05; done; }
here=$(readlink /proc/self/ns/net)
apart; far=$last; trap 'kill $far' EXIT; apart; middle=$last; trap 'kill $far $middle' EXIT
there() { nsenter -t $far -n "$@"; }; between() { nsenter -t $middle -n "$@"; }
ip link set lo up; there ip link set lo up
ip link add here mtu $MTU type veth peer name one mtu $MTU netns $middle
between ip link add two type veth peer name there mtu $MTU netns $far
between ip link add bridge type bridge
for port in one two; do between ip link set $port master bridge; between ip link set $port up; done
between ip link set bridge up
ip addr add 192.0.2.1/24 dev here; ip link set here up
there ip addr add 192.0.2.2/24 dev there; there ip link set there up
until "$ADVERB" devices | grep -q "here  *active" && there "$ADVERB" devices | grep -q "there  *active"; do sleep 0.05; done
there env $VARIABLE "$ADVERB" doctor --listen 192.0.2.2 & waits=$!
until there grep -q 020200C0:12B7 /proc/net/tcp; do sleep 0.05; done
status=0; "$ADVERB" doctor --with 192.0.2.2 || status=$?
wait $waits || true
exit $status"#;

/// The exit status of the visiting side, and the output of both sides.
fn two_hosts(mtu: u32, variable: &str) -> (Option<i32>, String) {
    let output = apart(&format!("MTU={mtu}; VARIABLE={variable}\n{BRIDGED}"));
    let out = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).lines().all(|line| line.chars().count() <= 80), "{out}");
    (output.status.code(), out)
}

/// DOC-7: each side says which packets cross. Lost packets are told apart from packets that are too
/// long.
#[test]
fn doctor_tries_the_way_to_another_host() {
    let (status, out) = two_hosts(1500, "A=b");
    let crosses = "ok    packets     RoCEv2 crosses both ways, with a path MTU of up to 1024\n";
    assert_eq!((status, out.matches(crosses).count()), (Some(0), 2), "{out}");
    let (status, out) = two_hosts(9000, "A=b");
    assert_eq!((status, out.matches(crosses).count()), (Some(1), 2), "{out}");
    assert_eq!(
        out.matches("FAIL  path MTU    packets of 2048 bytes do not cross").count(),
        2,
        "{out}"
    );
    let (status, out) = two_hosts(1500, "ADVERB_FAULT=drop=100%");
    assert_eq!((status, out.matches("UDP port 4791").count()), (Some(1), 2), "{out}");
    assert!(out.contains("packets from this host do not arrive"), "{out}");
}

/// DOC-7: a host needs no network to reach itself.
#[test]
fn doctor_wants_another_host() {
    let output = apart(
        "ip link set lo up; $ADVERB doctor --listen 127.0.0.1 >&2 & \
         until grep -q 0100007F:12B7 /proc/net/tcp; do sleep 0.05; done; $ADVERB doctor --with 127.0.0.1",
    );
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}{}", text(&output.stderr));
    // Lines are broken at 80 columns.
    let flat = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("FAIL peer") && flat.contains("an address of this host"), "{out}");
}

/// DOC-7: no process listens on the other host.
#[test]
fn doctor_says_that_nobody_waits() {
    let output = apart("ip link set lo up; $ADVERB doctor --with 127.0.0.1");
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}{}", text(&output.stderr));
    assert!(out.contains("FAIL  peer") && out.contains("doctor --listen"), "{out}");
}

/// A program built with musl runs with everything that `adverb run` and `adverb env` set up.
#[test]
fn a_program_built_with_musl_runs() {
    let directory = std::env::temp_dir().join(format!("adverb-musl-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (source, program) = (directory.join("p.c"), directory.join("p"));
    std::fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\"here\"); return 3; }\n")
        .unwrap();
    let built = Command::new("musl-gcc").arg("-o").arg(&program).arg(&source).status();
    assert!(built.expect("musl-gcc: run scripts/test-deps").success());
    let ran = adverb(&["run", "--", program.to_str().unwrap()]);
    assert_eq!(
        (ran.status.code(), text(&ran.stdout)),
        (Some(3), "here\n".to_string()),
        "{}",
        text(&ran.stderr)
    );
    let script = "set -a; eval \"$(\"$1\" env --shell)\"; set +a; exec \"$2\"";
    let ran = Command::new("sh")
        .args(["-c", script, "-", env!("CARGO_BIN_EXE_adverb")])
        .arg(&program)
        .env_remove("ADVERB_LOG")
        .output()
        .unwrap();
    assert_eq!(
        (ran.status.code(), text(&ran.stdout)),
        (Some(3), "here\n".to_string()),
        "{}",
        text(&ran.stderr)
    );
    std::fs::remove_dir_all(&directory).unwrap();
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
        let output = adverb(&["completions", shell]);
        let script = text(&output.stdout);
        assert!(output.status.success(), "{}", text(&output.stderr));
        for name in commands() {
            assert!(script.contains(&name), "{shell}: {name}");
        }
        assert!(script.contains("no-preload"), "{shell}: options of `adverb run`");
    }
}

#[test]
fn each_command_has_a_manual_page() {
    let main = adverb(&["man"]);
    let page = text(&main.stdout);
    assert!(main.status.success() && page.contains(".TH adverb 1"), "{page}");
    let dir = std::env::temp_dir().join(format!("adverb-pages-{}", std::process::id()));
    assert_eq!(
        adverb(&["man", "--into", dir.to_str().unwrap()]).status.code(),
        Some(1),
        "no such directory"
    );
    std::fs::create_dir(&dir).unwrap();
    assert!(adverb(&["man", "--into", dir.to_str().unwrap()]).status.success());
    assert_eq!(std::fs::read_to_string(dir.join("adverb.1")).unwrap(), page);
    let mut pages: Vec<_> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut expected: Vec<_> = commands()
        .iter()
        .filter(|name| *name != "help")
        .map(|name| format!("adverb-{name}.1"))
        .chain(["adverb.1".into()])
        .collect();
    pages.sort();
    expected.sort();
    assert_eq!(pages, expected);
    let run = std::fs::read_to_string(dir.join("adverb-run.1")).unwrap();
    assert!(run.contains("check\\-suppress"), "{run}");
    std::fs::remove_dir_all(dir).unwrap();
}
