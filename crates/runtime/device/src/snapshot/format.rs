//! A page as bytes.
//!
//! Numbers are in little-endian order. A text is its length (16 bits) and UTF-8. A record is its
//! length (16 bits) and its fields. A reader skips what follows the known fields of a record, so
//! that a later version may add fields at the end. Other changes need another [`VERSION`].
use super::{Arm, PacketPath, Page, Pair, Process, Queue};
use adverb_engine::Gid;

/// The version of the format.
const VERSION: u16 = 2;
/// Most bytes of a page that a process fills.
pub const PAGE: usize = 24 << 10;
/// The longest text in bytes. A longer text is cut.
const TEXT: usize = 1000;
/// Most counters of a page.
const COUNTERS: usize = 400;

/// Why bytes are no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    /// Another version of the format.
    #[error("its Adverb answers in format {0}, not in {own}", own = VERSION)]
    Version(u16),
    /// Cut, or not as the format says.
    #[error("its answer cannot be read")]
    Malformed,
}

/// A value of a page.
trait Field: Sized {
    fn emit(&self, out: &mut Vec<u8>);
    fn read(from: &mut &[u8]) -> Result<Self, Bad>;
}

fn take<'a>(from: &mut &'a [u8], len: usize) -> Result<&'a [u8], Bad> {
    from.split_off(..len).ok_or(Bad::Malformed)
}

fn array<const N: usize>(from: &mut &[u8]) -> Result<[u8; N], Bad> {
    take(from, N)?.try_into().map_err(|_| Bad::Malformed)
}

fn emit_record(record: &impl Field, out: &mut Vec<u8>) {
    let at = out.len();
    0_u16.emit(out);
    record.emit(out);
    let len = (out.len() - at - 2) as u16;
    out[at..at + 2].copy_from_slice(&len.to_le_bytes());
}

fn read_record<T: Field>(from: &mut &[u8]) -> Result<T, Bad> {
    let len = u16::read(from)?;
    T::read(&mut take(from, len.into())?)
}

fn emit_records(all: &[impl Field], out: &mut Vec<u8>) {
    (all.len() as u16).emit(out);
    all.iter().for_each(|one| emit_record(one, out));
}

/// The count is not trusted: no memory is reserved for it, and each record takes bytes.
fn read_records<T: Field>(from: &mut &[u8]) -> Result<Vec<T>, Bad> {
    let count = u16::read(from)?;
    (0..count).map(|_| read_record(from)).collect()
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Field for $number {
            fn emit(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn read(from: &mut &[u8]) -> Result<Self, Bad> {
                array(from).map(Self::from_le_bytes)
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64);

/// Values by their position, in one byte.
macro_rules! codes {
    ($of:ident: $($value:ident)*) => {
        impl Field for $of {
            fn emit(&self, out: &mut Vec<u8>) {
                (*self as u8).emit(out);
            }
            fn read(from: &mut &[u8]) -> Result<Self, Bad> {
                let code = usize::from(u8::read(from)?);
                [$($of::$value),*].get(code).copied().ok_or(Bad::Malformed)
            }
        }
    };
}

codes!(PacketPath: Network Memory Frames);
codes!(Arm: None Next Solicited Errors);

/// The bits of a byte, from the lowest on.
impl<const N: usize> Field for [bool; N] {
    fn emit(&self, out: &mut Vec<u8>) {
        self.iter().rev().fold(0, |bits, set| bits << 1 | u8::from(*set)).emit(out);
    }
    fn read(from: &mut &[u8]) -> Result<Self, Bad> {
        let bits = u8::read(from)?;
        Ok(std::array::from_fn(|n| bits >> n & 1 == 1))
    }
}

impl Field for Gid {
    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn read(from: &mut &[u8]) -> Result<Self, Bad> {
        array(from).map(Gid)
    }
}

impl Field for String {
    fn emit(&self, out: &mut Vec<u8>) {
        let text = &self[..self.floor_char_boundary(TEXT)];
        (text.len() as u16).emit(out);
        out.extend_from_slice(text.as_bytes());
    }
    fn read(from: &mut &[u8]) -> Result<Self, Bad> {
        let len = usize::from(u16::read(from)?);
        if len > TEXT {
            return Err(Bad::Malformed);
        }
        let text = std::str::from_utf8(take(from, len)?).map_err(|_| Bad::Malformed)?;
        Ok(text.to_owned())
    }
}

/// The name and value of a counter.
impl Field for (String, u64) {
    fn emit(&self, out: &mut Vec<u8>) {
        self.0.emit(out);
        self.1.emit(out);
    }
    fn read(from: &mut &[u8]) -> Result<Self, Bad> {
        Ok((String::read(from)?, u64::read(from)?))
    }
}

/// The fields of a record, in order. A page of an earlier build ends before the fields that are
/// `added`.
macro_rules! record {
    (
        $of:ident: $($field:ident)*
        $(, flags $($flag:ident)*, $($more:ident)*)?
        $(, added $($added:ident)*)?
    ) => {
        impl Field for $of {
            fn emit(&self, out: &mut Vec<u8>) {
                $(self.$field.emit(out);)*
                $([$(self.$flag),*].emit(out); $(self.$more.emit(out);)*)?
                $($(self.$added.emit(out);)*)?
            }
            fn read(from: &mut &[u8]) -> Result<Self, Bad> {
                $(let $field = Field::read(from)?;)*
                $(let [$($flag),*] = Field::read(from)?; $(let $more = Field::read(from)?;)*)?
                $($(let $added = Field::read(from).unwrap_or_default();)*)?
                Ok($of { $($field,)* $($($flag,)* $($more,)*)? $($($added,)*)? })
            }
        }
    };
}

record!(Process: pid slot at name version contexts queue_pairs);
record!(
    Pair: number qp_type state, flags busy retrying shared,
    way peer_pid dest own_gid peer_gid send_cq recv_cq depth open receives posted sent_bytes read_bytes
    received received_bytes retransmitted timeouts rnr_naks seq_naks drops refused error,
    added unfit srq unknown_key
);
record!(
    Queue: number capacity waiting unannounced unread arm, flags channel broken,
    arms silent_ms waiter stuck,
    added poller
);

impl Pair {
    /// Most bytes of the record.
    pub(crate) const LONGEST: usize = 200 + 2 * TEXT;
}

impl Queue {
    /// Most bytes of the record.
    pub(crate) const LONGEST: usize = 100 + 2 * TEXT;
}

impl Page {
    /// The page as bytes.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(PAGE / 4);
        VERSION.emit(&mut out);
        self.next.unwrap_or(0).emit(&mut out);
        emit_record(&self.process, &mut out);
        emit_records(&self.counters[..self.counters.len().min(COUNTERS)], &mut out);
        emit_records(&self.queues, &mut out);
        emit_records(&self.queue_pairs, &mut out);
        emit_records(&self.objects, &mut out);
        out
    }

    /// Reads a page from bytes of another process.
    ///
    /// # Errors
    /// The bytes are no page of this version.
    pub fn parse(mut bytes: &[u8]) -> Result<Page, Bad> {
        let from = &mut bytes;
        let version = u16::read(from)?;
        if version != VERSION {
            return Err(Bad::Version(version));
        }
        Ok(Page {
            next: Some(u32::read(from)?).filter(|next| *next != 0),
            process: read_record(from)?,
            counters: read_records(from)?,
            queues: read_records(from)?,
            queue_pairs: read_records(from)?,
            objects: read_records(from)?,
        })
    }
}
