//! Each run of a hunt has a network and a `/tmp` of its own.
mod common;
use common::{Scratch, adverb, command, said};
use std::path::Path;
use std::process::Command;

/// The working directory of a hunt, below the host's `/tmp`.
struct Trial(Scratch);

impl Trial {
    /// `None` if this machine allows no box.
    fn new(name: &str) -> Option<Trial> {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net", "--mount", "true"]);
        if !command.status().expect("unshare starts (package util-linux)").success() {
            let said = "SKIPPED: `unshare --net` is not allowed here, so hunts have no box\n";
            std::io::Write::write_all(&mut std::io::stderr(), said.as_bytes()).unwrap();
            return None;
        }
        Some(Trial(Scratch::within(Path::new("/tmp"), &format!("boxes-{name}"))))
    }

    fn hunt(&self, args: &[&str]) -> Command {
        let mut command = command(&["hunt"]);
        command.args(args).current_dir(&self.0).env("XDG_RUNTIME_DIR", self.0.str());
        command
    }
}

fn network() -> String {
    std::fs::read_link("/proc/self/ns/net").unwrap().display().to_string()
}

/// Takes a name in `/tmp`, writes a line into the working directory, and ends with status 3.
/// Without a box it does nothing.
const TAKES_A_NAME: &str = r#"
[ "$(readlink /proc/self/ns/net)" = "$1" ] && exit 7
mkdir "/tmp/$2" && result=made || result=taken
echo $result $(id -u) >> results
exit 3
"#;

/// HUN-15: each run finds `/tmp` as it is on the host, and changes it for itself. The working
/// directory below `/tmp` stays the host's.
#[test]
fn each_run_has_a_directory_for_temporary_files_of_its_own() {
    let Some(trial) = Trial::new("tmp") else { return };
    let name = format!("adverb-boxes-lock-{}", std::process::id());
    let words = ["--", "sh", "-c", TAKES_A_NAME, "sh", &network(), &name];
    let text = said(&trial.hunt(&words).output().unwrap(), 1);
    assert!(text.contains("fails in 3 of 3 runs without a choice"), "{text}");
    let results = trial.0.read("results");
    assert!(results.lines().count() >= 3, "{results}");
    assert!(results.lines().all(|line| line.starts_with("made ")), "{results}");
    assert!(!Path::new("/tmp").join(&name).exists());
}

/// HUN-15: a user without root's rights has a box, too, and keeps the own number.
#[test]
fn a_user_without_rights_has_a_box() {
    let Some(trial) = Trial::new("user") else { return };
    let name = format!("adverb-boxes-user-{}", std::process::id());
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-user=1234", "--map-group=1234"]);
    let words = ["--", "sh", "-c", TAKES_A_NAME, "sh", &network(), &name];
    let hunt = trial.hunt(&words);
    command.arg(hunt.get_program()).args(hunt.get_args()).current_dir(&trial.0);
    command.env("XDG_RUNTIME_DIR", trial.0.str());
    let text = said(&command.output().unwrap(), 1);
    assert!(text.contains("fails in 3 of 3 runs"), "{text}");
    let results = trial.0.read("results");
    assert!(results.lines().count() >= 3, "{results}");
    assert!(results.lines().all(|line| line == "made 1234"), "{results}");
}

/// HUN-15: two runs use the same port of the same address at the same time, also an address of an
/// interface of the host.
#[test]
fn runs_at_the_same_time_use_the_same_port() {
    let Some(trial) = Trial::new("port") else { return };
    let devices: serde_json::Value =
        serde_json::from_slice(&adverb(&["devices", "--json"]).stdout).unwrap();
    let gids = devices[0]["gids"].as_array().unwrap().iter().filter_map(|gid| gid.as_str());
    let addresses: Vec<_> = gids.filter_map(|gid| gid.strip_prefix("::ffff:")).collect();
    assert!(addresses.contains(&"127.0.0.1"), "{devices}");
    let program = r#"
import os, socket, sys, time
held = [socket.create_server((address, 4242)) for address in sys.argv[2:]]
socket.create_connection((sys.argv[2], 4242))
open("bound" + sys.argv[1], "w")
while not (os.path.exists("bound1") and os.path.exists("bound2")): time.sleep(0.01)
"#;
    let words = |n| [&["--", "python3", "-c", program, n], &addresses[..]].concat();
    let first = trial.hunt(&words("1")).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let second = trial.hunt(&words("2")).output().unwrap();
    for output in [first.wait_with_output().unwrap(), second] {
        assert!(said(&output, 4).contains("no verbs call"));
    }
}

/// HUN-15: a program that works only without a box is hunted without.
#[test]
fn a_program_that_needs_the_host_has_no_box() {
    let Some(trial) = Trial::new("host") else { return };
    let script = r#"test "$(readlink /proc/self/ns/net)" = "$1""#;
    let output = trial.hunt(&["--", "sh", "-c", script, "sh", &network()]).output().unwrap();
    let text = said(&output, 4);
    assert!(text.contains("no box for the runs, because in a box the program ends"), "{text}");
}

/// HUN-15: a command prepares each box. If it fails, the hunt says why.
#[test]
fn a_command_prepares_each_box() {
    let Some(trial) = Trial::new("before") else { return };
    let name = format!("/tmp/adverb-boxes-before-{}", std::process::id());
    let before = format!("mkdir {name}; sleep 600 & echo $! > pid");
    let program = format!("rmdir {name} || exit 5; kill -0 $(cat pid) || exit 6; exit 3");
    let output = trial.hunt(&["--before", &before, "--", "sh", "-c", &program]).output().unwrap();
    let text = said(&output, 1);
    assert!(text.contains("ends with status 3") && text.contains("3 of 3 runs"), "{text}");
    assert!(text.contains(&format!("before:  {before}")), "{text}");
    for (before, words) in [("echo no disk; exit 4", "exit status: 4"), ("kill $$", "SIGTERM")] {
        let text = said(&trial.hunt(&["--before", before, "--", "true"]).output().unwrap(), 125);
        assert!(text.contains(before) && text.contains(words), "{text}");
        assert!(!before.contains("disk") || text.contains("\nno disk\n"), "{text}");
    }
}
