//! Machine and date of the figures.

use std::fmt::Write;
use std::process::Command;
use std::time::Duration;

fn said(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output();
    out.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_string()).unwrap_or_default()
}

fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|l| l.strip_prefix("model name")?.split_once(": ").map(|(_, m)| m.trim()));
    let count = info.lines().filter(|l| l.starts_with("processor")).count();
    format!("{}, {count} processors", model.unwrap_or("unknown CPU"))
}

/// The revision of the tree, with a note about uncommitted changes.
#[must_use]
pub fn revision() -> String {
    let revision = said("git", &["rev-parse", "--short", "HEAD"]);
    let changed = !said("git", &["status", "--porcelain", "--untracked-files=no"]).is_empty();
    match (revision.is_empty(), changed) {
        (true, _) => "unknown revision".to_string(),
        (false, true) => format!("{revision} with changes"),
        (false, false) => revision,
    }
}

/// Date, machine, kernel, revision, command and load, as lines of Markdown.
#[must_use]
pub fn describe(revision: &str, command: &str, packages: &[&str], took: Duration) -> String {
    let mut text = String::new();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').take(3).collect::<Vec<_>>().join(" ");
    let version = |p: &&str| format!("{p} {}", said("dpkg-query", &["-W", "-f", "${Version}", p]));
    let packages = packages.iter().map(version).collect::<Vec<_>>().join(", ");
    // Writing to a String cannot fail.
    let _ =
        writeln!(text, "- {}, revision {revision}", said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]));
    let _ = writeln!(text, "- {}; Linux {}; load at the end {load}", cpu(), said("uname", &["-r"]));
    let _ = writeln!(text, "- `{command}`: {packages} of Debian, {} s in all", took.as_secs());
    text
}
