//! Regions, windows, fast registration and logical addresses.
mod common;
use adverb_ndk::device::Mapping;
use adverb_ndk::{Invalidated, Lam, LogicalAddress, Mdl, MrFlags, NtStatus, OpFlags, Sge};
use common::{MEMORY, NONE, QpEnd, closed, pair, short, wait};

const OK: NtStatus = NtStatus::SUCCESS;
const READABLE: OpFlags = OpFlags::ALLOW_REMOTE_READ;

#[test]
fn a_region_is_registered_and_deregistered_by_its_states() {
    let end = QpEnd::new();
    let memory = Mapping::alloc(3 * 4096).unwrap();
    let mr = wait(|c| end.pd.create_mr(false, c)).unwrap();
    let whole = Mdl::of(&memory);
    let register = |mdl: &Mdl, length, flags| wait(|c| mr.register(mdl, length, flags, c));
    assert_eq!((mr.get_local_token(), mr.get_remote_token()), (0, 0));
    assert_eq!(wait(|c| mr.deregister(c)), Err(NtStatus::INVALID_DEVICE_STATE));
    assert_eq!(
        wait(|c| mr.initialize_fast_register(1, true, c)),
        Err(NtStatus::INVALID_DEVICE_REQUEST)
    );
    let invalid = Err(NtStatus::INVALID_PARAMETER);
    assert_eq!(register(&whole, 3 * 4096 + 1, MrFlags::empty()), invalid, "longer than the list");
    assert_eq!(register(&whole, 0, MrFlags::empty()), invalid);
    assert_eq!(register(&whole, 8, MrFlags::from_bits_retain(0x10)), invalid);
    assert_eq!(
        register(&whole, 8, MrFlags::from_bits_retain(0x4)),
        invalid,
        "remote write is local write too"
    );
    let piece = |offset, len| Mdl::new(&memory, offset, len).unwrap();
    let chain = piece(0, 5000).chain(&piece(5000, 100)).chain(&piece(6000, 10));
    assert_eq!(register(&chain, 5101, MrFlags::empty()), invalid, "a gap");
    register(&chain, 5100, MrFlags::ALLOW_LOCAL_WRITE).unwrap();
    assert_ne!(mr.get_local_token(), 0);
    assert_eq!(register(&whole, 8, MrFlags::empty()), Err(NtStatus::INVALID_DEVICE_STATE));
    wait(|c| mr.deregister(c)).unwrap();
    register(&whole, 8, MrFlags::RDMA_READ_SINK).unwrap();
    closed(|c| mr.close(c));
}

#[test]
fn a_region_gives_the_rights_of_its_flags() {
    let rights = [
        (MrFlags::empty(), [false, false, false]),
        (MrFlags::ALLOW_LOCAL_WRITE, [true, false, false]),
        (MrFlags::ALLOW_REMOTE_READ, [false, true, false]),
        (MrFlags::ALLOW_REMOTE_WRITE, [true, false, true]),
        (MrFlags::ALLOW_REMOTE_READ | MrFlags::ALLOW_REMOTE_WRITE, [true, true, true]),
    ];
    for (flags, [local_write, remote_read, remote_write]) in rights {
        // A refusal ends the connection, so each right has its own pair.
        let check = |may: bool, refused, request: fn(&QpEnd, &QpEnd, Sge<'static>, u32)| {
            let (a, b) = pair();
            let mr = wait(|c| b.pd.create_mr(false, c)).unwrap();
            wait(|c| mr.register(&Mdl::of(&b.memory), MEMORY, flags, c)).unwrap();
            let opened = mr.clone();
            b.at_end(move || closed(|c| opened.close(c)));
            let token = mr.get_local_token();
            let sge = Sge::Registered { address: b.memory.addr(), length: 16, token };
            request(&a, &b, sge, mr.get_remote_token());
            let end = if refused == NtStatus::ACCESS_VIOLATION { &b } else { &a };
            assert_eq!(end.results(1)[0].status, if may { OK } else { refused }, "{flags:?}");
        };
        check(local_write, NtStatus::ACCESS_VIOLATION, |a, b, sge, _| {
            let (remote, token) = a.remote(0);
            b.qp.read(1, &[sge], remote, token, NONE).unwrap();
        });
        check(remote_read, NtStatus::REMOTE_RESOURCES, |a, b, _, token| {
            a.qp.read(1, &[a.sge(0, 16)], b.memory.addr(), token, NONE).unwrap();
        });
        check(remote_write, NtStatus::REMOTE_RESOURCES, |a, b, _, token| {
            a.qp.write(1, &[a.sge(0, 16)], b.memory.addr(), token, NONE).unwrap();
        });
    }
}

