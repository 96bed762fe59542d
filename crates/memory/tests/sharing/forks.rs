//! Children of `fork`.
use crate::world::*;
use adverb_memory::Pages;
use std::io::{Read, Write};

cases![
    a_child_sees_what_was_there,
    a_child_does_not_reach_its_parent,
    a_child_gives_nothing_back,
    a_child_shares_its_own,
    a_child_made_before,
    a_child_of_a_child,
    own_pages_in_a_child,
    memory_moved_elsewhere_in_a_child,
    rights_in_a_child,
    a_fork_without_descriptors_on_an_old_kernel,
    a_fork_that_cannot_ask_what_is_mapped,
    a_fork_while_threads_move_pages,
];

/// The parent writes at once; its child looks later.
fn a_child_sees_what_was_there() {
    let memory = pages(512);
    let _adopted = adopt(memory).unwrap();
    for round in 1..20_u8 {
        memory.fill(round);
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        // SAFETY: the child looks at memory and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut go = [0];
            let _ = reader.read(&mut go);
            let same = memory.iter().all(|byte| *byte == round);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!same)) };
        }
        memory.fill(round + 100);
        writer.write_all(&[1]).unwrap();
        assert_eq!(ended(child), 0, "round {round}");
    }
}

fn a_child_does_not_reach_its_parent() {
    let memory = filled(4);
    let adopted = adopt(memory).unwrap();
    let child = in_child(|| {
        memory.fill(99);
        i32::from(memory[PAGE] != 99)
    });
    assert_eq!(child, 0);
    assert_eq!((&*memory, in_file(addr(memory), 4 * PAGE)), (&*filled(4), filled(4).to_vec()));
    drop(adopted);
    assert_eq!(memory, filled(4));
}

fn a_child_gives_nothing_back() {
    let memory = filled(4);
    let mut adopted = Some(adopt(memory).unwrap());
    let child = in_child(|| {
        drop(adopted.take());
        i32::from(memory != filled(4))
    });
    assert_eq!(child, 0);
    assert_eq!(file_size(), 4 * PAGE as u64);
    assert_eq!(in_file(addr(memory), 4 * PAGE), filled(4));
    drop(adopted);
    assert_eq!((file_size(), &*memory), (0, &*filled(4)));
}

fn a_child_shares_its_own() {
    let memory = filled(4);
    let _adopted = adopt(memory).unwrap();
    let parents = std::ptr::from_ref(shadow());
    let child = in_child(|| {
        assert!(!std::ptr::eq(parents, shadow()));
        let adopted = adopt(&memory[PAGE..]).unwrap();
        memory[PAGE] = 55;
        assert_eq!(in_file(addr(memory) + PAGE as u64, 1), [55]);
        drop(adopted);
        i32::from(file_size() != 0)
    });
    assert_eq!(child, 0);
    assert_eq!(memory, filled(4));
}

fn a_child_made_before() {
    let memory = filled(4);
    let _ = shadow();
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: the child looks at memory and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut go = [0];
        let _ = reader.read(&mut go);
        let same = memory == filled(4);
        memory.fill(1);
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!same)) };
    }
    let adopted = adopt(memory).unwrap();
    memory.fill(7);
    writer.write_all(&[1]).unwrap();
    assert_eq!(ended(child), 0);
    assert!(memory.iter().all(|byte| *byte == 7));
    drop(adopted);
    assert!(memory.iter().all(|byte| *byte == 7));
}

fn a_child_of_a_child() {
    let memory = filled(4);
    let _adopted = adopt(memory).unwrap();
    let child = in_child(|| {
        memory.fill(1);
        let adopted = adopt(memory).unwrap();
        let grandchild = in_child(|| {
            let seen = memory.iter().all(|byte| *byte == 1);
            memory.fill(2);
            i32::from(!seen)
        });
        drop(adopted);
        grandchild + i32::from(memory.iter().any(|byte| *byte != 1))
    });
    assert_eq!(child, 0);
    assert_eq!(in_file(addr(memory), 4 * PAGE), filled(4));
}

