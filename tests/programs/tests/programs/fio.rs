//! fio's engine `rdma`: writes and reads by the client, and sends that the server verifies.

use std::time::Duration;

use adverb_foreign::suite::{Case, case};
use adverb_foreign::{Verdict, require};
use adverb_programs::stage::{PATHS, Stage};

const LIMIT: Duration = Duration::from_secs(90);

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for path in PATHS {
        for verb in ["write", "read", "send"] {
            cases.push(case(format!("{path}/{verb}"), move || both(path, verb)));
        }
        cases.push(case(format!("{path}/verifying_finds_other_bytes"), move || unverified(path)));
    }
    cases
}

/// Runs a server and a client with these additional options, and returns their statuses. The number
/// of sends is limited to the server's receives, because fio connects with an RNR retry count of 0.
fn pair(path: &str, verbs: [&str; 2], more: [&str; 2]) -> Result<String, String> {
    let common = "--ioengine=rdma --hostname=127.0.0.1 --port=4500 --bs=64k --size=2m";
    let [server, client] = verbs;
    let [of_server, of_client] = more;
    // A listener of the connection manager has an abstract name: here with port 4500 of its port
    // space.
    let await_server = "n=0; until grep -q -- '-cm-1061194-' /proc/net/unix || [ $n -ge 200 ]; \
                        do n=$((n + 1)); sleep 0.1; done";
    let script = format!(
        "cd $(mktemp -d)
         timeout 60 fio --name=server {common} --verb={server} --rw=read --iodepth=64 {of_server} & server=$!
         {await_server}
         timeout 60 fio --name=client {common} --verb={client} --rw=write --iodepth=4 {of_client}; client=$?
         wait $server; echo \"statuses $? $client\""
    );
    let done = Stage::new(path).run_ok(&["sh", "-c", &script], LIMIT)?;
    Ok(done.text.clone())
}

fn both(path: &str, verb: &str) -> Verdict {
    let (verbs, more) = match verb {
        "send" => (["recv", "send"], ["--verify=crc32c", "--verify=crc32c --do_verify=0"]),
        _ => ([verb, verb], ["", ""]),
    };
    let text = pair(path, verbs, more)?;
    require!(text.contains("statuses 0 0") && text.contains("io=2048KiB"), "{text}");
    Ok(())
}

/// Data written without checksums does not pass, which shows that the case above can fail.
fn unverified(path: &str) -> Verdict {
    let text = pair(path, ["recv", "send"], ["--verify=crc32c", ""])?;
    require!(text.contains("statuses 1 0") && text.contains("verify: bad"), "{text}");
    Ok(())
}
