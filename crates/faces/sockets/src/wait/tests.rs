use super::*;

fn set(fds: &[c_int]) -> fd_set {
    // SAFETY: all zero bytes are the empty set.
    unsafe {
        let mut set = core::mem::zeroed();
        fds.iter().for_each(|fd| libc::FD_SET(*fd, &mut set));
        set
    }
}

fn members(set: &fd_set) -> Vec<c_int> {
    // SAFETY: `set` is a valid set.
    (0..1024).filter(|fd| unsafe { libc::FD_ISSET(*fd, set) }).collect()
}

#[test]
fn sets_are_asked_for_and_answered_by_the_programs_numbers() {
    let (mut read, mut write) = (set(&[3, 53]), set(&[53, 70]));
    let sets: [*mut fd_set; 3] = [&mut read, &mut write, ptr::null_mut()];
    // SAFETY: the sets belong to this function.
    let mut polls = unsafe { asked(71, sets) };
    let seen: Vec<_> = polls.iter().map(|p| (p.fd, p.events)).collect();
    assert_eq!(seen, [(3, libc::POLLIN), (53, libc::POLLIN | libc::POLLOUT), (70, libc::POLLOUT)]);
    polls[1].revents = libc::POLLIN | libc::POLLOUT;
    polls[2].revents = libc::POLLHUP;
    // SAFETY: the sets belong to this function.
    assert_eq!(unsafe { answer(&polls, sets) }, 2);
    assert_eq!((members(&read), members(&write)), (vec![53], vec![53]));
}

#[test]
fn sets_longer_than_the_standard_ones_are_read_and_written_whole() {
    let mut words = [0_u64; 64];
    words[1100 / WORD] = 1 << (1100 % WORD);
    let sets: [*mut fd_set; 3] = [words.as_mut_ptr().cast(), ptr::null_mut(), ptr::null_mut()];
    let mut most = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `most` has room for the limit, which is raised to the hard limit.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut most);
        most.rlim_cur = most.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &most);
    }
    // SAFETY: the set belongs to this function and has room for 4096 descriptors.
    let polls = unsafe { asked(1101, sets) };
    assert_eq!(polls.iter().map(|poll| poll.fd).collect::<Vec<_>>(), [1100]);
    // SAFETY: the set belongs to this function and has room for 4096 descriptors.
    assert_eq!(unsafe { answer(&polls, sets) }, 0);
    assert_eq!(words, [0; 64]);
}

#[test]
fn time_is_never_cut() {
    assert_eq!(Limit::of(None).millis(), -1);
    assert_eq!(Limit::of(Some(Duration::ZERO)).millis(), 0);
    assert!(Limit::of(Some(Duration::from_secs(3600))).millis() > 3_000_000);
    assert_eq!(duration(0, 1_000_000_000), None);
    assert_eq!(duration(-1, 0), None);
}