fn own_pages_in_a_child() {
    let pages = Pages::shared(shadow(), 2 * PAGE, 1).unwrap();
    assert!(pages.write_at(PAGE, b"parent"));
    let at = pages.addr();
    let mut pages = Some(pages);
    let child = in_child(|| {
        let mine = pages.take().unwrap();
        let mut seen = [0; 6];
        assert!(mine.read_at(PAGE, &mut seen) && mine.write_at(PAGE, b"child!"));
        drop(mine);
        i32::from(&seen != b"parent")
    });
    assert_eq!(child, 0);
    assert_eq!(in_file(at + PAGE as u64, 6), b"parent");
}

fn memory_moved_elsewhere_in_a_child() {
    let memory = filled(4);
    let adopted = adopt(memory).unwrap();
    let moved = move_elsewhere(memory);
    let child = in_child(|| {
        let seen = moved == filled(4);
        moved.fill(9);
        i32::from(!seen)
    });
    assert_eq!(child, 0);
    assert_eq!(moved, filled(4));
    drop(adopted);
    assert_eq!((file_size(), &*moved), (0, &*filled(4)));
}

fn rights_in_a_child() {
    let memory = filled(2);
    let _adopted = adopt(memory).unwrap();
    protect(&memory[PAGE..], libc::PROT_READ);
    let child = in_child(|| {
        // The kernel says whether it may write there.
        let zero = std::fs::File::open("/dev/zero").unwrap();
        let read = |at: usize| {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&zero);
            // SAFETY: into the case's memory, or refused.
            unsafe { libc::read(fd, memory.as_ptr().cast_mut().add(at).cast(), 1) }
        };
        assert_eq!(memory[PAGE..], filled(2)[PAGE..]);
        i32::from((read(0), read(PAGE)) != (1, -1))
    });
    assert_eq!(child, 0);
}

/// From here on the kernel does not know `PROCMAP_QUERY`.
fn forbid_the_query() {
    const QUERY: u32 = 0xc068_6611;
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |at| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    let same = |k, jf| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, jf, k);
    let answer = |k| step(libc::BPF_RET | libc::BPF_K, 0, 0, k);
    // The number of the call, and the low half of its second argument.
    let mut filter = [
        load(0),
        same(libc::SYS_ioctl as u32, 3),
        load(24),
        same(QUERY, 1),
        answer(libc::SECCOMP_RET_ERRNO | libc::ENOTTY as u32),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: a filter of ours, for this process.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

fn a_fork_without_descriptors_on_an_old_kernel() {
    forbid_the_query();
    let memory = filled(4);
    let _adopted = adopt(memory).unwrap();
    protect(&memory[PAGE..2 * PAGE], libc::PROT_READ);
    let zero = std::fs::File::open("/dev/zero").unwrap();
    limit(libc::RLIMIT_NOFILE, 0);
    let child = in_child(|| {
        memory[0] = 99;
        // The rights are as they were, too.
        // SAFETY: into the case's memory, or refused.
        let n = unsafe {
            libc::read(std::os::fd::AsRawFd::as_raw_fd(&zero), memory.as_mut_ptr().add(PAGE).cast(), 1)
        };
        i32::from(n != -1 || memory[1..] != filled(4)[1..])
    });
    assert_eq!(child, 0);
    assert_eq!((&*memory, in_file(addr(memory), 4 * PAGE)), (&*filled(4), filled(4).to_vec()));
}

fn a_fork_that_cannot_ask_what_is_mapped() {
    let memory = filled(4);
    let _adopted = adopt(memory).unwrap();
    forbid_the_query();
    let child = in_child(|| {
        let seen = memory == filled(4);
        memory.fill(99);
        i32::from(!seen)
    });
    assert_eq!(child, 0);
    assert_eq!((&*memory, in_file(addr(memory), 4 * PAGE)), (&*filled(4), filled(4).to_vec()));
}

/// A thread moves pages in and out as another one forks: each child sees all of them, filled.
fn a_fork_while_threads_move_pages() {
    if !can_hold_up() {
        return;
    }
    let memory = filled(16 * 12);
    std::thread::scope(|scope| {
        let mover =
            scope.spawn(|| memory.chunks(16 * PAGE).for_each(|part| std::mem::forget(adopt(part).unwrap())));
        while !mover.is_finished() {
            let whole = || memory.iter().enumerate().all(|(n, byte)| *byte == (n % 251) as u8 + 1);
            assert_eq!(in_child(|| i32::from(!whole())), 0);
        }
    });
    assert_eq!(shadow().stats().inside, memory.len() as u64);
}
