//! Adopting, and giving back.
use crate::world::*;
use adverb_memory::{Pages, Refusal};

cases![
    adopts_and_gives_back,
    overlapping_registrations_share_pages,
    a_range_may_be_registered_often,
    rights_stay_as_the_program_set_them,
    buffers_of_the_heap_come_and_go,
    bars_keep_pages_where_they_are,
    own_pages_are_seen_by_peers,
    own_pages_outlive_their_owner_for_a_registration,
    half_of_it_fails_and_all_goes_back,
    an_address_space_that_is_full_is_no_hindrance,
];

fn adopts_and_gives_back() {
    let memory = filled(3);
    let before = memory.to_vec();
    let adopted = adopt(&memory[100..2 * PAGE + 1]).unwrap();
    assert_eq!((adopted.start(), adopted.end()), (addr(memory), addr(memory) + 3 * PAGE as u64));
    assert_eq!(memory, before);
    assert_eq!(in_file(addr(memory), memory.len()), before);
    memory[5] = 77;
    assert_eq!(in_file(addr(memory) + 5, 1), [77]);
    assert_eq!((file_size(), shadow().stats().inside), (3 * PAGE as u64, 3 * PAGE as u64));
    drop(adopted);
    assert_eq!((file_size(), shadow().stats().inside), (0, 0));
    assert_eq!(memory[5], 77);
    assert_eq!(memory[6..], before[6..]);
    memory[6] = 1;
    assert_eq!(in_file(addr(memory) + 6, 1), [0], "private again");
}

fn overlapping_registrations_share_pages() {
    let memory = filled(3);
    let before = memory.to_vec();
    let first = adopt(&memory[..PAGE + 10]).unwrap();
    let second = adopt(&memory[PAGE + 20..]).unwrap();
    assert_eq!(file_size(), 3 * PAGE as u64);
    drop(first);
    assert_eq!(file_size(), 2 * PAGE as u64);
    memory[PAGE] = 9;
    assert_eq!(in_file(addr(memory) + PAGE as u64, 1), [9], "the second still stands on it");
    drop(second);
    assert_eq!(file_size(), 0);
    assert_eq!((&memory[..PAGE], &memory[PAGE + 1..]), (&before[..PAGE], &before[PAGE + 1..]));
}

fn a_range_may_be_registered_often() {
    let memory = filled(2);
    let all: Vec<_> = (0..100).map(|n| adopt(&memory[n..n + PAGE]).unwrap()).collect();
    assert_eq!(file_size(), 2 * PAGE as u64);
    drop(all);
    assert_eq!(file_size(), 0);
}

fn rights_stay_as_the_program_set_them() {
    let memory = filled(3);
    let adopted = adopt(memory).unwrap();
    protect(&memory[PAGE..2 * PAGE], libc::PROT_READ);
    drop(adopted);
    assert_eq!(file_size(), 0);
    assert_eq!(adopt(memory).err(), Some(Refusal::Guard));
    assert_eq!(memory[PAGE + 3], filled(3)[PAGE + 3]);
    protect(memory, libc::PROT_READ | libc::PROT_WRITE);
    memory.fill(1);
}

/// Buffers of all sizes from malloc, so that pages hold several buffers, parts of others, and malloc's own words.
fn buffers_of_the_heap_come_and_go() {
    let mut seed = 1_u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut live: Vec<(Vec<u8>, u8, Option<adverb_memory::Adopted>)> = Vec::new();
    for round in 0..800 {
        if live.len() < 40 && random(3) > 0 {
            let len = [16, 100, 5000, 70_000, 300_000][random(5) as usize] + random(64);
            let value = round as u8;
            let buffer = vec![value; len as usize];
            let adopted = (random(2) == 0).then(|| adopt(&buffer).unwrap());
            live.push((buffer, value, adopted));
        } else if !live.is_empty() {
            let (buffer, value, adopted) = live.swap_remove(random(live.len() as u64) as usize);
            assert!(buffer.iter().all(|byte| *byte == value), "round {round}");
            // Freed before it is deregistered, too.
            if random(2) == 0 {
                drop(adopted);
                assert!(buffer.iter().all(|byte| *byte == value), "round {round}");
            } else {
                drop(buffer);
            }
        }
    }
    assert!(live.iter().all(|(buffer, value, _)| buffer.iter().all(|byte| byte == value)));
    drop(live);
    shadow().sweep();
    assert_eq!((file_size(), shadow().stats().inside), (0, 0));
}

