use super::*;

/// Each of several threads closes its own descriptors, while entries are reused at once.
#[test]
fn what_is_dropped_is_closed() {
    let table = FdTable::new();
    let rounds = || {
        for round in 0..20_000 {
            let (reader, writer) =
                nix::unistd::pipe2(nix::fcntl::OFlag::O_NONBLOCK | nix::fcntl::OFlag::O_CLOEXEC)
                    .unwrap();
            drop(table.register(writer.into_raw_fd()).unwrap());
            // A child being started by another test may have a copy for a moment.
            let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
            while nix::unistd::read(&reader, &mut [0]) != Ok(0) {
                let late = std::time::Instant::now() > until;
                assert!(!late, "round {round}: the other end of the pipe is open");
                std::thread::yield_now();
            }
        }
    };
    std::thread::scope(|scope| {
        (0..3).for_each(|_| _ = scope.spawn(rounds));
    });
    assert!(!table.has_lost_one());
}

/// A program that closes all descriptors does not get a number of ours for its next files.
#[test]
fn a_number_set_aside_is_not_the_next_one() {
    let (_, writer) = nix::unistd::pipe().unwrap();
    let low = writer.as_raw_fd();
    let own = OwnFd::aside(writer);
    assert!(own.number() >= 256, "{} of a limit of 1024 at least", own.number());
    assert!(own.get_lately().is_some() && own.seen.is_aside);
    let table = FdTable::new();
    let (_, other) = nix::unistd::pipe().unwrap();
    let fd = table.register(other.into_raw_fd()).unwrap();
    assert!(fd.raw() >= 256 && fd.raw() != own.number());
    // The program's files get the lowest numbers.
    let next = nix::unistd::dup(std::io::stdin()).unwrap();
    assert!(next.as_raw_fd() < 256, "{low} was free again");
}

/// Without room for high numbers each use is checked.
#[test]
fn a_low_number_is_looked_at_each_time() {
    let low = Seen::new(false);
    let mut looks = 0;
    (0..10).for_each(|_| {
        assert!(low.is_recent(|| {
            looks += 1;
            true
        }))
    });
    assert_eq!(looks, 10);
    assert!(!Seen::new(true).is_recent(|| false), "a high one is looked at first");
}

/// A file that the program has put under a number of ours is neither used nor closed.
#[test]
fn what_the_program_has_taken_is_not_used() {
    let (reader, writer) = nix::unistd::pipe().unwrap();
    let (theirs, their_writer) = nix::unistd::pipe().unwrap();
    let number = writer.as_raw_fd();
    let own = OwnFd::from(writer);
    assert!(own.get().is_some());
    // SAFETY: the number is the library's, which does not notice.
    let mut taken = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    nix::unistd::dup2(&their_writer, &mut taken).unwrap();
    assert!(own.get().is_none() && own.need().is_err());
    drop((own, their_writer));
    nix::unistd::write(&*taken, b"x").unwrap();
    assert_eq!(nix::unistd::read(&theirs, &mut [0]), Ok(1));
    assert_eq!(nix::unistd::read(&reader, &mut [0]), Ok(0), "no writer is left");
    drop(ManuallyDrop::into_inner(taken));
}

/// A file that the program has put under a number of ours stays open.
#[test]
fn what_the_program_has_taken_stays_open() {
    let table = FdTable::new();
    let (_, ours) = nix::unistd::pipe().unwrap();
    let (theirs, writer) = nix::unistd::pipe().unwrap();
    let fd = table.register(ours.into_raw_fd()).unwrap();
    let number = fd.raw();
    assert!(!table.has_lost_one());
    // SAFETY: the number is the table's, which does not notice.
    let mut taken = unsafe { OwnedFd::from_raw_fd(number) };
    nix::unistd::dup2(&writer, &mut taken).unwrap();
    assert!(table.has_lost_one());
    assert_eq!((fd.own(), fd.own_lately(), fd.borrow().is_none()), (-1, -1, true));
    drop(fd);
    drop(writer);
    nix::unistd::write(&taken, b"x").unwrap();
    assert_eq!(nix::unistd::read(&theirs, &mut [0]), Ok(1));
}
