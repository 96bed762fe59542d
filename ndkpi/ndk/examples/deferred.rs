//! The example of NDKPI's documentation of deferred processing: a chain of two fast registrations
//! and a send. The second registration fails in line.
//!
//! `cargo run -p adverb-ndk --example deferred`
use adverb_ndk::device::{self, Mapping};
use adverb_ndk::{Adapter, Config, Mdl, NtStatus, OpFlags, QpSizes, RequestOutcome, joined};
use std::time::{Duration, Instant};

/// Takes the result of a creation. Creations are done in line, because the adapter is opened in
/// that mode.
fn now<T>(outcome: RequestOutcome<T>) -> Result<T, NtStatus> {
    outcome.done().ok_or(NtStatus::PENDING)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let loopback = device::device::loopback()?.ok_or("no loopback device")?;
    let adapter = Adapter::open(&loopback, Config::default())?;
    let cq = now(adapter.create_cq(16, |_| (), |_| ())?)?;
    let pd = now(adapter.create_pd(|_| ())?)?;
    let sizes = QpSizes { receive_queue_depth: 4, initiator_queue_depth: 4, ..QpSizes::default() };
    let qp = now(pd.create_qp(&cq, &cq, 0, sizes, |_| ())?)?;
    let peer = now(pd.create_qp(&cq, &cq, 0, sizes, |_| ())?)?;
    joined::join(&qp, &peer)?;

    let memory = Mapping::alloc(4 * 4096)?;
    let lam = now(adapter.build_lam(&Mdl::of(&memory), memory.len(), |_| ())?)?;
    let regions = [now(pd.create_mr(true, |_| ())?)?, now(pd.create_mr(true, |_| ())?)?];
    for mr in &regions {
        now(mr.initialize_fast_register(2, true, |_| ())?)?;
    }

    let flags = OpFlags::DEFER | OpFlags::ALLOW_REMOTE_READ;
    let first = qp.fast_register(1, &regions[0], &lam.pages[..2], 0, 8192, 0x1000, flags);
    println!(
        "FastRegister 1, deferred, 2 pages:          {}",
        first.err().unwrap_or(NtStatus::SUCCESS)
    );
    let second = qp.fast_register(2, &regions[1], &lam.pages[..3], 0, 12288, 0x1000, flags);
    println!(
        "FastRegister 2, deferred, 3 pages (2 fit):  {}",
        second.err().unwrap_or(NtStatus::SUCCESS)
    );
    println!("Send: not posted, because the request before it failed");

    let deadline = Instant::now() + Duration::from_millis(200);
    let mut completions = 0;
    while Instant::now() < deadline {
        for result in cq.drain(4) {
            completions += 1;
            println!(
                "completion of request {}: {:?}, {}",
                result.request_context, result.operation, result.status
            );
        }
    }
    println!(
        "{completions} completion(s): one for the request that was posted, none for the one that failed in line"
    );

    adapter.release_lam(&lam);
    for qp in [qp, peer] {
        now(qp.close(|| ())?)?;
    }
    for mr in regions {
        now(mr.close(|| ())?)?;
    }
    now(cq.close(|| ())?)?;
    now(pd.close(|| ())?)?;
    adapter.close()?;
    Ok(())
}
