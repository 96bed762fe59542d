//! An NDKPI connection: messages of the peer, calls of the consumer, and time, in any order.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
use adverb_ndk::fuzzing::{Connection, Step};
use std::time::Duration;

/// The first byte chooses the side; steps follow. Bytes beyond the end read as zero.
///
/// # Panics
/// If a rule of connections is broken.
pub fn run(data: &[u8]) {
    let mut bytes = data.iter().copied();
    let mut connection = Connection::new(bytes.next().is_some_and(|side| side & 1 != 0));
    while let Some(kind) = bytes.next() {
        let value = bytes.next().unwrap_or(0);
        connection.step(match kind % 4 {
            0 | 1 => Step::Message(value),
            2 => Step::Call(value),
            _ if value == 0 => Step::Lost,
            _ => Step::Pass(Duration::from_secs(u64::from(value) / 4)),
        });
    }
    connection.close();
}
