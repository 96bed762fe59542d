//! The BTH opcode. One table lists each value and the headers that follow it (IBTA 9.2, table 38).
use core::fmt;

/// Transport service, the three high bits of the opcode. RD is not supported.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification (RoCEv2 annex A17): only the opcode 0x81.
    Cnp,
    /// Extended reliable connection (annex A14).
    Xrc,
}

impl Transport {
    const fn bits(self) -> u8 {
        match self {
            Transport::Rc => 0x00,
            Transport::Uc => 0x20,
            Transport::Ud => 0x60,
            Transport::Cnp => 0x80,
            Transport::Xrc => 0xa0,
        }
    }

    /// The name in the specification: "RC".
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Rc => "RC",
            Transport::Uc => "UC",
            Transport::Ud => "UD",
            Transport::Cnp => "CNP",
            Transport::Xrc => "XRC",
        }
    }
}

// Flags of a row of the table.
const XRCETH: u32 = 1 << 0;
const DETH: u32 = 1 << 1;
const RETH: u32 = 1 << 2;
const FETH: u32 = 1 << 3;
const AETH: u32 = 1 << 4;
const ATOMIC_ETH: u32 = 1 << 5;
const ATOMIC_ACK_ETH: u32 = 1 << 6;
const IMM: u32 = 1 << 7;
const IETH: u32 = 1 << 8;
const PAYLOAD: u32 = 1 << 9;
const FIRST: u32 = 1 << 10;
const MIDDLE: u32 = 1 << 11;
const LAST: u32 = 1 << 12;
const ONLY: u32 = 1 << 13;
const RESPONSE: u32 = 1 << 14;
// Transports on which an operation exists. XRC has all operations of RC.
const RC: u32 = 1 << 16;
const UC: u32 = 1 << 17;
const UD: u32 = 1 << 18;
const CNP: u32 = 1 << 19;
const VALID: u32 = 1 << 31;

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $words:literal, $flags:expr;)*) => {
        /// The operation of a packet on any transport: the five low bits of the opcode.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Operation { $(#[doc = concat!($words, ".")] $(#[$doc])* $name,)* }

        /// The table: code, words and headers of each operation.
        const ROWS: &[(Operation, u8, &str, u32)] = &[$((Operation::$name, $code, $words, $flags),)*];

        impl Operation {
            /// All operations, in the order of the table.
            pub const ALL: &[Operation] = &[$(Operation::$name,)*];
        }
    };
}

