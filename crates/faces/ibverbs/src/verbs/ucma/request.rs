//! Requests of programs, made from their C structures.
use super::sockaddr;
use crate::abi::rdma_user_cm as abi;
use crate::abi::rdma_user_cm::Integers;
use adverb_device::Errno;
use adverb_ucma::{
    Address, Channel, ConnParam, Ece, EventKind, OptionName, OptionValue, Question, Request, Route,
};
use core::time::Duration;
use libc::{sockaddr_in6, sockaddr_storage};

/// Levels of options.
const ID: u32 = 0;
const IB: u32 = 1;
/// Options of an id.
const TOS: u32 = 0;
const REUSEADDR: u32 = 1;
const AFONLY: u32 = 2;
const ACK_TIMEOUT: u32 = 3;
/// Option of the InfiniBand level.
const IB_PATH: u32 = 1;
/// Most paths that a program may pass, more than any resolver has.
const MAX_PATHS: usize = 64;
/// Flags of the only path: IB_PATH_GMP, IB_PATH_PRIMARY and IB_PATH_BIDIRECTIONAL.
pub const PATH_FLAGS: u32 = 1 | 1 << 1 | 1 << 3 | 1 << 5;

/// An address with a separate length field.
fn sized(address: &sockaddr_storage, size: u16) -> Result<Address, Errno> {
    let address = sockaddr::read(address.bytes()).ok_or(Errno::EINVAL)?;
    if sockaddr::size(&address) == size { Ok(address) } else { Err(Errno::EINVAL) }
}

/// An address of an older command.
fn old(address: &sockaddr_in6) -> Result<Address, Errno> {
    sockaddr::read(address.bytes()).ok_or(Errno::EINVAL)
}

/// A time given by a program. A negative value would be weeks.
fn millis(value: u32) -> Duration {
    Duration::from_millis(value.min(i32::MAX as u32).into())
}

fn param(from: &abi::rdma_ucm_conn_param) -> ConnParam<&[u8]> {
    ConnParam {
        qpn: from.qp_num,
        qkey: from.qkey,
        private_data: from.private_data(),
        srq: from.srq != 0,
        responder_resources: from.responder_resources,
        initiator_depth: from.initiator_depth,
        flow_control: from.flow_control != 0,
        retry_count: from.retry_count,
        rnr_retry_count: from.rnr_retry_count,
        valid: from.valid != 0,
    }
}

fn ece(from: abi::rdma_ucm_ece) -> Ece {
    Ece { vendor_id: from.vendor_id, attr_mod: from.attr_mod }
}