#[test]
fn completions_have_the_documented_statuses() {
    // A read beyond the peer's memory.
    let (a, b) = pair();
    let (remote, token) = b.remote(MEMORY - 8);
    a.qp.read(1, &[a.sge(0, 16)], remote, token, NONE).unwrap();
    assert_eq!(short(&a.results(1)), [(1, NtStatus::REMOTE_RESOURCES)]);
    // A local entry with a token that gives no access to these bytes.
    let (a, b) = pair();
    let (remote, token) = b.remote(0);
    a.qp.write(1, &[a.sge(MEMORY - 8, 16)], remote, token, NONE).unwrap();
    assert_eq!(short(&a.results(1)), [(1, NtStatus::ACCESS_VIOLATION)]);
    // A message longer than the receive.
    let (a, b) = pair();
    b.qp.receive(1, &[b.sge(0, 8)]).unwrap();
    b.receive(2);
    a.qp.send(1, &[a.sge(0, 9)], NONE).unwrap();
    assert_eq!(short(&b.results(2)), [(1, NtStatus::BUFFER_OVERFLOW), (2, NtStatus::CANCELLED)]);
    assert_eq!(short(&a.results(1)), [(1, NtStatus::REMOTE_RESOURCES)]);
}

#[test]
fn a_window_opens_its_part_of_a_region() {
    let (a, b) = pair();
    let mw = b.window();
    let base = b.memory.addr();
    let bind =
        |context, address, length, flags| b.qp.bind(context, &b.mr, &mw, address, length, flags);
    let before = mw.get_remote_token();
    bind(1, base + 4096, 100, READABLE).unwrap();
    let token = mw.get_remote_token();
    assert_ne!(before, token, "known at once, and new");
    assert_eq!(short(&b.results(1)), [(1, OK)]);
    b.write(4096, b"in the window");
    a.qp.read(1, &[a.sge(0, 13)], base + 4096, token, NONE).unwrap();
    assert_eq!(short(&a.results(1)), [(1, OK)]);
    assert_eq!(a.read(0, 13), b"in the window");
    // Refused in line.
    let invalid = Err(NtStatus::INVALID_PARAMETER);
    assert_eq!(bind(2, base - 1, 10, READABLE), invalid);
    assert_eq!(bind(2, base + MEMORY - 9, 10, READABLE), invalid);
    assert_eq!(bind(2, base, 0, READABLE), invalid);
    assert_eq!(mw.get_remote_token(), token, "a refused bind changes nothing");
    // Invalidated, then bound again with another right.
    b.qp.invalidate(3, Invalidated::Mw(&mw), OpFlags::DEFER).unwrap();
    bind(4, base, 8, OpFlags::ALLOW_REMOTE_WRITE).unwrap();
    assert_eq!(short(&b.results(2)), [(3, OK), (4, OK)]);
    a.write(0, b"written!");
    a.qp.write(5, &[a.sge(0, 8)], base, mw.get_remote_token(), NONE).unwrap();
    assert_eq!(short(&a.results(1)), [(5, OK)]);
    assert_eq!(b.read(0, 8), b"written!");
    // The window's region cannot be deregistered while the window is bound.
    assert_eq!(wait(|c| b.mr.deregister(c)), Err(NtStatus::DEVICE_BUSY));
    a.qp.read(6, &[a.sge(0, 8)], base, mw.get_remote_token(), NONE).unwrap();
    assert_eq!(short(&a.results(1)), [(6, NtStatus::REMOTE_RESOURCES)], "not readable");
}

