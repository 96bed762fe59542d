//! Both forms of a request, and replies by the bytes of `rdma_user_cm.h`.
use super::callers::{Memory, SystemLibrary, Typed};
use super::reply::reply;
use super::request::request;
use super::sockaddr;
use crate::abi::Plain;
use crate::abi::rdma_user_cm as abi;
use adverb_device::Errno;
use adverb_ucma::{
    Address, Addresses, Ah, Caller, ConnParam, Ece, Event, EventKind, OptionName, OptionValue,
    Param, Path, QpAttr, Question, Reply, Request, Route,
};
use core::cell::RefCell;
use core::time::Duration;
use proptest::prelude::*;

/// Bytes of a command with room for `room` bytes.
fn written(number: u32, body: &[u8], room: u16) -> Vec<u8> {
    let len = u16::try_from(body.len()).unwrap();
    [&number.to_ne_bytes()[..], &len.to_ne_bytes(), &room.to_ne_bytes(), body].concat()
}

/// Integers of a body at the offsets of `rdma_user_cm.h`, as numbers.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0[at..at + N].try_into().unwrap()
    }
    fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }
    fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.array(at))
    }
    fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.array(at))
    }
    fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.array(at))
    }
    fn ece(&self, at: usize) -> Ece {
        Ece { vendor_id: self.u32(at), attr_mod: self.u32(at + 4) }
    }
    fn param(&self, at: usize) -> ConnParam<&'a [u8]> {
        let byte = |n: usize| self.u8(at + 264 + n);
        ConnParam {
            qpn: self.u32(at),
            qkey: self.u32(at + 4),
            private_data: &self.0[at + 8..at + 8 + usize::from(byte(0))],
            srq: byte(1) != 0,
            responder_resources: byte(2),
            initiator_depth: byte(3),
            flow_control: byte(4) != 0,
            retry_count: byte(5),
            rnr_retry_count: byte(6),
            valid: byte(7) != 0,
        }
    }
    fn old(&self, at: usize) -> Result<Address, Errno> {
        sockaddr::read(&self.0[at..at + 28]).ok_or(Errno::EINVAL)
    }
    fn sized(&self, at: usize, size: u16) -> Result<Address, Errno> {
        let address = sockaddr::read(&self.0[at..at + 128]).ok_or(Errno::EINVAL)?;
        if sockaddr::size(&address) == size { Ok(address) } else { Err(Errno::EINVAL) }
    }
}

fn millis(value: u32) -> Duration {
    Duration::from_millis(value.min(0x7fff_ffff).into())
}

/// The request of a command, by the numbers of the header alone.
fn by_offsets(number: u32, body: &[u8]) -> Result<Request<'_>, Errno> {
    let b = Body(body);
    let none_if =
        |zero, address: Result<Address, Errno>| if zero { Ok(None) } else { address.map(Some) };
    let refused_if = |wrong| if wrong { Err(Errno::EINVAL) } else { Ok(()) };
    Ok(match number {
        0 => Request::CreateId { uid: b.u64(0), port_space: b.u16(16), qp_type: b.u8(18) },
        1 => Request::DestroyId { id: b.u32(8) },
        2 => Request::Bind { id: b.u32(36), address: b.old(8)? },
        3 => Request::ResolveAddr {
            id: b.u32(56),
            source: none_if(b.u16(0) == 0, b.old(0))?,
            destination: b.old(28)?,
            patience: millis(b.u32(60)),
        },
        4 => Request::ResolveRoute { id: b.u32(0) },
        5 => Request::QueryRoute { id: b.u32(8) },
        6 => Request::Connect { id: b.u32(272), param: b.param(0), ece: b.ece(280) },
        7 => Request::Listen { id: b.u32(0), backlog: b.u32(4) },
        8 => Request::Accept { id: b.u32(280), uid: b.u64(0), param: b.param(8), ece: b.ece(288) },
        9 => {
            let private_data = &body[8..8 + usize::from(b.u8(4))];
            Request::Reject { id: b.u32(0), reason: b.u8(5), private_data }
        }
        10 => Request::Disconnect { id: b.u32(0) },
        11 => Request::InitQpAttr { id: b.u32(8), state: b.u32(12) },
        12 => Request::GetEvent,
        13 => {
            let name = match (b.u32(12), b.u32(16)) {
                (0, 0) => OptionName::Tos,
                (0, 1) => OptionName::ReuseAddr,
                (0, 2) => OptionName::FamilyOnly,
                (0, 3) => OptionName::AckTimeout,
                _ => OptionName::Unknown,
            };
            Request::GetOption { id: b.u32(8), name }
        }
        14 => Request::SetOption { id: b.u32(8) },
        15 => Request::Notify { id: b.u32(0), event: b.u32(4) },
        16 => Request::Join { id: b.u32(44), uid: b.u64(8), group: b.old(16)? },
        17 => Request::Leave { group: b.u32(8) },
        // No file of this process has the descriptor.
        18 => return Err(Errno::ENOENT),
        19 => {
            let question = match b.u32(12) {
                0 => Question::Addresses,
                1 => Question::Path,
                2 => Question::Gids,
                3 => Question::Services,
                _ => Question::Unknown,
            };
            Request::Query { id: b.u32(8), question }
        }
        20 => {
            refused_if(b.u16(6) != 0)?;
            Request::Bind { id: b.u32(0), address: b.sized(8, b.u16(4))? }
        }
        21 => {
            refused_if(b.u32(12) != 0)?;
            Request::ResolveAddr {
                id: b.u32(0),
                source: none_if(b.u16(8) == 0, b.sized(16, b.u16(8)))?,
                destination: b.sized(144, b.u16(10))?,
                patience: millis(b.u32(4)),
            }
        }
        22 => {
            refused_if(b.u16(22) > 1)?;
            Request::Join { id: b.u32(16), uid: b.u64(8), group: b.sized(24, b.u16(20))? }
        }
        23 => {
            refused_if(b.u32(80) == 0 || b.u32(80) > 3)?;
            Request::ResolveIbService { id: b.u32(0) }
        }
        24 => {
            let kind = match b.u32(8) {
                18 => EventKind::User,
                19 => EventKind::Internal,
                _ => return Err(Errno::EINVAL),
            };
            Request::WriteEvent { id: b.u32(0), kind, status: b.u32(12) as i32, arg: b.array(16) }
        }
        _ => return Err(Errno::EINVAL),
    })
}