/// The request of a command.
///
/// # Errors
/// EINVAL: no address, unknown flags, or an event that a program cannot make. ENOENT: no file has
/// the descriptor.
pub fn request(from: &abi::Request) -> Result<Request<'_>, Errno> {
    use abi::Request as C;
    Ok(match from {
        C::CreateId(c) => Request::CreateId { uid: c.uid, port_space: c.ps, qp_type: c.qp_type },
        C::DestroyId(c) => Request::DestroyId { id: c.id },
        C::BindIp(c) => Request::Bind { id: c.id, address: old(&c.addr)? },
        C::Bind(c) => {
            if c.reserved != 0 {
                return Err(Errno::EINVAL);
            }
            Request::Bind { id: c.id, address: sized(&c.addr, c.addr_size)? }
        }
        C::ResolveIp(c) => Request::ResolveAddr {
            id: c.id,
            source: if c.src_addr.sin6_family == 0 { None } else { Some(old(&c.src_addr)?) },
            destination: old(&c.dst_addr)?,
            patience: millis(c.timeout_ms),
        },
        C::ResolveAddr(c) => {
            if c.reserved != 0 {
                return Err(Errno::EINVAL);
            }
            Request::ResolveAddr {
                id: c.id,
                source: if c.src_size == 0 { None } else { Some(sized(&c.src_addr, c.src_size)?) },
                destination: sized(&c.dst_addr, c.dst_size)?,
                patience: millis(c.timeout_ms),
            }
        }
        C::ResolveRoute(c) => Request::ResolveRoute { id: c.id },
        C::ResolveIbService(c) => {
            // By number, by name, or both.
            let known =
                abi::RDMA_USER_CM_IB_SERVICE_FLAG_ID | abi::RDMA_USER_CM_IB_SERVICE_FLAG_NAME;
            if c.flags == 0 || c.flags > known {
                return Err(Errno::EINVAL);
            }
            Request::ResolveIbService { id: c.id }
        }
        C::QueryRoute(c) => Request::QueryRoute { id: c.id },
        C::Query(c) => {
            let question = match c.option {
                abi::RDMA_USER_CM_QUERY_ADDR => Question::Addresses,
                abi::RDMA_USER_CM_QUERY_PATH => Question::Path,
                abi::RDMA_USER_CM_QUERY_GID => Question::Gids,
                abi::RDMA_USER_CM_QUERY_IB_SERVICE => Question::Services,
                _ => Question::Unknown,
            };
            Request::Query { id: c.id, question }
        }
        C::Connect(c) => {
            Request::Connect { id: c.id, param: param(&c.conn_param), ece: ece(c.ece) }
        }
        C::Listen(c) => Request::Listen { id: c.id, backlog: c.backlog },
        C::Accept(c) => {
            Request::Accept { id: c.id, uid: c.uid, param: param(&c.conn_param), ece: ece(c.ece) }
        }
        C::Reject(c) => {
            let private_data = &c.private_data[..c.private_data_len.into()];
            Request::Reject { id: c.id, reason: c.reason, private_data }
        }
        C::Disconnect(c) => Request::Disconnect { id: c.id },
        C::InitQpAttr(c) => Request::InitQpAttr { id: c.id, state: c.qp_state },
        C::GetEvent(_) => Request::GetEvent,
        C::GetOption(c) => {
            let name = match (c.level, c.optname) {
                (ID, TOS) => OptionName::Tos,
                (ID, REUSEADDR) => OptionName::ReuseAddr,
                (ID, AFONLY) => OptionName::FamilyOnly,
                (ID, ACK_TIMEOUT) => OptionName::AckTimeout,
                _ => OptionName::Unknown,
            };
            Request::GetOption { id: c.id, name }
        }
        C::SetOption(c) => Request::SetOption { id: c.id },
        C::Notify(c) => Request::Notify { id: c.id, event: c.event },
        C::JoinIpMcast(c) => Request::Join { id: c.id, uid: c.uid, group: old(&c.addr)? },
        C::JoinMcast(c) => {
            // Full member, or send-only member.
            if c.join_flags > 1 {
                return Err(Errno::EINVAL);
            }
            Request::Join { id: c.id, uid: c.uid, group: sized(&c.addr, c.addr_size)? }
        }
        C::LeaveMcast(c) => Request::Leave { group: c.id },
        C::MigrateId(c) => {
            let from = i32::try_from(c.fd).ok().and_then(Channel::of_fd).ok_or(Errno::ENOENT)?;
            Request::Migrate { id: c.id, from: from.file() }
        }
        C::WriteCmEvent(c) => {
            let kind = match c.event {
                n if n == EventKind::User as u32 => EventKind::User,
                n if n == EventKind::Internal as u32 => EventKind::Internal,
                _ => return Err(Errno::EINVAL),
            };
            // SAFETY: all parameters are integers, and the value is in the first eight bytes.
            let arg = unsafe { c.param.arg }.to_ne_bytes();
            Request::WriteEvent { id: c.id, kind, status: c.status as i32, arg }
        }
    })
}

/// Checks a length of an option's value.
pub fn may_be_long(len: u32) -> Result<usize, Errno> {
    let most = MAX_PATHS * size_of::<abi::ib_path_rec_data>();
    usize::try_from(len).ok().filter(|&len| len <= most).ok_or(Errno::EINVAL)
}

/// A program's option, made from the bytes of its value.
///
/// # Errors
/// EINVAL: the value has another length. ENOSYS: no such option.
pub fn option(level: u32, name: u32, value: &[u8]) -> Result<OptionValue, Errno> {
    let byte = || <[u8; 1]>::try_from(value).map(|[byte]| byte).map_err(|_| Errno::EINVAL);
    let flag = || {
        let bytes = <[u8; 4]>::try_from(value).map_err(|_| Errno::EINVAL)?;
        Ok(i32::from_ne_bytes(bytes) != 0)
    };
    Ok(match (level, name) {
        (ID, TOS) => OptionValue::Tos(byte()?),
        (ID, REUSEADDR) => OptionValue::ReuseAddr(flag()?),
        (ID, AFONLY) => OptionValue::FamilyOnly(flag()?),
        (ID, ACK_TIMEOUT) => OptionValue::AckTimeout(byte()?),
        (IB, IB_PATH) => OptionValue::Path(route(value).ok_or(Errno::EINVAL)?),
        _ => return Err(Errno::ENOSYS),
    })
}

/// The route in the first usable path record of a program.
fn route(value: &[u8]) -> Option<Route> {
    let (records, rest) = value.as_chunks::<{ size_of::<abi::ib_path_rec_data>() }>();
    let mut records = records.iter().map(|record| abi::ib_path_rec_data::of_bytes(record));
    let record =
        records.find(|record| record.flags == PATH_FLAGS).filter(|_| rest.is_empty())?.path_rec;
    let flow_hop = u32::from_be_bytes([record[44], record[45], record[46], record[47]]);
    Some(Route {
        mtu: (record[54] & 0x3f).clamp(1, 5),
        traffic_class: record[48],
        flow_label: flow_hop >> 8 & 0xf_ffff,
        hop_limit: flow_hop as u8,
        service_level: record[53] & 15,
        packet_lifetime: record[56] & 0x3f,
    })
}
