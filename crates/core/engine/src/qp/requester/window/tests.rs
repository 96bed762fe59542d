//! The window alone, in virtual time.
use super::doubt::PATIENCE;
use super::*;

const MTU: u64 = 4096;
const MAX: u32 = 16 << 20;

/// A path with a round trip and a rate, always filled by the window.
struct Line {
    window: Window,
    now: u64,
    una: u64,
    /// Nanoseconds of a round trip without a queue, and bytes that fit on the line.
    round_trip: u64,
    room: u64,
}

impl Line {
    fn new(round_trip: u64, room: u64) -> Line {
        Line { window: Window::new(MAX), now: 1, una: 1 << 24, round_trip, room }
    }

    /// The next round trip: each packet is acknowledged, and 16 round trips are measured.
    fn round(&mut self) {
        let packets = self.window.packets(MTU).max(1);
        let in_flight = self.window.size;
        let took = self.round_trip * in_flight.max(self.room) / self.room;
        let (end, acked) = (self.una + packets, MTU + OVERHEAD);
        for n in 0..packets {
            self.una += 1;
            self.now += took / packets;
            let now = Time(self.now);
            let p = Progress {
                acked,
                in_flight,
                mtu: MTU,
                una: self.una,
                high: end,
                now,
                beyond: false,
            };
            if n % packets.div_ceil(16) == 0 {
                self.window.measured(took, &p);
            }
            self.window.progress(&p);
        }
    }

    fn rounds(&mut self, n: usize) -> u64 {
        (0..n).for_each(|_| self.round());
        self.window.size
    }
}

/// A long line gets a long window, and the queue stays short.
#[test]
fn the_window_follows_the_line() {
    let mut line = Line::new(2_000_000, 3 << 20);
    assert!(line.rounds(40) >= 3 << 20);
    for _ in 0..200 {
        line.round();
        assert!((2 << 20..5 << 20).contains(&line.window.size), "{}", line.window.size);
    }
}

/// Where the round trip grows with the window, the packets lie in a queue.
#[test]
fn a_queue_is_no_evidence() {
    let mut line = Line::new(10_000, 20_000);
    for _ in 0..500 {
        line.round();
        assert!(line.window.size <= BUFFER + BUFFER / 2, "{}", line.window.size);
    }
}

/// A round trip that a sleeping peer made long is not taken for the line's.
#[test]
fn one_slow_answer_is_no_evidence() {
    let mut line = Line::new(10_000, 20_000);
    line.rounds(3);
    let (una, now) = (line.una, Time(line.now));
    let p = Progress { acked: 0, in_flight: BUFFER, mtu: MTU, una, high: una, now, beyond: false };
    line.window = Window { size: BUFFER, ..Window::new(MAX) };
    line.window.measured(5_000_000, &p);
    assert!(line.rounds(500) <= BUFFER + BUFFER / 2, "{}", line.window.size);
}

/// A window that is not used does not grow above the buffer of a socket.
#[test]
fn an_idle_window_does_not_grow() {
    let mut line = Line::new(2_000_000, 3 << 20);
    line.window.size = BUFFER;
    for _ in 0..1000 {
        line.una += 1;
        let (una, now) = (line.una, Time(line.now));
        let p =
            Progress { acked: 5000, in_flight: 5000, mtu: MTU, una, high: una, now, beyond: false };
        line.window.measured(2_000_000, &p);
        line.window.progress(&p);
    }
    assert_eq!(line.window.size, BUFFER);
}

/// After a loss the window stays at the buffer of a socket for a while, and then grows again.
#[test]
fn a_loss_makes_wary() {
    let mut line = Line::new(2_000_000, 3 << 20);
    line.rounds(40);
    for _ in 0..6 {
        let high = line.una;
        line.window.lost(MTU, line.una, high);
    }
    assert_eq!(line.window.doubt.wary, PATIENCE);
    while line.window.size > BUFFER {
        line.una += 1;
        line.window.lost(MTU, line.una, line.una);
    }
    line.window.doubt.wary = PATIENCE;
    let small = line.rounds(5);
    assert!(small <= BUFFER, "{small}");
    assert!(line.rounds(200) > BUFFER);
}

/// The bound is kept, and a large window does not leave in one burst.
#[test]
fn bounds_hold() {
    let mut line = Line::new(2_000_000, 1 << 30);
    for _ in 0..100 {
        line.round();
        assert!(line.window.size <= u64::from(MAX));
    }
    line.window.release(0, 0, None);
    assert!(line.window.admits(0, 5000) && !line.window.admits(BUFFER, 5000));
}

/// What one acknowledgement may not release leaves later, without another acknowledgement.
#[test]
fn a_long_acknowledgement_is_released_in_pieces() {
    let mut line = Line::new(2_000_000, 3 << 20);
    assert!(line.rounds(40) >= 3 << 20);
    let now = Time(line.now);
    line.window.release(0, 2 << 20, Some(now));
    let mut sent = BUFFER;
    assert!(line.window.admits(sent - 5000, 5000) && !line.window.admits(sent, 5000));
    let mut last = now;
    while let Some(due) = line.window.more_due() {
        assert!(due > last && !line.window.admits(sent, 5000));
        line.window.release_more(sent, MTU, last);
        assert_eq!(line.window.more_due(), Some(due), "too early");
        line.window.release_more(sent, MTU, due);
        assert!(line.window.admits(sent, 5000));
        (sent, last) = ((sent + BUFFER).min(line.window.size), due);
    }
    assert!(sent + BUFFER >= line.window.size && last.since(now) <= Duration::from_millis(2));
    // A sender with nothing to send needs no timer.
    line.window.release(0, 2 << 20, Some(now));
    line.window.release_more(0, MTU, now + Duration::from_millis(9));
    assert_eq!(line.window.more_due(), None);
}

/// After a loss ACKs come more often until the window may grow again.
#[test]
fn a_loss_makes_bursts_short() {
    let mut line = Line::new(2_000_000, 3 << 20);
    line.rounds(40);
    assert_eq!(line.window.ack_every, ACK_REQ_EVERY as u32);
    line.window.lost(MTU, line.una, line.una);
    assert_eq!(line.window.ack_every, AFTER_LOSS as u32);
    while line.window.is_wary() {
        line.round();
    }
    assert_eq!(line.window.ack_every, ACK_REQ_EVERY as u32);
}
