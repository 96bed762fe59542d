//! Tests of `adverb hunt` as a user calls it.
mod common;
use common::{Scratch, adverb, said, text};

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
        let said = said(&adverb(args), status);
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
    let said = said(&adverb(&words), 4);
    assert!(said.contains("no verbs call"), "{said}");
}

/// HUN-7: a client that was started before its server listened says nothing about either, even if
/// the server first slept without a time limit.
#[test]
fn a_client_before_its_server_is_no_failure() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    // A process wakes the server after 1.5 s, which a look at the server's group does not foresee.
    let server = format!(
        "import os, socket, subprocess; r, w = os.pipe(); \
         subprocess.Popen(['sh', '-c', f'sleep 1.5; echo >&{{w}}'], pass_fds=[w], start_new_session=True); \
         os.read(r, 1); s = socket.create_server(('127.0.0.1', {port})); s.accept()"
    );
    let client = format!("import socket; socket.create_connection(('127.0.0.1', {port}))");
    let words = ["hunt", "--pair", "--", "python3", "-c", &server, "--", "python3", "-c", &client];
    let said = said(&adverb(&words), 4);
    assert!(said.contains("no verbs call"), "{said}");
}

/// HUN-4: a process that waits for an answer of the connection manager does not hang: the request
/// is sent again after 4 s.
#[test]
fn a_lost_request_for_a_connection_is_no_hang() {
    let end = |options: &str| {
        let exe = env!("CARGO_BIN_EXE_adverb");
        let run = format!("exec {exe} run --fault cm-drop=req@1 -- rping");
        format!("{run} {options} -a 127.0.0.1 -C 1")
    };
    let (server, client) = (end("-s"), end("-c"));
    let words = ["hunt", "--time", "24s", "--jobs", "1", "--pair", "--"];
    let commands = ["sh", "-c", &server, "--", "sh", "-c", &client];
    let output = adverb(&[&words[..], &commands[..]].concat());
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(said.contains("adverb hunt: the pair works in "), "{said}");
}

/// HUN-8: the result files are written whether or not a failure was found. If they cannot be
/// written, the command says so.
#[test]
fn hunt_writes_its_result_for_others() {
    let directory = Scratch::new("hunt-files");
    let [junit, sarif] =
        ["a.xml", "a.sarif"].map(|name| directory.join(name).display().to_string());
    for (program, status, failures, results) in [
        ("false", 1, "failures=\"1\"", 1),
        ("true", 4, "failures=\"0\" errors=\"0\" skipped=\"1\"", 0),
    ] {
        said(&adverb(&["hunt", "--junit", &junit, "--sarif", &sarif, "--", program]), status);
        let report = directory.read("a.xml");
        assert!(report.starts_with("<?xml") && report.contains(failures), "{report}");
        let log: serde_json::Value = serde_json::from_str(&directory.read("a.sarif")).unwrap();
        assert_eq!(log["runs"][0]["results"].as_array().map(Vec::len), Some(results), "{log}");
    }
    said(&adverb(&["hunt", "--junit", "/no/such/directory/a.xml", "--", "true"]), 125);
}

/// HUN-3: the command says why a program cannot be hunted. A program failing by itself is found
/// at once.
#[test]
fn hunt_says_what_it_cannot_hunt() {
    for (args, status, words) in [
        (&["hunt", "--", "/no/such/program"][..], 125, "cannot be run"),
        (&["hunt", "--time", "soon", "--", "true"], 125, "possible"),
        (&["hunt", "--", "true"], 4, "no verbs call"),
        // A program that sleeps for a time does not hang. If its first run is too long, so is the
        // time.
        (&["hunt", "--", "sleep", "6"], 4, "no verbs call"),
        (&["hunt", "--time", "1s", "--", "sleep", "60"], 3, "in its first run, without a choice"),
        (&["hunt", "--", "false"], 1, "without any choice: the program ends with status 1"),
        (&["hunt", "--", "sh", "-c", "kill -SEGV $$"], 1, "SIGSEGV"),
        (&["run", "--replay", "/no/such/file", "--", "true"], 125, "/no/such/file"),
        (&["run", "--replay", "/dev/null", "--", "true"], 125, "schedule"),
        (&["run", "--replay", "7", "--", "true"], 0, ""),
    ] {
        let said = said(&adverb(args), status);
        assert!(said.contains(words), "{args:?}: {said}");
    }
}
