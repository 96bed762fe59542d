//! Two adapters on the loopback device, in one process, with a queue pair each.
#![allow(dead_code, reason = "each test file uses its part")]
use adverb_ndk::device::{self, Mapping};
use adverb_ndk::object::Completion;
use adverb_ndk::{
    Adapter, Config, Cq, Lam, Mdl, Mr, MrFlags, Mw, NdkResultEx, NtStatus, OpFlags, Pd,
    PendingMode, Qp, QpSizes, RequestOutcome, Sge, joined,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub const DEADLINE: Duration = Duration::from_secs(20);
/// Long enough for an unexpected callback to come.
pub const GRACE: Duration = Duration::from_millis(40);
pub const MEMORY: u64 = 1 << 20;
pub const DEPTH: u32 = 64;

pub const NONE: OpFlags = OpFlags::empty();

/// Waits for a request, in line or pending.
pub fn wait<T: Send + 'static>(
    request: impl FnOnce(Completion<T>) -> Result<RequestOutcome<T>, NtStatus>,
) -> Result<T, NtStatus> {
    let (tx, rx) = channel();
    match request(Box::new(move |result| _ = tx.send(result)))? {
        RequestOutcome::Done(value) => Ok(value),
        RequestOutcome::Pending => rx.recv_timeout(DEADLINE).expect("the completion is called"),
    }
}

/// Waits for a close.
pub fn closed(request: impl FnOnce(Box<dyn FnOnce() + Send>) -> Result<RequestOutcome, NtStatus>) {
    let (tx, rx) = channel();
    if request(Box::new(move || _ = tx.send(()))).unwrap() == RequestOutcome::Pending {
        rx.recv_timeout(DEADLINE).expect("the close completes");
    }
}

/// Waits for a condition.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

pub fn adapter(pending: PendingMode) -> Adapter {
    // Connections by address use this device, too.
    device::selection::select("lo".parse().unwrap());
    let loopback = device::device::loopback().unwrap().expect("a loopback device");
    Adapter::open(&loopback, Config { pending, ..Config::default() }).unwrap()
}

/// One side: an adapter and all objects of the adapter.
pub struct QpEnd {
    pub adapter: Adapter,
    pub pd: Pd,
    pub cq: Cq,
    pub qp: Qp,
    pub memory: Mapping,
    pub mr: Mr,
    /// The statuses with which the callback of the CQ was called.
    pub calls: Receiver<NtStatus>,
    pub count: Arc<AtomicUsize>,
    /// Closes additional objects that a test made.
    extras: Mutex<Vec<Box<dyn FnOnce()>>>,
}

pub fn sizes() -> QpSizes {
    QpSizes {
        receive_queue_depth: DEPTH,
        initiator_queue_depth: DEPTH,
        max_receive_request_sge: 4,
        max_initiator_request_sge: 4,
        inline_data_size: 128,
    }
}

impl QpEnd {
    pub fn new() -> QpEnd {
        QpEnd::with(PendingMode::Never, 1024)
    }

    pub fn with(pending: PendingMode, cq_depth: u32) -> QpEnd {
        let adapter = adapter(pending);
        let (tx, calls) = channel();
        let count = Arc::new(AtomicUsize::new(0));
        let counter = count.clone();
        let notification = move |status| {
            counter.fetch_add(1, Ordering::SeqCst);
            _ = tx.send(status);
        };
        let cq = wait(|c| adapter.create_cq(cq_depth, notification, c)).unwrap();
        let pd = wait(|c| adapter.create_pd(c)).unwrap();
        let qp = wait(|c| pd.create_qp(&cq, &cq, 7, sizes(), c)).unwrap();
        let memory = Mapping::alloc(MEMORY as usize).unwrap();
        let mr = wait(|c| pd.create_mr(false, c)).unwrap();
        let flags =
            MrFlags::ALLOW_LOCAL_WRITE | MrFlags::ALLOW_REMOTE_READ | MrFlags::ALLOW_REMOTE_WRITE;
        wait(|c| mr.register(&Mdl::of(&memory), MEMORY, flags, c)).unwrap();
        QpEnd { adapter, pd, cq, qp, memory, mr, calls, count, extras: Mutex::default() }
    }

