//! MADs of queue pair 1 with several processes on one port.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use adverb_cm::Message;
use adverb_cm::mad::{Drep, Dreq, Rej, Rep, Rtu};
use adverb_link::{Config, Route, TxBatch, UdpLink};
use adverb_local::{MAD_QPN, SLOT_BITS, Slot};
use common::*;

/// Sends a MAD as received by queue pair 1: BTH, DETH, MAD. Each MAD is sent alone, as by a device.
fn send_mad(link: &UdpLink, route: &Route, message: &Message) {
    let mut headers = bth(MAD_QPN, 0).to_vec();
    headers[0] = 0x64;
    headers.extend([0x80, 1, 0, 0, 0, 0, 0, 1]);
    let mad = message.emit(5);
    let mut batch = TxBatch::default();
    batch.push(link, route, &headers, mad.len(), 0, |bytes| {
        bytes.copy_from_slice(&mad);
        true
    });
    batch.flush(link);
}

/// The MADs for connections of the process with this slot.
fn answers(slot: Slot, n: u32) -> [Message; 5] {
    let remote_id = u32::from(slot) << (32 - SLOT_BITS) | n;
    [
        Rep { remote_id, ..Rep::default() }.into(),
        Rtu { remote_id, ..Rtu::default() }.into(),
        Rej { remote_id, ..Rej::default() }.into(),
        Dreq { remote_id, ..Dreq::default() }.into(),
        Drep { remote_id, ..Drep::default() }.into(),
    ]
}

/// RCM-12: with four processes and three peers, each reply reaches the right process directly.
#[test]
fn rcm_12_answers_come_to_the_process_that_asked() {
    let port = port();
    let nodes: Vec<_> = (0..4).map(|_| Member::at(config(port), V4).0).collect();
    let peers: Vec<_> = (2..5)
        .map(|n| {
            let link = open(Config { steer: false, ..config(port) });
            let local = link.add_address(format!("127.0.0.{n}").parse().unwrap(), 0).unwrap();
            (link, Route::new(local, SocketAddr::new(V4, port)))
        })
        .collect();
    let each = 5 * peers.len() * 20;
    let mut wrong = 0;
    // The last joined member has measured the group. On a loaded machine a member may have answered
    // late, so try again.
    for _ in 0..20 {
        for node in &nodes {
            node.got.lock().unwrap().clear();
        }
        for n in 0..20 {
            for (link, route) in &peers {
                for message in nodes.iter().flat_map(|node| answers(node.slot(), n)) {
                    send_mad(link, route, &message);
                }
            }
        }
        let all = || nodes.iter().map(Member::count).sum::<usize>();
        assert!(wait(|| all() == each * nodes.len()), "{} of {}", all(), each * nodes.len());
        let is_wrong = |node: &Member, bytes: &[u8]| {
            let id = u32::from_be_bytes(bytes[48..52].try_into().unwrap());
            id >> (32 - SLOT_BITS) != u32::from(node.slot())
        };
        wrong = nodes
            .iter()
            .map(|node| {
                node.got.lock().unwrap().iter().filter(|got| is_wrong(node, &got.bytes)).count()
            })
            .sum();
        if wrong == 0 {
            return;
        }
        // Misdirected packets make a process measure again.
        for (link, route) in &peers {
            for node in &nodes {
                let mut batch = TxBatch::default();
                push(&mut batch, link, route, qpn(node.slot(), 1), 0, 8);
                batch.flush(link);
            }
        }
        let sent = (each + peers.len()) * nodes.len();
        assert!(wait(|| all() == sent), "{} of {sent}", all());
        std::thread::sleep(Duration::from_millis(150));
    }
    panic!("{wrong} of {} came to a wrong process", each * nodes.len());
}
