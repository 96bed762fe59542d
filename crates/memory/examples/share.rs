//! Two processes and a buffer: one adopts it, the other writes to it and counts in it, by itself.
//!
//! `cargo run -p adverb-memory --example share`

use adverb_engine::AtomicOp;
use adverb_memory::{Cma, PeerMemory, Shadow};
use std::error::Error;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    match &args[1..] {
        [addr, len] => peer(addr.parse()?, len.parse()?),
        _ => owner(),
    }
}

fn owner() -> Result<(), Box<dyn Error>> {
    let shadow = Shadow::of_process()?;
    // `adverb run` would see to it that pages given up by `madvise` are zero; this program gives none up.
    shadow.trust_allocators(true);
    let buffer = vec![0_u8; 10_000];
    let (addr, len) = (buffer.as_ptr() as u64, buffer.len() as u64);
    let adopted = match shadow.adopt(addr, len) {
        Ok(adopted) => adopted,
        Err(refusal) => {
            // Then peers reach it in other ways, and it stays where it is.
            let _bar = shadow.bar(addr, len);
            println!("not shared: {refusal}");
            return Ok(());
        }
    };
    // The peer gets the file as its standard input; the device passes it over a Unix socket.
    let status = Command::new(std::env::current_exe()?)
        .args([addr.to_string(), len.to_string()])
        .stdin(Stdio::from(shadow.fd().try_clone_to_owned()?))
        .status()?;
    // Peers write by themselves: the program looks as at memory that others change.
    // SAFETY: bytes of the buffer.
    let seen = |at: usize| unsafe { buffer.as_ptr().add(at).read_volatile() };
    let text: Vec<u8> = (5000..5006).map(seen).collect();
    println!("the peer ended with {status} and left {:?} and {}", String::from_utf8_lossy(&text), seen(0));
    drop(adopted);
    println!("given back: {:?}", shadow.stats());
    Ok(())
}

fn peer(addr: u64, len: u64) -> Result<(), Box<dyn Error>> {
    let memory = PeerMemory::new(std::io::stdin().as_fd().try_clone_to_owned()?)?;
    let window = memory.window(addr, len)?;
    window.write(5000, b"direct")?;
    // The owner's `Vec` may begin at any multiple of sixteen, and so does the window.
    window.atomic(0, AtomicOp::FetchAdd { add: 41 })?;
    window.atomic(0, AtomicOp::FetchAdd { add: 1 })?;
    // What is not shared goes through the kernel, where that is allowed.
    let parent = std::os::unix::process::parent_id();
    println!("through the kernel: {:?}", Cma::new(parent).allowed(addr));
    Ok(())
}
