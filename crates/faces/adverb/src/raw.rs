//! Memory that is not ours: registered on the caller's word, or lent for as long as a call runs.
use crate::buffer::{BufSlice, Buffer, LentSlice, RemoteBuf, Rights};
use crate::error::Result;
use crate::pd::Pd;
use adverb_device::{Errno, Mapping};
use std::ops::RangeBounds;

impl Pd {
    /// Registers `len` bytes of the caller's memory at `addr` (`ibv_reg_mr(3)`). The handle is a
    /// [`Buffer`] like any other.
    ///
    /// # Errors
    /// EFAULT if the bytes are not mapped readable and writable, EINVAL for rights that contradict
    /// each other, ENOMEM.
    ///
    /// # Safety
    /// Until the last clone of the buffer, and the last memory window bound to it, is gone, the
    /// bytes stay mapped, readable and writable, and no Rust reference to them is used while the
    /// device may touch them: it reads and, as the rights say, writes them from other threads at
    /// any time, on behalf of requests and of peers.
    #[allow(unsafe_code, reason = "the caller vouches for the memory")]
    pub unsafe fn reg_raw(&self, addr: *mut u8, len: usize, rights: Rights) -> Result<Buffer> {
        // SAFETY: the caller vouches for the bytes until every registration has ended; `Buffer`
        // ends it when it goes.
        let mapping = unsafe { Mapping::vouched(addr as u64, len as u64) };
        Buffer::register(self, mapping, rights)
    }
}

impl Pd {
    /// Lends memory of the program's own to the device and to peers while `f` runs: it is
    /// registered as it stands, and nothing is copied. When the call returns, no byte of it changes
    /// any more; requests that still want it fail.
    ///
    /// This is for calls that block. A future may be forgotten, which would leave the memory lent
    /// for ever, so there is no such future.
    ///
    /// ```
    /// use adverb::{Rights, testing::pair};
    ///
    /// let (a, b) = pair()?;
    /// let mut inbox = [0; 16];
    /// let mut outbox = *b"from the stack";
    /// let len = b.pd.lend(&mut inbox, Rights::LOCAL, |inbox| {
    ///     b.qp.recv(inbox.slice(..)).post()?;
    ///     a.pd.lend(&mut outbox, Rights::LOCAL, |outbox| {
    ///         a.qp.send(outbox.slice(..)).post()?;
    ///         a.completion()
    ///     })??;
    ///     b.completion().map(|c| c.byte_len())
    /// })??;
    /// assert_eq!(inbox[..len], outbox[..]);
    /// # Ok::<(), adverb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pd::reg_raw`]; EINVAL for rights to bind windows, which could outlive the call. `f` was
    /// not called then.
    #[allow(unsafe_code, reason = "the borrow vouches for the memory")]
    pub fn lend<R>(&self, memory: &mut [u8], rights: Rights, f: impl FnOnce(&Lent) -> R) -> Result<R> {
        if rights == rights.windows() {
            return Err(adverb_device::Error::new(Errno::EINVAL, "lent memory takes no windows").into());
        }
        let (addr, len) = (memory.as_mut_ptr(), memory.len());
        // SAFETY: the bytes are exclusively borrowed for the whole of this call and not touched
        // through `memory` in it. The registration ends with `lent` inside of the call, also when
        // `f` panics: nobody can have another handle on the buffer (`Lent`), and no window.
        let buffer = unsafe { self.reg_raw(addr, len, rights) }?;
        let lent = Lent { buffer: Some(buffer) };
        let answer = f(&lent);
        drop(lent);
        Ok(answer)
    }
}

/// Memory that is lent to the device while a call runs ([`Pd::lend`]). Its bytes are read and
/// written by requests; the program has them again behind the call.
#[derive(Debug)]
pub struct Lent {
    /// There until it is dropped. Nothing here gives it away.
    buffer: Option<Buffer>,
}

