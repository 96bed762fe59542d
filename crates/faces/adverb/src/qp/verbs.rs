//! The operations, for queue pairs and batches alike.
use super::request::Target;
use super::wr::{Op, Placement};
use super::{AsyncQp, AsyncRequest, Batch, Qp, Request};
use crate::buffer::{BufSlice, RemoteBuf};
use crate::data::{Data, Slices};
use crate::mw::{Mw, WindowRights};
use adverb_device::engine::Key;

/// The operations of a send queue. `$life` is the lifetime of the data: of each call on a queue
/// pair, of the whole batch on a batch.
macro_rules! operations {
    ($request:ident [$($own:lifetime)?] [$($exclusive:ident)?]) => {
        /// Sends a message: it lands in the peer's oldest posted receive (IBTA 9.4.1).
        pub fn send<$($own)?>(&$($exclusive)? self, data: impl Into<Data<'d>>) -> $request<'_, 'd> {
            self.request(Op::Send, data.into())
        }

        /// Sends a message with four bytes of immediate data, which the peer finds at
        /// [`Completion::imm`](crate::Completion::imm) (they cross in network order).
        pub fn send_imm<$($own)?>(
            &$($exclusive)? self,
            data: impl Into<Data<'d>>,
            imm: u32,
        ) -> $request<'_, 'd> {
            self.request(Op::SendImm(imm), data.into())
        }

        /// Sends a message that invalidates a key at the peer: of a window of type 2 bound there
        /// ([`Completion::invalidated`](crate::Completion::invalidated); IBTA 9.4.1.1.3). RC and
        /// XRC.
        pub fn send_inv<$($own)?>(&$($exclusive)? self, data: impl Into<Data<'d>>, key: Key) -> $request<'_, 'd> {
            self.request(Op::SendInv(key), data.into())
        }

        /// Writes into the peer's memory; the peer is not told (RDMA WRITE, IBTA 9.4.3). Not on UD.
        pub fn write<$($own)?>(
            &$($exclusive)? self,
            data: impl Into<Data<'d>>,
            remote: RemoteBuf,
        ) -> $request<'_, 'd> {
            self.request(Op::Write(remote), data.into())
        }

        /// Writes into the peer's memory and completes the peer's oldest posted receive with
        /// immediate data.
        pub fn write_imm<$($own)?>(
            &$($exclusive)? self,
            data: impl Into<Data<'d>>,
            remote: RemoteBuf,
            imm: u32,
        ) -> $request<'_, 'd> {
            self.request(Op::WriteImm(remote, imm), data.into())
        }

        /// Reads the peer's memory into ours (RDMA READ, IBTA 9.4.4). RC and XRC.
        pub fn read<$($own)?>(
            &$($exclusive)? self,
            into: impl Into<Slices<'d>>,
            remote: RemoteBuf,
        ) -> $request<'_, 'd> {
            self.request(Op::Read(remote), Data::Slices(into.into()))
        }

        /// Stores `swap` in the peer's word if it is `compare`, atomically; what it was lands in
        /// `old`, 8 bytes in host order (IBTA 9.4.5). The remote address is a multiple of 8. RC and
        /// XRC.
        pub fn compare_swap<$($own)?>(
            &$($exclusive)? self,
            old: impl Into<Slices<'d>>,
            remote: RemoteBuf,
            compare: u64,
            swap: u64,
        ) -> $request<'_, 'd> {
            self.request(Op::CompareSwap { remote, compare, swap }, Data::Slices(old.into()))
        }

        /// Adds to the peer's word atomically, wrapping; what it was lands in `old`, 8 bytes in
        /// host order (IBTA 9.4.5). The remote address is a multiple of 8. RC and XRC.
        pub fn fetch_add<$($own)?>(
            &$($exclusive)? self,
            old: impl Into<Slices<'d>>,
            remote: RemoteBuf,
            add: u64,
        ) -> $request<'_, 'd> {
            self.request(Op::FetchAdd { remote, add }, Data::Slices(old.into()))
        }

        /// Writes eight bytes at once: no reader sees a part of them (IBTA annex A19.4.2). The
        /// remote address is a multiple of
        /// 8. RC and XRC.
        pub fn atomic_write<$($own)?>(
            &$($exclusive)? self,
            word: impl Into<Data<'d>>,
            remote: RemoteBuf,
        ) -> $request<'_, 'd> {
            self.request(Op::AtomicWrite(remote), word.into())
        }

        /// Completes when what was written before into this memory has come as far as `to` says
        /// (IBTA annex A19.4.1). The buffer grants it with
        /// [`BufferBuilder::remote_flush`](crate::BufferBuilder::remote_flush). RC and XRC.
        pub fn flush<$($own)?>(&$($exclusive)? self, remote: RemoteBuf, to: Placement) -> $request<'_, 'd> {
            self.request(Op::Flush(remote, to), ().into())
        }

        /// Binds a memory window to a part of a buffer made with
        /// [`BufferBuilder::windows`](crate::BufferBuilder::windows), with a new key that
        /// [`Mw::key`] has as soon as this is posted (IBTA 10.6.7.2). RC, UC and XRC.
        pub fn bind_mw<$($own)?>(
            &$($exclusive)? self,
            mw: &'d Mw,
            to: BufSlice<'d>,
            rights: WindowRights,
        ) -> $request<'_, 'd> {
            self.request(Op::Bind { mw, to: Some(to), rights }, ().into())
        }

        /// Takes a window of type 1 back: binds it to nothing. One of type 2 is taken back by
        /// [`Qp::local_inv`].
        pub fn unbind_mw<$($own)?>(&$($exclusive)? self, mw: &'d Mw) -> $request<'_, 'd> {
            self.request(Op::Bind { mw, to: None, rights: WindowRights::default() }, ().into())
        }

        /// Invalidates a key of our own, of a window of type 2 (IBTA 10.6.7.3).
        pub fn local_inv<$($own)?>(&$($exclusive)? self, key: Key) -> $request<'_, 'd> {
            self.request(Op::LocalInv(key), ().into())
        }
    };
}

/// Operations: each makes a [`Request`], which [`Request::post`] posts.
impl Qp {
    operations!(Request ['d] []);

    fn request<'d>(&self, op: Op<'d>, data: Data<'d>) -> Request<'_, 'd> {
        Request::new(Target::Qp(self), op, data)
    }
}

/// Operations: each makes a [`Request`], which [`Request::post`] adds to the batch.
impl<'d> Batch<'d> {
    operations!(Request [] [mut]);

    fn request(&mut self, op: Op<'d>, data: Data<'d>) -> Request<'_, 'd> {
        Request::new(Target::Batch(self), op, data)
    }
}

/// Operations: each makes an [`AsyncRequest`], which is performed when it is awaited.
impl AsyncQp {
    operations!(AsyncRequest ['d] []);
}