#[test]
fn a_writable_window_needs_a_writable_region_and_a_bound_one_is_not_bound() {
    let (a, _b) = pair();
    let mr = wait(|c| a.pd.create_mr(false, c)).unwrap();
    let mw = wait(|c| a.pd.create_mw(c)).unwrap();
    let base = a.memory.addr();
    let write = OpFlags::ALLOW_REMOTE_WRITE;
    assert_eq!(a.qp.bind(1, &mr, &mw, base, 8, READABLE), Err(NtStatus::INVALID_DEVICE_STATE));
    wait(|c| mr.register(&Mdl::of(&a.memory), 64, MrFlags::empty(), c)).unwrap();
    assert_eq!(a.qp.bind(1, &mr, &mw, base, 8, write), Err(NtStatus::ACCESS_VIOLATION));
    a.qp.bind(2, &mr, &mw, base, 8, READABLE).unwrap();
    a.qp.bind(3, &mr, &mw, base, 8, READABLE).unwrap();
    assert_eq!(short(&a.results(2)), [(2, OK), (3, NtStatus::INVALID_DEVICE_REQUEST)]);
    closed(|c| mw.close(c));
    closed(|c| mr.close(c));
}

#[test]
fn closing_a_region_takes_it_from_its_windows() {
    let (a, b) = pair();
    let mw = b.window();
    b.qp.bind(1, &b.mr, &mw, b.memory.addr(), 64, READABLE).unwrap();
    assert_eq!(short(&b.results(1)), [(1, OK)]);
    closed(|c| b.mr.close(c));
    a.qp.read(1, &[a.sge(0, 8)], b.memory.addr(), mw.get_remote_token(), NONE).unwrap();
    assert_eq!(short(&a.results(1)), [(1, NtStatus::REMOTE_RESOURCES)]);
    // The window can be bound again, so nothing is left of the old binding.
    let mr = wait(|c| b.pd.create_mr(false, c)).unwrap();
    wait(|c| mr.register(&Mdl::of(&b.memory), 64, MrFlags::empty(), c)).unwrap();
    let (c, qp) =
        (QpEnd::new(), wait(|c| b.pd.create_qp(&b.cq, &b.cq, 0, common::sizes(), c)).unwrap());
    adverb_ndk::joined::join(&c.qp, &qp).unwrap();
    qp.bind(2, &mr, &mw, b.memory.addr(), 64, READABLE).unwrap();
    assert!(b.results(1).iter().all(|r| (r.request_context, r.status) == (2, OK)));
    closed(|c| qp.close(c));
    closed(|c| mr.close(c));
}

#[test]
fn pages_of_a_fast_registration_are_in_any_order() {
    let (a, b) = pair();
    let (mr, lam) = b.fast(4);
    let pages = [lam.pages[7], lam.pages[2], lam.pages[200]];
    let base = 0x1_0000_0000 + 100;
    b.qp.fast_register(1, &mr, &pages, 100, 2 * 4096, base, READABLE | OpFlags::ALLOW_REMOTE_WRITE)
        .unwrap();
    assert_eq!(short(&b.results(1)), [(1, OK)]);
    let data: Vec<u8> = (0..2 * 4096u32).map(|i| (i * 7 + i / 256) as u8).collect();
    a.write(0, &data);
    let token = mr.get_remote_token();
    a.qp.write(1, &[a.sge(0, 2 * 4096)], base, token, NONE).unwrap();
    assert_eq!(short(&a.results(1)), [(1, OK)]);
    assert_eq!(b.read(7 * 4096 + 100, 3996), data[..3996]);
    assert_eq!(b.read(2 * 4096, 4096), data[3996..8092]);
    assert_eq!(b.read(200 * 4096, 100), data[8092..]);
    a.qp.read(2, &[a.sge(65536, 2 * 4096)], base, token, NONE).unwrap();
    assert_eq!(short(&a.results(1)), [(2, OK)]);
    assert_eq!(a.read(65536, 2 * 4096), data);
    a.qp.read(3, &[a.sge(0, 1)], base + 2 * 4096, token, NONE).unwrap();
    assert_eq!(short(&a.results(1)), [(3, NtStatus::REMOTE_RESOURCES)], "beyond its length");
}

