//! Event loops with their own suites: libevent, libuv, Boost.Asio, asyncio and tokio, and libevent
//! with musl. The suites must pass with a device open in each process, and without one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use adverb_foreign::cc::compile_with_c;
use adverb_foreign::suite::{Case, case, short};
use adverb_foreign::{Verdict, require};
use adverb_programs::crates_io::{self, Crate};
use adverb_programs::skips::{self, ignored, parse};
use adverb_programs::stage::Stage;
use adverb_programs::{data_dir, fetch, source_dir};

const LIMIT: Duration = Duration::from_secs(900);
/// Tests that may fail, with the reason: `suite/test`.
const LEFT_OUT: &str = include_str!("../../data/loops_left_out.txt");
/// The suites that `data/loops.sh` builds and runs, with their tests if not all of them run.
const SUITES: [(&str, &[&str]); 5] = [
    ("libevent", &[]),
    ("libevent-musl", &[]),
    ("libuv", &[]),
    ("asio", &[]),
    (
        "asyncio",
        &[
            "test_asyncio.test_selector_events",
            "test_asyncio.test_server",
            "test_asyncio.test_streams",
            "test_epoll",
            "test_select",
        ],
    ),
];
const TOKIO: Crate = Crate {
    name: "tokio",
    version: "1.54.1",
    args: &[
        "--features=full,test-util",
        "--test=io_async_fd",
        "--test=io_driver",
        "--test=net_unix_pipe",
        "--test=process_smoke",
        "--test=rt_common",
        "--test=signal_usr1",
        "--test=tcp_*",
        "--test=time_*",
        "--test=udp",
        "--test=uds_*",
    ],
};

/// What `c/opened.c` does in a process.
#[derive(Clone, Copy)]
enum Device {
    /// The object is not loaded.
    Closed,
    /// The device works beside the program.
    Open,
    /// Every wait of the program also watches a completion channel.
    Mixed,
}

const DEVICES: [(&str, Device); 3] =
    [("closed", Device::Closed), ("open", Device::Open), ("mixed", Device::Mixed)];

pub fn before() -> Verdict {
    skips::print("loops", LEFT_OUT);
    Ok(())
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (word, device) in DEVICES {
        for (suite, tests) in SUITES {
            let name = format!("{suite}/{word}");
            // Adverb has no library for musl.
            if suite == "libevent-musl" && !matches!(device, Device::Closed) {
                continue;
            }
            cases.push(if short() && suite != "asyncio" {
                ignored(name, "the build takes a minute: make programs")
            } else {
                case(name, move || run(suite, tests, device))
            });
        }
        let name = format!("tokio/{word}");
        cases.push(if short() {
            ignored(name, "the build takes minutes: make programs")
        } else {
            case(name, move || tokio(device))
        });
    }
    cases
}

/// Runs a script with the path of the object, empty for [`Device::Closed`], and its arguments.
fn on_stage(device: Device, dir: &Path, argv: &[&str]) -> Result<String, String> {
    let opened = dir.join("opened");
    std::fs::write(&opened, "").map_err(|e| format!("{}: {e}", opened.display()))?;
    let mut stage = Stage::new("wire").env("OPENED", opened.display().to_string()).dir(dir);
    if matches!(device, Device::Mixed) {
        stage = stage.env("OPENED_MIX", "1");
    }
    let done = stage.run(argv, LIMIT)?;
    let lines = std::fs::read_to_string(&opened).map_err(|e| e.to_string())?.lines().count();
    let open = !matches!(device, Device::Closed);
    require!(open == (lines > 0), "{lines} processes opened a device: {}", done.describe());
    done.require(done.ok())?;
    Ok(done.text)
}

/// The object of `c/opened.c`.
fn object(device: Device) -> Result<String, String> {
    if matches!(device, Device::Closed) {
        return Ok(String::new());
    }
    let flags = ["-O2", "-shared", "-fPIC"];
    let path = compile_with_c(&flags, &source_dir().join("opened.c"), "opened.so")?;
    Ok(path.display().to_string())
}

fn script() -> String {
    data_dir().join("loops.sh").display().to_string()
}

fn built(suite: &str) -> Result<PathBuf, String> {
    fetch::once(&format!("loops-{suite}"), |dir| {
        let at = dir.display().to_string();
        fetch::sh(dir, "sh \"$1\" build \"$2\" \"$3\"", &[&script(), &at, suite]).map(|_| ())
    })
}

fn run(suite: &str, tests: &[&str], device: Device) -> Verdict {
    let dir = built(suite)?;
    let (script, at, object) = (script(), dir.display().to_string(), object(device)?);
    let mut argv = vec!["sh", &script, "run", &at, suite, &object];
    argv.extend(tests);
    let text = on_stage(device, &dir, &argv)?;
    let mut passed = 0;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("not ok ") {
            let (test, _) = rest.split_once(": ").unwrap_or((rest, ""));
            let name = format!("{suite}/{test}");
            let listed = parse(LEFT_OUT).iter().any(|(n, _)| *n == name);
            require!(listed, "{name} fails:\n{text}");
        }
        passed += usize::from(line.starts_with("ok "));
    }
    println!("{suite}: {passed} passed");
    require!(passed > 0, "{suite}: nothing ran:\n{text}");
    Ok(())
}

/// The tests of tokio's sources about descriptors, timers and signals.
fn tokio(device: Device) -> Verdict {
    let object = object(device)?;
    let mut passed = 0;
    for binary in crates_io::built(&TOKIO)? {
        let program = binary.path.display().to_string();
        let steps =
            "[ -z \"$1\" ] || export LD_PRELOAD=\"$1:$LD_PRELOAD\"; exec \"$2\" --test-threads 2";
        let dir = binary.path.parent().ok_or("no directory")?;
        let text = on_stage(device, dir, &["sh", "-c", steps, "sh", &object, &program])?;
        passed += crates_io::results(&text).iter().filter(|(_, word)| word == "ok").count();
    }
    println!("tokio: {passed} passed");
    require!(passed > 0, "tokio: nothing ran");
    Ok(())
}
