//! Memory of the program: registered on the caller's word, or lent while a call runs.
use crate::buffer::{BufSlice, Buffer, LentSlice, RemoteBuf, Rights};
use crate::error::Result;
use crate::pd::Pd;
use adverb_device::{Errno, Mapping};
use std::ops::RangeBounds;

impl Pd {
    /// Registers `len` bytes of the caller's memory at `addr` (`ibv_reg_mr(3)`). The result is a
    /// normal [`Buffer`].
    ///
    /// # Errors
    /// EFAULT if the bytes are not mapped readable and writable; EINVAL for contradictory rights;
    /// ENOMEM.
    ///
    /// # Safety
    /// The device reads the bytes and, as the rights allow, writes them. It does so from other
    /// threads at any time, for requests and for peers. So until the last clone of the buffer and
    /// the last memory window bound to it no longer exist:
    ///
    /// - the bytes stay mapped, readable and writable;
    /// - the program uses no Rust reference to the bytes while the device may access them.
    #[allow(unsafe_code, reason = "the caller vouches for the memory")]
    pub unsafe fn reg_raw(&self, addr: *mut u8, len: usize, rights: Rights) -> Result<Buffer> {
        // SAFETY: the caller guarantees the bytes until every registration has ended. The `Buffer`
        // ends its registration when its last handle is dropped.
        let mapping = unsafe { Mapping::vouched(addr as u64, len as u64) };
        Buffer::register(self, mapping, rights)
    }
}

impl Pd {
    /// Lends memory of the program to the device and to peers while `f` runs. The memory is
    /// registered in place, and nothing is copied. When the call has returned, the device changes
    /// no byte of the memory; requests that still name it fail.
    ///
    /// Only blocking calls can lend memory. A future can be forgotten, and the memory would stay
    /// lent forever, so there is no such future.
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
    /// As [`Pd::reg_raw`]. EINVAL for the right to bind windows, because a window could outlive the
    /// call. After an error `f` was not called.
    #[allow(unsafe_code, reason = "the borrow vouches for the memory")]
    pub fn lend<R>(
        &self,
        memory: &mut [u8],
        rights: Rights,
        f: impl FnOnce(&Lent) -> R,
    ) -> Result<R> {
        if rights == rights.windows() {
            return Err(
                adverb_device::Error::new(Errno::EINVAL, "lent memory takes no windows").into()
            );
        }
        let (addr, len) = (memory.as_mut_ptr(), memory.len());
        // SAFETY: this call borrows the bytes exclusively for its whole length and does not touch
        // them through `memory`. The registration ends with `lent` inside this call, also when `f`
        // panics: `Lent` gives no other handle on the buffer and no window.
        let buffer = unsafe { self.reg_raw(addr, len, rights) }?;
        let lent = Lent { buffer: Some(buffer) };
        let answer = f(&lent);
        drop(lent);
        Ok(answer)
    }
}

/// Memory that is lent to the device while a call runs ([`Pd::lend`]). Requests read and write its
/// bytes. After the call only the program uses the memory.
#[derive(Debug)]
pub struct Lent {
    /// `Some` until the drop. No function gives the buffer away.
    buffer: Option<Buffer>,
}

impl Lent {
    fn all(&self) -> BufSlice<'_> {
        match &self.buffer {
            Some(buffer) => buffer.slice(..),
            None => unreachable!("taken only as it is dropped"),
        }
    }

    /// A piece of the memory, for a request.
    ///
    /// # Panics
    /// If the range leaves the memory.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> LentSlice<'_> {
        LentSlice::new(self.all().try_slice(range).unwrap_or_else(|e| panic!("{e}")))
    }

    /// The whole memory as peers name it, until the call ends.
    #[must_use]
    pub fn remote(&self) -> RemoteBuf {
        self.all().remote()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(Err(e)) = self.buffer.take().map(Buffer::destroy)
            // A child of `fork` has its own copy of the bytes, which the device cannot reach.
            && e.errno() != Errno::EIO as i32
        {
            log::error!("lent memory stays in use: {e}");
            // If this returned, the device could write memory that the program uses as its own.
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests;
