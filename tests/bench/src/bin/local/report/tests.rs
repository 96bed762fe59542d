use super::*;

fn line<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().find(|l| l.contains(name)).unwrap_or_else(|| panic!("no {name} in\n{text}"))
}

#[test]
fn a_missing_value_is_shown_as_failed_and_meets_no_bar() {
    let none = || Once::from("");
    let none = Onces { idle: none(), scale: none(), mapped: none(), unmapped: none() };
    let text = text(&Samples::new(1), &none);
    assert!(text.contains("failed") && !text.contains("yes"), "{text}");
    assert!(text.contains("The mesh of processes: failed."), "{text}");
}

#[test]
fn latencies_are_judged_by_the_best_of_ucx_and_streams_too() {
    let mut samples = Samples::new(1);
    let mut add = |name: &str, size, what, value| samples.add(Key::new(name, size, what), 0, value);
    add("ib_send_lat", 8, What::Latency, 110e-9);
    add("ucp_am_lat posix", 8, What::Latency, 120e-9);
    add("ucp_am_lat posix,cma", 8, What::Latency, 100e-9);
    add("ib_send_bw", 65536, What::Bytes, 30e9);
    add("tag_bw posix", 65536, What::Bytes, 20e9);
    add("tag_bw posix,cma", 65536, What::Bytes, 25e9);
    let none = Once::from("");
    let text = comparison(&samples, &none, &none);
    let send = line(&text, "UCX active message");
    assert!(send.contains("1.10") && send.contains("no"), "{send}");
    let stream = line(&text, "ib_send_bw -s 65536 / UCX tag");
    assert!(stream.contains("1.20") && stream.contains("yes"), "{stream}");
}

#[test]
fn what_has_no_peer_is_judged_by_its_figure() {
    let mut samples = Samples::new(1);
    let mut add = |name: &str, size, what, value| samples.add(Key::new(name, size, what), 0, value);
    add("ib_send_lat local one processor", 8, What::Latency, 8e-6);
    add("ib_write_lat wire one processor", 8, What::Latency, 300e-6);
    add("tag_bw rc_v", 65536, What::Bytes, 9.5e9);
    let none = Once::from("");
    let text = comparison(&samples, &none, &none);
    let send = line(&text, "ib_send_lat -s 8, local");
    assert!(send.contains("8.00") && send.contains("yes"), "{send}");
    let write = line(&text, "ib_write_lat -s 8, wire");
    assert!(write.contains("300") && write.contains("no"), "{write}");
    let stream = line(&text, "over rc_v, GB/s");
    assert!(stream.contains("9.50") && stream.contains("yes"), "{stream}");
}

#[test]
fn memory_and_idleness_have_bars() {
    let scale = "pair_qps 10000 1\npair_qp_pss_0 5e3 B\npair_qp_pss_1 8e3 B\npair_cq_pss 1e2 B\n\
                 pair_send_ratio_10000 1.5 1\n";
    let idle = |cpu: &str| {
        Once::from(format!("idle_qps 1000 1\nidle_time 60 s\nidle_cpu {cpu} s\n").as_str())
    };
    let text = |cpu| comparison(&Samples::new(1), &idle(cpu), &Once::from(scale));
    assert!(line(&text("0e0"), "bytes of each of 10000").contains("8100"), "{}", text("0e0"));
    assert!(line(&text("0e0"), "bytes of each of 10000").contains("yes"));
    assert!(line(&text("0e0"), "SEND over 10000").contains("no"));
    assert!(line(&text("0e0"), "idle queue pairs").contains("yes"));
    assert!(line(&text("1e-2"), "idle queue pairs").contains("no"));
}
