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

/// Declares the messages, each with attribute id and name: first the fields with byte, bit, width
/// and meaning, then the byte arrays with first byte, length and content. A meaning that is longer
/// than a line comes first, as a comment.
macro_rules! messages {
    ($($(#[$meta:meta])* $kind:ident = $attribute:literal $name:literal {
        $($(#[$field_meta:meta])* $field:ident: $type:ty = $byte:literal $bit:literal $width:literal
            $(, $meaning:literal)?;)*
    } {
        $($data:ident = $from:literal $len:literal, $content:literal;)*
    })*) => {
        $($(#[$meta])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $kind {
            $($(#[$field_meta])* $(#[doc = $meaning])? pub $field: $type,)*
            $(#[doc = $content] pub $data: Data<$len>,)*
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

        impl fmt::Display for MadKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(MadKind::$kind => $name,)* })
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
    Req = 0x0010 "REQ" {
        ece_attr_mod: u32 = 20 0 32, "Options of the vendor (ECE), in the attribute modifier.";
        local_id: u32 = 24 0 32, "Communication id of the sender.";
        ece_vendor_id: u32 = 29 0 24, "Vendor of the options (ECE), in reserved bytes.";
        service_id: u64 = 32 0 64, "Service id that the sender asks for.";
        ca_guid: u64 = 40 0 64, "GUID of the sender's device.";
        qkey: u32 = 52 0 32, "Q_Key (reliable datagrams only).";
        qpn: u32 = 56 0 24, "Queue pair of the sender.";
        /// RDMA reads and atomics that the sender answers at one time. This limits the initiator
        /// depth of the receiver.
        responder_resources: u8 = 59 0 8;
        local_eecn: u32 = 60 0 24, "End-to-end context (reliable datagrams only).";
        /// RDMA reads and atomics that the sender sends at one time. The receiver should have
        /// resources for this number.
        initiator_depth: u8 = 63 0 8;
        remote_eecn: u32 = 64 0 24, "End-to-end context (reliable datagrams only).";
        remote_response_timeout: u8 = 67 0 5, "How long the receiver may take to answer (code).";
        /// Transport: 0 RC, 1 UC, 2 RD, 3 see [`Req::extended_transport`]. [`Req::qp_kind`] decodes
        /// both fields.
        transport: u8 = 67 5 2;
        flow_control: bool = 67 7 1, "End-to-end flow control.";
        psn: u32 = 68 0 24, "First PSN that the receiver of this message sends.";
        local_response_timeout: u8 = 71 0 5, "How long the sender may take to answer (code).";
        retry_count: u8 = 71 5 3, "Transport retries of the receiver's queue pair.";
        pkey: u16 = 72 0 16, "Partition.";
        mtu: u8 = 74 0 4, "Path MTU (code).";
        rdc_exists: bool = 74 4 1, "Reliable datagram channel exists.";
        rnr_retry_count: u8 = 74 5 3, "RNR retries of the receiver's queue pair.";
        max_cm_retries: u8 = 75 0 4, "How often a MAD is sent again.";
        srq: bool = 75 4 1, "The sender's queue pair receives from a shared receive queue.";
        extended_transport: u8 = 75 5 3, "1: XRC.";
        /// LID of the sender on the primary path; permissive (0xffff) on networks without LIDs.
        primary_local_lid: u16 = 76 0 16;
        primary_remote_lid: u16 = 78 0 16, "LID of the receiver on the primary path.";
        primary_local_gid: Ipv6Addr = 80 0 128, "GID of the sender.";
        primary_remote_gid: Ipv6Addr = 96 0 128, "GID of the receiver.";
        primary_flow_label: u32 = 112 0 20, "Flow label.";
        primary_packet_rate: u8 = 115 2 6, "Packet rate (code of `ibv_rate`).";
        primary_traffic_class: u8 = 116 0 8, "Traffic class.";
        primary_hop_limit: u8 = 117 0 8, "Hop limit.";
        primary_sl: u8 = 118 0 4, "Service level.";
        primary_subnet_local: bool = 118 4 1, "Both ends are in one subnet.";
        primary_ack_timeout: u8 = 119 0 5, "Local ACK timeout of the sender's queue pair (code).";
        /// LID of the sender on the alternate path; 0: there is no alternate path.
        alternate_local_lid: u16 = 120 0 16;
        alternate_remote_lid: u16 = 122 0 16, "LID of the receiver on the alternate path.";
        alternate_local_gid: Ipv6Addr = 124 0 128, "GID of the sender on the alternate path.";
        alternate_remote_gid: Ipv6Addr = 140 0 128, "GID of the receiver on the alternate path.";
        alternate_flow_label: u32 = 156 0 20, "Flow label of the alternate path.";
        alternate_packet_rate: u8 = 159 2 6, "Packet rate of the alternate path.";
        alternate_traffic_class: u8 = 160 0 8, "Traffic class of the alternate path.";
        alternate_hop_limit: u8 = 161 0 8, "Hop limit of the alternate path.";
        alternate_sl: u8 = 162 0 4, "Service level of the alternate path.";
        /// Both ends of the alternate path are in one subnet.
        alternate_subnet_local: bool = 162 4 1;
        alternate_ack_timeout: u8 = 163 0 5, "Local ACK timeout on the alternate path (code).";
    } {
        private_data = 164 92, "Private data.";
    }
    /// Message receipt acknowledgement: the answer takes longer (12.6.6).
    Mra = 0x0011 "MRA" {
        local_id: u32 = 24 0 32, "Communication id of the sender.";
        remote_id: u32 = 28 0 32, "Communication id of the receiver.";
        message: u8 = 32 0 2, "The message that is acknowledged: [`Answered`] as a number.";
        service_timeout: u8 = 33 0 5, "How long the answer will take (code).";
    } {
        private_data = 34 222, "Private data.";
    }
    /// Reject (12.6.7).
    Rej = 0x0012 "REJ" {
        local_id: u32 = 24 0 32, "Communication id of the sender, 0 if it has none.";
        remote_id: u32 = 28 0 32, "Communication id of the receiver, 0 if unknown to the sender.";
        message: u8 = 32 0 2, "The message that is rejected: [`Answered`] as a number.";
        info_len: u8 = 33 0 7, "Number of valid bytes in [`Rej::info`].";
        reason: u16 = 34 0 16, "Reason: [`crate::RejectReason`].";
    } {
        info = 36 72, "Additional reject information.";
        private_data = 108 148, "Private data.";
    }
    /// Reply to a request for communication (12.6.8).
    Rep = 0x0013 "REP" {
        ece_attr_mod: u32 = 20 0 32, "Options of the vendor (ECE), in the attribute modifier.";
        local_id: u32 = 24 0 32, "Communication id of the sender.";
        remote_id: u32 = 28 0 32, "Communication id of the receiver.";
        qkey: u32 = 32 0 32, "Q_Key (reliable datagrams only).";
        /// Queue pair of the sender; with XRC the number is in [`Rep::eecn`]. [`Rep::queue_pair`]
        /// returns the right field.
        qpn: u32 = 36 0 24;
        ece_vendor_high: u8 = 39 0 8, "Vendor of the options (ECE), highest byte.";
        eecn: u32 = 40 0 24, "End-to-end context, or the target queue pair of XRC.";
        ece_vendor_middle: u8 = 43 0 8, "Vendor of the options (ECE), middle byte.";
        psn: u32 = 44 0 24, "First PSN that the receiver of this message sends.";
        ece_vendor_low: u8 = 47 0 8, "Vendor of the options (ECE), lowest byte.";
        /// RDMA reads and atomics that the sender answers at one time. This limits the initiator
        /// depth of the receiver.
        responder_resources: u8 = 48 0 8;
        /// RDMA reads and atomics that the sender sends at one time. The receiver should have
        /// resources for this number.
        initiator_depth: u8 = 49 0 8;
        target_ack_delay: u8 = 50 0 5, "Time the sender's device takes to acknowledge (code).";
        failover: u8 = 50 5 2, "Whether the receiver accepted the alternate path.";
        flow_control: bool = 50 7 1, "End-to-end flow control.";
        rnr_retry_count: u8 = 51 0 3, "RNR retries of the receiver's queue pair.";
        srq: bool = 51 3 1, "The sender's queue pair receives from a shared receive queue.";
        ca_guid: u64 = 52 0 64, "GUID of the sender's device.";
    } {
        private_data = 60 196, "Private data.";
    }
    /// Ready to use (12.6.9).
    Rtu = 0x0014 "RTU" {
        local_id: u32 = 24 0 32, "Communication id of the sender.";
        remote_id: u32 = 28 0 32, "Communication id of the receiver.";
    } {
        private_data = 32 224, "Private data.";
    }
    /// Request for communication release (12.6.10).
    Dreq = 0x0015 "DREQ" {
        local_id: u32 = 24 0 32, "Communication id of the sender.";
        remote_id: u32 = 28 0 32, "Communication id of the receiver.";
        remote_qpn: u32 = 32 0 24, "Queue pair of the receiver.";
    } {
        private_data = 36 220, "Private data.";
    }
    /// Reply to a request for communication release (12.6.11).
    Drep = 0x0016 "DREP" {
        local_id: u32 = 24 0 32, "Communication id of the sender.";
        remote_id: u32 = 28 0 32, "Communication id of the receiver.";
    } {
        private_data = 32 224, "Private data.";
    }
    /// Service id resolution request, for datagrams (12.11.1).
    SidrReq = 0x0017 "SIDR_REQ" {
        request_id: u32 = 24 0 32, "Number that the sender chooses and the answer repeats.";
        pkey: u16 = 28 0 16, "Partition.";
        service_id: u64 = 32 0 64, "Service id that the sender asks for.";
    } {
        private_data = 40 216, "Private data.";
    }
    /// Service id resolution response (12.11.2).
    SidrRep = 0x0018 "SIDR_REP" {
        ece_attr_mod: u32 = 20 0 32, "Options of the vendor (ECE), in the attribute modifier.";
        request_id: u32 = 24 0 32, "Request id of the SIDR_REQ.";
        status: u8 = 28 0 8, "Outcome: [`SidrStatus`].";
        info_len: u8 = 29 0 8, "Number of valid bytes in [`SidrRep::info`].";
        ece_vendor_high: u16 = 30 0 16, "Vendor of the options (ECE), high byte.";
        qpn: u32 = 32 0 24, "Queue pair of the service.";
        ece_vendor_low: u8 = 35 0 8, "Vendor of the options (ECE), low byte.";
        service_id: u64 = 36 0 64, "Service id of the SIDR_REQ.";
        qkey: u32 = 44 0 32, "Q_Key of the queue pair.";
    } {
        info = 48 72, "Additional information.";
        private_data = 120 136, "Private data.";
    }
    /// Load alternate path (12.8.1). This crate rejects the message with an APR.
    Lap = 0x0019 "LAP" {
        local_id: u32 = 24 0 32, "Communication id of the sender.";
        remote_id: u32 = 28 0 32, "Communication id of the receiver.";
        remote_qpn: u32 = 36 0 24, "Queue pair of the receiver.";
        remote_response_timeout: u8 = 39 0 5, "How long the receiver may take to answer (code).";
        alternate_local_lid: u16 = 44 0 16, "LID of the sender.";
        alternate_remote_lid: u16 = 46 0 16, "LID of the receiver.";
        alternate_local_gid: Ipv6Addr = 48 0 128, "GID of the sender.";
        alternate_remote_gid: Ipv6Addr = 64 0 128, "GID of the receiver.";
        alternate_flow_label: u32 = 80 0 20, "Flow label.";
        alternate_traffic_class: u8 = 83 0 8, "Traffic class.";
        alternate_hop_limit: u8 = 84 0 8, "Hop limit.";
        alternate_packet_rate: u8 = 85 2 6, "Packet rate.";
        alternate_sl: u8 = 86 0 4, "Service level.";
        alternate_subnet_local: bool = 86 4 1, "Both ends are in one subnet.";
        alternate_ack_timeout: u8 = 87 0 5, "Local ACK timeout (code).";
    } {
        private_data = 88 168, "Private data.";
    }
    /// Alternate path response (12.8.2).
    Apr = 0x001a "APR" {
        local_id: u32 = 24 0 32, "Communication id of the sender.";
        remote_id: u32 = 28 0 32, "Communication id of the receiver.";
        info_len: u8 = 32 0 8, "Number of valid bytes in [`Apr::info`].";
        status: u8 = 33 0 8, "Outcome: [`AprStatus`] as a number.";
    } {
        info = 36 72, "Additional information.";
        private_data = 108 148, "Private data.";
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
