//! The program's calls go to this crate's functions.
#![allow(unsafe_code, reason = "looks up a symbol")]

/// Calls of other crates are bound to these functions.
#[test]
fn the_c_librarys_names_are_this_crates() {
    adverb_interpose::register();
    let own = adverb_interpose::epoll_wait as *const () as usize;
    assert_eq!(libc::epoll_wait as *const () as usize, own);
    assert_eq!(libc::poll as *const () as usize, adverb_interpose::poll as *const () as usize);
    // SAFETY: a string; the call only looks up a name.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"epoll_wait".as_ptr()) };
    assert!(!next.is_null() && next as usize != own);
}

/// Without a device the calls are the C library's.
#[test]
fn a_wait_without_a_device_returns_what_the_c_library_returns() {
    let mut polls = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 7 }];
    // SAFETY: one entry.
    assert_eq!(unsafe { libc::poll(polls.as_mut_ptr(), 1, 1) }, 0);
    assert_eq!(polls[0].revents, 0);
}
