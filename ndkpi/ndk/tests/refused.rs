//! Checks that a creation that fails half-way leaves nothing. The only test in this file, because
//! the fault and the logger apply to the whole process.
mod common;
use adverb_ndk::device::faults;
use adverb_ndk::{NtStatus, PendingMode};
use common::{adapter, closed, sizes, wait};
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::sync::Mutex;

static ERRORS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Errors;

impl Log for Errors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() == Level::Error
    }
    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            ERRORS.lock().unwrap().push(record.args().to_string());
        }
    }
    fn flush(&self) {}
}

#[test]
fn ndk_7_a_queue_pair_that_is_not_made_keeps_nothing_open() {
    log::set_logger(&Errors).unwrap();
    log::set_max_level(LevelFilter::Error);
    faults::set("fail=modify_qp@1,fail=reg_mr@1".parse().unwrap()).unwrap();
    let adapter = adapter(PendingMode::Never);
    assert_eq!(wait(|c| adapter.create_pd(c)).unwrap_err(), NtStatus::INSUFFICIENT_RESOURCES);
    let pd = wait(|c| adapter.create_pd(c)).unwrap();
    let cq = wait(|c| adapter.create_cq(64, |_| (), c)).unwrap();
    let made = wait(|c| pd.create_qp(&cq, &cq, 0, sizes(), c));
    assert_eq!(made.unwrap_err(), NtStatus::INSUFFICIENT_RESOURCES);
    let qp = wait(|c| pd.create_qp(&cq, &cq, 0, sizes(), c)).unwrap();
    closed(|c| qp.close(c));
    closed(|c| cq.close(c));
    closed(|c| pd.close(c));
    adapter.close().unwrap();
    // A device object that is still in use would log an error when it is destroyed.
    assert_eq!(*ERRORS.lock().unwrap(), [""; 0]);
}
