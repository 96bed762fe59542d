//! What a process does, for other processes of its user: questions, replies, and the side that
//! asks.
//!
//! A question goes to the name of a slot, over a connection with a proved user at both ends
//! ([`crate::delivery`]). The reply comes back over the same connection. A reply is a *page*: the
//! process keeps no state between two questions, and the asker says where the next page begins.
//! Only the caller knows the format of a page.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use adverb_os::owner::{self, Proof};
use adverb_os::sys::{self, Fd, FdTable, RawAddr};

use crate::local::Local;
use crate::message::{self, MAX_MESSAGE, Question};
use crate::slot::{Slot, slot_name, slot_of_name};

/// Takes a page of the process with this slot and process id, and names the beginning of the next
/// page.
type TakePage<'t> = &'t mut dyn FnMut(Slot, i32, &[u8]) -> Option<u32>;

/// A process with this many waiting connections accepts none at the moment. A further connection
/// would only fill its backlog.
const BACKLOG: u32 = 32;
/// The largest number of pages of a process. A page of the device holds about a hundred queue
/// pairs.
const PAGES: usize = 4096;

impl Local {
    /// Sets the function that is called when a question has come. The function must not call this
    /// value.
    pub fn on_question(&self, waker: impl Fn() + Send + Sync + 'static) {
        let _ = self.questions.waker.set(Box::new(waker));
    }

    pub(crate) fn keep_question(&self, token: u64, question: Question) {
        self.questions.keep(token, question);
        if let Some(waker) = self.questions.waker.get() {
            waker();
        }
    }

    /// Answers the questions that arrived since the last call: `page` makes the page for a
    /// question. Never waits for the asker: a reply without room is dropped.
    pub fn answer_questions(&self, mut page: impl FnMut(Question) -> Vec<u8>) {
        for (token, question) in self.questions.take() {
            let header = message::reply_header(question.tag);
            let body = page(question);
            let taking = self.incoming.taking.lock();
            if let Some(connection) = taking.connections.get(&token)
                && let Err(error) = sys::send_local(&connection.fd, &[&header, &body], &[])
            {
                log::debug!("a reply to process {} is lost: {error}", connection.pid);
            }
        }
    }
}

/// Why a process gave no reply, or not the whole reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// No reply in time.
    Late,
    /// The process accepts no connections at the moment.
    Full,
    /// Another user holds the name.
    OtherUser(u32),
}

/// A process without a whole reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silent {
    /// The slot of the process.
    pub slot: Slot,
    /// The process id in the PID namespace of the asker; 0 if unknown.
    pub pid: i32,
    /// Why there is no reply.
    pub why: Silence,
}

/// A connection to the owner of a slot.
struct Asked {
    fd: Fd,
    pid: i32,
    /// A question without a reply.
    open: bool,
    pages: usize,
    /// The whole reply has come.
    done: bool,
}

/// Asks the processes of the user in this network namespace what they do.
///
/// The asker keeps one connection to each process, and at most one open question. So a process that
/// does not reply gets no second question.
pub struct Asker {
    uid: u32,
    fds: Arc<FdTable>,
    /// Readable while a reply can be taken.
    any: Fd,
    known: BTreeMap<Slot, Asked>,
    tag: u32,
    buffer: Vec<u8>,
}

