//! Loopback throughput of the link: one thread sends, one receives; prints GB/s of payload.
//!
//! `cargo run --release -p adverb-link --example throughput -- [PAYLOAD] [SECONDS]`

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use adverb_link::{Config, LocalPorts, Route, RxBuffers, RxFrom, TxBatch, UdpLink};
use adverb_local::Local;
use adverb_local::SLOT_SHIFT;

/// The sender's bytes in flight: less than a receive buffer.
const WINDOW: u64 = 256 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>().expect("a number"));
    let payload = args.next().unwrap_or(4096);
    let seconds = args.next().unwrap_or(2);
    let link = |port, seed| -> Result<UdpLink, Box<dyn Error>> {
        let config = Config { port, local_ports: LocalPorts::Any, ..Config::default() };
        Ok(UdpLink::new(config, Local::new(seed)?))
    };
    let receiver = Arc::new(link(34791, 1)?);
    let sender = link(34792, 2)?;
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let at = receiver.add_address(ip, 0)?;
    let local = sender.add_address(ip, 0)?;
    let received = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let thread = {
        let (link, received, stop) = (receiver.clone(), received.clone(), stop.clone());
        std::thread::spawn(move || {
            let mut buffers = RxBuffers::new(8);
            let mut memory = vec![0u8; 1 << 20];
            let mut cursor = 0;
            while !stop.load(Relaxed) {
                let mut bytes = 0;
                let mut sink = adverb_link::each(|packet| {
                    // Place the payload, as a responder does.
                    let data = &packet.bytes[12..];
                    if cursor + data.len() > memory.len() {
                        cursor = 0;
                    }
                    memory[cursor..cursor + data.len()].copy_from_slice(data);
                    cursor += data.len();
                    bytes += data.len() as u64;
                });
                let result = link.recv(RxFrom::Addr(at), &mut buffers, 64, &mut sink);
                drop(sink);
                if result == 0 {
                    std::thread::yield_now();
                }
                received.fetch_add(bytes, Relaxed);
            }
        })
    };
    let qpn = u32::from(receiver.local().slots()[0]) << SLOT_SHIFT;
    let q = qpn.to_be_bytes();
    let bth = [4, 0, 0xff, 0xff, 0, q[1], q[2], q[3], 0, 0, 0, 0];
    let route = Route::new(local, SocketAddr::new(ip, receiver.port()));
    let source = vec![0x5a_u8; 1 << 20];
    let mut batch = TxBatch::default();
    let (mut sent, mut cursor) = (0, 0);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(seconds as u64) {
        for _ in 0..16 {
            if cursor + payload > source.len() {
                cursor = 0;
            }
            batch.push(&sender, &route, &bth, payload, 0, |to| {
                to.copy_from_slice(&source[cursor..cursor + payload]);
                true
            });
            cursor += payload;
            sent += payload as u64;
        }
        let waiting = Instant::now();
        while sent.saturating_sub(received.load(Relaxed)) > WINDOW {
            std::thread::yield_now();
            if waiting.elapsed() > Duration::from_millis(50) {
                // Packets were lost: stop waiting for them.
                sent = received.load(Relaxed);
            }
        }
    }
    batch.flush(&sender);
    let took = start.elapsed().as_secs_f64();
    stop.store(true, Relaxed);
    thread.join().expect("receiver");
    println!("{:.2} GB/s of {payload}-byte payloads", received.load(Relaxed) as f64 / took / 1e9);
    for (name, value) in
        sender.stats().named().into_iter().filter(|(name, _)| name.starts_with("tx"))
    {
        println!("{name:>22} {value}");
    }
    for (name, value) in
        receiver.stats().named().into_iter().filter(|(name, _)| name.starts_with("rx"))
    {
        println!("{name:>22} {value}");
    }
    Ok(())
}
