//! An NDKPI connection: messages of the peer, calls of the consumer, and time, in any order.
use crate::input::Input;
use adverb_ndk::fuzzing::{Connection, Step};
use std::time::Duration;

/// The first byte chooses the side; steps follow.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut connection = Connection::new(input.flag());
    while !input.is_empty() {
        let step = match input.below(4) {
            0 | 1 => Step::Message(input.u8()),
            2 => Step::Call(input.u8()),
            _ => match input.u8() {
                0 => Step::Lost,
                s => Step::Pass(Duration::from_secs(u64::from(s) / 4)),
            },
        };
        connection.step(step);
    }
    connection.close();
}
