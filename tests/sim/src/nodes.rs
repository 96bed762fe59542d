//! Seeds of the worlds of nodes.
use adverb_sim::node::{Config, World, run};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
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
            let (completions, events, hash) = (report.completions, report.events, report.hash);
            println!(
                "seed {seed} passed: {completions} completions, {events} events, trace hash {hash:016x}"
            );
            ExitCode::SUCCESS
        }
        Some(why) => {
            println!("seed {seed} of nodes FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs many worlds in `jobs` threads, until `failures` of them have failed.
pub fn run_many(from: u64, worlds: u64, jobs: u64, failures: usize) -> ExitCode {
    let begin = Instant::now();
    let next = AtomicU64::new(from);
    let sums = [const { AtomicU64::new(0) }; 3];
    let failed = Mutex::new(Vec::new());
    let end = from.saturating_add(worlds);
    let work = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end || failed.lock().is_ok_and(|f| f.len() >= failures) {
            return;
        }
        let report = run(&Config::draw(seed));
        // The order of the threads does not matter, as the sums are the same.
        let hash = report.hash.rotate_left((seed % 64) as u32);
        for (sum, one) in sums.iter().zip([hash, report.completions, report.events]) {
            sum.fetch_add(one, Ordering::Relaxed);
        }
        if let (Some(why), Ok(mut failed)) = (report.failure, failed.lock()) {
            failed.push((seed, why));
        }
    };
    std::thread::scope(|scope| (0..jobs.max(1)).for_each(|_| drop(scope.spawn(work))));
    let mut failed = failed.into_inner().unwrap_or_default();
    failed.sort();
    for (seed, why) in &failed {
        println!("seed {seed} of nodes FAILED: {why}");
        println!("  again: adverb-sim --nodes --seed {seed} --trace");
    }
    let ran = next.into_inner().min(end) - from;
    let rate = ran as f64 / begin.elapsed().as_secs_f64();
    let [hash, completions, events] = sums.map(AtomicU64::into_inner);
    println!(
        "{ran} seeds of nodes from {from}, {} failed, {rate:.0} seeds/s, {completions} completions, {events} events, trace hash {hash:016x}",
        failed.len()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
