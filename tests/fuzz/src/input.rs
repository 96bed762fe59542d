//! Choices from the bytes of a fuzzer. Bytes beyond the end read as zero. So any bytes are an
//! input, and a cut input is a smaller input.

/// The remaining bytes.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// An input from all these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Input(bytes)
    }
    /// Is the input used up?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// The next `n` bytes, or the rest.
    pub fn take(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        taken
    }
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let taken = self.take(N);
        out[..taken.len()].copy_from_slice(taken);
        out
    }
    /// A byte.
    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }
    /// Two bytes, little-endian like all numbers here.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }
    /// Four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }
    /// Eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
    /// The lowest bit of a byte.
    pub fn flag(&mut self) -> bool {
        self.u8() & 1 != 0
    }
    /// A number below `n`, which is at most 256 and not 0.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.u8()) % n
    }
    /// One of several values.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}