impl Lent {
    fn all(&self) -> BufSlice<'_> {
        match &self.buffer {
            Some(buffer) => buffer.slice(..),
            None => unreachable!("taken only as it is dropped"),
        }
    }

    /// A piece of it, for a request.
    ///
    /// # Panics
    /// If the range leaves it, as slicing does.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> LentSlice<'_> {
        match self.all().try_slice(range) {
            Ok(slice) => LentSlice::new(slice),
            Err(e) => panic!("{e}"),
        }
    }

    /// All of it as peers name it, until the call ends.
    #[must_use]
    pub fn remote(&self) -> RemoteBuf {
        self.all().remote()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(Err(e)) = self.buffer.take().map(Buffer::destroy)
            // A child of `fork` has bytes of its own, which nobody else reaches.
            && e.errno() != Errno::EIO as i32
        {
            log::error!("memory that was lent stays in use: {e}");
            // Returning would have it written while the program believes it its own.
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Rights;
    use crate::testing::pair;

    #[test]
    #[allow(unsafe_code, reason = "it registers memory of its own")]
    fn foreign_memory_is_a_buffer_like_any_other() {
        let (a, b) = pair().unwrap();
        let memory = Box::into_raw(vec![0u8; 4096].into_boxed_slice());
        // SAFETY: the memory is leaked above and taken back after the buffer has ended; nothing
        // refers to it meanwhile.
        let buffer = unsafe { b.pd.reg_raw(memory.cast(), 4096, Rights::LOCAL.remote_write()) }.unwrap();
        assert_eq!((buffer.addr(), buffer.len()), (memory.cast::<u8>() as u64, 4096));
        a.qp.write("into a box", buffer.remote().slice(100..)).post().unwrap();
        a.completion().unwrap();
        assert_eq!(buffer.to_vec(100..110).unwrap(), b"into a box");
        let remote = buffer.remote();
        buffer.destroy().unwrap();
        // SAFETY: it came from a box, and the registration has ended.
        let memory = unsafe { Box::from_raw(memory) };
        a.qp.write("too late", remote).post().unwrap();
        assert!(a.completion().is_err());
        assert_eq!(memory[..8], [0; 8]);
        assert_eq!(&memory[100..110], b"into a box");
    }

    #[test]
    #[allow(unsafe_code, reason = "it registers what is not there")]
    fn memory_that_is_not_there_is_refused() {
        let (a, _b) = pair().unwrap();
        // SAFETY: nothing is mapped there, which the call finds out; so nothing is registered.
        let refused = unsafe { a.pd.reg_raw(std::ptr::without_provenance_mut(4096), 4096, Rights::LOCAL) };
        assert_eq!(refused.unwrap_err().errno(), 14, "EFAULT");
    }

    #[test]
    fn lent_memory_is_written_while_the_call_runs_and_not_behind_it() {
        let (a, b) = pair().unwrap();
        let mut memory = [0u8; 100];
        let remote =
            b.pd.lend(&mut memory[1..], Rights::LOCAL.remote_write(), |lent| {
                a.qp.write("in time", lent.slice(10..20).remote()).post().unwrap();
                a.completion().unwrap();
                lent.remote()
            })
            .unwrap();
        assert_eq!(&memory[11..18], b"in time");
        a.qp.write("too late", remote).post().unwrap();
        assert!(a.completion().is_err());
        assert_eq!(memory[1..9], [0; 8]);
    }

    #[test]
    fn lent_memory_comes_back_from_a_panic() {
        let (a, b) = pair().unwrap();
        let mut memory = vec![0u8; 64];
        let mut remote = None;
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            b.pd.lend(&mut memory, Rights::LOCAL.remote_write(), |lent| {
                remote = Some(lent.remote());
                panic!("as a test");
            })
        }));
        assert!(panicked.is_err());
        a.qp.write("too late", remote.unwrap()).post().unwrap();
        assert!(a.completion().is_err());
        assert_eq!(memory, [0; 64]);
    }

    #[test]
    fn windows_cannot_outlive_the_loan() {
        let (a, _b) = pair().unwrap();
        let refused = a.pd.lend(&mut [0; 8], Rights::ALL, |_| panic!("not called"));
        assert_eq!(refused.unwrap_err().errno(), 22, "EINVAL");
    }
}