/// Positions with significant values in a random body: families, lengths, flags, kinds.
const TELLING: &[(u32, usize, &[&[u8]])] = {
    const FAMILIES: &[&[u8]] = &[&[0, 0], &[2, 0], &[10, 0], &[27, 0]];
    const SIZES: &[&[u8]] = &[&[0, 0], &[16, 0], &[28, 0], &[48, 0]];
    const NONE: &[&[u8]] = &[&[0, 0, 0, 0], &[0, 0, 0, 0], &[0, 0, 0, 0], &[1, 0, 0, 0]];
    const SMALL: &[&[u8]] = &[&[0, 0, 0, 0], &[1, 0, 0, 0], &[2, 0, 0, 0], &[3, 0, 0, 0]];
    &[
        (2, 8, FAMILIES),
        (3, 0, FAMILIES),
        (3, 28, FAMILIES),
        (13, 12, NONE),
        (13, 16, SMALL),
        (14, 12, NONE),
        (16, 16, FAMILIES),
        (18, 12, &[&[0xff; 4]]),
        (19, 12, SMALL),
        (20, 4, SIZES),
        (20, 6, &[&[0, 0], &[0, 0], &[0, 0], &[1, 0]]),
        (20, 8, FAMILIES),
        (21, 8, SIZES),
        (21, 10, SIZES),
        (21, 12, NONE),
        (21, 16, FAMILIES),
        (21, 144, FAMILIES),
        (22, 20, SIZES),
        (22, 22, &[&[0, 0], &[1, 0], &[2, 0]]),
        (22, 24, FAMILIES),
        (23, 80, SMALL),
        (24, 8, &[&[18, 0, 0, 0], &[19, 0, 0, 0], &[17, 0, 0, 0]]),
    ]
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// The bytes of a command lead to the typed command with these bytes, and to the request by the
    /// header's offsets.
    #[test]
    fn ucm_1_rcm_13_both_forms_lead_to_one_request(
        number in 0..25_u32,
        random in proptest::collection::vec(any::<u8>(), 320),
        choice in any::<u64>(),
    ) {
        let mut body = random;
        for (n, &(_, at, values)) in TELLING.iter().filter(|(of, ..)| *of == number).enumerate() {
            let value = values[(choice >> (8 * n)) as usize % values.len()];
            body[at..at + value.len()].copy_from_slice(value);
        }
        let expected = by_offsets(number, &body);
        let all = written(number, &body, 0);
        let (command, _) = abi::Request::decode(&all).expect("a command");
        prop_assert_eq!(request(&command), expected);
        // librdmacm passes the command as this type. Its fields are the bytes.
        let (of, bytes) = command.parts();
        prop_assert_eq!((of, bytes), (number, &body[..bytes.len()]));
    }

    /// Any bytes can be decoded without a fault.
    #[test]
    fn ucm_1_any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..600), number in 0..30_u32) {
        let mut bytes = bytes;
        if bytes.len() > 4 && number < 26 {
            bytes[..4].copy_from_slice(&number.to_ne_bytes());
        }
        if bytes.len() > 6 && number < 28 {
            bytes[5] = 0;
        }
        if let Some((request, _)) = abi::Request::decode(&bytes) {
            let _ = super::request::request(&request);
        }
    }
}

