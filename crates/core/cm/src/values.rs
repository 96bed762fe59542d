//! Constants and small values of MADs.
use crate::bits::MAD_LEN;
use core::fmt;
use thiserror::Error;

/// Management class of the connection manager.
pub const CM_CLASS: u8 = 0x07;
/// Class version that this crate uses.
pub const CM_CLASS_VERSION: u8 = 2;
/// Version of the MAD header.
pub(crate) const BASE_VERSION: u8 = 1;
/// The only method of the class.
pub(crate) const METHOD_SEND: u8 = 3;

/// Enhanced connection establishment: options that the devices of the two ends exchange beyond the
/// specification. The vendor id is in reserved fields of REQ, REP and SIDR_REP, and the options are
/// in the attribute modifier, as in Linux since 5.10.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ece {
    /// Vendor, 24 bits (16 in SIDR_REP).
    pub vendor_id: u32,
    /// Options of the vendor.
    pub attr_mod: u32,
}

/// The message that an MRA or a REJ answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Answered {
    /// A REQ.
    Req = 0,
    /// A REP.
    Rep = 1,
    /// In an MRA, a LAP. In a REJ, no message: the sender gave up waiting or ends the connection.
    Other = 2,
}

/// Status of an APR (IBTA table 117); only the values that this crate sends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum AprStatus {
    /// No such connection.
    InvalidCommunicationId = 1,
    /// Alternate paths are not supported.
    NotSupported = 2,
}

/// Status of a SIDR_REP (IBTA table 120).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(transparent)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    /// The queue pair and its Q_Key are valid.
    pub const SUCCESS: SidrStatus = SidrStatus(0);
    /// No service has that service id.
    pub const UNSUPPORTED: SidrStatus = SidrStatus(1);
    /// The service rejected the request.
    pub const REJECT: SidrStatus = SidrStatus(2);
}

impl fmt::Display for SidrStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sentence = match self.0 {
            0 => "the service answered",
            1 => "no program listens on this port (service id) at the peer",
            2 => "the service refused",
            3 => "the service has no queue pair for the asker",
            4 => "the service is at another address, which the additional information names",
            5 => "the service has another version",
            _ => "the peer gave a status that is not defined",
        };
        write!(f, "{sentence} (SIDR status {})", self.0)
    }
}

/// Why bytes are not a message of the connection manager.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum MadError {
    /// Not 256 bytes.
    #[error("{0} bytes, a MAD has {MAD_LEN}")]
    Length(usize),
    /// The base version is not 1.
    #[error("MAD base version {0}, expected {BASE_VERSION}")]
    BaseVersion(u8),
    /// The management class is not 7.
    #[error("management class {0:#04x}, expected {CM_CLASS:#04x} (CM)")]
    Class(u8),
    /// The class version is not 2.
    #[error("CM class version {0}, expected {CM_CLASS_VERSION}")]
    ClassVersion(u8),
    /// The method is not Send (3).
    #[error("MAD method {0:#04x}, expected {METHOD_SEND:#04x} (Send)")]
    Method(u8),
    /// No message has this attribute id.
    #[error("no CM message has the attribute id {0:#06x}")]
    Attribute(u16),
}
