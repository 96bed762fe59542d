//! libfabric's verbs provider: datagrams, connected endpoints over librdmacm, and two kinds of
//! reliable datagrams on top of them (`rxd`, `rxm`). For connected endpoints the provider refuses a
//! loopback interface.

use std::time::Duration;

use adverb_foreign::Verdict;
use adverb_foreign::suite::{Case, by_length, case};
use adverb_programs::stage::{CABLE, PATHS, Stage};

const LIMIT: Duration = Duration::from_secs(180);

/// Name, provider, endpoint, and the suffix of the domain's name after the device.
const KINDS: [(&str, &str, &str, &str); 4] = [
    ("rxd", "verbs;ofi_rxd", "rdm", "-dgram"),
    ("dgram", "verbs", "dgram", "-dgram"),
    ("msg", "verbs", "msg", ""),
    ("rxm", "verbs;ofi_rxm", "rdm", ""),
];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for path in PATHS {
        for (name, provider, endpoint, domain) in KINDS {
            cases.push(case(format!("{path}/{name}"), move || {
                pingpong(path, provider, endpoint, domain)
            }));
        }
    }
    cases
}

/// Both ends run in one namespace; `-c` compares each message with the sent one.
fn pingpong(path: &str, provider: &str, endpoint: &str, domain: &str) -> Verdict {
    let (device, address) = CABLE;
    // Datagram endpoints do not split messages, so only small sizes fit.
    let (iterations, sizes) = by_length(("500", "-S all"), ("50", ""));
    let sizes = if endpoint == "dgram" { "" } else { sizes };
    // The protocol of rxd takes milliseconds for a message of 64 KiB, over the kernel's UDP as
    // well.
    let iterations = if provider.ends_with("rxd") { by_length("100", "50") } else { iterations };
    let one = format!(
        "fi_pingpong -p '{provider}' -e {endpoint} -d {device}{domain} -I {iterations} {sizes} -c"
    );
    // The server listens on TCP port 47592 for the control connection.
    let await_server = "n=0; until grep -q ':B9E8 0*:0000 0A ' /proc/net/tcp /proc/net/tcp6 || [ $n -ge 100 ]; \
                        do n=$((n + 1)); sleep 0.1; done";
    let script = format!(
        "timeout 170 {one} & server=$!; {await_server}; timeout 170 {one} {address}; client=$?
         wait $server; echo \"statuses $? $client\""
    );
    let done = Stage::new(path).with_cable().run_ok(&["sh", "-c", &script], LIMIT)?;
    done.require_words(&["statuses 0 0"])?;
    let complains = done.text.contains("error") || done.text.contains("mismatch");
    done.require(!complains)
}