/// A range of addresses with contents.
struct Ram(RefCell<Vec<u8>>);

const HERE: u64 = 0x1000;

impl Memory for &Ram {
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Errno> {
        if address != HERE {
            return Err(Errno::EFAULT);
        }
        to.copy_from_slice(&self.0.borrow()[..to.len()]);
        Ok(())
    }
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
        if address != HERE {
            return Err(Errno::EFAULT);
        }
        *self.0.borrow_mut() = from.to_vec();
        Ok(())
    }
}

/// The bytes that the system's library gets for a command with this room.
fn given(request: &abi::Request, room: usize, from: &Reply<'_>) -> Result<Vec<u8>, Errno> {
    let ram = Ram(RefCell::default());
    let mut system = SystemLibrary { request, room, memory: &ram };
    system.check_room()?;
    system.reply(from)?;
    Ok(ram.0.into_inner())
}

fn query() -> abi::Request {
    abi::Request::Query(abi::rdma_ucm_query { response: HERE, ..Plain::zeroed() })
}

const ADDRESSES: Addresses =
    Addresses { device: Some((0x1001, 3)), source: None, destination: None };
const ROUTE: Route = Route {
    mtu: 3,
    traffic_class: 0x28,
    flow_label: 0xabcde,
    hop_limit: 64,
    service_level: 0,
    packet_lifetime: 19,
};

fn gids() -> Path {
    let gid = |last: u16| core::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last);
    Path { source: gid(1), destination: gid(2), route: Some(ROUTE) }
}

#[test]
fn ucm_1_answers_are_as_long_as_there_is_room() {
    let addresses = Reply::Addresses(Addresses {
        source: Some(Address::Ip("10.0.0.1:5".parse().unwrap())),
        ..ADDRESSES
    });
    let all = given(&query(), 280, &addresses).unwrap();
    assert_eq!(all.len(), 280);
    assert_eq!((&all[..8], all[8], all[12], all[14]), (&0x1001_u64.to_be_bytes()[..], 1, 16, 0));
    assert_eq!((&all[10..12], &all[16..24]), (&[0xff, 0xff][..], &[2, 0, 0, 5, 10, 0, 0, 1][..]));
    assert_eq!(all[272..276], 3_u32.to_ne_bytes());
    assert_eq!(given(&query(), 272, &addresses).unwrap(), all[..272], "an older library");
    assert_eq!(given(&query(), 271, &addresses), Err(Errno::ENOSPC));
    let unknown =
        given(&query(), 300, &Reply::Addresses(Addresses { device: None, ..ADDRESSES })).unwrap();
    assert_eq!((&unknown[..12], &unknown[272..276]), (&[0; 12][..], &[0xff; 4][..]));

    let path = given(&query(), 8 + 6 * 72, &Reply::Path(gids())).unwrap();
    assert_eq!((path.len(), path[0], path[8]), (80, 1, 0x2b));
    let record = &path[16..];
    assert_eq!((record[48], record[54], record[56]), (0x28, 0x83, 0x80 | 19), "TOS, MTU, lifetime");
    assert_eq!(
        (&record[8..24], &record[24..40]),
        (&gids().destination.octets()[..], &gids().source.octets()[..])
    );
    assert_eq!(record[44..48], [0x0a, 0xbc, 0xde, 64]);
    let short = given(&query(), 79, &Reply::Path(gids())).unwrap();
    assert_eq!(short, [1, 0, 0, 0, 0, 0, 0, 0], "no room but for the number");
    assert_eq!(given(&query(), 7, &Reply::Path(gids())), Err(Errno::ENOSPC));
    let no_route = Reply::Path(Path { route: None, ..gids() });
    assert_eq!(given(&query(), 80, &no_route).unwrap(), [0; 8]);
    assert_eq!(given(&query(), 80, &Reply::NoServices).unwrap(), [0; 8]);

    let old = abi::Request::QueryRoute(abi::rdma_ucm_query { response: HERE, ..Plain::zeroed() });
    let route = given(&old, 208, &Reply::Route(ADDRESSES, gids())).unwrap();
    assert_eq!((route.len(), route[192], route[196], route[200]), (208, 1, 1, 3));
    assert_eq!((route[8 + 48], route[8 + 54], route[8 + 55], route[8 + 62]), (3, 64, 0x28, 19));
    assert_eq!(
        (&route[8..24], &route[60..62]),
        (&gids().destination.octets()[..], &[0xff, 0xff][..])
    );
    assert_eq!(given(&old, 200, &Reply::Route(ADDRESSES, gids())).unwrap().len(), 200);
    assert_eq!(given(&old, 199, &Reply::Route(ADDRESSES, gids())), Err(Errno::ENOSPC));
}

