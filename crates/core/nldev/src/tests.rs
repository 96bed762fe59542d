use super::*;
use crate::numbers::{attr, command};
use proptest::prelude::*;
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

type Attribute<'a> = (u16, &'a [u8]);
const FIRST: Attribute<'_> = (attr::DEV_INDEX, &0_u32.to_ne_bytes());
const SECOND: Attribute<'_> = (attr::DEV_INDEX, &1_u32.to_ne_bytes());
const EIGHTH: Attribute<'_> = (attr::DEV_INDEX, &7_u32.to_ne_bytes());
const PORT: Attribute<'_> = (attr::PORT_INDEX, &1_u32.to_ne_bytes());

fn text(devices: u32) -> String {
    (0..devices)
        .map(|n| {
            let name = format!("adverb_eth{n}");
            let net = format!("eth{n}");
            let device = Device {
                index: n,
                name: name.as_bytes(),
                guid: 0x0200_00ff_fe00_0001,
                caps: 0x40,
                firmware: b"0.1.0",
                net_index: n + 2,
                net_name: net.as_bytes(),
                up: n % 2 == 0,
            };
            format!("{device}\n")
        })
        .collect()
}

fn request(command: u16, flags: u16, attributes: &[Attribute<'_>]) -> Vec<u8> {
    let mut all = vec![0; 4];
    all.extend((numbers::CLIENT << 10 | command).to_ne_bytes());
    all.extend((flags | numbers::NLM_F_REQUEST).to_ne_bytes());
    all.extend(7_u32.to_ne_bytes());
    all.extend(0_u32.to_ne_bytes());
    for (kind, payload) in attributes {
        all.extend((4 + payload.len() as u16).to_ne_bytes());
        all.extend(kind.to_ne_bytes());
        all.extend(*payload);
        all.resize(all.len().next_multiple_of(4), 0);
    }
    let len = all.len() as u32;
    all[..4].copy_from_slice(&len.to_ne_bytes());
    all
}

/// Type, flags and attributes of each message of an answer. Parsing panics on a malformed message.
type Told = Vec<(u16, u16, Vec<u8>)>;

fn ask(table: &str, request: &[u8]) -> Told {
    ask_with(table, Some(Objects::END), request)
}

/// As `ask`, with these objects.
fn ask_with(table: &str, objects: Option<&str>, request: &[u8]) -> Told {
    let table = Table::parse(table.as_bytes()).unwrap();
    let objects = objects.map(|text| Objects::parse(text.as_bytes()).unwrap());
    let mut all = Told::new();
    let mut refuse = |_: LinkChange<'_>| numbers::EOPNOTSUPP;
    answer(&table, objects.as_ref(), 77, request, &mut refuse, &mut |datagram| {
        assert!(!datagram.is_empty() && datagram.len() <= DATAGRAM);
        let mut left = datagram;
        while !left.is_empty() {
            let len = u32::from_ne_bytes(left[..4].try_into().unwrap()) as usize;
            assert!(len >= 16 && len.is_multiple_of(4), "{len}");
            assert_eq!(left[12..16], 77_u32.to_ne_bytes());
            let half = |at: usize| u16::from_ne_bytes([left[at], left[at + 1]]);
            all.push((half(4), half(6), left[16..len].to_vec()));
            left = &left[len..];
        }
    });
    for (kind, _, body) in &all {
        if *kind >= numbers::NLMSG_MIN_TYPE {
            attributes(body);
        }
    }
    all
}

/// The attributes of a message; panics on a malformed attribute.
fn attributes(mut body: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut all = Vec::new();
    while !body.is_empty() {
        let len = usize::from(u16::from_ne_bytes([body[0], body[1]]));
        let kind = u16::from_ne_bytes([body[2], body[3]]);
        let payload = body[4..len].to_vec();
        if kind & numbers::NLA_F_NESTED != 0 {
            attributes(&payload);
        }
        all.push((kind & numbers::NLA_TYPE_MASK, payload));
        body = &body[len.next_multiple_of(4)..];
    }
    all
}

fn error(told: &Told) -> i32 {
    assert_eq!((told.len(), told[0].0), (1, numbers::NLMSG_ERROR));
    -i32::from_ne_bytes(told[0].2[..4].try_into().unwrap())
}

/// SYS-1: a dump has a message for each device, for any number of devices, and an end.
#[test]
fn a_dump_names_every_device_and_ends() {
    for count in [0, 1, 3, 500] {
        for command in [command::GET, command::RES_GET] {
            let told =
                ask(&text(count), &request(command, numbers::NLM_F_DUMP | numbers::NLM_F_ACK, &[]));
            assert_eq!(told.len(), count as usize + 1);
            for (n, (kind, flags, body)) in told[..count as usize].iter().enumerate() {
                assert_eq!((*kind, *flags), (5 << 10 | command, numbers::NLM_F_MULTI));
                let name = format!("adverb_eth{n}\0");
                assert!(attributes(body).contains(&(attr::DEV_NAME, name.into_bytes())));
            }
            assert_eq!(told[count as usize].0, numbers::NLMSG_DONE);
        }
    }
}

#[test]
fn a_device_and_a_port_are_found_by_their_numbers() {
    let told = ask(&text(2), &request(command::GET, numbers::NLM_F_ACK, &[SECOND]));
    assert_eq!(told.len(), 2, "the answer, and that it worked");
    let had = attributes(&told[0].2);
    assert!(had.contains(&(attr::NODE_GUID, 0x0200_00ff_fe00_0001_u64.to_ne_bytes().to_vec())));
    assert_eq!((told[1].0, &told[1].2[..4]), (numbers::NLMSG_ERROR, &[0; 4][..]));

    let told = ask(&text(2), &request(command::PORT_GET, 0, &[SECOND, PORT]));
    let had = attributes(&told[0].2);
    assert!(had.contains(&(attr::NDEV_NAME, b"eth1\0".to_vec())));
    assert!(had.contains(&(attr::NDEV_INDEX, 3_u32.to_ne_bytes().to_vec())));
    assert!(had.contains(&(attr::PORT_STATE, vec![1])), "the second one is down");
    let told = ask(&text(2), &request(command::PORT_GET, 0, &[FIRST, PORT]));
    assert!(attributes(&told[0].2).contains(&(attr::PORT_STATE, vec![4])));
}

#[test]
fn what_is_not_there_or_not_named_is_an_error() {
    let port = (attr::PORT_INDEX, EIGHTH.1);
    let qp = (attr::RES_LQPN, SECOND.1);
    for (command, flags, attributes, errno) in [
        (command::GET, 0, &[][..], numbers::EINVAL),
        (command::GET, 0, &[EIGHTH], numbers::EINVAL),
        // Too short.
        (command::GET, 0, &[(attr::DEV_INDEX, &[1, 0])], numbers::EINVAL),
        (command::PORT_GET, 0, &[FIRST], numbers::EINVAL),
        (command::PORT_GET, 0, &[FIRST, port], numbers::EINVAL),
        (command::RES_QP_GET, numbers::NLM_F_DUMP, &[], numbers::EINVAL),
        (command::RES_QP_GET, 0, &[FIRST, qp], numbers::ENOENT),
        (command::NEWLINK, 0, &[(attr::DEV_NAME, b"rxe0\0")], numbers::EINVAL),
        (command::DELLINK, 0, &[EIGHTH], numbers::EINVAL),
        (command::DELLINK, 0, &[FIRST], numbers::EOPNOTSUPP),
        (command::SET, 0, &[FIRST], numbers::EOPNOTSUPP),
        (999, 0, &[], numbers::EINVAL),
        (command::GET_CHARDEV, 0, &[(attr::CHARDEV_TYPE, b"umad\0")], numbers::ENODEV),
    ] {
        let told = ask(&text(2), &request(command, flags, attributes));
        assert_eq!(error(&told), errno, "{command} {attributes:?}");
    }
}

/// SYS-18: a change of the devices reaches the caller with the names of the request.
#[test]
fn sys_18_a_change_has_the_names_of_the_request() {
    let text = text(2);
    let table = Table::parse(text.as_bytes()).unwrap();
    let names = [
        (attr::DEV_NAME, &b"rxe0\0"[..]),
        (attr::LINK_TYPE, &b"rxe\0"[..]),
        (attr::NDEV_NAME, &b"eth0\0"[..]),
    ];
    let requests = [
        request(command::NEWLINK, numbers::NLM_F_ACK, &names),
        request(command::DELLINK, numbers::NLM_F_ACK, &[SECOND]),
    ];
    let wanted = [
        LinkChange::Add { name: b"rxe0", driver: b"rxe", interface: b"eth0" },
        LinkChange::Delete { name: b"adverb_eth1" },
    ];
    for (request, wanted) in requests.iter().zip(wanted) {
        for errno in [0, 17] {
            let (mut changes, mut said) = (0, Vec::new());
            let mut change = |asked: LinkChange<'_>| {
                assert_eq!(asked, wanted);
                changes += 1;
                errno
            };
            answer(&table, None, 77, request, &mut change, &mut |datagram| said.extend(datagram));
            assert_eq!((changes, &said[16..20]), (1, &(-errno).to_ne_bytes()[..]));
        }
    }
}

