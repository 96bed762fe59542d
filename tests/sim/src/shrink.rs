//! Makes a failing program smaller: fewer actions, fewer faults.
use crate::config::Faults;
use crate::program::{Action, Program};

/// Makes a failing program as small as repeated attempts allow. `fails` runs a candidate. Any
/// failure counts: a smaller program with another failure shows a mistake, too.
#[must_use]
pub fn shrink(program: &Program, fails: impl Fn(&Program) -> bool) -> Program {
    let mut best = program.clone();
    loop {
        let before = (best.actions.len(), weight(&best));
        best = fewer_actions(best, &fails);
        best = kinder_world(best, &fails);
        best = plainer_posts(best, &fails);
        if (best.actions.len(), weight(&best)) == before {
            return best;
        }
    }
}

/// Removes runs of actions, the long runs first (delta debugging).
fn fewer_actions(mut best: Program, fails: &impl Fn(&Program) -> bool) -> Program {
    let mut run = best.actions.len().div_ceil(2);
    while run > 0 {
        let mut at = 0;
        while at < best.actions.len() {
            let mut candidate = best.clone();
            candidate.actions.drain(at..(at + run).min(best.actions.len()));
            if fails(&candidate) {
                best = candidate;
            } else {
                at += run;
            }
        }
        run /= 2;
    }
    best
}

fn weight(p: &Program) -> u64 {
    let f = &p.config.faults;
    let faults = f.delay + f.jitter + u64::from(f.loss + f.duplicate + f.late + f.corrupt + f.mark);
    let posts: u64 = p.actions.iter().map(post_weight).sum();
    faults + p.config.pump_delay + u64::from(p.config.hold_ack) + posts
}

fn post_weight(action: &Action) -> u64 {
    let Action::Post(p) = action else { return 0 };
    let flags =
        [p.inline, p.signaled, p.solicited, p.fence, p.chain, p.bad_local, p.beyond, p.astray];
    u64::from(p.len) + u64::from(p.sges) + flags.iter().map(|f| u64::from(*f)).sum::<u64>()
}

fn kinder_world(mut best: Program, fails: &impl Fn(&Program) -> bool) -> Program {
    let changes: [fn(&mut Program); 9] = [
        |p| p.config.faults = Faults::default(),
        |p| p.config.faults.loss = 0,
        |p| p.config.faults.duplicate = 0,
        |p| p.config.faults.late = 0,
        |p| p.config.faults.corrupt = 0,
        |p| p.config.faults.mark = 0,
        |p| p.config.faults.jitter = 0,
        |p| p.config.pump_delay = 0,
        |p| p.config.hold_ack = 0,
    ];
    for change in changes {
        let mut candidate = best.clone();
        change(&mut candidate);
        if weight(&candidate) < weight(&best) && fails(&candidate) {
            best = candidate;
        }
    }
    best
}

fn plainer_posts(mut best: Program, fails: &impl Fn(&Program) -> bool) -> Program {
    let changes: [fn(&mut crate::program::Post); 7] = [
        |p| p.len /= 2,
        |p| p.sges = 1,
        |p| p.inline = false,
        |p| p.solicited = false,
        |p| p.fence = false,
        |p| p.chain = false,
        |p| p.bad_local = false,
    ];
    for at in 0..best.actions.len() {
        for change in changes {
            let mut candidate = best.clone();
            if let Action::Post(post) = &mut candidate.actions[at] {
                change(post);
            }
            if weight(&candidate) < weight(&best) && fails(&candidate) {
                best = candidate;
            }
        }
    }
    best
}
