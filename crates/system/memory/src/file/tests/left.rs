//! Signals, and the other places of a block's memory when the program gives the block up.
use super::*;
use std::io::{Read, Write};

/// MEM-6: a block used as a stack has become ordinary memory. A child forked then still has the
/// memory after the parent has freed the block and its file pages.
#[test]
fn mem_6_a_child_keeps_what_its_parent_frees() {
    let (file, _one) = file();
    let (start, len) = (block(file, 8 * PAGE), 8 * PAGE);
    put(start, 5, 4 * PAGE);
    protect(start, PAGE, libc::PROT_READ);
    file.run_on(start, len);
    protect(start, PAGE, RW);
    let (mut freed, mut free_it) = std::io::pipe().unwrap();
    let child = start_child(|| {
        freed.read_exact(&mut [0]).unwrap();
        let seen = [0, 1, 3, 4, 7].map(|page| get(start + page * PAGE));
        (seen != [5, 5, 5, 0, 0]).into()
    });
    free(file, start, len);
    free_it.write_all(&[0]).unwrap();
    assert_eq!(ended(child), 0);
}

/// MEM-1: locked private memory refuses to be discarded, and keeps its bytes. Pages before the
/// locked ones in the range are discarded.
#[test]
fn mem_1_locked_pages_are_not_given_up() {
    let (file, _one) = file();
    let start = block(file, 4 * PAGE);
    for advice in [libc::MADV_FREE, libc::MADV_DONTNEED] {
        put(start, 5, 4 * PAGE);
        // SAFETY: memory of this test.
        assert_eq!(unsafe { libc::mlock((start + PAGE) as *const libc::c_void, PAGE as usize) }, 0);
        assert_eq!(advice::advise(start, 4 * PAGE as usize, advice), libc::EINVAL);
        assert_eq!([0, 1, 2].map(|page| get(start + page * PAGE)), [0, 5, 5], "advice {advice}");
        let page = (start + PAGE) as *const libc::c_void;
        // SAFETY: as above.
        assert_eq!(unsafe { libc::munlock(page, PAGE as usize) }, 0);
        assert_eq!(advice::advise(start, 4 * PAGE as usize, advice), 0);
        assert_eq!(get(start + PAGE), 0);
    }
    free(file, start, 4 * PAGE);
}

/// MEM-7: no signal handler of the program runs while the table is changed. A handler that forks
/// would give the child no blocks.
#[test]
fn mem_7_signals_wait_for_the_table() {
    static ARRIVED: AtomicBool = AtomicBool::new(false);
    extern "C" fn comes(_: libc::c_int) {
        ARRIVED.store(true, Ordering::SeqCst);
    }
    let (file, _one) = file();
    // SAFETY: a handler that sets a flag, for a signal with no other use in this program.
    unsafe { libc::signal(libc::SIGUSR2, comes as *const () as libc::sighandler_t) };
    let table = file.table();
    // SAFETY: a signal for this thread.
    unsafe { libc::raise(libc::SIGUSR2) };
    assert!(!ARRIVED.load(Ordering::SeqCst));
    drop(table);
    assert!(ARRIVED.load(Ordering::SeqCst));
}

/// qemu-user answers `MADV_DONTFORK` with EINVAL. The device's pages must still be available.
#[test]
fn an_advice_that_the_kernel_does_not_know_fails_no_pages() {
    let (file, _one) = file();
    let refused = std::thread::spawn(|| {
        let rule = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        // Offset 0: the system call number; offset 32: the lower half of the third argument.
        let mut rules = [
            rule(load, 0, 0, 0),
            rule(equal, 0, 3, libc::SYS_madvise as u32),
            rule(load, 0, 0, 32),
            rule(equal, 0, 1, libc::MADV_DONTFORK as u32),
            rule(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32),
            rule(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: rules.len() as u16, filter: rules.as_mut_ptr() };
        // SAFETY: a filter only for this thread; the program lives through the call.
        let set = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
                + libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
        };
        let asked = crate::Pages::shared(file, 8192, 4096).map(|pages| {
            // SAFETY: advice on the test's own pages.
            let told = unsafe { sys::advise(pages.addr(), 4096, libc::MADV_DONTFORK) };
            (told, pages.offset().is_some())
        });
        (set, asked)
    });
    assert_eq!(refused.join().unwrap(), (0, Ok((Err(Errno::EINVAL), true))));
}
