//! Adopting, and giving back.
use crate::world::*;

cases![adopts_and_gives_back];

fn adopts_and_gives_back() {
    let memory = pages(3);
    memory.iter_mut().enumerate().for_each(|(n, byte)| *byte = n as u8);
    let before = memory.to_vec();
    let adopted = adopt(&memory[100..2 * PAGE + 1]).unwrap();
    assert_eq!(adopted.end() - adopted.start(), 3 * PAGE as u64);
    assert_eq!(memory, before);
    assert_eq!(in_file(addr(memory), memory.len()), before);
    memory[5] = 77;
    assert_eq!(in_file(addr(memory) + 5, 1), [77]);
    assert_eq!(file_size(), 3 * PAGE as u64);
    drop(adopted);
    assert_eq!(file_size(), 0);
    assert_eq!(memory[5], 77);
    assert_eq!(memory[6..], before[6..]);
}
