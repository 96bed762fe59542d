//! The members of the `epoll` sets, as values.

use core::ffi::c_int;
use std::collections::BTreeMap;

use libc::pollfd;

/// Events that are always reported, even if the program did not ask for them.
const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
/// Events with the same numbers in `poll`.
const POLLED: u32 = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLPRI) as u32;

#[derive(Debug)]
struct Member {
    fd: c_int,
    events: u32,
    data: u64,
    /// An `EPOLLONESHOT` member that has been reported.
    told: bool,
}

#[derive(Debug)]
struct Set {
    members: Vec<Member>,
    waker: c_int,
    /// The index of the member that is read first, so that no member keeps the others out.
    first: usize,
}

/// The sets by their descriptors.
#[derive(Debug)]
pub(super) struct Sets(BTreeMap<c_int, Set>);

impl Sets {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(super) fn has(&self, set: c_int) -> bool {
        self.0.contains_key(&set)
    }

    pub(super) fn begin(&mut self, set: c_int, waker: c_int) {
        self.0.insert(set, Set { members: Vec::new(), waker, first: 0 });
    }

    /// Removes a set and returns its waker.
    pub(super) fn end(&mut self, set: c_int) -> Option<c_int> {
        self.0.remove(&set).map(|set| set.waker)
    }

    pub(super) fn waker(&self, set: c_int) -> Option<c_int> {
        self.0.get(&set).map(|set| set.waker)
    }

    /// Removes a closed descriptor from all sets.
    pub(super) fn forget(&mut self, fd: c_int) {
        self.0.values_mut().for_each(|set| set.members.retain(|member| member.fd != fd));
    }

    /// The member, or the error of the kernel's call.
    fn member(&mut self, set: c_int, fd: c_int) -> Result<&mut Member, c_int> {
        let members = self.0.get_mut(&set).map(|set| set.members.iter_mut());
        members.into_iter().flatten().find(|member| member.fd == fd).ok_or(libc::ENOENT)
    }

    pub(super) fn add(
        &mut self,
        set: c_int,
        fd: c_int,
        events: u32,
        data: u64,
    ) -> Result<(), c_int> {
        if self.member(set, fd).is_ok() {
            return Err(libc::EEXIST);
        }
        let set = self.0.get_mut(&set).ok_or(libc::ENOENT)?;
        set.members.push(Member { fd, events, data, told: false });
        Ok(())
    }

    pub(super) fn modify(
        &mut self,
        set: c_int,
        fd: c_int,
        events: u32,
        data: u64,
    ) -> Result<(), c_int> {
        *self.member(set, fd)? = Member { fd, events, data, told: false };
        Ok(())
    }

    pub(super) fn remove(&mut self, set: c_int, fd: c_int) -> Result<(), c_int> {
        self.member(set, fd)?;
        self.0.get_mut(&set).ok_or(libc::ENOENT)?.members.retain(|member| member.fd != fd);
        Ok(())
    }

    /// The entries for `poll`.
    pub(super) fn polls(&self, set: c_int) -> Vec<pollfd> {
        let waiting = self.0.get(&set).into_iter().flat_map(|set| &set.members).filter(|m| !m.told);
        waiting
            .map(|m| pollfd { fd: m.fd, events: (m.events & POLLED) as i16, revents: 0 })
            .collect()
    }

    /// Converts the result of `poll` to events with the program's data, at most `room` events.
    pub(super) fn take(&mut self, set: c_int, polls: &[pollfd], room: usize) -> Vec<(u32, u64)> {
        let Some(set) = self.0.get_mut(&set) else { return Vec::new() };
        let (n, start) = (polls.len(), set.first);
        let mut found = Vec::new();
        for at in (0..n).map(|at| (at + start) % n) {
            if found.len() == room {
                set.first = at;
                return found;
            }
            let poll = &polls[at];
            // The member may have been removed or changed meanwhile.
            let Some(member) = set.members.iter_mut().find(|m| m.fd == poll.fd && !m.told) else {
                continue;
            };
            let events = poll.revents as u16 as u32 & (member.events | ALWAYS);
            if events & (POLLED | ALWAYS) != 0 {
                member.told = member.events & ONCE != 0;
                found.push((events, member.data));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