operations! {
    SendFirst = 0x00, "SEND First", RC | UC | FIRST | PAYLOAD;
    SendMiddle = 0x01, "SEND Middle", RC | UC | MIDDLE | PAYLOAD;
    SendLast = 0x02, "SEND Last", RC | UC | LAST | PAYLOAD;
    SendLastImm = 0x03, "SEND Last with Immediate", RC | UC | LAST | PAYLOAD | IMM;
    SendOnly = 0x04, "SEND Only", RC | UC | UD | ONLY | PAYLOAD;
    SendOnlyImm = 0x05, "SEND Only with Immediate", RC | UC | UD | ONLY | PAYLOAD | IMM;
    WriteFirst = 0x06, "RDMA WRITE First", RC | UC | FIRST | PAYLOAD | RETH;
    WriteMiddle = 0x07, "RDMA WRITE Middle", RC | UC | MIDDLE | PAYLOAD;
    WriteLast = 0x08, "RDMA WRITE Last", RC | UC | LAST | PAYLOAD;
    WriteLastImm = 0x09, "RDMA WRITE Last with Immediate", RC | UC | LAST | PAYLOAD | IMM;
    WriteOnly = 0x0a, "RDMA WRITE Only", RC | UC | ONLY | PAYLOAD | RETH;
    WriteOnlyImm = 0x0b, "RDMA WRITE Only with Immediate", RC | UC | ONLY | PAYLOAD | RETH | IMM;
    ReadRequest = 0x0c, "RDMA READ Request", RC | ONLY | RETH;
    ReadResponseFirst = 0x0d, "RDMA READ response First", RC | RESPONSE | FIRST | PAYLOAD | AETH;
    ReadResponseMiddle = 0x0e, "RDMA READ response Middle", RC | RESPONSE | MIDDLE | PAYLOAD;
    ReadResponseLast = 0x0f, "RDMA READ response Last", RC | RESPONSE | LAST | PAYLOAD | AETH;
    /// Also answers FLUSH and ATOMIC WRITE, then without payload (annex A19).
    ReadResponseOnly = 0x10, "RDMA READ response Only", RC | RESPONSE | ONLY | PAYLOAD | AETH;
    /// ACK, NAK or RNR NAK, given by the AETH.
    Acknowledge = 0x11, "Acknowledge", RC | RESPONSE | ONLY | AETH;
    AtomicAcknowledge = 0x12, "ATOMIC Acknowledge", RC | RESPONSE | ONLY | AETH | ATOMIC_ACK_ETH;
    CompareSwap = 0x13, "CmpSwap", RC | ONLY | ATOMIC_ETH;
    FetchAdd = 0x14, "FetchAdd", RC | ONLY | ATOMIC_ETH;
    SendLastInv = 0x16, "SEND Last with Invalidate", RC | LAST | PAYLOAD | IETH;
    SendOnlyInv = 0x17, "SEND Only with Invalidate", RC | ONLY | PAYLOAD | IETH;
    /// Annex A19.
    Flush = 0x1c, "FLUSH", RC | ONLY | FETH | RETH;
    /// Annex A19: RETH and 8 bytes of payload.
    AtomicWrite = 0x1d, "ATOMIC WRITE", RC | ONLY | PAYLOAD | RETH;
    /// Congestion notification packet; its payload is 16 reserved bytes (annex A17.9.3).
    CongestionNotification = 0x01, "CNP", CNP | ONLY | PAYLOAD;
}

impl Operation {
    /// The name in the specification: "RDMA WRITE First".
    #[must_use]
    pub const fn name(self) -> &'static str {
        ROWS[self as usize].2
    }
}

#[derive(Clone, Copy)]
struct Info {
    flags: u32,
    transport: Transport,
    operation: Operation,
    header_len: u8,
}

const fn header_len(flags: u32) -> u8 {
    let sizes: [(u32, u8); 9] = [
        (XRCETH, 4),
        (DETH, 8),
        (RETH, 16),
        (FETH, 4),
        (AETH, 4),
        (ATOMIC_ETH, 28),
        (ATOMIC_ACK_ETH, 8),
        (IMM, 4),
        (IETH, 4),
    ];
    let (mut n, mut i) = (12, 0);
    while i < sizes.len() {
        if flags & sizes[i].0 != 0 {
            n += sizes[i].1;
        }
        i += 1;
    }
    n
}

const fn expand() -> [Info; 256] {
    let none = Info {
        flags: 0,
        transport: Transport::Rc,
        operation: Operation::SendFirst,
        header_len: 12,
    };
    let mut table = [none; 256];
    let transports = [
        (Transport::Rc, RC),
        (Transport::Uc, UC),
        (Transport::Ud, UD),
        (Transport::Cnp, CNP),
        (Transport::Xrc, RC),
    ];
    let mut t = 0;
    while t < transports.len() {
        let (transport, on) = transports[t];
        let mut r = 0;
        while r < ROWS.len() {
            let (operation, code, _, row) = ROWS[r];
            if row & on != 0 {
                let mut flags = VALID | row;
                match transport {
                    Transport::Ud => flags |= DETH,
                    // A14: only requests have an XRCETH. A response goes to the initiator QP in its
                    // BTH.
                    Transport::Xrc if row & RESPONSE == 0 => flags |= XRCETH,
                    _ => {}
                }
                table[(transport.bits() | code) as usize] =
                    Info { flags, transport, operation, header_len: header_len(flags) };
            }
            r += 1;
        }
        t += 1;
    }
    table
}

static TABLE: [Info; 256] = expand();

