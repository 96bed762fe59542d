//! The one unsafe declaration: memory that is not ours.
use crate::buffer::{Buffer, Rights};
use crate::error::Result;
use crate::pd::Pd;
use adverb_device::Mapping;

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
}
