//! The peer's side: windows into another process's memory, copies by the kernel, and hostile peers.
use crate::world::*;
use adverb_engine::memory::RangeKind;
use adverb_engine::{AtomicOp, Range};
use adverb_memory::{Cma, CmaError, Guard, Pages, PeerError, PeerMemory, Window, WindowFault};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Makes the list of cases from the names of their functions.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub const CASES: &[(&str, fn())] = &[$((stringify!($name), $name)),*];
    };
}

cases![
    what_is_no_peers_file,
    tru_3_a_peer_cannot_change_the_size_of_the_file,
    a_window_reads_and_writes,
    the_edges_of_a_window,
    atomics_of_two_processes,
    the_last_byte_comes_last,
    the_last_byte_waits_for_the_rest,
    registered_memory_straight_to_a_peer,
    a_peer_that_means_harm,
    a_window_does_not_outlive_a_fork,
    through_the_kernel,
    through_the_kernel_in_one_piece,
    through_the_kernel_in_pieces,
    through_the_kernel_refused,
];

fn write(window: &Window, at: u64, bytes: &[u8]) -> Result<(), WindowFault> {
    window.write(&Guard::always(), at, bytes)
}

fn read(window: &Window, at: u64, bytes: &mut [u8]) -> Result<(), WindowFault> {
    window.read(&Guard::always(), at, bytes)
}

fn atomic(window: &Window, at: u64, op: AtomicOp) -> Result<u64, WindowFault> {
    window.atomic(&Guard::always(), at, op)
}

fn memfd(flags: u32, size: i64, seals: i32) -> OwnedFd {
    // SAFETY: a new file of ours.
    unsafe {
        let fd = libc::memfd_create(c"test".as_ptr(), flags | libc::MFD_ALLOW_SEALING);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        assert_eq!(libc::ftruncate(fd, size), 0);
        assert_eq!(libc::fcntl(fd, libc::F_ADD_SEALS, seals), 0);
        OwnedFd::from_raw_fd(fd)
    }
}

fn what_is_no_peers_file() {
    let sealed = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    let size = nix::sys::stat::fstat(file().fd().unwrap()).unwrap().st_size;
    assert!(PeerMemory::new(memfd(0, size, sealed)).is_ok());
    assert_eq!(PeerMemory::new(memfd(0, 4096, sealed)).err(), Some(PeerError::Size(4096)));
    for seals in [0, libc::F_SEAL_SHRINK, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW] {
        assert_eq!(PeerMemory::new(memfd(0, size, seals)).err(), Some(PeerError::NotSealed));
    }
    let file = OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
    for other in [memfd(libc::MFD_HUGETLB, size, sealed), file] {
        assert_eq!(PeerMemory::new(other).err(), Some(PeerError::NotSealed));
    }
    assert_eq!(PeerMemory::new(received_file()).err(), Some(PeerError::Own));
    // A file sealed against writing is of no use.
    let constant = PeerMemory::new(memfd(0, size, sealed | libc::F_SEAL_FUTURE_WRITE)).unwrap();
    assert!(matches!(constant.window(4096, 8), Err(PeerError::Kernel(_))));
}

/// A peer has the descriptor, and may open the file once more.
fn tru_3_a_peer_cannot_change_the_size_of_the_file() {
    let given = received_file();
    let path = format!("/proc/self/fd/{}", given.as_raw_fd());
    let again = OwnedFd::from(std::fs::File::options().read(true).write(true).open(path).unwrap());
    let size = nix::sys::stat::fstat(&given).unwrap().st_size;
    let errno = |failed: bool| failed.then(nix::errno::Errno::last_raw);
    for fd in [&given, &again].map(OwnedFd::as_raw_fd) {
        let byte = 1_u8;
        // SAFETY: calls on a file, none of which may have an effect; one byte to write.
        unsafe {
            for len in [0, size - PAGE as i64, size + PAGE as i64, i64::MAX] {
                assert_eq!(errno(libc::ftruncate(fd, len) < 0), Some(libc::EPERM), "{len}");
            }
            let wrote = libc::pwrite(fd, (&raw const byte).cast(), 1, size);
            assert_eq!(errno(wrote < 0), Some(libc::EPERM));
            assert_eq!(errno(libc::fallocate(fd, 0, size, PAGE as i64) < 0), Some(libc::EPERM));
            for seal in [libc::F_SEAL_WRITE, libc::F_SEAL_FUTURE_WRITE, libc::F_SEAL_SEAL] {
                assert_eq!(errno(libc::fcntl(fd, libc::F_ADD_SEALS, seal) < 0), Some(libc::EPERM));
            }
        }
    }
    assert_eq!(nix::sys::stat::fstat(&given).unwrap().st_size, size);
}

