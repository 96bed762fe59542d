//! Connections between two processes. This process listens, and starts its own executable again as
//! the initiator.
mod common;
mod connect_common;
use adverb_ndk::{NtStatus, OpFlags, Sge};
use common::{NONE, QpEnd, closed, eventually, short, wait};
use connect_common::*;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// The role of the other process, and the address at which this process listens.
const ROLE: &str = "ADVERB_TEST_ROLE";
const ADDRESS: &str = "ADVERB_TEST_ADDRESS";
const PIECES: u64 = 32;
const PIECE: u32 = 1024;

/// The other process. It ends with the test.
struct Other(Child);

impl Other {
    fn start(role: &str, listening: &Listening) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_other_process", "--ignored", "--nocapture"])
            .env(ROLE, role)
            .env(ADDRESS, listening.address.to_string())
            .stdout(Stdio::null())
            .spawn();
        Other(child.unwrap())
    }

    fn succeeds(&mut self) {
        let deadline = Instant::now() + common::DEADLINE;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            assert!(Instant::now() < deadline, "the other process goes on");
            std::thread::sleep(common::GRACE);
        }
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test by itself: the initiator in the other tests.
#[test]
#[ignore = "run by the tests of this file"]
fn the_other_process() {
    let (Ok(role), Ok(address)) = (std::env::var(ROLE), std::env::var(ADDRESS)) else { return };
    let a = QpEnd::new();
    a.receive(1);
    let (active, called) = call(&a, address.parse().unwrap());
    if role == "refused" {
        assert_eq!(called.result(), Err(NtStatus::CONNECTION_REFUSED));
        assert_eq!(active.get_connection_data(), Ok(said(reads(0, 0), b"no", REFUSAL)));
        return closed(|c| active.close(c));
    }
    called.result().unwrap();
    assert_eq!(active.get_connection_data(), Ok(said(reads(16, 4), b"answer", ANSWER)));
    let (on_disconnect, left) = event();
    wait(|c| active.complete_connect(on_disconnect, c)).unwrap();
    if role == "exchange" {
        exchange(&a);
    } else {
        // Waits until the peer leaves or this process is killed.
        told(&left);
    }
    wait(|c| active.disconnect(c)).unwrap();
    closed(|c| active.close(c));
}

/// Gets the address and token of the peer's memory from the peer's message. Writes a chain to this
/// memory, reads the memory back, and reports that the exchange is done.
fn exchange(a: &QpEnd) {
    assert_eq!(short(&a.results(1)), [(1, NtStatus::SUCCESS)]);
    let message = a.read(0, 12);
    let remote = u64::from_be_bytes(message[..8].try_into().unwrap());
    let token = u32::from_be_bytes(message[8..].try_into().unwrap());
    let total = PIECES as u32 * PIECE;
    a.write(0, &pattern());
    let node = a.adapter.context().node();
    let before = node.stats();
    for i in 0..PIECES {
        let offset = i * u64::from(PIECE);
        let flags = if i + 1 < PIECES { OpFlags::DEFER } else { NONE };
        a.qp.write(i, &[a.sge(offset, PIECE)], remote + offset, token, flags).unwrap();
    }
    let after = node.stats();
    assert_eq!((after.commits - before.commits, after.committed - before.committed), (1, PIECES));
    let done: Vec<_> = (0..PIECES).map(|i| (i, NtStatus::SUCCESS)).collect();
    assert_eq!(short(&a.results(PIECES as usize)), done);
    // Each request fits a packet. Every other packet took at most one call.
    let end = node.stats();
    let (packets, calls) =
        (end.packets_sent - before.packets_sent, end.send_calls - before.send_calls);
    // Between processes of one host there are no packets.
    assert!(calls <= 2 + packets.saturating_sub(PIECES), "{packets} packets, {calls} calls");
    a.qp.read(40, &[a.sge(u64::from(total), total)], remote, token, NONE).unwrap();
    a.qp.send(41, &[Sge::Bytes(b"done")], OpFlags::INLINE | OpFlags::READ_FENCE).unwrap();
    assert_eq!(short(&a.results(2)), [(40, NtStatus::SUCCESS), (41, NtStatus::SUCCESS)]);
    assert_eq!(a.read(total as usize, total as usize), pattern());
}

