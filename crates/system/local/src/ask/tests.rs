use super::*;
use crate::questions::KEPT;
use adverb_sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

const PATIENCE: Duration = Duration::from_secs(20);

/// Held by each test, as an asker asks the processes of the other tests, too.
static ALONE: Mutex<()> = Mutex::new(());

/// A process that answers by `page` until dropped.
fn answering(local: &Arc<Local>, page: impl Fn(Question) -> Vec<u8> + Send + 'static) -> Serving {
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, local) = (stop.clone(), local.clone());
    let thread = std::thread::spawn(move || {
        let mut buffer = vec![0; MAX_MESSAGE];
        while !stopped.load(Relaxed) {
            local.receive(&mut buffer, 64, &mut |_| 0);
            local.answer_questions(&page);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    Serving { stop, thread: Some(thread) }
}

struct Serving {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// TOP-2: a reply has as many pages as the process gives, in order, and each asker gets its own.
#[test]
fn top_2_pages_come_in_order() {
    let _alone = ALONE.lock();
    let local = Local::new(0x7001).unwrap();
    let slot = local.slots()[0];
    let _serving = answering(&local, |question| question.from.to_le_bytes().to_vec());
    let mut askers = [Asker::new().unwrap(), Asker::new().unwrap()];
    for round in 0..3 {
        for asker in &mut askers {
            let mut got = Vec::new();
            asker.ask(0, PATIENCE, |of, pid, page| {
                if of != slot {
                    return None;
                }
                assert_eq!(pid, std::process::id() as i32);
                let at = u32::from_le_bytes(page.try_into().unwrap());
                got.push(at);
                (at < 4).then_some(at + 1)
            });
            assert_eq!(got, [0, 1, 2, 3, 4], "round {round}");
        }
    }
}

/// TOP-2: an asker does not wait longer than it was told for a process that gives no reply, and
/// gets no reply to an earlier question.
#[test]
fn top_2_a_process_without_a_reply_is_named() {
    let _alone = ALONE.lock();
    let local = Local::new(0x7002).unwrap();
    let slot = local.slots()[0];
    let mut asker = Asker::new().unwrap();
    for _ in 0..3 {
        let silent = asker.ask(0, Duration::from_millis(5), |of, _, _| {
            assert_ne!(of, slot);
            None
        });
        let own = silent.iter().find(|silent| silent.slot == slot);
        assert_eq!(own.unwrap().why, Silence::Late);
    }
    // One question was sent, and its reply comes late. It is not taken for a reply to the next.
    static ANSWERED: AtomicU32 = AtomicU32::new(0);
    let _serving = answering(&local, |question| {
        ANSWERED.fetch_add(1, Relaxed);
        question.tag.to_le_bytes().to_vec()
    });
    let mut got = Vec::new();
    asker.ask(0, PATIENCE, |of, _, page| {
        if of == slot {
            got.push(page.to_vec());
        }
        None
    });
    assert_eq!(got, [4_u32.to_le_bytes()]);
    assert_eq!(ANSWERED.load(Relaxed), 2);
}

/// TOP-2: askers that come and go leave the process's backlog as it was.
#[test]
fn top_2_a_process_that_accepts_nothing_is_left_alone() {
    let _alone = ALONE.lock();
    let local = Local::new(0x7003).unwrap();
    let slot = local.slots()[0];
    let mut last = None;
    for _ in 0..2 * BACKLOG {
        let silent = Asker::new().unwrap().ask(0, Duration::ZERO, |_, _, _| None);
        last = silent.iter().find(|silent| silent.slot == slot).map(|silent| silent.why);
    }
    assert_eq!(last, Some(Silence::Full));
    let mut waiting = 0;
    owner::each_listener(|name, _, count| {
        if name == slot_name(sys::effective_uid(), slot) {
            waiting = waiting.max(count);
        }
    });
    assert_eq!(waiting, BACKLOG);
}

/// TOP-1: questions that are never answered cost a bounded amount of memory.
#[test]
fn top_1_few_questions_are_kept() {
    let _alone = ALONE.lock();
    let local = Local::new(0x7004).unwrap();
    let woken = Arc::new(AtomicU32::new(0));
    let wakes = woken.clone();
    local.on_question(move || {
        wakes.fetch_add(1, Relaxed);
    });
    for tag in 0..1000 {
        local.keep_question(1, Question { tag, from: 0, fault: None });
    }
    assert_eq!(woken.load(Relaxed), 1000);
    let mut answered = 0;
    for _ in 0..2 {
        local.answer_questions(|_| {
            answered += 1;
            Vec::new()
        });
        assert_eq!(answered, KEPT);
    }
}
