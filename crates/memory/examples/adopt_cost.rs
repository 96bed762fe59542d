//! What it costs to share a program's memory and to give it back, and what a window costs to use. Medians.
//!
//! `cargo run --release -p adverb-memory --example adopt_cost`

use adverb_memory::{Adopted, PeerMemory, Shadow, Window};
use std::hint::black_box;
use std::time::Instant;

const PAGE: usize = 4096;
const LARGE: usize = 256 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shadow = Shadow::of_process()?;
    // This program calls no `madvise` on what it registers.
    shadow.trust_allocators(true);
    println!("{:44} {:>12} {:>12}", "", "adopt", "give back");
    small(shadow)?;
    large(shadow, false)?;
    large(shadow, true)?;
    beside_a_thread(shadow)?;
    windows(shadow)?;
    Ok(())
}

fn memory(len: usize, huge: bool) -> &'static mut [u8] {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory for this process's life; advice that changes no contents.
    let memory = unsafe {
        let at = libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        if huge {
            libc::madvise(at, len, libc::MADV_HUGEPAGE);
        }
        std::slice::from_raw_parts_mut(at.cast::<u8>(), len)
    };
    memory.fill(1);
    memory
}

fn adopt(shadow: &'static Shadow, memory: &[u8]) -> Result<Adopted, adverb_memory::Refusal> {
    shadow.adopt(memory.as_ptr() as u64, memory.len() as u64)
}

/// Seconds of adopting and of giving back.
fn once(shadow: &'static Shadow, memory: &[u8]) -> Result<(f64, f64), adverb_memory::Refusal> {
    let begin = Instant::now();
    let adopted = adopt(shadow, memory)?;
    let there = Instant::now();
    drop(adopted);
    Ok(((there - begin).as_secs_f64(), there.elapsed().as_secs_f64()))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn small(shadow: &'static Shadow) -> Result<(), adverb_memory::Refusal> {
    let memory = memory(PAGE, false);
    let times: Vec<_> = (0..2000).map(|_| once(shadow, memory)).collect::<Result<_, _>>()?;
    let (there, back) = (median(times.iter().map(|t| t.0)), median(times.iter().map(|t| t.1)));
    println!("{:44} {:>9.1} µs {:>9.1} µs", "4 KiB", there * 1e6, back * 1e6);
    let _adopted = adopt(shadow, memory)?;
    let times: Vec<_> = (0..2000).map(|_| once(shadow, memory)).collect::<Result<_, _>>()?;
    let (there, back) = (median(times.iter().map(|t| t.0)), median(times.iter().map(|t| t.1)));
    println!("{:44} {:>9.1} µs {:>9.1} µs", "4 KiB, adopted already", there * 1e6, back * 1e6);
    Ok(())
}

fn large(shadow: &'static Shadow, huge: bool) -> Result<(), adverb_memory::Refusal> {
    let memory = memory(LARGE, huge);
    let times: Vec<_> = (0..5).map(|_| once(shadow, memory)).collect::<Result<_, _>>()?;
    // What was given back is of huge pages no more.
    let (there, back) =
        if huge { times[0] } else { (median(times.iter().map(|t| t.0)), median(times.iter().map(|t| t.1))) };
    let rate = |seconds: f64| LARGE as f64 / seconds / 1e9;
    let name = if huge { "256 MiB of transparent huge pages, once" } else { "256 MiB" };
    println!("{name:44} {:>7.2} GB/s {:>7.2} GB/s", rate(there), rate(back));
    Ok(())
}

/// Pages do not go back while other threads live, so each round takes new ones.
fn beside_a_thread(shadow: &'static Shadow) -> Result<(), adverb_memory::Refusal> {
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || wait.recv().is_err());
    let pages = memory(500 * PAGE, false);
    let mut times = Vec::new();
    for page in pages.chunks(PAGE) {
        match once(shadow, page) {
            Ok((there, _)) => times.push(there),
            Err(refusal) => {
                println!("{:44} {refusal}", "beside another thread");
                return Ok(());
            }
        }
    }
    println!("{:44} {:>9.1} µs", "4 KiB, beside another thread", median(times.into_iter()) * 1e6);
    let (there, _) = once(shadow, memory(LARGE, false))?;
    println!("{:44} {:>7.2} GB/s", "256 MiB, beside another thread", LARGE as f64 / there / 1e9);
    drop(end);
    let _ = thread.join();
    shadow.sweep();
    Ok(())
}

/// Another process's window: this one's child is the peer.
fn windows(shadow: &'static Shadow) -> Result<(), Box<dyn std::error::Error>> {
    const ROOM: usize = 16 << 20;
    let shared = memory(ROOM, false);
    let file = shadow.fd().try_clone_to_owned()?;
    let _adopted = adopt(shadow, shared)?;
    println!("\n{:>10} {:>14} {:>14} {:>14}", "bytes", "window", "memcpy", "rep movsb");
    // SAFETY: the child measures and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let peer = PeerMemory::new(file)?;
        let window = peer.window(shared.as_ptr() as u64, ROOM as u64)?;
        [8, 64, 256, 4096, 65_536, 1 << 20, 8 << 20].into_iter().for_each(|len| line(&window, len));
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: a child of ours.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    Ok(())
}

fn line(window: &Window, len: usize) {
    let from = memory(len.max(PAGE), false);
    let to = memory(len.max(PAGE), false);
    let ways: [&mut dyn FnMut(); 3] = [
        &mut || window.write(0, black_box(&from[..len])).expect("in bounds"),
        &mut || black_box(&mut to[..len]).copy_from_slice(black_box(&from[..len])),
        &mut || by_string(window, black_box(&from[..len])),
    ];
    let shown = ways.map(|way| {
        let times = (1 << 24) / len.clamp(256, 1 << 20);
        let seconds = median((0..7).map(|_| {
            let begin = Instant::now();
            (0..times).for_each(|_| way());
            begin.elapsed().as_secs_f64() / times as f64
        }));
        if len < PAGE {
            format!("{:.1} ns", seconds * 1e9)
        } else {
            format!("{:.1} GB/s", len as f64 / seconds / 1e9)
        }
    });
    println!("{len:>10} {:>14} {:>14} {:>14}", shown[0], shown[1], shown[2]);
}

#[cfg(target_arch = "x86_64")]
fn by_string(_: &Window, from: &[u8]) {
    thread_local!(static TO: *mut u8 = memory(16 << 20, false).as_mut_ptr());
    // SAFETY: the room is as large as the largest copy.
    TO.with(|to| unsafe {
        std::arch::asm!("rep movsb", inout("rdi") *to => _, inout("rsi") from.as_ptr() => _, inout("rcx") from.len() => _);
    });
}

#[cfg(not(target_arch = "x86_64"))]
fn by_string(_: &Window, _: &[u8]) {}