fn pattern() -> Vec<u8> {
    (0..PIECES as u32 * PIECE).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// Accepts the connect of the other process. Returns the connector, and the receiver of its
/// disconnect event.
fn accept(
    b: &QpEnd,
    listening: &Listening,
) -> (
    adverb_ndk::connect::Connector,
    std::sync::mpsc::Receiver<adverb_ndk::connect::DisconnectReason>,
) {
    let passive = listening.next();
    assert_eq!(passive.get_connection_data(), Ok(said(reads(8, 16), b"call", CALL)));
    let (on_disconnect, left) = event();
    let accepted =
        Pending::start(|c| passive.accept(&b.qp, reads(4, 100), b"answer", on_disconnect, c))
            .unwrap();
    accepted.result().unwrap();
    (passive, left)
}

#[test]
fn def_8_ndk_7_processes_exchange_data() {
    let b = QpEnd::new();
    let listening = Listening::new(&b);
    let mut other = Other::start("exchange", &listening);
    let at = 1 << 16;
    b.qp.receive(1, &[b.sge(0, 64)]).unwrap();
    let (passive, left) = accept(&b, &listening);
    let (remote, token) = b.remote(at);
    let message = [&remote.to_be_bytes()[..], &token.to_be_bytes()[..]].concat();
    b.qp.send(2, &[Sge::Bytes(&message)], OpFlags::INLINE).unwrap();
    assert_eq!(short(&b.results(1)), [(2, NtStatus::SUCCESS)]);
    assert_eq!(short(&b.results(1)), [(1, NtStatus::SUCCESS)]);
    assert_eq!(b.read(0, 4), b"done");
    assert_eq!(b.read(at as usize, (PIECES as u32 * PIECE) as usize), pattern());
    // The other side leaves when its requests have completed.
    told(&left);
    wait(|c| passive.disconnect(c)).unwrap();
    other.succeeds();
    closed(|c| passive.close(c));
    listening.close();
}

#[test]
fn ndk_7_a_killed_peer_is_a_disconnect() {
    let b = QpEnd::new();
    let listening = Listening::new(&b);
    let mut other = Other::start("wait", &listening);
    b.receive(1);
    let (passive, left) = accept(&b, &listening);
    other.kill();
    told(&left);
    assert_eq!(short(&b.results(1)), [(1, NtStatus::CANCELLED)]);
    wait(|c| passive.disconnect(c)).unwrap();
    closed(|c| passive.close(c));
    listening.close();
}

#[test]
fn ndk_7_a_peer_killed_while_it_is_asked_for_an_answer() {
    let b = QpEnd::new();
    let listening = Listening::new(&b);
    let mut other = Other::start("wait", &listening);
    let passive = listening.next();
    other.kill();
    eventually("the request is abandoned", || {
        let result = wait(|c| passive.complete_connect(None, c));
        result == Err(NtStatus::CONNECTION_ABORTED)
    });
    let accepted = wait(|c| passive.accept(&b.qp, reads(1, 1), b"", None, c));
    assert_eq!(accepted, Err(NtStatus::CONNECTION_ABORTED));
    closed(|c| passive.close(c));
    listening.close();
}

#[test]
fn ndk_7_a_process_is_rejected() {
    let b = QpEnd::new();
    let listening = Listening::new(&b);
    let mut other = Other::start("refused", &listening);
    let passive = listening.next();
    passive.reject(b"no").unwrap();
    other.succeeds();
    closed(|c| passive.close(c));
    listening.close();
}

/// Endpoints are exclusive across processes. The other process holds its address until it closes
/// the connector.
#[test]
fn ndk_7_an_address_in_another_process_is_taken() {
    let b = QpEnd::new();
    let listening = Listening::new(&b);
    let mut other = Other::start("wait", &listening);
    let (passive, _left) = accept(&b, &listening);
    let taken = passive.get_peer_address().unwrap();
    let result = wait(|c| b.adapter.create_shared_endpoint(taken, c));
    assert_eq!(result.err(), Some(NtStatus::SHARING_VIOLATION));
    wait(|c| passive.disconnect(c)).unwrap();
    other.succeeds();
    // The address is free again, unless another program on this machine has just chosen that port.
    eventually("the address is free", || {
        let endpoint = wait(|c| b.adapter.create_shared_endpoint(taken, c));
        endpoint.map(|endpoint| closed(|c| endpoint.close(c))).is_ok()
    });
    closed(|c| passive.close(c));
    listening.close();
}