fn a_window_reads_and_writes() {
    let memory = filled(5);
    let placed = place(&memory[PAGE..]);
    let file = received_file();
    let writes = [(0, 1), (5, 8), (8, 63), (101, 64), (200, 65), (300, 4000)];
    let child = in_child(|| {
        let window = window(&file, placed.offset + 3, 3 * PAGE - 3);
        assert_eq!(window.len(), 3 * PAGE as u64 - 3);
        let mut all = vec![0; 3 * PAGE - 3];
        read(&window, 0, &mut all).unwrap();
        assert_eq!(all, filled(5)[PAGE + 3..4 * PAGE]);
        for (at, len) in writes {
            write(&window, at, &vec![len as u8; len]).unwrap();
        }
        0
    });
    assert_eq!(child, 0);
    let mut expected = filled(5).to_vec();
    for (at, len) in writes {
        expected[PAGE + 3 + at as usize..][..len].fill(len as u8);
    }
    assert_eq!(memory, expected);
}

fn the_edges_of_a_window() {
    let memory = filled(2);
    let placed = place(memory);
    let file = received_file();
    let child = in_child(|| {
        let peer = PeerMemory::new(file.try_clone().unwrap()).unwrap();
        for (addr, len) in [(4096, 0), (u64::MAX, 2), (1 << 62, 8), (4096, u64::MAX - 4096)] {
            assert_eq!(peer.window(addr, len).err(), Some(PeerError::Bounds));
        }
        let window = peer.window(placed.offset + 8, 16).unwrap();
        let mut two = [0; 2];
        for offset in [15, 16, 17, 5000, u64::MAX, u64::MAX - 1] {
            assert_eq!(write(&window, offset, &two), Err(WindowFault::Bounds));
            assert_eq!(read(&window, offset, &mut two), Err(WindowFault::Bounds));
        }
        for offset in [9, 12, 16, u64::MAX - 7, 4] {
            let got = atomic(&window, offset, AtomicOp::FetchAdd { add: 1 });
            assert_eq!(got, Err(WindowFault::Bounds));
        }
        assert_eq!(write(&window, 14, &two), Ok(()));
        assert_eq!(write(&window, 16, &[]), Ok(()));
        0
    });
    assert_eq!(child, 0);
    let mut expected = filled(2).to_vec();
    expected[22..24].fill(0);
    assert_eq!(memory, expected);
}

