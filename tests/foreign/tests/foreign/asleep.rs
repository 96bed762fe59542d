//! A correct program never gets a report of a lost wake-up. A report of a wrong program names the
//! thread and the call in which the thread sleeps (EXT-4): cases of `c/asleep.c`. Each program
//! itself reads and judges the library's output.

use std::time::Duration;

use adverb_foreign::cases::run_rig;
use adverb_foreign::suite::{Case, case};

/// The programs wait sixty seconds for a report.
const LIMIT: Duration = Duration::from_secs(90);

/// Correct programs. Some handle their first message slowly, in all the ways in which a thread can
/// be at work.
const RIGHT: &[&str] = &[
    "computes",
    "sleeps",
    "waits_for_a_condition",
    "waits_for_a_pipe",
    "waits_in_poll",
    "waits_in_another_epoll",
    "waits_in_an_epoll_without_the_channel",
    "computes_beside_a_thread_in_get_event",
    "computes_beside_a_thread_in_epoll",
    "sleeps_beside_a_thread_in_epoll",
    "waits_for_a_condition_beside_a_thread",
    "waits_for_a_pipe_beside_a_thread",
    "waits_in_another_epoll_beside_a_thread",
    "hands_over_and_computes",
    "hands_over_and_waits_for_a_condition",
    "polls_now_and_then",
    "polls_and_sleeps_beside_a_thread",
    "leaves_unsolicited_messages",
];

/// Programs that sleep although completions wait, named by the call in which they sleep or by their
/// earlier actions.
const WRONG: &[&str] = &[
    "in_get_event",
    "in_read",
    "in_readv",
    "in_poll",
    "in_poll_of_a_duplicate",
    "in_ppoll",
    "in_select",
    "in_pselect",
    "in_epoll_wait",
    "in_epoll_pwait",
    "in_epoll_pwait2",
    "in_nested_epoll",
    "in_epoll_of_a_duplicate",
    "in_pauses",
    "in_pause",
    "in_io_uring",
    "after_a_while",
    "forgets_to_arm",
    "never_arms",
    "beside_work",
    "hands_over",
];

pub fn cases() -> Vec<Case> {
    let all = |kind: &'static str, names: &'static [&str]| {
        names.iter().map(move |name| {
            case(format!("EXT-4/{kind}/{name}"), move || {
                let name = format!("{kind}_{name}");
                run_rig("asleep", &[&name], &format!("ok EXT-4 {name}"), LIMIT)
            })
        })
    };
    all("right", RIGHT).chain(all("wrong", WRONG)).collect()
}