/// One object of each kind, as two processes would describe them.
const OBJECTS: [(u16, Object); 6] = [
    (command::RES_CTX_GET, Object::Context { number: 1 }),
    (command::RES_PD_GET, Object::Pd { number: 2, context: 1, users: 3 }),
    (command::RES_CQ_GET, Object::Cq { number: 4, context: 1, capacity: 5, users: 6 }),
    (command::RES_SRQ_GET, Object::Srq { number: 7, pd: 2, kind: 1 }),
    (command::RES_MR_GET, Object::Mr { number: 8, pd: 2, len: u64::MAX }),
    (
        command::RES_QP_GET,
        Object::Qp { number: 9, pd: 2, kind: 2, state: 3, dest: 10, rq_psn: 11, sq_psn: 12 },
    ),
];

/// The objects of `adverb_eth0` in two processes, and one of another device.
fn objects() -> String {
    let mut text = String::from("42 adverb_eth1 ctx 1\n");
    for pid in [42_u32, 43] {
        for (_, object) in OBJECTS {
            text += &format!("{pid} adverb_eth0 {}\n", ObjectLine::Object(object));
        }
        let counters: Counts = core::array::from_fn(|n| n as u64 + u64::from(pid));
        text += &format!("{pid} adverb_eth0 {}\n", ObjectLine::Counters(counters));
    }
    text + Objects::END
}