#[test]
fn a_fast_registration_is_refused_in_line_for_what_can_be_seen_at_once() {
    let (a, _b) = pair();
    let (mr, lam) = a.fast(2);
    let local = wait(|c| a.pd.create_mr(true, c)).unwrap();
    let register = |mr, pages: &[LogicalAddress], fbo, length, base, flags| {
        a.qp.fast_register(1, mr, pages, fbo, length, base, flags)
    };
    let invalid = Err(NtStatus::INVALID_PARAMETER);
    assert_eq!(
        register(&local, &lam.pages[..1], 0, 8, 0, NONE),
        Err(NtStatus::INVALID_DEVICE_STATE)
    );
    assert_eq!(
        register(&a.mr, &lam.pages[..1], 0, 8, 0, NONE),
        Err(NtStatus::INVALID_DEVICE_STATE)
    );
    assert_eq!(wait(|c| local.initialize_fast_register(0, false, c)), invalid);
    let too_many = wait(|c| local.initialize_fast_register(u32::MAX, false, c));
    assert_eq!(too_many, Err(NtStatus::IMPLEMENTATION_LIMIT));
    wait(|c| local.initialize_fast_register(1, false, c)).unwrap();
    for remote in [READABLE, OpFlags::ALLOW_REMOTE_WRITE] {
        let refused = register(&local, &lam.pages[..1], 0, 8, 0, remote);
        assert_eq!(refused, Err(NtStatus::ACCESS_VIOLATION), "not prepared for remote access");
    }
    assert_eq!(register(&mr, &[], 0, 8, 0, NONE), invalid);
    assert_eq!(
        register(&mr, &lam.pages[..3], 0, 8, 0, NONE),
        invalid,
        "more pages than prepared for"
    );
    assert_eq!(register(&mr, &lam.pages[..1], 0, 0, 0, NONE), invalid);
    assert_eq!(register(&mr, &lam.pages[..1], 1, 4096, 1, NONE), invalid, "beyond its pages");
    assert_eq!(register(&mr, &lam.pages[..1], 4096, 1, 0, NONE), invalid);
    assert_eq!(
        register(&mr, &lam.pages[..1], 8, 8, 0, NONE),
        invalid,
        "base and first byte do not fit"
    );
    assert_eq!(
        register(&mr, &[LogicalAddress(a.memory.addr())], 0, 8, 0, NONE),
        invalid,
        "made up"
    );
    // Prepared for more pages: the earlier registration is not valid any more.
    wait(|c| local.initialize_fast_register(2, true, c)).unwrap();
    register(&local, &lam.pages[..2], 8, 8184, 4096 * 5 + 8, READABLE).unwrap();
    // A second registration is detected when the request is processed.
    register(&local, &lam.pages[..2], 0, 8, 0, NONE).unwrap();
    assert_eq!(short(&a.results(2)), [(1, OK), (1, NtStatus::INVALID_DEVICE_REQUEST)]);
    closed(|c| local.close(c));
}

fn logical(end: &QpEnd, lam: &Lam, offset: u64, length: u32) -> Sge<'static> {
    let address = LogicalAddress(lam.pages[0].0 + u64::from(lam.fbo) + offset);
    Sge::Logical { address, length, token: end.pd.get_privileged_memory_region_token() }
}

