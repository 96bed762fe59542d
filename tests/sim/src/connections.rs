//! Seeds of the connection manager's worlds.
use adverb_sim::cm::{Config, World, run};
use std::process::ExitCode;
use std::time::Instant;

/// Runs one world and prints the result.
pub fn run_one(seed: u64, trace: bool) -> ExitCode {
    let config = Config::draw(seed);
    if trace {
        println!("{config:#?}");
        for line in World::new(&config).traced().run().trace {
            println!("{line}");
        }
    }
    let report = run(&config);
    match report.failure {
        None => {
            let (made, mads, hash) = (report.made, report.mads, report.hash);
            println!("seed {seed} passed: {made} connections, {mads} MADs, trace hash {hash:016x}");
            ExitCode::SUCCESS
        }
        Some(why) => {
            println!("seed {seed} of connections FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs many worlds, until `failures` of them have failed.
pub fn run_many(from: u64, worlds: u64, failures: usize) -> ExitCode {
    let begin = Instant::now();
    let (mut failed, mut made, mut hash, mut ran) = (0, 0, 0u64, 0);
    for seed in from..from.saturating_add(worlds) {
        let report = run(&Config::draw(seed));
        ran += 1;
        made += report.made;
        hash = hash.wrapping_add(report.hash.rotate_left((seed % 64) as u32));
        if let Some(why) = report.failure {
            failed += 1;
            println!("seed {seed} of connections FAILED: {why}");
            println!("  again: adverb-sim --connections --seed {seed} --trace");
            if failed >= failures {
                break;
            }
        }
    }
    let rate = f64::from(ran) / begin.elapsed().as_secs_f64();
    println!(
        "{ran} seeds of connections from {from}, {failed} failed, {rate:.0} seeds/s, {made} made, trace hash {hash:016x}"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
