//! The operations of queue pairs and batches.
use super::request::RequestTarget;
use super::wr::{Op, Placement};
use super::{AsyncQp, AsyncRequest, Batch, Qp, Request};
use crate::buffer::{BufSlice, RemoteBuf};
use crate::data::{Data, Slices};
use crate::mw::{Mw, WindowRights};
use adverb_device::engine::Key;

/// The operations of a send queue. The lifetime `'d` of the data belongs to each call on a queue
/// pair, and to the whole batch on a batch.
macro_rules! operations {
    ($request:ident [$($own:lifetime)?] [$($exclusive:ident)?]) => {
        /// Sends a message, which lands in the peer's oldest posted receive (IBTA 9.4.1).
        pub fn send<$($own)?>(&$($exclusive)? self, data: impl Into<Data<'d>>) -> $request<'_, 'd> {
            self.request(Op::Send, data.into())
        }

        /// Sends a message with four bytes of immediate data. The peer reads them with
        /// [`Completion::imm`](crate::Completion::imm). Immediate data travels in network byte
        /// order.
        pub fn send_imm<$($own)?>(
            &$($exclusive)? self,
            data: impl Into<Data<'d>>,
            imm: u32,
        ) -> $request<'_, 'd> {
            self.request(Op::SendImm(imm), data.into())
        }

        /// Sends a message that invalidates a key of the peer, the key of a bound window of type 2
        /// ([`Completion::invalidated`](crate::Completion::invalidated); IBTA 9.4.1.1.3). RC and
        /// XRC.
        pub fn send_inv<$($own)?>(&$($exclusive)? self, data: impl Into<Data<'d>>, key: Key) -> $request<'_, 'd> {
            self.request(Op::SendInv(key), data.into())
        }

        /// Writes into the peer's memory without notice to the peer (RDMA WRITE, IBTA 9.4.3). Not
        /// on UD.
        pub fn write<$($own)?>(
            &$($exclusive)? self,
            data: impl Into<Data<'d>>,
            remote: RemoteBuf,
        ) -> $request<'_, 'd> {
            self.request(Op::Write(remote), data.into())
        }

        /// Writes into the peer's memory, and completes the peer's oldest posted receive with
        /// immediate data.
        pub fn write_imm<$($own)?>(
            &$($exclusive)? self,
            data: impl Into<Data<'d>>,
            remote: RemoteBuf,
            imm: u32,
        ) -> $request<'_, 'd> {
            self.request(Op::WriteImm(remote, imm), data.into())
        }

        /// Reads the peer's memory into local memory (RDMA READ, IBTA 9.4.4). RC and XRC.
        pub fn read<$($own)?>(
            &$($exclusive)? self,
            into: impl Into<Slices<'d>>,
            remote: RemoteBuf,
        ) -> $request<'_, 'd> {
            self.request(Op::Read(remote), Data::Slices(into.into()))
        }

        /// Atomically stores `swap` in the peer's word if the word equals `compare`. The previous
        /// value lands in `old`, 8 bytes in host order (IBTA 9.4.5). The remote address is a
        /// multiple of 8. RC and XRC.
        pub fn compare_swap<$($own)?>(
            &$($exclusive)? self,
            old: impl Into<Slices<'d>>,
            remote: RemoteBuf,
            compare: u64,
            swap: u64,
        ) -> $request<'_, 'd> {
            self.request(Op::CompareSwap { remote, compare, swap }, Data::Slices(old.into()))
        }

        /// Atomically adds to the peer's word, wrapping around. The previous value lands in `old`,
        /// 8 bytes in host order (IBTA 9.4.5). The remote address is a multiple of 8. RC and XRC.
        pub fn fetch_add<$($own)?>(
            &$($exclusive)? self,
            old: impl Into<Slices<'d>>,
            remote: RemoteBuf,
            add: u64,
        ) -> $request<'_, 'd> {
            self.request(Op::FetchAdd { remote, add }, Data::Slices(old.into()))
        }

        /// Writes eight bytes atomically: no reader sees a part of them (IBTA annex A19.4.2). The
        /// remote address is a multiple of 8. RC and XRC.
        pub fn atomic_write<$($own)?>(
            &$($exclusive)? self,
            word: impl Into<Data<'d>>,
            remote: RemoteBuf,
        ) -> $request<'_, 'd> {
            self.request(Op::AtomicWrite(remote), word.into())
        }

        /// Completes when all earlier writes to this memory have come as far as `to` says (IBTA
        /// annex A19.4.1). The buffer grants the right with
        /// [`BufferBuilder::remote_flush`](crate::BufferBuilder::remote_flush). RC and XRC.
        pub fn flush<$($own)?>(&$($exclusive)? self, remote: RemoteBuf, to: Placement) -> $request<'_, 'd> {
            self.request(Op::Flush(remote, to), ().into())
        }

        /// Binds a memory window to a part of a buffer that was made with
        /// [`BufferBuilder::windows`](crate::BufferBuilder::windows). [`Mw::key`] returns the new
        /// key as soon as the request is posted (IBTA 10.6.7.2). RC, UC and XRC.
        pub fn bind_mw<$($own)?>(
            &$($exclusive)? self,
            mw: &'d Mw,
            to: BufSlice<'d>,
            rights: WindowRights,
        ) -> $request<'_, 'd> {
            self.request(Op::Bind { mw, to: Some(to), rights }, ().into())
        }

        /// Unbinds a window of type 1. [`Qp::local_inv`] invalidates a window of type 2.
        pub fn unbind_mw<$($own)?>(&$($exclusive)? self, mw: &'d Mw) -> $request<'_, 'd> {
            self.request(Op::Bind { mw, to: None, rights: WindowRights::default() }, ().into())
        }

        /// Invalidates a local key, the key of a window of type 2 (IBTA 10.6.7.3).
        pub fn local_inv<$($own)?>(&$($exclusive)? self, key: Key) -> $request<'_, 'd> {
            self.request(Op::LocalInv(key), ().into())
        }
    };
}

/// The operations. Each makes a [`Request`], which [`Request::post`] posts.
impl Qp {
    operations!(Request ['d] []);

    fn request<'d>(&self, op: Op<'d>, data: Data<'d>) -> Request<'_, 'd> {
        Request::new(RequestTarget::Qp(self), op, data)
    }
}

/// The operations. Each makes a [`Request`], which [`Request::post`] adds to the batch.
impl<'d> Batch<'d> {
    operations!(Request [] [mut]);

    fn request(&mut self, op: Op<'d>, data: Data<'d>) -> Request<'_, 'd> {
        Request::new(RequestTarget::Batch(self), op, data)
    }
}

/// The operations. Each makes an [`AsyncRequest`], which runs when it is awaited.
impl AsyncQp {
    operations!(AsyncRequest ['d] []);
}