impl Asker {
    /// An asker of the effective user.
    ///
    /// # Errors
    /// An error of the kernel: no descriptors. `PermissionDenied` if the kernel does not tell the
    /// user from other users.
    pub fn new() -> io::Result<Self> {
        if !owner::users_can_be_told_apart() {
            let why = "this user stands for all unknown users of its user namespace";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let fds = FdTable::new();
        let any = sys::any_of(&fds)?;
        let (uid, buffer) = (sys::effective_uid(), vec![0; MAX_MESSAGE]);
        Ok(Asker { uid, fds, any, known: BTreeMap::new(), tag: 0, buffer })
    }

    /// Asks every process, and waits for the replies for at most `wait`. The first page begins at
    /// `first`. `take` gets each page with
    /// the slot and the process id, and returns where the next page begins; `None` after the last
    /// page. Returns the processes without a whole reply.
    pub fn ask(
        &mut self,
        first: u32,
        wait: Duration,
        mut take: impl FnMut(Slot, i32, &[u8]) -> Option<u32>,
    ) -> Vec<Silent> {
        let until = Instant::now() + wait;
        self.tag = self.tag.wrapping_add(1);
        let mut silent = self.connect_to_all();
        for asked in self.known.values_mut() {
            (asked.pages, asked.done) = (0, false);
        }
        let question = &Question { tag: self.tag, from: first, fault: None };
        self.known.retain(|_, asked| asked.open || asked.question(question));
        loop {
            self.take_all(first, &mut take);
            let left = until.saturating_duration_since(Instant::now());
            let all = self.known.values().all(|asked| asked.done);
            if all || left.is_zero() || sys::poll(&[self.any.raw()], libc::POLLIN, left).is_err() {
                break;
            }
        }
        let late = self.known.iter().filter(|(_, asked)| !asked.done);
        let why = Silence::Late;
        silent.extend(late.map(|(slot, asked)| Silent { slot: *slot, pid: asked.pid, why }));
        silent
    }

    /// Asks processes for a fault, and waits for each reply for at most `wait`. `which` chooses by
    /// the process id. A reply is the reason why the fault is not possible, or empty; `None`: there
    /// was no reply.
    pub fn fault(
        &mut self,
        which: impl Fn(i32) -> bool,
        fault: &str,
        wait: Duration,
    ) -> BTreeMap<i32, Option<String>> {
        self.tag = self.tag.wrapping_add(1);
        let question = Question { tag: self.tag, from: 0, fault: Some(fault.to_owned()) };
        self.connect_to_all();
        let mut replies = BTreeMap::new();
        for asked in self.known.values_mut().filter(|asked| which(asked.pid)) {
            // A process may have several slots.
            if !replies.contains_key(&asked.pid) && asked.question(&question) {
                replies.insert(asked.pid, asked.reply(self.tag, wait, &mut self.buffer));
            }
        }
        replies
    }

    /// Connects to the owners of the slots in use, and forgets the others.
    fn connect_to_all(&mut self) -> Vec<Silent> {
        let slot_of = slot_of_name(self.uid);
        let mut found = BTreeMap::new();
        owner::each_listener(|name, uid, waiting| {
            if let Some(slot) = slot_of(name) {
                // A connection that waits to be accepted has the listener's name as well.
                let entry = found.entry(slot).or_insert((uid, 0));
                entry.1 = waiting.max(entry.1);
            }
        });
        self.known.retain(|slot, _| found.contains_key(slot));
        let mut silent = Vec::new();
        for (slot, (uid, waiting)) in found {
            if self.known.contains_key(&slot) {
                continue;
            }
            let connected = if uid != self.uid {
                Err(Silence::OtherUser(uid))
            } else if waiting >= BACKLOG {
                Err(Silence::Full)
            } else {
                self.connect(slot)
            };
            match connected {
                Ok(Some(asked)) => drop(self.known.insert(slot, asked)),
                // The process has just ended.
                Ok(None) => {}
                Err(why) => silent.push(Silent { slot, pid: 0, why }),
            }
        }
        silent
    }

    fn connect(&self, slot: Slot) -> Result<Option<Asked>, Silence> {
        let Ok(fd) = sys::message_socket(&self.fds) else { return Err(Silence::Full) };
        match sys::connect(&fd, &RawAddr::abstract_name(&slot_name(self.uid, slot))) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Err(Silence::Full),
            Err(_) => return Ok(None),
        }
        match owner::prove(&fd, self.uid) {
            Ok(Proof::Own(pid)) => sys::watch(&self.any, &fd, u64::from(slot))
                .map_or(Err(Silence::Full), |()| {
                    Ok(Some(Asked { fd, pid, open: false, pages: 0, done: false }))
                }),
            Ok(Proof::OtherUser(uid)) => Err(Silence::OtherUser(uid)),
            Err(_) => Ok(None),
        }
    }

    /// Takes the replies that have come.
    fn take_all(&mut self, first: u32, take: TakePage<'_>) {
        let (tag, buffer) = (self.tag, &mut self.buffer[..]);
        self.known.retain(|slot, asked| {
            while !asked.done {
                let len = match sys::recv_local(&asked.fd, buffer) {
                    Ok(local) if local.len > 0 => local.len.min(buffer.len()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    // The process has ended.
                    _ => return false,
                };
                asked.open = false;
                let from = match message::parse_reply(&buffer[..len]) {
                    Some((of, page)) if of == tag => {
                        asked.pages += 1;
                        take(*slot, asked.pid, page).filter(|_| asked.pages < PAGES)
                    }
                    // The reply to an earlier question, which arrived too late.
                    Some(_) => Some(first),
                    None => None,
                };
                match from {
                    Some(from) if !asked.question(&Question { tag, from, fault: None }) => {
                        return false;
                    }
                    Some(_) => {}
                    None => asked.done = true,
                }
            }
            true
        });
    }
}

impl Asked {
    /// Sends a question. `false`: the process has ended.
    fn question(&mut self, question: &Question) -> bool {
        self.open = sys::send_local(&self.fd, &[&question.emit()], &[]).is_ok();
        self.open
    }

    /// Waits for the reply to the question with this tag.
    fn reply(&mut self, tag: u32, wait: Duration, buffer: &mut [u8]) -> Option<String> {
        let until = Instant::now() + wait;
        loop {
            match sys::recv_local(&self.fd, buffer) {
                Ok(local) if local.len > 0 => {
                    let reply = message::parse_reply(&buffer[..local.len.min(buffer.len())]);
                    if let Some((_, body)) = reply.filter(|(of, _)| *of == tag) {
                        self.open = false;
                        return Some(String::from_utf8_lossy(body).into_owned());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => return None,
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || sys::poll(&[self.fd.raw()], libc::POLLIN, left).is_err() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
