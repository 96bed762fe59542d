//! Descriptors of any kind in place of a ring, of tables or of a peer's pages, changed after they
//! were checked (TRU-3).
use super::descriptor::{PAGES, RING, Sent, TABLES, sent};
use crate::input::Input;
use adverb_memory::PeerMemory;
use adverb_shm::{PeerTables, Producer};
use nix::fcntl::{FallocateFlags, SealFlag, fallocate};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Bytes read from a peer's pages.
const LOOK: usize = 64;

/// Changes an accepted file, as far as the seals permit.
fn change(file: &File, size: u64, input: &mut Input<'_>) {
    for _ in 0..=input.below(3) {
        // With the right seals each change fails, or does no harm.
        match input.below(5) {
            0 => drop(file.set_len(0)),
            1 => drop(file.set_len(size.saturating_add(4096))),
            2 => {
                let whole =
                    FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
                let _ = fallocate(file, whole, 0, size.cast_signed().max(1));
            }
            3 => drop(file.write_at(input.take(16), u64::from(input.u16()))),
            _ => drop(file.set_len(u64::from(input.u16()))),
        }
    }
}

fn for_good() -> SealFlag {
    SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL
}

/// Checks an accepted descriptor for a fixed size.
fn was_right(sent: &Sent, size: u64) {
    assert_eq!(sent.memory, Some(size), "{sent:?}");
    assert!(sent.seals.contains(for_good()), "{sent:?}");
}

/// A second descriptor, which the peer keeps.
fn kept(sent: &Sent) -> (OwnedFd, File) {
    let (ours, theirs) = (sent.fd.try_clone(), sent.fd.try_clone());
    (ours.expect("a descriptor"), theirs.expect("a descriptor").into())
}

fn as_ring(sent: &Sent, input: &mut Input<'_>) {
    let (ours, theirs) = kept(sent);
    match Producer::open(ours) {
        Ok(mut producer) => {
            was_right(sent, RING);
            change(&theirs, RING, input);
            for _ in 0..4 {
                let len = usize::from(input.u16());
                let _ = producer.push(1, len, |body| {
                    body.fill(7);
                    true
                });
            }
            let position = producer.position();
            let _ = producer.is_read() | producer.has_read(position);
        }
        Err(why) => assert!(!why.to_string().is_empty()),
    }
}

fn as_tables(sent: &Sent, input: &mut Input<'_>) {
    let (ours, theirs) = kept(sent);
    match PeerTables::open(ours) {
        Ok(peer) => {
            was_right(sent, TABLES);
            assert!(sent.seals.contains(SealFlag::F_SEAL_FUTURE_WRITE), "{sent:?}");
            change(&theirs, TABLES, input);
            for _ in 0..8 {
                let _ = (peer.key(input.u32()), peer.qp(input.u32()), peer.sleeping());
            }
            peer.wait_quiet(Duration::ZERO, || false);
        }
        Err(why) => assert!(!why.to_string().is_empty()),
    }
}

fn as_pages(sent: &Sent, input: &mut Input<'_>) {
    let (ours, theirs) = kept(sent);
    match PeerMemory::new(ours) {
        Ok(memory) => {
            was_right(sent, PAGES);
            change(&theirs, PAGES, input);
            for _ in 0..4 {
                let near = input.pick(&[0, 4096, PAGES - 4096, PAGES - 1, PAGES, u64::MAX]);
                let addr = near.wrapping_add(u64::from(input.u8()));
                let len = input.pick(&[0, 1, LOOK as u64, 1 << 20, PAGES, u64::MAX]);
                let Ok(window) = memory.window(addr, len) else { continue };
                assert!(
                    len > 0 && addr.checked_add(len).is_some_and(|end| end <= PAGES),
                    "{addr:#x} {len}"
                );
                assert_eq!(window.len(), len);
                let offset = input.pick(&[0, len - 1, len, u64::MAX]);
                let inside = offset.checked_add(LOOK as u64).is_some_and(|end| end <= len);
                let mut bytes = [0; LOOK];
                assert_eq!(
                    window.read(&adverb_memory::Guard::always(), offset, &mut bytes).is_ok(),
                    inside
                );
                assert_eq!(window.with_bytes(offset, LOOK, |_| ()).is_ok(), inside);
                assert_eq!(
                    window.write(&adverb_memory::Guard::always(), offset, &bytes).is_ok(),
                    inside
                );
            }
        }
        Err(why) => assert!(!why.to_string().is_empty()),
    }
}

/// Tries a descriptor in each of the three roles of descriptors from peers.
///
/// # Panics
/// A dangerous descriptor is accepted.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    for _ in 0..4 {
        let Some(sent) = sent(&mut input) else { return };
        match input.below(3) {
            0 => as_ring(&sent, &mut input),
            1 => as_tables(&sent, &mut input),
            _ => as_pages(&sent, &mut input),
        }
        if input.is_empty() {
            return;
        }
    }
}
