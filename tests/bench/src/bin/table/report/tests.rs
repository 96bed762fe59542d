use super::*;

fn line<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines().find(|l| l.contains(name)).unwrap_or_else(|| panic!("no {name} in\n{text}"))
}

#[test]
fn a_missing_value_is_shown_as_failed_and_meets_no_bar() {
    let text = text(&Samples::new(1), &Places::checked(|_| Ok(())), &Once::from(""));
    assert!(text.contains("failed") && !text.contains("yes"));
    assert!(!text.contains("not possible"), "{text}");
}

#[test]
fn a_place_that_is_not_possible_is_named_with_its_reason() {
    let places = Places::checked(|_| Err("no cgroups".to_string()));
    let bars = wire(&Samples::new(1), &places);
    let veth = line(&bars, "ib_write_bw -s 1048576, veth, MTU 9000 / UCX");
    assert!(veth.contains("not possible here") && veth.contains("≥ 2"), "{veth}");
    let text = at_places(&Samples::new(1), &places);
    assert!(text.contains("- half a processor: not possible here: no cgroups"), "{text}");
    assert!(!text.contains("failed"), "{text}");
}

#[test]
fn the_wire_is_judged_by_the_better_way_of_ucx() {
    let mut samples = Samples::new(1);
    let big = |name| bandwidth(name, BIG);
    samples.add(big("ib_write_bw"), 0, 4.5e9);
    samples.add(big("ucp_put_bw"), 0, 1e9);
    samples.add(big("tag_bw"), 0, 4e9);
    samples.add(lean_key(LEAN[0], "ib_write_bw"), 0, 6e9);
    for (size, write) in [(8, 4e-6), (65536, 50e-6)] {
        samples.add(latency("ib_send_lat", size), 0, if size == 8 { 4e-6 } else { 25e-6 });
        samples.add(latency("ib_write_lat", size), 0, write);
    }
    samples.add(latency("tag_lat", 8), 0, 5e-6);
    samples.add(latency("ucp_put_lat", 8), 0, 14e-6);
    let places = Places::checked(|_| Ok(()));
    for (place, value) in [(CABLES[0].0, 5e9), (HALF, 1e9)] {
        let [_, write, send] = &TASKS;
        samples.add(place_key(place, write, Side::Adverb), 0, value);
        samples.add(place_key(place, write, Side::Ucx), 0, 1e9);
        samples.add(place_key(place, send, Side::Ucx), 0, 2e9);
        samples.add(place_key(place, write, Side::Lean), 0, 10e9);
    }
    let text = wire(&samples, &places);
    let is = |name: &str, ratio: &str, met: &str| {
        let line = line(&text, name);
        assert!(line.contains(ratio) && line.contains(met), "{line}");
    };
    is("ib_write_bw -s 1048576 / the lean", "0.75", "no");
    is("ib_write_bw -s 1048576 / UCX over tcp", "1.12", "yes");
    is("ib_send_lat -s 8 / UCX over tcp", "0.80", "yes");
    is("ib_write_lat -s 8 / ib_send_lat", "1.00", "yes");
    is("ib_write_lat -s 65536 / ib_send_lat", "2.00", "no");
    is("ib_write_bw -s 1048576, veth, MTU 1500 / UCX", "2.50", "yes");
    is("ib_write_bw -s 1048576, veth, MTU 1500 / the lean", "0.50", "no");
    let half = line(&text, "ib_write_bw -s 1048576, half a processor");
    assert!(half.contains("0.50") && !half.contains("no"), "{half}");
    // The table by size takes the better way, too.
    assert!(line(&beside_ucx(&samples), "8 B ").contains("0.80"));
}

#[test]
fn a_notification_that_went_wrong_is_shown() {
    let text = |wrong: &str| {
        let armed = "armed_events 100 1\narmed_rate 2e5 1/s\narmed_wire 40 1\narmed_wrong ";
        notification(&Samples::new(1), &Once::from(format!("{armed}{wrong} 1\n").as_str()))
    };
    assert!(text("0").contains("200 thousand a second") && text("0").contains("nothing lost"));
    assert!(text("2").contains("**2 lost"));
}

#[test]
fn bars_are_judged_by_the_larger_limit_of_the_same_round() {
    let mut samples = Samples::new(1);
    samples.add(bandwidth("ib_write_bw", 1 << 20), 0, 6e9);
    samples.add(raw_key("udp_gso_4156"), 0, 8e9);
    samples.add(raw_key("udp_gso_window_4156"), 0, 10e9);
    let text = comparison(&samples);
    let line = text.lines().find(|l| l.contains("ib_write_bw -s 1048576 / UDP GSO 4156")).unwrap();
    assert!(line.contains("0.60") && line.contains("no"), "{line}");
}
