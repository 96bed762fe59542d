//! Queue pairs that offer requests as futures.
use super::places::{Places, Woken};
use super::wr::{Op, Wr};
use super::{Qp, QpBuilder};
use crate::ah::Ah;
use crate::completion::Completion;
use crate::cq::{Cq, look_arm_look};
use crate::data::{Data, Slices};
use crate::error::{Error, Result};
use adverb_device::Errno;
use adverb_device::engine::{RecvWr, SendFlags};
use adverb_sync::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A queue pair whose requests are futures. `qp.send("hello").await?` ends when the request has
/// completed; if the queue is full, the future first waits for a free place. The futures work on
/// any executor. [`QpBuilder::build_async`] makes such a queue pair. It is cheap to clone, and any
/// number of tasks may use it.
///
/// ```
/// # use adverb::{AsyncQp, Device, Result};
/// # fn end() -> Result<AsyncQp> {
/// #     let pd = Device::loopback()?.open()?.create_pd()?;
/// #     pd.create_qp().max_send_wr(2).build_async()
/// # }
/// # async fn example() -> Result<()> {
/// # let (a, b) = (end()?, end()?);
/// # a.qp().connect_to(&b.qp().info()?)?;
/// # b.qp().connect_to(&a.qp().info()?)?;
/// let pd = b.qp().pd().expect("of its own");
/// let (inbox, board) = (pd.alloc(64)?, pd.create_buffer(64).remote_write().build()?);
///
/// // Posted now, awaited later: the receive must be there before the message.
/// let message = b.recv(&inbox).posted().await?;
/// a.send("hello").await?;
/// a.write("direct", board.remote()).fence().await?;
/// assert_eq!(inbox.to_vec(..message.await?.byte_len())?, b"hello");
/// assert_eq!(board.to_vec(..6)?, b"direct");
/// # Ok(())
/// # }
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
/// # runtime.block_on(example())?;
/// # Ok::<(), adverb::Error>(())
/// ```
///
/// A future does nothing before it is awaited or polled. A future that is dropped before its
/// request was posted has done nothing. If a future is dropped later, the request continues and its
/// completion is discarded. The buffers of the request must then stay until the request is done;
/// otherwise the request fails.
///
/// Requests are posted in the order in which their futures were first polled.
#[derive(Clone, Debug)]
pub struct AsyncQp(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    qp: Qp,
    cq: Cq,
    queues: Mutex<Queues>,
}

#[derive(Debug)]
struct Queues {
    sends: Places,
    recvs: Places,
    /// The number of the next future.
    next: u64,
}

/// Which queue a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Send,
    Recv,
}

impl Queues {
    fn of(&mut self, queue: Queue) -> &mut Places {
        match queue {
            Queue::Send => &mut self.sends,
            Queue::Recv => &mut self.recvs,
        }
    }
}

fn invalid(why: &str) -> Error {
    adverb_device::Error::new(Errno::EINVAL, why).into()
}

impl QpBuilder<'_> {
    /// Makes the queue pair with a completion queue of its own, for requests that are futures.
    ///
    /// # Errors
    /// As [`QpBuilder::build`]. EINVAL if the builder was given completion queues or a shared
    /// receive queue, whose completions have no futures. EINVAL also for the receiving half of XRC.
    pub fn build_async(self) -> Result<AsyncQp> {
        if self.has_queues() {
            return Err(invalid("a queue pair of futures has queues of its own"));
        }
        let (sends, recvs) = self.depths();
        let qp = self.build()?;
        let cq = qp.send_cq().ok_or_else(|| invalid("this queue pair sends nothing"))?.clone();
        // A queue of depth 0 refuses each post. The future needs a place to post and to return the
        // error.
        let (sends, recvs) = (Places::new(sends.max(1)), Places::new(recvs.max(1)));
        let queues = Mutex::new(Queues { sends, recvs, next: 0 });
        Ok(AsyncQp(Arc::new(Inner { qp, cq, queues })))
    }
}