fn atomics_of_two_processes() {
    const TIMES: u64 = 200_000;
    let memory: &[u8] = block(1);
    let placed = place(memory);
    let file = received_file();
    let child = start_child(|| {
        let window = window(&file, placed.offset, memory.len());
        let add = |_| atomic(&window, 8, AtomicOp::FetchAdd { add: 1 }).is_ok();
        let added = (0..TIMES).all(add);
        for (compare, swap) in [(1, 5), (0, 5)] {
            assert_eq!(atomic(&window, 16, AtomicOp::CompareSwap { compare, swap }), Ok(0));
        }
        assert_eq!(atomic(&window, 16, AtomicOp::Write { value: 6 }), Ok(5));
        i32::from(!added)
    });
    (0..TIMES).for_each(|_| {
        word(memory, 8).fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(ended(child), 0);
    let words = [8, 16].map(|at| word(memory, at).load(Ordering::Relaxed));
    assert_eq!(words, [2 * TIMES, 6]);
}

/// A program that polls the last byte of a message finds all other bytes.
fn the_last_byte_comes_last() {
    let memory: &[u8] = block(2);
    let placed = place(memory);
    let file = received_file();
    let lengths = [2, 7, 8, 9, 16, 31, 64, 65, 100, 255, 256, 257, 511, 1000, 2049, 4096];
    let byte = |at: usize| {
        // SAFETY: a byte of the memory.
        unsafe { memory.as_ptr().add(at).read_volatile() }
    };
    let child = start_child(|| {
        let window = window(&file, placed.offset, memory.len());
        for (n, (len, skip)) in messages(&lengths).enumerate() {
            write(&window, 64 + skip as u64, &vec![n as u8 | 1; len]).unwrap();
            while first_word(&window) <= n as u64 {
                std::thread::yield_now();
            }
        }
        0
    });
    let mut torn = None;
    for (n, (len, skip)) in messages(&lengths).enumerate() {
        let last = 64 + skip + len - 1;
        let mut looks = 0_u32;
        while byte(last) == 0 {
            looks += 1;
            if looks.is_multiple_of(4096) {
                std::thread::yield_now();
            }
        }
        // Backwards, because the last bytes would be missing first.
        if (64 + skip..=last).rev().any(|at| byte(at) != n as u8 | 1) {
            torn.get_or_insert((n, len, skip));
        }
        // SAFETY: the memory is the parent's until it lets the child continue.
        unsafe { std::ptr::write_bytes(memory.as_ptr().cast_mut().add(64), 0, 2 * PAGE - 64) };
        word(memory, 0).store(n as u64 + 1, Ordering::Release);
    }
    assert_eq!(ended(child), 0);
    assert_eq!(torn, None);
}

/// The same in a deterministic way: the message ends on a page without write access at first. When
/// the write reaches this page, all other bytes are there.
fn the_last_byte_waits_for_the_rest() {
    static PAGE_2: AtomicU64 = AtomicU64::new(0);
    static START: AtomicU64 = AtomicU64::new(0);
    static LOOKS: AtomicU64 = AtomicU64::new(0);
    static MISSING: AtomicU64 = AtomicU64::new(0);
    extern "C" fn look(_: libc::c_int) {
        let end = PAGE_2.load(Ordering::Relaxed);
        if LOOKS.fetch_add(1, Ordering::Relaxed) > 0 {
            // SAFETY: this is another fault, which would come again and again.
            unsafe { libc::abort() }
        }
        for at in START.load(Ordering::Relaxed)..end {
            // SAFETY: a byte of the first page.
            let byte = unsafe { (at as *const u8).read_volatile() };
            MISSING.fetch_add(u64::from(byte != 7), Ordering::Relaxed);
        }
        // SAFETY: the case's own page; from here on the write continues.
        unsafe {
            libc::mprotect(end as *mut libc::c_void, PAGE, libc::PROT_READ | libc::PROT_WRITE)
        };
    }
    let pages = Pages::new(2 * PAGE).unwrap();
    PAGE_2.store(pages.addr() + PAGE as u64, Ordering::Relaxed);
    // SAFETY: a handler that accesses only the case's memory.
    unsafe { libc::signal(libc::SIGSEGV, look as *const () as libc::sighandler_t) };
    for len in
        [2, 3, 7, 8, 9, 15, 16, 17, 18, 23, 24, 25, 31, 32, 33, 64, 100, 257, 1000, 2049, 4096]
    {
        // At most as many bytes as a word has come after the others.
        for beyond in 1..=8.min(len - 1) {
            assert!(pages.write_at(0, &[0; 2 * PAGE]));
            let start = PAGE + beyond - len;
            START.store(pages.addr() + start as u64, Ordering::Relaxed);
            LOOKS.store(0, Ordering::Relaxed);
            // SAFETY: the case's second page, for a moment.
            let rc = unsafe {
                let page = PAGE_2.load(Ordering::Relaxed) as *mut libc::c_void;
                libc::mprotect(page, PAGE, libc::PROT_NONE)
            };
            assert_eq!(rc, 0);
            assert!(pages.write_at(start, &vec![7; len]));
            let counted = (LOOKS.load(Ordering::Relaxed), MISSING.load(Ordering::Relaxed));
            assert_eq!((len, beyond, counted), (len, beyond, (1, 0)));
        }
    }
}

fn messages(lengths: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    (0..40).flat_map(|round| lengths.iter().map(move |len| (*len, round % 11)))
}

fn first_word(window: &Window) -> u64 {
    let mut bytes = [0; 8];
    read(window, 0, &mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

fn registered_memory_straight_to_a_peer() {
    let memory = filled(2);
    let placed = place(memory);
    let file = received_file();
    let child = in_child(|| {
        let window = window(&file, placed.offset, memory.len());
        let local = Pages::new(PAGE).unwrap();
        assert!(local.write_at(0, b"straight"));
        let at = |skip: u64, len, kind| Range { addr: local.addr() + skip, len, kind };
        let write_from = |offset, from| window.write_from(&Guard::always(), offset, from);
        let read_to = |offset, to| window.read_to(&Guard::always(), offset, to);
        for kind in [RangeKind::Mapped, RangeKind::OnDemand] {
            write_from(PAGE as u64, at(0, 8, kind)).unwrap();
            read_to(PAGE as u64, at(100, 8, kind)).unwrap();
            let mut back = [0; 8];
            assert!(local.read_at(100, &mut back) && local.write_at(100, &[0; 8]));
            assert_eq!(&back, b"straight");
        }
        let null = Range { addr: 0, len: 5000, kind: RangeKind::Null };
        assert_eq!((write_from(0, null), read_to(0, null)), (Ok(()), Ok(())));
        let ended = Range { addr: 4096, len: 8, kind: RangeKind::OnDemand };
        let paged = Range { kind: RangeKind::Paged(1), ..ended };
        for failed in [write_from(0, ended), read_to(0, ended), read_to(0, paged)] {
            assert!(matches!(failed, Err(WindowFault::Local(_))));
        }
        let beyond = write_from(2 * PAGE as u64 - 4, at(0, 8, RangeKind::Mapped));
        assert_eq!(beyond, Err(WindowFault::Bounds));
        0
    });
    assert_eq!(child, 0);
    assert!(memory[..5000].iter().all(|byte| *byte == 0));
    assert_eq!(memory[5000..], filled(2)[5000..]);
}

/// The owner frees the pages, writes to them and tries to shrink the file while a peer uses its
/// window.
fn a_peer_that_means_harm() {
    let memory: &[u8] = block(64);
    let placed = place(memory);
    let file = received_file();
    let child = start_child(|| {
        let window = window(&file, placed.offset + 100, 60 * PAGE - 100);
        let mut room = vec![0_u8; 3 * PAGE + 2];
        room[0] = 77;
        room[3 * PAGE + 1] = 77;
        let since = Instant::now();
        let mut n = 0_u64;
        while since.elapsed() < Duration::from_millis(500) {
            n += 1;
            let at = n * 1009 % (56 * PAGE as u64);
            let room = &mut room[1..=3 * PAGE];
            write(&window, at, room).unwrap();
            read(&window, at, room).unwrap();
            atomic(&window, at.div_ceil(8) * 8 + 4, AtomicOp::FetchAdd { add: n }).unwrap();
        }
        i32::from(room[0] != 77 || room[3 * PAGE + 1] != 77)
    });
    let fd = file.as_raw_fd();
    let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let mut status = 0;
    // SAFETY: our own file and child.
    unsafe {
        while libc::waitpid(child, &raw mut status, libc::WNOHANG) == 0 {
            assert_eq!(libc::fallocate(fd, hole, placed.offset as i64, memory.len() as i64), 0);
            memory.as_ptr().cast_mut().write_bytes(0xff, memory.len());
            assert_eq!(libc::ftruncate(fd, 0), -1);
            assert_eq!(libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_WRITE), -1);
        }
    }
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        "the peer ended by {status:#x}"
    );
}

fn a_window_does_not_outlive_a_fork() {
    let memory = filled(1);
    let placed = place(memory);
    let file = received_file();
    let child = in_child(|| {
        let mut window = Some(window(&file, placed.offset, memory.len()));
        let grandchild = in_child(|| {
            // A later mapping at the same address is not unmapped with the window.
            let others = (0..8).map(|_| pages(1)).collect::<Vec<_>>();
            drop(window.take());
            others.into_iter().for_each(|page| page.fill(1));
            0
        });
        write(&window.unwrap(), 0, &[9]).unwrap();
        grandchild
    });
    assert_eq!((child, memory[0]), (0, 9));
}

/// Runs `work` with the process id of a sleeping process with a copy of this process's memory.
fn with_sleeper(work: impl FnOnce(u32)) {
    // SAFETY: the child sleeps until it is killed, and is ours.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            loop {
                libc::pause();
            }
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(child as u32)));
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
        assert_eq!(Cma::new(child as u32).allowed(4096), Err(CmaError::ProcessEnded));
        done.unwrap();
    }
}

