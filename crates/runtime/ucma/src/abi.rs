//! Commands and responses as bytes: numbers, sizes and fields of `rdma_user_cm.h`, ABI version 4.
use nix::errno::Errno;

/// The version that `/sys/class/misc/rdma_cm/abi_version` says.
pub const ABI_VERSION: u32 = 4;
/// Bytes of the header of a command: its number, and the lengths of command and response.
pub const HEADER: usize = 8;
/// Bytes of the longest command.
const LONGEST: usize = 320;
/// Bytes of a socket address in the commands of the newer kind.
pub const STORAGE: usize = 128;
/// Bytes of an event.
pub const EVENT: usize = 336;
/// Bytes of an event before its ECE part was added.
pub const EVENT_WITHOUT_ECE: usize = EVENT - 12;
/// Bytes of `struct ib_uverbs_qp_attr`.
pub const QP_ATTR: usize = 144;

/// Declares the commands: number, bytes it must have, bytes it may have.
macro_rules! commands {
    ($($name:ident = $number:literal $least:literal $full:literal)*) => {
        /// What a program may write.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u32)]
        #[allow(missing_docs)]
        pub enum Command { $($name = $number,)* }

        impl Command {
            /// All of them.
            pub const ALL: &[Command] = &[$(Command::$name),*];

            pub(crate) const fn of_number(number: u32) -> Option<Command> {
                match number { $($number => Some(Command::$name),)* _ => None }
            }
            const fn sizes(self) -> (usize, usize) {
                match self { $(Command::$name => ($least, $full),)* }
            }
        }
    };
}

commands! {
    CreateId = 0 24 24
    DestroyId = 1 16 16
    BindIp = 2 40 40
    ResolveIp = 3 64 64
    ResolveRoute = 4 8 8
    QueryRoute = 5 16 16
    Connect = 6 280 288
    Listen = 7 8 8
    Accept = 8 288 296
    Reject = 9 264 264
    Disconnect = 10 4 4
    InitQpAttr = 11 16 16
    GetEvent = 12 8 8
    GetOption = 13 24 24
    SetOption = 14 24 24
    Notify = 15 8 8
    JoinIpMcast = 16 48 48
    LeaveMcast = 17 16 16
    MigrateId = 18 16 16
    Query = 19 16 16
    Bind = 20 136 136
    ResolveAddr = 21 272 272
    JoinMcast = 22 152 152
    ResolveIbService = 23 88 88
    WriteCmEvent = 24 320 320
}

/// A command with its fields. What an older library leaves out reads as zero.
pub struct Input {
    /// Which it is.
    pub command: Command,
    /// Bytes that the program has for the response.
    pub out: usize,
    bytes: [u8; LONGEST],
}

impl Input {
    /// Reads what a program wrote.
    ///
    /// # Errors
    /// EINVAL: no such command, or fewer bytes than it has.
    pub fn parse(written: &[u8]) -> Result<Input, Errno> {
        let (head, rest) = written.split_first_chunk::<HEADER>().ok_or(Errno::EINVAL)?;
        let [a, b, c, d, in_low, in_high, out_low, out_high] = *head;
        let command = Command::of_number(u32::from_ne_bytes([a, b, c, d])).ok_or(Errno::EINVAL)?;
        let given = usize::from(u16::from_ne_bytes([in_low, in_high]));
        let (least, full) = command.sizes();
        if given > rest.len() || given < least {
            return Err(Errno::EINVAL);
        }
        let mut bytes = [0; LONGEST];
        let used = given.min(full);
        bytes[..used].copy_from_slice(&rest[..used]);
        Ok(Input { command, out: u16::from_ne_bytes([out_low, out_high]).into(), bytes })
    }

    /// `N` bytes at `at`.
    pub fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        core::array::from_fn(|n| self.bytes[at + n])
    }
    pub fn u8(&self, at: usize) -> u8 {
        self.bytes[at]
    }
    pub fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.array(at))
    }
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.array(at))
    }
    pub fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.array(at))
    }
    pub fn bytes(&self, at: usize, len: usize) -> &[u8] {
        &self.bytes[at..at + len]
    }

    /// ENOSPC unless the program has this many bytes for the response.
    pub fn room(&self, bytes: usize) -> Result<(), Errno> {
        if self.out < bytes { Err(Errno::ENOSPC) } else { Ok(()) }
    }
}