impl AsyncQp {
    /// The queue pair, to connect it and to read its attributes. Do not post requests on it
    /// directly: no future would get their completions. After [`Qp::reset`], futures of requests
    /// that were under way wait forever.
    #[must_use]
    pub fn qp(&self) -> &Qp {
        &self.0.qp
    }

    /// A receive into registered memory ([`Qp::recv`]).
    pub fn recv<'d>(&self, slices: impl Into<Slices<'d>>) -> AsyncRequest<'_, 'd> {
        AsyncRequest { qp: self, work: Work::Recv(slices.into()) }
    }

    pub(super) fn request<'d>(&self, op: Op<'d>, data: Data<'d>) -> AsyncRequest<'_, 'd> {
        AsyncRequest { qp: self, work: Work::Send(Wr::new(op, data)) }
    }
}

impl Inner {
    /// Changes the places of a queue, and then wakes the tasks in `woken` without the lock.
    fn change<R>(&self, queue: Queue, change: impl FnOnce(&mut Places, &mut Woken) -> R) -> R {
        let mut woken = Woken::new();
        let answer = change(self.queues.lock().of(queue), &mut woken);
        woken.into_iter().for_each(std::task::Waker::wake);
        answer
    }

    /// Takes the waiting completions and gives each to its future.
    fn sort(&self) -> Result<()> {
        for completion in self.cq.drain() {
            let completion = completion?;
            let queue = if completion.is_recv() { Queue::Recv } else { Queue::Send };
            self.change(queue, |places, woken| places.done(completion, woken));
        }
        Ok(())
    }

    /// Sorts the completions and looks, with an arm in between. A completion that comes later wakes
    /// the task.
    fn look<T>(
        &self,
        number: u64,
        cx: &Context<'_>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Poll<Result<T>> {
        let look = || {
            let sorted = self.sort();
            look().map_or_else(|| sorted.map(|()| None), |found| Ok(Some(found)))
        };
        look_arm_look(look, || self.cq.wake_next(number, cx.waker()))
    }
}

/// A request of an [`AsyncQp`]. The methods here complete the request. Awaiting the request posts
/// it and waits for its completion.
#[derive(Debug)]
#[must_use = "nothing is posted before it is awaited"]
pub struct AsyncRequest<'t, 'd> {
    qp: &'t AsyncQp,
    work: Work<'d>,
}

#[derive(Debug)]
enum Work<'d> {
    Send(Wr<'d>),
    Recv(Slices<'d>),
}

impl<'t, 'd> AsyncRequest<'t, 'd> {
    fn flag(mut self, flag: SendFlags) -> Self {
        if let Work::Send(wr) = &mut self.work {
            wr.flags.insert(flag);
        }
        self
    }

    /// As [`Request::solicited`](crate::Request::solicited). No effect on a receive.
    pub fn solicited(self) -> Self {
        self.flag(SendFlags::SOLICITED)
    }

    /// As [`Request::fence`](crate::Request::fence). No effect on a receive.
    pub fn fence(self) -> Self {
        self.flag(SendFlags::FENCE)
    }

    /// As [`Request::inline`](crate::Request::inline). No effect on a receive.
    pub fn inline(self) -> Self {
        self.flag(SendFlags::INLINE)
    }

    /// As [`Request::to`](crate::Request::to). No effect on a receive.
    pub fn to(mut self, ah: &Ah, qp_number: u32, qkey: u32) -> Self {
        if let Work::Send(wr) = &mut self.work {
            wr.send_to(ah, qp_number, qkey);
        }
        self
    }

    /// As [`Request::srq`](crate::Request::srq). No effect on a receive.
    pub fn srq(mut self, number: u32) -> Self {
        if let Work::Send(wr) = &mut self.work {
            wr.srq = number;
        }
        self
    }

    /// Returns a future that posts the request. The future waits for a place in the queue and ends
    /// when the device has the request. Its output is a second future, which waits for the
    /// completion.
    pub fn posted(self) -> Posting<'t, 'd> {
        let queue = match self.work {
            Work::Send(_) => Queue::Send,
            Work::Recv(_) => Queue::Recv,
        };
        let number = {
            let mut queues = self.qp.0.queues.lock();
            queues.next += 1;
            queues.next
        };
        Posting { qp: self.qp, work: self.work, queue, number, over: false }
    }
}

impl<'t, 'd> IntoFuture for AsyncRequest<'t, 'd> {
    type Output = Result<Completion>;
    type IntoFuture = Performing<'t, 'd>;

    fn into_future(self) -> Performing<'t, 'd> {
        Performing(Stage::Posting(self.posted()))
    }
}

/// A request that waits for its place ([`AsyncRequest::posted`]).
///
/// The errors are the errors of [`Request::post`](crate::Request::post), except for a full queue.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct Posting<'t, 'd> {
    qp: &'t AsyncQp,
    work: Work<'d>,
    queue: Queue,
    number: u64,
    /// Set when the request has a place, also if the device then refuses the request.
    over: bool,
}