fn here(memory: &[u8]) -> Range {
    Range { addr: addr(memory), len: memory.len() as u32, kind: RangeKind::Mapped }
}

fn through_the_kernel() {
    let memory = filled(4);
    let local = pages(4);
    with_sleeper(|child| {
        let peer = Cma::new(child);
        assert_eq!(peer.allowed(addr(memory)), Ok(()));
        assert_eq!(peer.allowed(4096), Err(CmaError::Fault));
        memory.fill(0);
        let start = addr(memory);
        let read = |to: &[Range], from: &[(u64, u64)]| peer.read(&Guard::always(), to, from);
        read(&[here(&local[..3 * PAGE])], &[(start + 5, 3 * PAGE as u64)]).unwrap();
        assert_eq!(local[..3 * PAGE], filled(4)[5..][..3 * PAGE]);
        peer.write(&Guard::always(), &[here(&[8; 16])], &[(start, 16)]).unwrap();
        let to = here(&local[..16]);
        read(&[to], &[(start, 16)]).unwrap();
        assert_eq!((&local[..16], memory[0]), (&[8; 16][..], 0));
        assert_eq!(read(&[to], &[(start, 15)]), Err(CmaError::Lengths));
        assert_eq!(read(&[to], &[(0, u64::MAX), (0, 17)]), Err(CmaError::Lengths));
        let null = Range { kind: RangeKind::Null, ..to };
        assert_eq!(read(&[null], &[(start, 16)]), Err(CmaError::Fault));
        assert_eq!(read(&[], &[]), Ok(()));
    });
}

