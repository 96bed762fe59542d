//! Suites of one C program each, whose cases need more than
//! [`cases::of`](adverb_foreign::cases::of).

use std::time::Duration;

use adverb_foreign::Verdict;
use adverb_foreign::cases::{PATHS, listed, of, of_linked, ok_or_skipped, rig, run_rig};
use adverb_foreign::suite::{Case, case, case_or_skip};

/// Most cases take a second; races and waits take longer.
const LIMIT: Duration = Duration::from_secs(120);

/// CQN and CHN requirements: each case of `c/notify.c` is a test named by its id. The manual page's
/// two examples (CHN-8) are tests as well.
pub fn notify() -> Vec<Case> {
    let mut cases = listed("notify", |id, name| {
        let id = id.unwrap_or_default();
        let words = format!("ok {id} {name}");
        vec![case(format!("{id}/{name}"), move || run_rig("notify", &[&name], &words, LIMIT))]
    });
    cases.push(case("CHN-8/example_blocking", || {
        run_rig("example_blocking", &[], "ok blocking: 100 messages", LIMIT)
    }));
    cases.push(case("CHN-8/example_nonblocking", || {
        run_rig("example_nonblocking", &[], "ok non-blocking: 100 messages", LIMIT)
    }));
    cases
}

/// Each wait of a program on descriptors of the device returns what the kernel returns for the same
/// descriptors as plain pipes: cases of `c/waits.c`. The same in handlers of signals: cases of
/// `c/waits_in_handlers.c`. `WAITS_SEED` and `WAITS_STEPS` choose longer runs.
pub fn waits() -> Vec<Case> {
    // Packets that come twice or out of order wake the device, and make no event.
    let doubled = case_or_skip("doubled_packets/model", || {
        let program = rig("waits", &["-lrdmacm"], &["model"])?
            .option("--fault", "dup=10%,reorder=5%")
            .env("ADVERB_PATH", "wire")
            .env("WAITS_DOUBLED", "1");
        ok_or_skipped(&program.run(LIMIT)?, "ok model")
    });
    let in_handlers = of("waits_in_handlers");
    of_linked("waits", &["-lrdmacm"]).into_iter().chain([doubled]).chain(in_handlers).collect()
}

/// Runs a C program on this path, whose output must have these words.
fn on_path(program: &str, args: &[&str], path: &str, words: &[&str]) -> Verdict {
    rig(program, &[], args)?.env("ADVERB_PATH", path).run_ok(LIMIT)?.require_words(words)
}

/// UCM-11: the file of rdma_cm in libibverbs.so.1, with the commands of the kernel's header, within
/// one host and over the wire.
pub fn ucma() -> Vec<Case> {
    vec![
        case("UCM-11/the_file_on_one_host", || on_path("ucma", &[], "local", &["ok ucma"])),
        case("UCM-11/the_file_by_the_wire", || on_path("ucma", &[], "wire", &["ok ucma"])),
    ]
}

/// A program closes all its descriptors while a device is open, and gets the same numbers for its
/// own files and sockets. The device neither writes to these, nor reads from them, nor closes them
/// (`c/closes.c`).
pub fn closes() -> Vec<Case> {
    let one = |kind, path| {
        let words = format!("ok closes {kind}");
        case(format!("{path}/{kind}"), move || on_path("closes", &[kind], path, &[&words]))
    };
    let all = ["files", "sockets", "datagrams"].into_iter();
    all.flat_map(|kind| PATHS.map(|path| one(kind, path))).collect()
}

/// A seccomp filter refuses a system call: the device works, or the log names the call.
pub fn seccomp() -> Vec<Case> {
    let process = "adverb: error: other processes of this host cannot be reached: ";
    let memory = "adverb: warn: no memory is shared with other processes of this host: ";
    let named = |(call, mode, line): (&'static str, &'static str, &str)| {
        let line = format!("{line}the kernel refuses {call} (");
        case(format!("local/{call}_is_named"), move || {
            on_path("seccomp", &[call, mode], "local", &["ok seccomp", &line])
        })
    };
    let named = [
        ("mincore", "talk", memory),
        ("getsockopt", "open", process),
        ("accept4", "open", process),
        ("connect", "open", process),
    ]
    .map(named);
    let random = PATHS.map(|path| {
        case(format!("{path}/getrandom_finds_no_memory"), move || {
            on_path("seccomp", &["getrandom", "talk"], path, &["ok seccomp"])
        })
    });
    named.into_iter().chain(random).collect()
}

/// Functions of the drop-in beyond verbs, used from C through `adverb.h`: cases of `c/ext.c`, and
/// words of the output of each.
const EXTENSIONS: [(&str, &str, &[&str]); 5] = [
    ("EXT-1", "peek_leaves_completions", &[]),
    ("EXT-2", "events_come_in_batches_or_after_a_time", &[]),
    ("EXT-3", "a_persistent_arm_tells_of_every_completion", &[]),
    ("EXT-4", "the_report_names_the_arm", &["lost wake-up", "in arm_the_queue"]),
    ("EXT-4", "what_no_event_will_speak_of_is_counted", &[]),
];

pub fn extensions() -> Vec<Case> {
    let one = |(id, name, words): (&str, &'static str, &'static [&str])| {
        case(format!("{id}/{name}"), move || {
            let words = [&[name], words].concat();
            rig("ext", &[], &[name])?.run_ok(LIMIT)?.require_words(&words)
        })
    };
    EXTENSIONS.map(one).into()
}
