use super::*;
use nix::unistd::gettid;
use std::sync::mpsc::channel;

const SMALL: Bounds = Bounds { honest: Duration::from_millis(20), asleep: 3 };

fn own_pid() -> i32 {
    std::process::id().cast_signed()
}

/// TRU-3: a thread with hidden calls, asleep at each check, lies. A thread with another
/// observation in between does not lie yet.
#[test]
fn tru_3_a_hazard_of_a_hidden_sleeper_is_a_lie() {
    let asleep = Doing::Hidden('S');
    let mut thread = Thread::new(own_pid(), 0);
    assert!(!thread.lies(asleep, SMALL) && !thread.lies(asleep, SMALL));
    for honest in [Doing::Runs, Doing::Copies] {
        assert!(!thread.lies(honest, SMALL));
    }
    assert!(
        !thread.lies(asleep, SMALL) && !thread.lies(asleep, SMALL) && thread.lies(asleep, SMALL)
    );
}

/// TRU-3: a thread that is off the processor is out, whatever its hazard says: a stopped or
/// sleeping thread keeps no owner waiting.
#[test]
fn tru_3_a_thread_off_the_processor_is_out() {
    let off = [Doing::Ended, Doing::Off, Doing::Calls, Doing::Hidden('T'), Doing::Hidden('t')];
    assert!(off.into_iter().all(Doing::is_out));
    assert!(![Doing::Runs, Doing::Copies, Doing::Hidden('R')].into_iter().any(Doing::is_out));
}

/// MEM-2: a thread that uses no processor time is never judged a liar, however long the copy
/// takes.
#[test]
fn mem_2_a_starved_thread_does_not_lie() {
    let (sender, receiver) = channel();
    let (end, ended) = channel::<()>();
    let sleeper = std::thread::spawn(move || {
        sender.send(gettid().as_raw().cast_unsigned()).unwrap();
        let _ = ended.recv();
    });
    let mut thread = Thread::new(own_pid(), receiver.recv().unwrap());
    let starved = [Doing::Runs, Doing::Copies];
    assert!(!starved.iter().cycle().take(3000).any(|doing| thread.lies(*doing, SMALL)));
    drop(end);
    sleeper.join().unwrap();
}

/// TRU-3: a thread lies after using more processor time than a piece takes.
#[test]
fn tru_3_a_hazard_of_a_spinner_is_a_lie() {
    let number = gettid().as_raw().cast_unsigned();
    let mut thread = Thread::new(own_pid(), number);
    let limit = std::time::Instant::now() + Duration::from_secs(60);
    while !thread.lies(Doing::Runs, SMALL) {
        assert!(std::time::Instant::now() < limit, "it spins and is believed");
    }
    assert!(used(own_pid(), number).saturating_sub(thread.used) >= SMALL.honest);
}