/// One piece of a peer to one of ours: longer than one call, not mapped at either end, and taken
/// back by the owner.
fn through_the_kernel_in_one_piece() {
    const LONG: usize = 600;
    let memory = filled(LONG);
    let local = pages(LONG);
    with_sleeper(|child| {
        let peer = Cma::new(child);
        peer.fetch(&Guard::always(), here(&local[7..]), addr(memory) + 7).unwrap();
        assert!(local[7..] == filled(LONG)[7..] && local[..7] == [0; 7]);
        peer.fetch(&Guard::always(), here(&local[..0]), addr(memory)).unwrap();
        let fetch = |to: Range, from| peer.fetch(&Guard::always(), to, from);
        for from in [4096, 0, u64::MAX, u64::MAX - 8] {
            assert_eq!(fetch(here(&local[..16]), from), Err(CmaError::Fault), "{from:#x}");
        }
        let nowhere = Range { addr: 4096, ..here(&local[..16]) };
        assert_eq!(fetch(nowhere, addr(memory)), Err(CmaError::Fault));
        let null = Range { kind: RangeKind::Null, ..here(&local[..16]) };
        assert_eq!(fetch(null, addr(memory)), Err(CmaError::Fault));
        let word = AtomicU64::new(2);
        let void = Guard::new((&word, 2), (&word, 1));
        local.fill(1);
        assert_eq!(peer.fetch(&void, here(local), addr(memory)), Err(CmaError::Withdrawn));
        assert!(local.iter().all(|byte| *byte == 1), "the guard did not hold");
    });
}

/// More pieces than one call takes, of different sizes on both sides, some empty; and a fault in
/// the middle.
fn through_the_kernel_in_pieces() {
    let memory = filled(16);
    let local = pages(16);
    let cut = |start: u64, step: u64| {
        let sizes = (0..).map(move |n| n * 7 % step).scan(0, |at, len| {
            let from = *at;
            *at += len;
            Some((from, len))
        });
        let pieces = sizes.take_while(|(at, _)| *at < 12 * PAGE as u64);
        pieces.map(|(at, len)| (start + at, len)).collect::<Vec<_>>()
    };
    with_sleeper(|child| {
        let remote = cut(addr(memory), 13);
        let total: u64 = remote.iter().map(|(_, len)| len).sum();
        let mut ours: Vec<_> = cut(addr(local), 11);
        while ours.iter().map(|(_, len)| len).sum::<u64>() > total {
            ours.pop();
        }
        let got: u64 = ours.iter().map(|(_, len)| len).sum();
        ours.push((addr(local) + got, total - got));
        let ours: Vec<_> = ours
            .iter()
            .map(|(addr, len)| Range { addr: *addr, len: *len as u32, kind: RangeKind::Mapped })
            .collect();
        assert!(ours.len() > 2048 && remote.len() > 2048);
        Cma::new(child).read(&Guard::always(), &ours, &remote).unwrap();
        assert_eq!(local[..total as usize], filled(16)[..total as usize]);
        assert_eq!(local[total as usize..], vec![0; 16 * PAGE - total as usize]);
        let broken = [(addr(memory), 10), (4096, 10), (addr(memory), 10)];
        let got = Cma::new(child).read(&Guard::always(), &[here(&local[..30])], &broken);
        assert_eq!(got, Err(CmaError::Fault));
    });
}

fn through_the_kernel_refused() {
    let parent = std::process::id();
    let memory = filled(1);
    let child = in_child(|| {
        become_nobody();
        assert_eq!(Cma::new(parent).allowed(addr(memory)), Err(CmaError::Forbidden));
        0
    });
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        assert_eq!(child, 0);
    }
}