    pub fn sge(&self, offset: u64, length: u32) -> Sge<'static> {
        Sge::Registered {
            address: self.memory.addr() + offset,
            length,
            token: self.mr.get_local_token(),
        }
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(self.memory.write_at(offset, bytes));
    }

    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert!(self.memory.read_at(offset, &mut bytes));
        bytes
    }

    /// Address and token of the memory, for the peer.
    pub fn remote(&self, offset: u64) -> (u64, u32) {
        (self.memory.addr() + offset, self.mr.get_remote_token())
    }

    pub fn receive(&self, context: u64) {
        self.qp.receive(context, &[self.sge(0, 4096)]).unwrap();
    }

    /// The next `n` results.
    pub fn results(&self, n: usize) -> Vec<NdkResultEx> {
        results(&self.cq, n)
    }

    /// Checks that there are no more results.
    pub fn assert_no_more(&self) {
        std::thread::sleep(GRACE);
        assert_eq!(self.cq.drain(16), []);
    }

    pub fn call(&self) -> NtStatus {
        self.calls.recv_timeout(DEADLINE).expect("the notification callback is called")
    }

    pub fn assert_no_call(&self, what: &str) {
        if let Ok(status) = self.calls.recv_timeout(GRACE) {
            panic!("{what}: called with {status}");
        }
    }

    /// A fast-registration region for `pages` pages, and a mapping of the memory.
    pub fn fast(&self, pages: u32) -> (Mr, Lam) {
        let mr = wait(|c| self.pd.create_mr(true, c)).unwrap();
        wait(|c| mr.initialize_fast_register(pages, true, c)).unwrap();
        let lam = wait(|c| self.adapter.build_lam(&Mdl::of(&self.memory), MEMORY, c)).unwrap();
        let opened = mr.clone();
        self.at_end(move || closed(|c| opened.close(c)));
        (mr, lam)
    }

    pub fn window(&self) -> Mw {
        let mw = wait(|c| self.pd.create_mw(c)).unwrap();
        let opened = mw.clone();
        self.at_end(move || closed(|c| opened.close(c)));
        mw
    }

    pub fn at_end(&self, close: impl FnOnce() + 'static) {
        self.extras.lock().unwrap().push(Box::new(close));
    }

    /// Closes everything that is still open. The adapter's close returns only when all objects are
    /// closed.
    fn close_all(&self) {
        let close =
            |request: &dyn Fn(Box<dyn FnOnce() + Send>) -> Result<RequestOutcome, NtStatus>| {
                let (tx, rx) = channel();
                if request(Box::new(move || _ = tx.send(()))) == Ok(RequestOutcome::Pending) {
                    rx.recv_timeout(DEADLINE).expect("the close completes");
                }
            };
        close(&|c| self.qp.close(c));
        self.extras.lock().unwrap().drain(..).for_each(|e| e());
        close(&|c| self.mr.close(c));
        close(&|c| self.cq.close(c));
        close(&|c| self.pd.close(c));
        assert!([Ok(()), Err(NtStatus::DELETE_PENDING)].contains(&self.adapter.close()));
    }
}

impl Drop for QpEnd {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.close_all();
        }
    }
}

pub fn results(cq: &Cq, n: usize) -> Vec<NdkResultEx> {
    let mut got = Vec::new();
    let deadline = Instant::now() + DEADLINE;
    while got.len() < n {
        got.extend(cq.drain(n - got.len()));
        assert!(Instant::now() < deadline, "{} of {n} results: {got:?}", got.len());
    }
    got
}

/// Two ends, connected.
pub fn pair() -> (QpEnd, QpEnd) {
    let (a, b) = (QpEnd::new(), QpEnd::new());
    joined::join(&a.qp, &b.qp).unwrap();
    (a, b)
}

/// `(context, status)` of each result.
pub fn short(results: &[NdkResultEx]) -> Vec<(u64, NtStatus)> {
    results.iter().map(|r| (r.request_context, r.status)).collect()
}
