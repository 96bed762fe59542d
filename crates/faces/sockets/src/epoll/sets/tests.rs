use super::*;

const IN: u32 = libc::EPOLLIN as u32;

fn ready(polls: &mut [pollfd]) -> &[pollfd] {
    polls.iter_mut().for_each(|poll| poll.revents = libc::POLLIN);
    polls
}

#[test]
fn members_come_once_change_and_go() {
    let mut sets = Sets::new();
    assert_eq!(sets.add(5, 7, IN, 70), Err(libc::ENOENT));
    sets.begin(5, 9);
    assert_eq!(sets.add(5, 7, IN, 70), Ok(()));
    assert_eq!(sets.add(5, 7, IN, 70), Err(libc::EEXIST));
    assert_eq!(sets.modify(5, 8, IN, 80), Err(libc::ENOENT));
    assert_eq!(sets.modify(5, 7, IN, 71), Ok(()));
    assert_eq!(sets.take(5, ready(&mut sets.polls(5)), 4), [(IN, 71)]);
    assert_eq!(sets.remove(5, 7), Ok(()));
    assert_eq!(sets.remove(5, 7), Err(libc::ENOENT));
    assert_eq!(sets.add(5, 8, IN, 80), Ok(()));
    sets.forget(8);
    assert!(sets.polls(5).is_empty());
    assert_eq!(sets.end(5), Some(9));
}

#[test]
fn one_shot_is_told_once() {
    let mut sets = Sets::new();
    sets.begin(5, 9);
    sets.add(5, 7, IN | ONCE, 70).unwrap();
    assert_eq!(sets.take(5, ready(&mut sets.polls(5)), 4), [(IN, 70)]);
    assert!(sets.polls(5).is_empty());
    sets.modify(5, 7, IN | ONCE, 70).unwrap();
    assert_eq!(sets.polls(5).len(), 1);
}

/// SYS-7: after a full answer, the next call goes on at the next member.
#[test]
fn nobody_is_kept_out_by_the_others() {
    let mut sets = Sets::new();
    sets.begin(5, 9);
    (0..3).for_each(|fd| sets.add(5, fd, IN, fd as u64).unwrap());
    let mut turns = Vec::new();
    for _ in 0..3 {
        turns.extend(sets.take(5, ready(&mut sets.polls(5)), 1).iter().map(|(_, data)| *data));
    }
    assert_eq!(turns, [0, 1, 2]);
}

#[test]
fn what_was_not_asked_for_is_not_told() {
    let mut sets = Sets::new();
    sets.begin(5, 9);
    sets.add(5, 7, 0, 70).unwrap();
    let mut polls = sets.polls(5);
    assert!(sets.take(5, ready(&mut polls), 4).is_empty());
    polls[0].revents = libc::POLLHUP;
    assert_eq!(sets.take(5, &polls, 4), [(libc::EPOLLHUP as u32, 70)]);
}
