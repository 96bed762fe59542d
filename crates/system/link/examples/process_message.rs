//! Measures the cost of a message over the connection between the processes of two links: to and
//! fro, and in one direction.
//!
//! `cargo run --release -p adverb-link --example process_message -- [ROUNDS]`

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use adverb_link::{Config, Route, RxBuffers, RxFrom, UdpLink};
use adverb_local::Local;
use adverb_local::{DELIVERY, Delivery, SLOT_SHIFT, Slot, add_packet};

const IP: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const TURNS: u32 = 100_000;
const STREAM: usize = 200_000;

struct Side {
    link: UdpLink,
    route: Route,
    buffers: RxBuffers,
}

impl Side {
    fn new(port: u16) -> Side {
        let user = Local::new(u64::from(port)).expect("a slot");
        let link = UdpLink::new(Config { port, ..Config::default() }, user);
        let local = link.add_address(IP, 0).expect("an address");
        Side {
            route: Route::new(local, SocketAddr::new(IP, port)),
            link,
            buffers: RxBuffers::new(1),
        }
    }

    fn message(to: Slot, packets: usize, len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let qpn = (u32::from(to) << SLOT_SHIFT).to_be_bytes();
        for _ in 0..packets {
            let bth = [4, 0, 0xff, 0xff, 0, qpn[1], qpn[2], qpn[3], 0, 0, 0, 0];
            add_packet(&mut out, &bth, len, 0, |_| true);
        }
        assert!(out.len() <= DELIVERY, "too long");
        out
    }

    fn send(&self, to: Slot, message: &[u8]) {
        loop {
            match self.link.deliver(to, &self.route, message) {
                Delivery::Done => return,
                Delivery::Full => std::thread::yield_now(),
                Delivery::NoOwner => panic!("nobody there"),
            }
        }
    }

    fn take(&mut self) -> usize {
        self.link.recv(RxFrom::Processes, &mut self.buffers, 64, &mut |_| {})
    }
}

/// Microseconds for a message to and fro.
fn turns(a: &mut Side, b: &mut Side) -> f64 {
    let (to_a, to_b) = (a.link.local().slots()[0], b.link.local().slots()[0]);
    let (ping, pong) = (Side::message(to_b, 1, 64), Side::message(to_a, 1, 64));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                (0..b.take()).for_each(|_| b.send(to_a, &pong));
            }
        });
        let start = Instant::now();
        for _ in 0..TURNS {
            a.send(to_b, &ping);
            while a.take() == 0 {}
        }
        let time = start.elapsed();
        stop.store(true, Relaxed);
        time.as_secs_f64() * 1e6 / f64::from(TURNS)
    })
}

/// The time for a message in one direction.
fn stream(a: &mut Side, b: &mut Side, packets: usize, len: usize) -> Duration {
    let to = b.link.local().slots()[0];
    let message = Side::message(to, packets, len);
    let count = (STREAM / packets).min((4 << 30) / message.len());
    std::thread::scope(|scope| {
        let start = Instant::now();
        scope.spawn(|| (0..count).for_each(|_| a.send(to, &message)));
        let mut got = 0;
        while got < count * packets {
            got += b.take();
        }
        start.elapsed() / count as u32
    })
}

fn main() {
    let rounds = std::env::args().nth(1).map_or(5, |n| n.parse().expect("a number of rounds"));
    let (mut a, mut b) = (Side::new(34_801), Side::new(34_802));
    for _ in 0..rounds {
        let (to_and_fro, one) = (turns(&mut a, &mut b), stream(&mut a, &mut b, 1, 64));
        let (many, long) = (stream(&mut a, &mut b, 50, 64), stream(&mut a, &mut b, 14, 4096));
        println!(
            "to and fro {to_and_fro:.2} us; a packet of 64 bytes {one:?}; fifty {many:?}; fourteen of 4096 {long:?}"
        );
    }
}
