//! The bytes of the stream. Each eight bytes depend on their place alone, and nearby places have
//! different bytes. So lost, doubled, late or misplaced bytes show.

use adverb_torture::Dice;

/// The eight bytes at word `n` of the stream.
fn word(n: u64) -> [u8; 8] {
    Dice(n).next_u64().to_le_bytes()
}

/// Writes the bytes of the stream from `at` on; `at` is a multiple of eight.
pub(crate) fn fill(at: u64, bytes: &mut [u8]) {
    for (n, chunk) in (at / 8..).zip(bytes.chunks_exact_mut(8)) {
        chunk.copy_from_slice(&word(n));
    }
}

/// The first wrong byte for the given place.
pub(crate) fn first_wrong(at: u64, bytes: &[u8]) -> Option<u64> {
    let wrong = (at / 8..).zip(bytes.chunks_exact(8)).find(|(n, chunk)| **chunk != word(*n));
    wrong.map(|(n, _)| n * 8)
}

#[test]
fn every_wrong_byte_is_found() {
    let mut bytes = [0; 4096];
    fill(1 << 20, &mut bytes);
    assert_eq!(first_wrong(1 << 20, &bytes), None);
    for at in 0..bytes.len() {
        bytes[at] ^= 1;
        assert_eq!(first_wrong(1 << 20, &bytes), Some((1 << 20) + (at as u64 & !7)));
        bytes[at] ^= 1;
    }
    assert_eq!(first_wrong(0, &bytes), Some(0), "from another place");
}