#[test]
fn ucm_1_too_little_room_is_known_before_anything_changes() {
    for number in 0..25 {
        let (request, _) = abi::Request::decode(&written(number, &[0; 320], 0)).unwrap();
        let room = |room| {
            SystemLibrary { request: &request, room, memory: &Ram(RefCell::default()) }.check_room()
        };
        let least = match number {
            0 | 1 | 16 | 17 | 18 | 22 => 4,
            5 => 200,
            11 => 144,
            12 => 324,
            _ => 0,
        };
        assert_eq!(room(least), Ok(()), "{number}");
        assert!(least == 0 || room(least - 1) == Err(Errno::ENOSPC), "{number}");
    }
    let create =
        |response| abi::Request::CreateId(abi::rdma_ucm_create_id { response, ..Plain::zeroed() });
    assert_eq!(given(&create(HERE), 4, &Reply::Id(7)), Ok(vec![7, 0, 0, 0]));
    assert_eq!(given(&create(8), 4, &Reply::Id(7)), Err(Errno::EFAULT));
}

#[test]
fn ucm_1_events_are_those_of_the_header() {
    let get = abi::Request::GetEvent(abi::rdma_ucm_get_event { response: HERE });
    let bytes = |param, room| {
        let ece = Ece { vendor_id: 7, attr_mod: 9 };
        let event = Event { kind: EventKind::Established, status: -5, param, ece };
        given(&get, room, &Reply::Event { uid: 11, about: 12, event: &event })
    };
    let conn = ConnParam {
        qpn: 0x123,
        private_data: b"hello".to_vec(),
        responder_resources: 2,
        initiator_depth: 4,
        retry_count: 6,
        rnr_retry_count: 5,
        srq: true,
        flow_control: true,
        ..ConnParam::default()
    };
    let seen = bytes(Param::Conn(conn.clone()), 336).unwrap();
    let b = Body(&seen);
    assert_eq!((seen.len(), b.u64(0), b.u32(8), b.u32(12), b.u32(16) as i32), (336, 11, 12, 9, -5));
    assert_eq!(
        (b.u32(20), &seen[28..33], &seen[284..292]),
        (0x123, &b"hello"[..], &[5, 1, 2, 4, 1, 6, 5, 0][..])
    );
    assert_eq!((b.u32(328), b.u32(332)), (7, 9), "ECE");
    assert_eq!(bytes(Param::Conn(conn), 324).unwrap(), seen[..324], "an older library");
    assert_eq!(bytes(Param::None, 323), Err(Errno::ENOSPC));

    let ah = Ah {
        dgid: gids().destination,
        flow_label: 1,
        sgid_index: 2,
        hop_limit: 3,
        traffic_class: 4,
        dlid: 0xc000,
        sl: 5,
    };
    let data = |len: usize| Param::Datagram {
        qpn: 0x77,
        qkey: 0x88,
        ah: Some(ah),
        private_data: vec![6; len],
    };
    let seen = bytes(data(300), 336).unwrap();
    let b = Body(&seen);
    assert_eq!(
        (b.u32(20), b.u32(24), &seen[28..44]),
        (0x77, 0x88, &gids().destination.octets()[..])
    );
    assert_eq!((b.u32(44), &seen[48..52], b.u16(52)), (1, &[2, 3, 4, 0][..], 0xc000));
    assert_eq!((seen[54], seen[57], seen[58]), (5, 1, 1), "service level, global, port");
    assert_eq!((seen[60], seen[314], seen[315], seen[316]), (6, 6, 0, 255), "255 bytes at most");
    let seen = bytes(Param::Arg(*b"8 bytes."), 336).unwrap();
    assert_eq!((&seen[20..28], &seen[28..328]), (&b"8 bytes."[..], &[0; 300][..]));
}