fn has(attributes: &[(u16, Vec<u8>)], kind: u16, value: &[u8]) -> bool {
    attributes.contains(&(kind, value.to_vec()))
}

/// SYS-10: a list has the objects of the device in all processes, and a summary counts them.
#[test]
fn objects_are_those_of_all_processes() {
    let all = objects();
    for (command, object) in OBJECTS {
        let asked = request(command, numbers::NLM_F_DUMP, &[FIRST]);
        let told = ask_with(&text(1), Some(&all), &asked);
        assert_eq!((told.len(), told[2].0), (3, numbers::NLMSG_DONE), "{object:?}");
        for (message, pid) in told.iter().zip([42_u32, 43]) {
            let list = attributes(&message.2).pop().unwrap().1;
            let entry = attributes(&attributes(&list).pop().unwrap().1);
            assert!(has(&entry, attr::RES_PID, &pid.to_ne_bytes()), "{object:?}");
        }
        let none = ask(&text(1), &asked);
        assert_eq!((none.len(), none[0].0), (1, numbers::NLMSG_DONE));
    }
    let number = (attr::RES_LQPN, &9_u32.to_ne_bytes()[..]);
    let one = request(command::RES_QP_GET, 0, &[FIRST, number]);
    let qp = attributes(&ask_with(&text(1), Some(&all), &one)[0].2);
    assert!(has(&qp, attr::RES_RQPN, &10_u32.to_ne_bytes()) && has(&qp, attr::RES_STATE, &[3]));
    assert!(has(&qp, attr::RES_SQ_PSN, &12_u32.to_ne_bytes()) && has(&qp, attr::RES_TYPE, &[2]));

    let asked = request(command::RES_GET, 0, &[FIRST]);
    let had = attributes(&ask_with(&text(2), Some(&all), &asked)[0].2);
    let summary = attributes(&had.iter().find(|a| a.0 == attr::RES_SUMMARY).unwrap().1);
    assert_eq!(summary.len(), OBJECTS.len());
    for (_, entry) in summary {
        let entry = attributes(&entry);
        assert!(has(&entry, attr::RES_SUMMARY_ENTRY_CURR, &2_u64.to_ne_bytes()), "{entry:?}");
    }
}

