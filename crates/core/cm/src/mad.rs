//! MADs of the connection management class (IBTA 12.6), 256 bytes each.
//!
//! Each message is declared once, as a table of its fields with byte, bit and width.
//! [`Message::parse`] and [`Message::emit`] both use this table, so they always agree. Reserved
//! bits are ignored when read and zero when written. Bytes are counted from the start of the MAD,
//! so byte numbers are 24 more than in the tables of the specification. Bits are counted from the
//! most significant bit.
use crate::bits::{Bits, Field, MAD_LEN};
use crate::data::Data;
pub use crate::values::{
    Answered, AprStatus, CM_CLASS, CM_CLASS_VERSION, Ece, MadError, SidrStatus,
};
use crate::values::{BASE_VERSION, METHOD_SEND};
use alloc::boxed::Box;
use core::fmt;
use core::net::Ipv6Addr;

/// Declares the messages: first the fields with byte, bit and width, then the byte arrays with
/// first byte and length.
macro_rules! messages {
    ($($(#[$meta:meta])* $kind:ident = $attribute:literal {
        $($(#[$field_meta:meta])* $field:ident: $type:ty = $byte:literal $bit:literal $width:literal;)*
    } {
        $($(#[$data_meta:meta])* $data:ident = $from:literal $len:literal;)*
    })*) => {
        $($(#[$meta])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $kind {
            $($(#[$field_meta])* pub $field: $type,)*
            $($(#[$data_meta])* pub $data: Data<$len>,)*
        }

        impl $kind {
            fn read(mad: &[u8; MAD_LEN]) -> $kind {
                $kind {
                    $($field: <$type>::from_bits(const { Field::new($byte, $bit, $width) }.get(mad)),)*
                    $($data: bytes_at(mad, $from),)*
                }
            }
            fn write(&self, mad: &mut [u8; MAD_LEN]) {
                $(const { Field::new($byte, $bit, $width) }.set(mad, self.$field.to_bits());)*
                $(mad[$from..$from + $len].copy_from_slice(&self.$data.0);)*
            }
        }

        impl Default for $kind {
            /// All zeros.
            fn default() -> $kind {
                $kind::read(&[0; MAD_LEN])
            }
        }

        impl From<$kind> for Message {
            fn from(message: $kind) -> Message {
                Message::$kind(Box::new(message))
            }
        })*

        /// The kind of a message; the value is the attribute id.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum MadKind {
            $($(#[$meta])* $kind = $attribute,)*
        }

        impl MadKind {
            /// All messages.
            pub const ALL: &[MadKind] = &[$(MadKind::$kind),*];

            /// The index of this kind in [`MadKind::ALL`].
            #[must_use]
            pub fn index(self) -> usize {
                MadKind::ALL.iter().position(|kind| *kind == self).unwrap_or_default()
            }

            /// The kind of a MAD; `None` if the MAD is not of the connection management class.
            #[must_use]
            pub fn of(mad: &[u8]) -> Option<MadKind> {
                kind_of(mad).ok().map(|(kind, _)| kind)
            }

            const fn of_attribute(attribute: u16) -> Option<MadKind> {
                match attribute { $($attribute => Some(MadKind::$kind),)* _ => None }
            }
        }

        /// A message with its fields.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum Message {
            $($(#[$meta])* $kind(Box<$kind>),)*
        }

        impl Message {
            /// The kind of the message.
            #[must_use]
            pub const fn kind(&self) -> MadKind {
                match self { $(Message::$kind(_) => MadKind::$kind,)* }
            }
            fn read(kind: MadKind, mad: &[u8; MAD_LEN]) -> Message {
                match kind { $(MadKind::$kind => $kind::read(mad).into(),)* }
            }
            fn write(&self, mad: &mut [u8; MAD_LEN]) {
                match self { $(Message::$kind(message) => message.write(mad),)* }
            }
        }
    };
}

fn bytes_at<const N: usize>(mad: &[u8; MAD_LEN], from: usize) -> Data<N> {
    let mut data = Data::EMPTY;
    data.0.copy_from_slice(&mad[from..from + N]);
    data
}

messages! {
    /// Request for communication (12.6.5).
    Req = 0x0010 {
        /// Options of the vendor (ECE), in the attribute modifier.
        ece_attr_mod: u32 = 20 0 32;
        /// Communication id of the sender.
        local_id: u32 = 24 0 32;
        /// Vendor of the options (ECE), in reserved bytes.
        ece_vendor_id: u32 = 29 0 24;
        /// Service id that the sender asks for.
        service_id: u64 = 32 0 64;
        /// GUID of the sender's device.
        ca_guid: u64 = 40 0 64;
        /// Q_Key (reliable datagrams only).
        qkey: u32 = 52 0 32;
        /// Queue pair of the sender.
        qpn: u32 = 56 0 24;
        /// RDMA reads and atomics that the sender answers at one time. This limits the initiator
        /// depth of the receiver.
        responder_resources: u8 = 59 0 8;
        /// End-to-end context (reliable datagrams only).
        local_eecn: u32 = 60 0 24;
        /// RDMA reads and atomics that the sender sends at one time. The receiver should have
        /// resources for this number.
        initiator_depth: u8 = 63 0 8;
        /// End-to-end context (reliable datagrams only).
        remote_eecn: u32 = 64 0 24;
        /// How long the receiver may take to answer (code).
        remote_response_timeout: u8 = 67 0 5;
        /// Transport: 0 RC, 1 UC, 2 RD, 3 see [`Req::extended_transport`]. [`Req::qp_kind`] decodes
        /// both fields.
        transport: u8 = 67 5 2;
        /// End-to-end flow control.
        flow_control: bool = 67 7 1;
        /// First PSN that the receiver of this message sends.
        psn: u32 = 68 0 24;
        /// How long the sender may take to answer (code).
        local_response_timeout: u8 = 71 0 5;
        /// Transport retries of the receiver's queue pair.
        retry_count: u8 = 71 5 3;
        /// Partition.
        pkey: u16 = 72 0 16;
        /// Path MTU (code).
        mtu: u8 = 74 0 4;
        /// Reliable datagram channel exists.
        rdc_exists: bool = 74 4 1;
        /// RNR retries of the receiver's queue pair.
        rnr_retry_count: u8 = 74 5 3;
        /// How often a MAD is sent again.
        max_cm_retries: u8 = 75 0 4;
        /// The sender's queue pair receives from a shared receive queue.
        srq: bool = 75 4 1;
        /// 1: XRC.
        extended_transport: u8 = 75 5 3;
        /// LID of the sender on the primary path; permissive (0xffff) on networks without LIDs.
        primary_local_lid: u16 = 76 0 16;
        /// LID of the receiver on the primary path.
        primary_remote_lid: u16 = 78 0 16;
        /// GID of the sender.
        primary_local_gid: Ipv6Addr = 80 0 128;
        /// GID of the receiver.
        primary_remote_gid: Ipv6Addr = 96 0 128;
        /// Flow label.
        primary_flow_label: u32 = 112 0 20;
        /// Packet rate (code of `ibv_rate`).
        primary_packet_rate: u8 = 115 2 6;
        /// Traffic class.
        primary_traffic_class: u8 = 116 0 8;
        /// Hop limit.
        primary_hop_limit: u8 = 117 0 8;
        /// Service level.
        primary_sl: u8 = 118 0 4;
        /// Both ends are in one subnet.
        primary_subnet_local: bool = 118 4 1;
        /// Local ACK timeout of the sender's queue pair (code).
        primary_ack_timeout: u8 = 119 0 5;
        /// LID of the sender on the alternate path; 0: there is no alternate path.
        alternate_local_lid: u16 = 120 0 16;
        /// LID of the receiver on the alternate path.
        alternate_remote_lid: u16 = 122 0 16;
        /// GID of the sender on the alternate path.
        alternate_local_gid: Ipv6Addr = 124 0 128;
        /// GID of the receiver on the alternate path.
        alternate_remote_gid: Ipv6Addr = 140 0 128;
        /// Flow label of the alternate path.
        alternate_flow_label: u32 = 156 0 20;
        /// Packet rate of the alternate path.
        alternate_packet_rate: u8 = 159 2 6;
        /// Traffic class of the alternate path.
        alternate_traffic_class: u8 = 160 0 8;
        /// Hop limit of the alternate path.
        alternate_hop_limit: u8 = 161 0 8;
        /// Service level of the alternate path.
        alternate_sl: u8 = 162 0 4;
        /// Both ends of the alternate path are in one subnet.
        alternate_subnet_local: bool = 162 4 1;
        /// Local ACK timeout on the alternate path (code).
        alternate_ack_timeout: u8 = 163 0 5;
    } {
        /// Private data.
        private_data = 164 92;
    }
    /// Message receipt acknowledgement: the answer takes longer (12.6.6).
    Mra = 0x0011 {
        /// Communication id of the sender.
        local_id: u32 = 24 0 32;
        /// Communication id of the receiver.
        remote_id: u32 = 28 0 32;
        /// The message that is acknowledged: [`Answered`] as a number.
        message: u8 = 32 0 2;
        /// How long the answer will take (code).
        service_timeout: u8 = 33 0 5;
    } {
        /// Private data.
        private_data = 34 222;
    }
    /// Reject (12.6.7).
    Rej = 0x0012 {
        /// Communication id of the sender, 0 if it has none.
        local_id: u32 = 24 0 32;
        /// Communication id of the receiver, 0 if unknown to the sender.
        remote_id: u32 = 28 0 32;
        /// The message that is rejected: [`Answered`] as a number.
        message: u8 = 32 0 2;
        /// Number of valid bytes in [`Rej::info`].
        info_len: u8 = 33 0 7;
        /// Reason: [`crate::RejectReason`].
        reason: u16 = 34 0 16;
    } {
        /// Additional reject information.
        info = 36 72;
        /// Private data.
        private_data = 108 148;
    }
    /// Reply to a request for communication (12.6.8).
    Rep = 0x0013 {
        /// Options of the vendor (ECE), in the attribute modifier.
        ece_attr_mod: u32 = 20 0 32;
        /// Communication id of the sender.
        local_id: u32 = 24 0 32;
        /// Communication id of the receiver.
        remote_id: u32 = 28 0 32;
        /// Q_Key (reliable datagrams only).
        qkey: u32 = 32 0 32;
        /// Queue pair of the sender; with XRC the number is in [`Rep::eecn`]. [`Rep::queue_pair`]
        /// returns the right field.
        qpn: u32 = 36 0 24;
        /// Vendor of the options (ECE), highest byte.
        ece_vendor_high: u8 = 39 0 8;
        /// End-to-end context, or the target queue pair of XRC.
        eecn: u32 = 40 0 24;
        /// Vendor of the options (ECE), middle byte.
        ece_vendor_middle: u8 = 43 0 8;
        /// First PSN that the receiver of this message sends.
        psn: u32 = 44 0 24;
        /// Vendor of the options (ECE), lowest byte.
        ece_vendor_low: u8 = 47 0 8;
        /// RDMA reads and atomics that the sender answers at one time. This limits the initiator
        /// depth of the receiver.
        responder_resources: u8 = 48 0 8;
        /// RDMA reads and atomics that the sender sends at one time. The receiver should have
        /// resources for this number.
        initiator_depth: u8 = 49 0 8;
        /// Time the sender's device takes to acknowledge (code).
        target_ack_delay: u8 = 50 0 5;
        /// Whether the receiver accepted the alternate path.
        failover: u8 = 50 5 2;
        /// End-to-end flow control.
        flow_control: bool = 50 7 1;
        /// RNR retries of the receiver's queue pair.
        rnr_retry_count: u8 = 51 0 3;
        /// The sender's queue pair receives from a shared receive queue.
        srq: bool = 51 3 1;
        /// GUID of the sender's device.
        ca_guid: u64 = 52 0 64;
    } {
        /// Private data.
        private_data = 60 196;
    }
    /// Ready to use (12.6.9).
    Rtu = 0x0014 {
        /// Communication id of the sender.
        local_id: u32 = 24 0 32;
        /// Communication id of the receiver.
        remote_id: u32 = 28 0 32;
    } {
        /// Private data.
        private_data = 32 224;
    }
    /// Request for communication release (12.6.10).
    Dreq = 0x0015 {
        /// Communication id of the sender.
        local_id: u32 = 24 0 32;
        /// Communication id of the receiver.
        remote_id: u32 = 28 0 32;
        /// Queue pair of the receiver.
        remote_qpn: u32 = 32 0 24;
    } {
        /// Private data.
        private_data = 36 220;
    }
    /// Reply to a request for communication release (12.6.11).
    Drep = 0x0016 {
        /// Communication id of the sender.
        local_id: u32 = 24 0 32;
        /// Communication id of the receiver.
        remote_id: u32 = 28 0 32;
    } {
        /// Private data.
        private_data = 32 224;
    }
    /// Service id resolution request, for datagrams (12.11.1).
    SidrReq = 0x0017 {
        /// Number that the sender chooses and the answer repeats.
        request_id: u32 = 24 0 32;
        /// Partition.
        pkey: u16 = 28 0 16;
        /// Service id that the sender asks for.
        service_id: u64 = 32 0 64;
    } {
        /// Private data.
        private_data = 40 216;
    }
    /// Service id resolution response (12.11.2).
    SidrRep = 0x0018 {
        /// Options of the vendor (ECE), in the attribute modifier.
        ece_attr_mod: u32 = 20 0 32;
        /// Request id of the SIDR_REQ.
        request_id: u32 = 24 0 32;
        /// Outcome: [`SidrStatus`].
        status: u8 = 28 0 8;
        /// Number of valid bytes in [`SidrRep::info`].
        info_len: u8 = 29 0 8;
        /// Vendor of the options (ECE), high byte.
        ece_vendor_high: u16 = 30 0 16;
        /// Queue pair of the service.
        qpn: u32 = 32 0 24;
        /// Vendor of the options (ECE), low byte.
        ece_vendor_low: u8 = 35 0 8;
        /// Service id of the SIDR_REQ.
        service_id: u64 = 36 0 64;
        /// Q_Key of the queue pair.
        qkey: u32 = 44 0 32;
    } {
        /// Additional information.
        info = 48 72;
        /// Private data.
        private_data = 120 136;
    }
    /// Load alternate path (12.8.1). This crate rejects the message with an APR.
    Lap = 0x0019 {
        /// Communication id of the sender.
        local_id: u32 = 24 0 32;
        /// Communication id of the receiver.
        remote_id: u32 = 28 0 32;
        /// Queue pair of the receiver.
        remote_qpn: u32 = 36 0 24;
        /// How long the receiver may take to answer (code).
        remote_response_timeout: u8 = 39 0 5;
        /// LID of the sender.
        alternate_local_lid: u16 = 44 0 16;
        /// LID of the receiver.
        alternate_remote_lid: u16 = 46 0 16;
        /// GID of the sender.
        alternate_local_gid: Ipv6Addr = 48 0 128;
        /// GID of the receiver.
        alternate_remote_gid: Ipv6Addr = 64 0 128;
        /// Flow label.
        alternate_flow_label: u32 = 80 0 20;
        /// Traffic class.
        alternate_traffic_class: u8 = 83 0 8;
        /// Hop limit.
        alternate_hop_limit: u8 = 84 0 8;
        /// Packet rate.
        alternate_packet_rate: u8 = 85 2 6;
        /// Service level.
        alternate_sl: u8 = 86 0 4;
        /// Both ends are in one subnet.
        alternate_subnet_local: bool = 86 4 1;
        /// Local ACK timeout (code).
        alternate_ack_timeout: u8 = 87 0 5;
    } {
        /// Private data.
        private_data = 88 168;
    }
    /// Alternate path response (12.8.2).
    Apr = 0x001a {
        /// Communication id of the sender.
        local_id: u32 = 24 0 32;
        /// Communication id of the receiver.
        remote_id: u32 = 28 0 32;
        /// Number of valid bytes in [`Apr::info`].
        info_len: u8 = 32 0 8;
        /// Outcome: [`AprStatus`] as a number.
        status: u8 = 33 0 8;
    } {
        /// Additional information.
        info = 36 72;
        /// Private data.
        private_data = 108 148;
    }
}

impl fmt::Display for MadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MadKind::Req => "REQ",
            MadKind::Mra => "MRA",
            MadKind::Rej => "REJ",
            MadKind::Rep => "REP",
            MadKind::Rtu => "RTU",
            MadKind::Dreq => "DREQ",
            MadKind::Drep => "DREP",
            MadKind::SidrReq => "SIDR_REQ",
            MadKind::SidrRep => "SIDR_REP",
            MadKind::Lap => "LAP",
            MadKind::Apr => "APR",
        })
    }
}

/// Checks the header and returns the kind of the message.
pub(crate) fn kind_of(mad: &[u8]) -> Result<(MadKind, &[u8; MAD_LEN]), MadError> {
    let mad: &[u8; MAD_LEN] = mad.try_into().map_err(|_| MadError::Length(mad.len()))?;
    match mad {
        [v, ..] if *v != BASE_VERSION => Err(MadError::BaseVersion(*v)),
        [_, class, ..] if *class != CM_CLASS => Err(MadError::Class(*class)),
        [_, _, v, ..] if *v != CM_CLASS_VERSION => Err(MadError::ClassVersion(*v)),
        [_, _, _, method, ..] if *method != METHOD_SEND => Err(MadError::Method(*method)),
        _ => {
            let attribute = u16::from_be_bytes([mad[16], mad[17]]);
            Ok((MadKind::of_attribute(attribute).ok_or(MadError::Attribute(attribute))?, mad))
        }
    }
}

impl Message {
    /// Reads a MAD: returns its transaction id and message.
    ///
    /// # Errors
    /// The MAD is not a message of the connection manager. The error names the field.
    pub fn parse(mad: &[u8]) -> Result<(u64, Message), MadError> {
        let (kind, mad) = kind_of(mad)?;
        let mut transaction = [0; 8];
        transaction.copy_from_slice(&mad[8..16]);
        Ok((u64::from_be_bytes(transaction), Message::read(kind, mad)))
    }

    /// Writes a MAD with the transaction id.
    #[must_use]
    pub fn emit(&self, transaction: u64) -> [u8; MAD_LEN] {
        let mut mad = [0; MAD_LEN];
        mad[..4].copy_from_slice(&[BASE_VERSION, CM_CLASS, CM_CLASS_VERSION, METHOD_SEND]);
        mad[8..16].copy_from_slice(&transaction.to_be_bytes());
        mad[16..18].copy_from_slice(&(self.kind() as u16).to_be_bytes());
        self.write(&mut mad);
        mad
    }
}