impl Posting<'_, '_> {
    fn post(&self) -> Result<()> {
        let qp = &self.qp.0.qp;
        match &self.work {
            Work::Recv(slices) => {
                let wr_id = self.number;
                slices.with_sges(|sges| Ok(qp.lower().post_recv(&RecvWr { wr_id, sges })?))
            }
            Work::Send(wr) => wr.post(self.number, qp),
        }
    }
}

impl Future for Posting<'_, '_> {
    type Output = Result<Posted>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let me = self.get_mut();
        let (inner, number, queue) = (&me.qp.0, me.number, me.queue);
        let enter = || {
            let entered =
                inner.change(queue, |places, woken| places.enter(number, cx.waker(), woken));
            entered.then_some(())
        };
        ready!(inner.look(number, cx, enter))?;
        me.over = true;
        inner.cq.wake_no_more(number);
        if let Err(refused) = me.post() {
            inner.change(queue, |places, woken| places.refuse(number, woken));
            return Poll::Ready(Err(refused));
        }
        Poll::Ready(Ok(Posted { qp: me.qp.clone(), queue, number }))
    }
}

impl Drop for Posting<'_, '_> {
    fn drop(&mut self) {
        if !self.over {
            let inner = &self.qp.0;
            inner.cq.wake_no_more(self.number);
            inner.change(self.queue, |places, woken| places.leave(self.number, woken));
        }
    }
}

/// A posted request. The output is the completion of a successful request; a failure is
/// [`Error::Failed`], with the cause.
#[derive(Debug)]
#[must_use = "if the future is dropped, the outcome of the request is lost"]
pub struct Posted {
    qp: AsyncQp,
    queue: Queue,
    number: u64,
}

impl Future for Posted {
    type Output = Result<Completion>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (inner, number, queue) = (&self.qp.0, self.number, self.queue);
        let take = || inner.change(queue, |places, _| places.take(number, cx.waker()));
        let completion = ready!(inner.look(number, cx, take))?;
        Poll::Ready(completion.ok())
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        let inner = &self.qp.0;
        inner.cq.wake_no_more(self.number);
        inner.change(self.queue, |places, _| places.abandon(self.number));
    }
}

/// A request from its wait for a place to its completion: the future of an awaited
/// [`AsyncRequest`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct Performing<'t, 'd>(Stage<'t, 'd>);

#[derive(Debug)]
enum Stage<'t, 'd> {
    Posting(Posting<'t, 'd>),
    Posted(Posted),
}

impl Future for Performing<'_, '_> {
    type Output = Result<Completion>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Performing(stage) = self.get_mut();
        loop {
            match stage {
                Stage::Posting(posting) => {
                    *stage = Stage::Posted(ready!(Pin::new(posting).poll(cx))?)
                }
                Stage::Posted(posted) => return Pin::new(posted).poll(cx),
            }
        }
    }
}