fn bars_keep_pages_where_they_are() {
    let memory = filled(2);
    let bar = shadow().bar(addr(memory) + 5, 8);
    assert_eq!(adopt(&memory[20..30]).err(), Some(Refusal::Registered));
    assert_eq!(file_size(), 0);
    drop(bar);
    let adopted = adopt(memory).unwrap();
    let bar = shadow().bar(addr(memory) + 5, 8);
    drop(adopted);
    assert_eq!(file_size(), PAGE as u64, "the page with the bar stays inside");
    drop(bar);
    shadow().sweep();
    assert_eq!(file_size(), 0);
    assert_eq!(shadow().stats().refused["registered"], 1);
}

fn own_pages_are_seen_by_peers() {
    let pages = Pages::shared(shadow(), 3 * PAGE - 1, 1 << 16).unwrap();
    assert!(pages.addr().is_multiple_of(1 << 16));
    assert_eq!((pages.len(), file_size()), (3 * PAGE - 1, 3 * PAGE as u64));
    let mut bytes = [1; 8];
    assert!(pages.read_at(PAGE, &mut bytes) && bytes == [0; 8]);
    assert!(pages.write_at(PAGE, b"directly"));
    assert_eq!(in_file(pages.addr() + PAGE as u64, 8), b"directly");
    assert!(!pages.write_at(3 * PAGE - 4, b"directly"));
    let adopted = shadow().adopt(pages.addr(), 10).unwrap();
    drop(adopted);
    assert_eq!(
        in_file(pages.addr() + PAGE as u64, 8),
        b"directly",
        "they stay inside without a registration"
    );
    drop(pages);
    assert_eq!(file_size(), 0);
    assert!(Pages::shared(shadow(), 10, 3).is_err());
    assert!(Pages::shared(shadow(), usize::MAX / 2, 1).is_err());
}

fn own_pages_outlive_their_owner_for_a_registration() {
    let pages = Pages::shared(shadow(), PAGE, 1).unwrap();
    assert!(pages.write_at(0, b"still"));
    let at = pages.addr();
    let adopted = shadow().adopt(at, 8).unwrap();
    drop(pages);
    assert_eq!(in_file(at, 5), b"still", "peers may be at it");
    drop(adopted);
    assert_eq!(file_size(), 0);
}

/// One of the tries moves a part before the process has too many mappings for the rest.
fn half_of_it_fails_and_all_goes_back() {
    let _ = shadow();
    let memory = filled(1024);
    let before = memory.to_vec();
    let part = &memory[PAGE..1000 * PAGE];
    let filler = pages(140_000);
    let mut at = 0;
    // SAFETY: every other page of the filler, until no more mappings are to be had.
    while unsafe { libc::mprotect(filler.as_mut_ptr().add(at).cast(), PAGE, libc::PROT_READ) } == 0 {
        at += 2 * PAGE;
        assert!(at < filler.len(), "vm.max_map_count is too high for this test");
    }
    let mut tries = Vec::with_capacity(16);
    let adopted = loop {
        let adopted = adopt(part);
        if adopted.is_ok() || tries.len() == tries.capacity() {
            break adopted;
        }
        let unchanged = memory == before;
        tries.push((adopted.err(), unchanged, file_size(), shadow().stats().inside));
        // A mapping less.
        // SAFETY: nobody uses the filler.
        unsafe { libc::munmap(filler.as_mut_ptr().add(at - PAGE * tries.len()).cast(), PAGE) };
    };
    // Room again, for what assertions need as well.
    // SAFETY: as above.
    unsafe { libc::munmap(filler.as_mut_ptr().cast(), filler.len()) };
    let why = Refusal::Kernel(nix::errno::Errno::ENOMEM);
    assert!(tries.len() > 1 && tries.iter().all(|one| *one == (Some(why), true, 0, 0)), "{tries:?}");
    drop(adopted.unwrap());
    assert_eq!(memory, before);
}

fn an_address_space_that_is_full_is_no_hindrance() {
    let memory = filled(600);
    let before = memory.to_vec();
    let _ = shadow();
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let used = pages.split(' ').next().unwrap().parse::<u64>().unwrap() * PAGE as u64;
    // Less than the memory is large.
    limit(libc::RLIMIT_AS, used + 1_000_000);
    let adopted = adopt(memory).unwrap();
    assert_eq!(memory, before);
    drop(adopted);
    assert_eq!(memory, before);
    assert_eq!(file_size(), 0);
}
