use super::*;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

fn says(d: &Descriptor) -> PollFlags {
    let asked = PollFlags::POLLIN | PollFlags::POLLOUT | PollFlags::POLLPRI;
    let mut fds = [PollFd::new(d.program(), asked)];
    poll(&mut fds, PollTimeout::ZERO).unwrap();
    fds[0].revents().unwrap()
}

fn both_kinds() -> [Descriptor; 2] {
    [Descriptor::new(Kind::empty()).unwrap(), Descriptor::of(|_| Err(Errno::ENOENT)).unwrap()]
}

#[test]
fn a_pipe_made_in_advance_is_like_any_other() {
    let first = Descriptor::new(Kind::empty()).unwrap();
    // Other tests may take the pipe. A failed take raises the number of wanted pipes.
    let spare = loop {
        if let Some(spare) = Descriptor::of_spare() {
            break spare;
        }
        Descriptor::prepare();
    };
    assert_ne!(first.inode(), spare.inode());
    assert_eq!(says(&spare), PollFlags::empty());
    spare.give();
    assert_eq!((says(&spare), says(&first)), (PollFlags::POLLIN, PollFlags::empty()));
    spare.take();
    assert_eq!(says(&spare), PollFlags::empty());
    let flags = |arg| fcntl(spare.program(), arg).unwrap();
    assert_eq!(flags(FcntlArg::F_GETFL) & OFlag::O_NONBLOCK.bits(), 0, "it blocks");
    assert_eq!(flags(FcntlArg::F_GETFD), nix::fcntl::FdFlag::FD_CLOEXEC.bits());
}

#[test]
fn chn_2_it_is_readable_while_there_is_a_token_and_never_writable() {
    let [usual, other] = both_kinds();
    assert!(usual.second.is_none(), "the machine has /proc");
    for d in [usual, other] {
        assert_eq!(says(&d), PollFlags::empty());
        d.give();
        d.give();
        assert_eq!(says(&d), PollFlags::POLLIN);
        d.take();
        assert_eq!(says(&d), PollFlags::POLLIN);
        d.take();
        assert_eq!(says(&d), PollFlags::empty());
        // A program that reads the descriptor takes no event, and no thread waits for the taken
        // byte.
        d.give();
        nix::unistd::read(d.program(), &mut [0; 8]).unwrap();
        d.take();
        assert_eq!(says(&d), PollFlags::empty());
    }
}

#[test]
fn chn_2_more_tokens_than_the_pipe_has_room_for_are_kept() {
    for d in both_kinds() {
        let all = 3 * ROOM as usize;
        (0..all).for_each(|_| d.give());
        assert!(d.owed.load(Ordering::Relaxed) > 0, "this is about a full pipe");
        for left in (0..all).rev() {
            assert_eq!(says(&d), PollFlags::POLLIN, "{left}");
            d.take();
        }
        assert_eq!(says(&d), PollFlags::empty());
    }
}

/// With the program as the only reader, the kernel would send SIGPIPE, which ends the process.
#[test]
fn a_program_that_closes_its_descriptor_ends_nothing() {
    for mut d in both_kinds() {
        d.program = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap().0.into();
        d.give();
        d.take();
        assert_eq!(d.owed.load(Ordering::Relaxed), 0);
    }
}
