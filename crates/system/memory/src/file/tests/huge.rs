//! Huge pages, in processes with one thread and with several.
use super::super::classes::HUGE;
use super::super::huge::OwnThread;
use super::*;

const LEN: u64 = 4 * HUGE;

/// The huge bytes of a mapping, from the line `name` of `smaps`.
fn huge_bytes(start: u64, name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = text.lines().skip_while(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let at = range.and_then(|(from, to)| {
            Some(u64::from_str_radix(from, 16).ok()?..u64::from_str_radix(to, 16).ok()?)
        });
        !at.is_some_and(|range| range.contains(&start))
    });
    let line = lines.find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Whether this kernel gives huge pages to private memory on request.
fn has_huge_pages() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|s| !s.contains("[never]"))
}

/// A block aligned to a huge page.
fn aligned(file: &'static SharedFile, len: u64) -> u64 {
    // SAFETY: new memory, of which the surplus is unmapped.
    let start = unsafe {
        let at = sys::map(At::Anywhere, len + HUGE, RW, libc::MAP_PRIVATE, None).unwrap();
        let start = at.next_multiple_of(HUGE);
        if start > at {
            sys::unmap(at, start - at).unwrap();
        }
        sys::unmap(start + len, at + HUGE - start).unwrap();
        start
    };
    // SAFETY: mapped just now.
    assert!(unsafe { file.share_fresh(start, len) });
    start
}

fn ask(start: u64) {
    assert_eq!(advice::advise(start, LEN as usize, libc::MADV_HUGEPAGE), 0);
}

/// MEM-1: a program with one thread gets huge pages on request before its first write. Written
/// bytes stay.
#[test]
fn mem_1_a_new_block_has_huge_pages_on_request() {
    let (file, _one) = file();
    // A child has one thread, and makes its own file.
    let code = in_child(|| {
        let file = SharedFile::of_process().unwrap();
        file.share_allocations(true);
        let (new, written) = (aligned(file, LEN), aligned(file, LEN));
        put(written, 3, 1);
        ask(new);
        ask(written);
        put(new, 5, LEN);
        if file.block_at(new) != 0 || file.block_at(written) != LEN || get(written) != 3 {
            return 1;
        }
        u8::from(has_huge_pages() && huge_bytes(new, "AnonHugePages") == 0) * 2
    });
    assert_eq!(code, 0);
    assert!(!file.is_stale());
}

/// MEM-1: nothing is replaced while another thread may write. The device's own threads do not
/// count.
#[test]
fn mem_1_a_block_that_others_may_write_stays() {
    let (_file, _one) = file();
    for ours in [false, true] {
        let code = in_child(|| {
            let file = SharedFile::of_process().unwrap();
            file.share_allocations(true);
            let (ready, go) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let _own = ours.then(OwnThread::this);
                ready.send(()).unwrap();
                std::thread::sleep(std::time::Duration::from_secs(600));
            });
            go.recv().unwrap();
            let new = aligned(file, LEN);
            ask(new);
            u8::from((file.block_at(new) == 0) != ours)
        });
        assert_eq!(code, 0, "a thread of the device's: {ours}");
    }
}

/// MEM-1: a registered block stays a block, and its pages become huge pages with the same bytes.
/// Further allocations of the class are private.
#[test]
fn mem_1_registered_memory_gets_huge_pages_of_the_file() {
    let (file, _one) = file();
    let start = aligned(file, LEN);
    (0..LEN).step_by(4096).for_each(|at| put(start + at, (at >> 12) as u8, 8));
    ask(start);
    assert!(file.credit.is_spent(LEN));
    let placed = file.place(start, LEN).unwrap();
    let seen = |from: u64| (0..LEN).step_by(4096).all(|at| get(from + at + 7) == (at >> 12) as u8);
    assert!(seen(start) && seen(placed.addr));
    put(start + 5, 77, 1);
    assert_eq!(get(placed.addr + 5), 77);
    // The kernel may refuse (before 6.1, or without a free huge page); then nothing is lost.
    let huge = huge_bytes(start, "ShmemPmdMapped");
    assert!(huge.is_multiple_of(HUGE), "{huge} bytes");
    drop(placed);
    assert!(file.release(start, LEN));
    unmap(start, LEN);
}