#[test]
fn the_privileged_token_opens_logical_addresses_locally() {
    let (a, b) = pair();
    let mdl = Mdl::new(&a.memory, 4096 + 100, 10_000).unwrap();
    let lam = wait(|c| a.adapter.build_lam(&mdl, 9000, c)).unwrap();
    assert_eq!((lam.pages.len(), lam.fbo), (3, 100));
    a.write(4196, &[7; 9000]);
    b.qp.receive(1, &[b.sge(0, 9000)]).unwrap();
    // One entry within a page, and one entry that runs over two pages.
    let sgl = [logical(&a, &lam, 0, 3996), logical(&a, &lam, 3996, 5004)];
    a.qp.send(1, &sgl, NONE).unwrap();
    assert_eq!(short(&a.results(1)), [(1, OK)]);
    assert_eq!(b.results(1)[0].bytes_transferred, 9000);
    assert_eq!(b.read(0, 9001), [vec![7; 9000], vec![0]].concat());
    // The mapping is writable, by a read and by a receive.
    let (remote, token) = b.remote(16_384);
    b.write(16_384, b"sink");
    a.qp.read(2, &[logical(&a, &lam, 50, 4)], remote, token, NONE).unwrap();
    assert_eq!(short(&a.results(1)), [(2, OK)]);
    assert_eq!(a.read(4246, 4), b"sink");
    a.qp.receive(3, &[logical(&a, &lam, 0, 4)]).unwrap();
    b.qp.send(3, &[b.sge(16_384, 4)], NONE).unwrap();
    assert_eq!(short(&a.results(1)), [(3, OK)]);
    assert_eq!(a.read(4196, 4), b"sink");
    // Addresses that are not mapped are refused in line. After the release, all addresses are
    // refused.
    let denied = Err(NtStatus::ACCESS_VIOLATION);
    assert_eq!(a.qp.send(4, &[logical(&a, &lam, 8990, 11)], NONE), denied);
    assert_eq!(a.qp.receive(4, &[logical(&a, &lam, MEMORY, 11)]), denied);
    let wrong = Sge::Logical { address: lam.pages[0], length: 4, token: a.mr.get_local_token() };
    assert_eq!(a.qp.send(4, &[wrong], NONE), denied, "a logical address without the token");
    a.adapter.release_lam(&lam);
    assert_eq!(a.qp.send(4, &sgl, NONE), denied);
    a.assert_no_more();
}

#[test]
fn the_privileged_token_opens_nothing_to_a_peer() {
    for write in [false, true] {
        let (a, b) = pair();
        let lam = wait(|c| b.adapter.build_lam(&Mdl::of(&b.memory), MEMORY, c)).unwrap();
        // The mapping's internal registration exists.
        b.qp.receive(1, &[logical(&b, &lam, 0, 64)]).unwrap();
        let token = b.pd.get_privileged_memory_region_token();
        let (sgl, address) = ([a.sge(0, 8)], lam.pages[0].0);
        if write {
            a.qp.write(1, &sgl, address, token, NONE).unwrap();
        } else {
            a.qp.read(1, &sgl, address, token, NONE).unwrap();
        }
        assert_eq!(short(&a.results(1)), [(1, NtStatus::REMOTE_RESOURCES)]);
    }
}

#[test]
fn the_adapter_says_what_is_true() {
    let end = QpEnd::new();
    let info = end.adapter.query_info();
    assert_eq!(info.version, (1, 2));
    assert_eq!(info.adapter_flags.bits(), 0x0001_0117);
    assert_eq!(info.rdma_technology as u32, 4);
    assert!(info.frmr_page_count >= 16);
    // The reported limits can be used.
    let sizes = adverb_ndk::QpSizes {
        receive_queue_depth: info.max_receive_queue_depth,
        initiator_queue_depth: info.max_initiator_queue_depth,
        max_receive_request_sge: 1,
        max_initiator_request_sge: 1,
        inline_data_size: 0,
    };
    let qp = wait(|c| end.pd.create_qp(&end.cq, &end.cq, 0, sizes, c)).unwrap();
    closed(|c| qp.close(c));
    let cq = wait(|c| end.adapter.create_cq(info.max_cq_depth, |_| (), c)).unwrap();
    closed(|c| cq.close(c));
    let sges = adverb_ndk::QpSizes {
        receive_queue_depth: 1,
        initiator_queue_depth: 1,
        max_receive_request_sge: info.max_receive_request_sge,
        max_initiator_request_sge: info.max_initiator_request_sge,
        inline_data_size: info.max_inline_data_size,
    };
    let qp = wait(|c| end.pd.create_qp(&end.cq, &end.cq, 0, sges, c)).unwrap();
    let all = vec![end.sge(0, 1); info.max_receive_request_sge as usize];
    qp.receive(1, &all).unwrap();
    closed(|c| qp.close(c));
}