const fn longest() -> usize {
    let table = expand();
    let (mut max, mut i) = (0, 0);
    while i < table.len() {
        if table[i].header_len as usize > max {
            max = table[i].header_len as usize;
        }
        i += 1;
    }
    max
}

/// Length in bytes of the longest BTH with extension headers (XRC atomics).
pub const MAX_HEADER_LEN: usize = longest();

/// A known BTH opcode.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode(u8);

macro_rules! queries {
    ($($(#[$doc:meta])* $name:ident: $flags:expr;)*) => {
        $($(#[$doc])* #[must_use] pub const fn $name(self) -> bool { self.any($flags) })*
    };
}

impl Opcode {
    /// Congestion notification packet.
    pub const CNP: Opcode = Opcode(0x81);

    /// The opcode of an operation on a transport; `None` if the transport does not have the
    /// operation.
    #[must_use]
    pub const fn new(transport: Transport, operation: Operation) -> Option<Opcode> {
        let (_, code, _, row) = ROWS[operation as usize];
        let on = match transport {
            Transport::Rc | Transport::Xrc => RC,
            Transport::Uc => UC,
            Transport::Ud => UD,
            Transport::Cnp => CNP,
        };
        if row & on != 0 { Some(Opcode(transport.bits() | code)) } else { None }
    }

    /// The opcode of a byte on the wire; `None` for reserved and unknown bytes (including RD).
    #[must_use]
    pub const fn from_u8(byte: u8) -> Option<Opcode> {
        if TABLE[byte as usize].flags & VALID != 0 { Some(Opcode(byte)) } else { None }
    }

    /// The byte on the wire.
    #[must_use]
    pub const fn as_u8(self) -> u8 {
        self.0
    }

    const fn info(self) -> &'static Info {
        &TABLE[self.0 as usize]
    }

    const fn any(self, flags: u32) -> bool {
        self.info().flags & flags != 0
    }

    /// The transport service of this opcode.
    #[must_use]
    pub const fn transport(self) -> Transport {
        self.info().transport
    }

    /// The operation of this opcode.
    #[must_use]
    pub const fn operation(self) -> Operation {
        self.info().operation
    }

    /// Length in bytes of the BTH and all extension headers.
    #[must_use]
    pub const fn header_len(self) -> usize {
        self.info().header_len as usize
    }

    queries! {
        /// Has an XRC extended transport header.
        has_xrceth: XRCETH;
        /// Has a datagram extended transport header.
        has_deth: DETH;
        /// Has an RDMA extended transport header.
        has_reth: RETH;
        /// Has a FLUSH extended transport header.
        has_feth: FETH;
        /// Has an ACK extended transport header.
        has_aeth: AETH;
        /// Has an atomic extended transport header.
        has_atomic_eth: ATOMIC_ETH;
        /// Has an atomic ACK extended transport header.
        has_atomic_ack_eth: ATOMIC_ACK_ETH;
        /// Has immediate data.
        has_imm: IMM;
        /// Has an invalidate extended transport header.
        has_ieth: IETH;
        /// May carry payload, which may be empty. For CNP the payload is 16 reserved bytes.
        carries_payload: PAYLOAD;
        /// First of several packets.
        is_first: FIRST;
        /// Neither first nor last packet.
        is_middle: MIDDLE;
        /// Last of several packets.
        is_last: LAST;
        /// The only packet of its message. READ requests, atomics, FLUSH and acknowledges count as
        /// only packets.
        is_only: ONLY;
        /// First or only.
        starts_message: FIRST | ONLY;
        /// Last or only.
        ends_message: LAST | ONLY;
        /// From responder to requester: READ responses and acknowledges.
        is_response: RESPONSE;
    }

    /// From requester to responder. CNP is neither request nor response.
    #[must_use]
    pub const fn is_request(self) -> bool {
        !self.any(RESPONSE | CNP)
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.transport() != Transport::Cnp {
            f.write_str(self.transport().name())?;
            f.write_str(" ")?;
        }
        f.write_str(self.operation().name())
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opcode({:#04x}, {self})", self.0)
    }
}
