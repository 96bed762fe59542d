use super::*;

fn written(number: u32, given: u16, bytes: usize) -> Vec<u8> {
    let mut all = number.to_ne_bytes().to_vec();
    all.extend(given.to_ne_bytes());
    all.extend(8_u16.to_ne_bytes());
    all.extend(vec![7; bytes]);
    all
}

#[test]
fn ucm_1_a_command_is_read_by_its_length() {
    assert_eq!(Request::NUMBERS, (0..25).collect::<Vec<u32>>());
    for &number in Request::NUMBERS {
        let whole = |given: u16, bytes| Request::decode(&written(number, given, bytes));
        let (request, room) = whole(400, 400).expect("longer than any");
        let full = request.parts().1.len();
        assert!(full + HEADER <= Request::LONGEST, "{number}");
        assert_eq!((request.parts(), room), ((number, &vec![7; full][..]), 8));
        let least = if matches!(number, 6 | 8) { full - 8 } else { full };
        assert!(whole(full as u16, full).is_some() && whole(least as u16, full).is_some());
        assert!(
            whole(full as u16, full - 1).is_none(),
            "{number}: fewer bytes than the header says"
        );
        assert!(
            whole(least as u16 - 1, full).is_none(),
            "{number}: fewer bytes than the command has"
        );
    }
    assert!(Request::decode(&written(25, 400, 400)).is_none());
    assert!(Request::decode(&[0; 7]).is_none());
    let Some((Request::Connect(short), _)) = Request::decode(&written(6, 280, 400)) else {
        panic!()
    };
    assert_eq!(
        (short.reserved, short.ece.vendor_id),
        (0x0707_0707, 0),
        "an older library has no ECE"
    );
}

#[test]
fn no_type_has_padding() {
    for ty in LAYOUTS.iter().chain(newer::LAYOUTS).filter(|ty| ty.name != "WrittenParam") {
        let fields: usize = ty.fields.iter().map(|field| field.size).sum();
        assert_eq!(fields, ty.size, "{}", ty.name);
    }
}

#[test]
fn ucm_1_sizes_of_bodies_and_answers() {
    let full: Vec<usize> = Request::NUMBERS
        .iter()
        .map(|&n| Request::decode(&written(n, 400, 400)).unwrap().0.parts().1.len())
        .collect();
    let header = [
        24, 16, 40, 64, 8, 16, 288, 8, 296, 264, 4, 16, 8, 24, 24, 8, 48, 16, 16, 16, 136, 272,
        152, 88, 320,
    ];
    assert_eq!(full, header);
    let answers = [
        Reply::None.bytes().len(),
        size_of::<rdma_ucm_query_route_resp>(),
        size_of::<rdma_ucm_query_addr_resp>(),
        size_of::<ib_uverbs_qp_attr>(),
        size_of::<rdma_ucm_event_resp>(),
    ];
    assert_eq!(answers, [0, 208, 280, 144, 336]);
}
