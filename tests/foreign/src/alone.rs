//! Tests of the whole machine run in new namespaces. So everything found belongs to the test.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Set in the copy of a program in new namespaces, to what runs there.
const INSIDE: &str = "ADVERB_ALONE";
/// A loopback interface, and an empty directory with write access for all users.
const SET_UP: &str = "ip link set lo up && mount -t tmpfs -o mode=1777 none /dev/shm";

/// What this program runs in new network and mount namespaces, with a new `/dev/shm`. `None` in the
/// namespaces of the machine.
#[must_use]
pub fn inside() -> Option<String> {
    std::env::var(INSIDE).ok()
}

/// Whether this program runs in new namespaces.
#[must_use]
pub fn is_alone() -> bool {
    inside().is_some()
}

/// The command that starts this program again with the same arguments, in new namespaces, to run
/// `what`. `None` where namespaces are not allowed; then the reason is printed.
#[must_use]
pub fn again(what: &str) -> Option<Command> {
    let ways: [&[&str]; 2] = [&[], &["--user", "--map-root-user"]];
    let unshare = |way: &[&str], line: &str| {
        let mut command = Command::new("unshare");
        command.args(way).args(["--net", "--mount", "sh", "-c", line]);
        command
    };
    let may = |way: &&&[&str]| {
        unshare(way, SET_UP)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    };
    let why = match (ways.iter().find(may), std::env::current_exe()) {
        (Some(way), Ok(me)) => {
            let mut command = unshare(way, &format!("{SET_UP} && exec \"$0\" \"$@\""));
            command
                .arg(me)
                .args(std::env::args_os().skip(1))
                // If this is set, `adverb run` keeps its tree there. Otherwise the tree is in
                // /dev/shm.
                .env_remove("XDG_RUNTIME_DIR")
                .env(INSIDE, what);
            return Some(command);
        }
        (None, _) => "unshare --net --mount is not allowed".to_string(),
        (_, Err(why)) => format!("own path: {why}"),
    };
    not_alone(&why);
    None
}

fn not_alone(why: &str) {
    eprintln!("not alone ({why}): what other programs do shows, too");
}

/// Starts this program again with the same arguments, in new namespaces. Returns in the new
/// program, or where namespaces are not allowed; then the reason is printed.
pub fn be_alone() {
    if !is_alone()
        && let Some(mut command) = again("this program")
    {
        not_alone(&command.exec().to_string());
    }
}

/// Other processes in this program's network namespace. The list is only useful if the program [is
/// alone](is_alone).
#[must_use]
pub fn others() -> Vec<u32> {
    let namespace = |pid: &str| {
        std::fs::metadata(format!("/proc/{pid}/ns/net")).map(|m| (m.dev(), m.ino())).ok()
    };
    let Some(own) = namespace("self") else { return Vec::new() };
    let me = std::process::id();
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != me && namespace(&pid.to_string()) == Some(own)).collect()
}