/// SYS-10: the counters of a device are the sums over the processes.
#[test]
fn counters_are_sums() {
    let asked = request(command::STAT_GET, 0, &[FIRST, PORT]);
    let had = attributes(&ask_with(&text(1), Some(&objects()), &asked)[0].2);
    let all = attributes(&had.iter().find(|a| a.0 == attr::STAT_HWCOUNTERS).unwrap().1);
    assert_eq!(all.len(), COUNTERS.len());
    for (n, (name, (_, entry))) in COUNTERS.iter().zip(all).enumerate() {
        let entry = attributes(&entry);
        let name = format!("{name}\0");
        assert!(has(&entry, attr::STAT_HWCOUNTER_ENTRY_NAME, name.as_bytes()), "{name}");
        let sum = 42 + 43 + 2 * n as u64;
        assert!(has(&entry, attr::STAT_HWCOUNTER_ENTRY_VALUE, &sum.to_ne_bytes()), "{name}");
    }
    let text = objects();
    let objects = Objects::parse(text.as_bytes()).unwrap();
    assert_eq!(objects.counters(b"adverb_eth1"), Counts::default());
}

/// SYS-10: what is not known is refused.
#[test]
fn without_objects_a_question_for_them_is_refused() {
    let ask = |command, attributes: &[Attribute<'_>]| {
        let asked = request(command, numbers::NLM_F_DUMP, attributes);
        (needs_objects(&asked), error(&ask_with(&text(1), None, &asked)))
    };
    assert_eq!(ask(command::RES_GET, &[]), (true, numbers::ENODATA));
    for (command, _) in OBJECTS {
        assert_eq!(ask(command, &[FIRST]), (true, numbers::ENODATA));
    }
    assert_eq!(ask(command::RES_CM_ID_GET, &[FIRST]), (false, numbers::EOPNOTSUPP));
    let asked = request(command::STAT_GET, 0, &[FIRST, PORT]);
    assert!(needs_objects(&asked));
    assert_eq!(error(&ask_with(&text(1), None, &asked)), numbers::ENODATA);
    assert!(!needs_objects(&request(command::GET, numbers::NLM_F_DUMP, &[])));
}

/// SYS-10: a text that is cut, or that has another line, is refused as a whole.
#[test]
fn a_cut_text_of_objects_is_refused() {
    let all = objects();
    assert!(Objects::parse(all.as_bytes()).is_some());
    for len in 0..all.len() {
        assert!(Objects::parse(&all.as_bytes()[..len]).is_none(), "{len}");
    }
    for bad in ["x", "1 adverb_x pd 1 2", "1 adverb_x ctx 1 2", "1 adverb_x qp 1 2 300 1 1 1 1"] {
        assert!(Objects::parse(format!("{bad}\n{all}").as_bytes()).is_none(), "{bad}");
    }
}