#[test]
fn ucm_5_attributes_are_those_of_the_header() {
    let attr = QpAttr {
        mask: 1,
        state: 2,
        path_mtu: 3,
        qkey: 4,
        rq_psn: 5,
        sq_psn: 6,
        dest_qp_num: 7,
        access_flags: 8,
        ah: None,
        max_rd_atomic: 9,
        max_dest_rd_atomic: 10,
        port_num: 11,
        timeout: 12,
        retry_cnt: 13,
        rnr_retry: 14,
    };
    let answer = reply(&Reply::QpAttr(attr));
    let b = Body(answer.bytes());
    let words = [0, 4, 8, 12, 16, 20, 24, 28, 32, 36].map(|at| b.u32(at));
    assert_eq!(words, [1, 2, 0, 3, 0, 4, 5, 6, 7, 8]);
    assert_eq!(answer.bytes()[128..144], [0, 0, 9, 10, 0, 11, 12, 13, 14, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(answer.bytes()[40..128], [0; 88]);
}

#[test]
fn ucm_5_values_of_options() {
    let set = |at: u64, level, optname, value: &[u8]| {
        let optlen = value.len() as u32;
        let (optval, id) = (at, 1);
        let request = abi::Request::SetOption(abi::rdma_ucm_set_option {
            optval,
            id,
            level,
            optname,
            optlen,
        });
        let ram = Ram(RefCell::new(value.to_vec()));
        let system = SystemLibrary { request: &request, room: 0, memory: &ram }.option();
        if at == HERE {
            let optval = value.as_ptr().expose_provenance() as u64;
            let own = abi::rdma_ucm_set_option { optval, id, level, optname, optlen };
            let (request, mut reply) = (abi::Request::SetOption(own), abi::Reply::None);
            let typed = Typed { request: &request, reply: &mut reply }.option();
            assert_eq!(typed, system, "both forms read one value");
        }
        system
    };
    let yes = 1_i32.to_ne_bytes();
    assert_eq!(set(HERE, 0, 0, &[0x28]), Ok(OptionValue::Tos(0x28)));
    assert_eq!(set(HERE, 0, 0, &yes), Err(Errno::EINVAL), "one byte");
    assert_eq!(set(HERE, 0, 0, &[]), Err(Errno::EINVAL));
    assert_eq!(set(HERE, 0, 1, &yes), Ok(OptionValue::ReuseAddr(true)));
    assert_eq!(set(HERE, 0, 1, &[1]), Err(Errno::EINVAL), "four bytes");
    assert_eq!(set(HERE, 0, 2, &[0; 4]), Ok(OptionValue::FamilyOnly(false)));
    assert_eq!(set(HERE, 0, 3, &[20]), Ok(OptionValue::AckTimeout(20)));
    assert_eq!(set(HERE, 0, 9, &[20]), Err(Errno::ENOSYS));
    assert_eq!(set(HERE, 2, 0, &[20]), Err(Errno::ENOSYS));
    assert_eq!(set(8, 0, 0, &[20]), Err(Errno::EFAULT));
    assert_eq!(
        set(8, 0, 0, &[0; 64 * 72 + 1]),
        Err(Errno::EINVAL),
        "longer than any: not looked at"
    );
    let path = given(&query(), 80, &Reply::Path(gids())).unwrap();
    assert_eq!(set(HERE, 1, 1, &path[8..]), Ok(OptionValue::Path(ROUTE)));
    assert_eq!(
        set(HERE, 1, 1, &[&[0; 72], &path[8..]].concat()),
        Ok(OptionValue::Path(ROUTE)),
        "the second"
    );
    assert_eq!(set(HERE, 1, 1, &path[8..79]), Err(Errno::EINVAL));
    assert_eq!(set(HERE, 1, 1, &[0; 72]), Err(Errno::EINVAL), "no path among them");

    let get = |optlen| {
        abi::Request::GetOption(abi::rdma_ucm_set_option {
            optval: HERE,
            optlen,
            ..Plain::zeroed()
        })
    };
    assert_eq!(given(&get(1), 0, &Reply::Byte(0x28)), Ok(vec![0x28]));
    assert_eq!(given(&get(4), 0, &Reply::Byte(0x28)), Err(Errno::EINVAL));
    assert_eq!(given(&get(4), 0, &Reply::Flag(true)), Ok(yes.to_vec()));
}