/// A response in the making: `N` bytes, zero where nothing is put.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Output<const N: usize>(pub [u8; N]);

impl<const N: usize> Output<N> {
    pub fn new() -> Self {
        Output([0; N])
    }
    /// Puts bytes at `at`.
    pub fn put(&mut self, at: usize, bytes: &[u8]) -> &mut Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }
    pub fn u32(&mut self, at: usize, value: u32) -> &mut Self {
        self.put(at, &value.to_ne_bytes())
    }
    pub fn u16(&mut self, at: usize, value: u16) -> &mut Self {
        self.put(at, &value.to_ne_bytes())
    }
    pub fn u64(&mut self, at: usize, value: u64) -> &mut Self {
        self.put(at, &value.to_ne_bytes())
    }
    pub fn u8(&mut self, at: usize, value: u8) -> &mut Self {
        self.put(at, &[value])
    }
}

/// Kinds of queue pairs, as `ibv_qp_type` numbers them.
pub mod qp_type {
    #![allow(missing_docs)]
    pub const RC: u8 = 2;
    pub const UC: u8 = 3;
    pub const UD: u8 = 4;
    pub const XRC_INI: u8 = 9;
    pub const XRC_TGT: u8 = 10;
}

/// `struct rdma_ucm_conn_param`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnParam {
    pub qpn: u32,
    pub qkey: u32,
    pub private_data: Vec<u8>,
    pub srq: bool,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: bool,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    /// The command has parameters at all.
    pub valid: bool,
}

/// Bytes of [`ConnParam`].
pub const CONN_PARAM: usize = 272;

impl ConnParam {
    pub const NONE: ConnParam = ConnParam {
        qpn: 0,
        qkey: 0,
        private_data: Vec::new(),
        srq: false,
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: false,
        retry_count: 0,
        rnr_retry_count: 0,
        valid: false,
    };

    pub fn read(input: &Input, at: usize) -> ConnParam {
        let flags = |n: usize| input.u8(at + 264 + n);
        ConnParam {
            qpn: input.u32(at),
            qkey: input.u32(at + 4),
            private_data: input.bytes(at + 8, flags(0).into()).to_vec(),
            srq: flags(1) != 0,
            responder_resources: flags(2),
            initiator_depth: flags(3),
            flow_control: flags(4) != 0,
            retry_count: flags(5),
            rnr_retry_count: flags(6),
            valid: flags(7) != 0,
        }
    }

    /// As an event has it. Private data beyond the field's 255 bytes does not exist.
    pub fn write(&self) -> [u8; CONN_PARAM] {
        let len = self.private_data.len().min(255);
        let mut out = Output::<CONN_PARAM>::new();
        out.u32(0, self.qpn).u32(4, self.qkey).put(8, &self.private_data[..len]);
        out.put(
            264,
            &[
                len as u8,
                self.srq.into(),
                self.responder_resources,
                self.initiator_depth,
                self.flow_control.into(),
                self.retry_count,
                self.rnr_retry_count,
                0,
            ],
        );
        out.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ucm_1_a_command_is_read_by_its_length() {
        let written = |number: u32, given: u16, bytes: usize| {
            let mut all = number.to_ne_bytes().to_vec();
            all.extend(given.to_ne_bytes());
            all.extend(8_u16.to_ne_bytes());
            all.extend(vec![7; bytes]);
            all
        };
        for &command in Command::ALL {
            let (least, full) = command.sizes();
            assert!(full <= LONGEST && least <= full, "{command:?}");
            let number = command as u32;
            assert!(Input::parse(&written(number, full as u16, full)).is_ok());
            assert_eq!(Input::parse(&written(number, full as u16, full - 1)).err(), Some(Errno::EINVAL));
            assert_eq!(Input::parse(&written(number, least as u16 - 1, full)).err(), Some(Errno::EINVAL));
        }
        assert_eq!(Command::ALL.len(), 25);
        assert_eq!(Input::parse(&written(25, 8, 8)).err(), Some(Errno::EINVAL));
        assert_eq!(Input::parse(&[0; 7]).err(), Some(Errno::EINVAL));
        let short = Input::parse(&written(Command::Connect as u32, 280, 400)).unwrap();
        assert_eq!((short.u32(276), short.u32(280)), (0x0707_0707, 0), "an older library has no ECE");
    }
}