#[test]
fn device_files_have_a_name_and_the_number_of_what_stands_for_them() {
    let index = &11_u32.to_ne_bytes()[..];
    let asked = [(attr::DEV_INDEX, index), (attr::CHARDEV_TYPE, &b"uverbs\0"[..])];
    let had = attributes(&ask(&text(12), &request(command::GET_CHARDEV, 0, &asked))[0].2);
    assert!(had.contains(&(attr::CHARDEV_NAME, b"uverbs11\0".to_vec())));
    let told =
        ask(&text(1), &request(command::GET_CHARDEV, 0, &[(attr::CHARDEV_TYPE, b"rdma_cm\0")]));
    let had = attributes(&told[0].2);
    assert!(had.contains(&(attr::CHARDEV_ABI, 4_u64.to_ne_bytes().to_vec())));
    assert!(had.contains(&(attr::CHARDEV, 0x103_u64.to_ne_bytes().to_vec())));
}

#[test]
fn several_requests_in_a_datagram_are_answered_in_turn() {
    let mut both = request(command::SYS_GET, 0, &[]);
    both.extend(request(command::GET, numbers::NLM_F_DUMP, &[]));
    both.extend([1, 2, 3]);
    let told = ask(&text(1), &both);
    let kinds: Vec<u16> = told.iter().map(|m| m.0).collect();
    assert_eq!(kinds, [5 << 10 | command::SYS_GET, 5 << 10 | command::GET, numbers::NLMSG_DONE]);
}

#[test]
fn a_line_that_is_no_device_is_named() {
    assert_eq!(Table::parse(b"").unwrap().devices().count(), 0);
    for bad in [
        "x",
        "0 a 1",
        "0 a g 0 1 1 lo up",
        "0 a 1 0 1 1 lo",
        "0 a 1 0 1 1 lo more",
        "0 a 1 0 1 1 lo up more",
        "4294967296 a 1 0 1 1 lo up",
    ] {
        assert_eq!(
            Table::parse(format!("{}{bad}\n", text(2)).as_bytes()).unwrap_err(),
            BadLine(3),
            "{bad}"
        );
    }
}

proptest! {
    /// SYS-1: for any request, answers are well-formed and bounded.
    #[test]
    fn any_bytes_draw_well_formed_answers(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        ask(&text(2), &bytes);
    }

    /// The same for requests that are mostly valid.
    #[test]
    fn any_attributes_draw_well_formed_answers(
        command in 0_u16..32,
        flags in any::<u16>(),
        attributes in prop::collection::vec((0_u16..100, prop::collection::vec(any::<u8>(), 0..9)), 0..6),
        cut in 0_usize..64,
    ) {
        let attributes: Vec<_> = attributes.iter().map(|(k, p)| (*k, &p[..])).collect();
        let mut bytes = request(command, flags, &attributes);
        prop_assert!(!ask(&text(3), &bytes).is_empty() || flags & numbers::NLM_F_REQUEST == 0);
        bytes.truncate(bytes.len().saturating_sub(cut));
        ask(&text(3), &bytes);
    }

    #[test]
    fn any_text_is_a_table_or_not(text in prop::collection::vec(any::<u8>(), 0..128)) {
        if let Ok(table) = Table::parse(&text) {
            for device in table.devices() {
                prop_assert!(!device.name.is_empty());
            }
        }
    }

    #[test]
    fn any_text_is_a_text_of_objects_or_not(text in prop::collection::vec(any::<u8>(), 0..128)) {
        let text = [&text[..], Objects::END.as_bytes()].concat();
        if let Some(objects) = Objects::parse(&text) {
            let _ = objects.counters(b"adverb_eth0");
        }
    }

    #[test]
    fn a_line_is_read_as_it_was_written(index: u32, guid: u64, caps: u64, net_index: u32, up: bool) {
        let device = Device {
            index, name: b"adverb_x", guid, caps, firmware: b"1.2", net_index, net_name: b"x", up,
        };
        let text = format!("{device}\n");
        prop_assert_eq!(Table::parse(text.as_bytes()).unwrap().devices().next(), Some(device));
    }
}
