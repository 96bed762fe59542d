use super::*;
use crate::{RecvWr, Srq};
use adverb_wire::tag_matching::headers;

fn message(op: TagOp, tag: u64) -> [u8; 32] {
    headers(Tmh { op, app_ctx: 9, tag }, Rvh { va: 0x1000, rkey: 7, len: 100 })
}

fn srq(receives: u64) -> Srq {
    let mut srq = Srq::new(PdId(1), 8, 1).with_tags(3);
    for wr_id in 0..receives {
        srq.post(&RecvWr { wr_id, sges: &[] }).unwrap();
    }
    srq
}

fn add(srq: &mut Srq, id: u64, tag: u64, mask: u64, known: Option<u32>) -> ListDone {
    let sge = Sge { addr: 0, length: 64, lkey: 1 };
    srq.tag_op(ListOp::Add(TaggedBuffer { recv_wr_id: id, sges: &[sge], tag, mask }), known)
        .unwrap()
}

fn take(srq: &mut Srq, op: TagOp, tag: u64) -> Option<(u64, TagKind)> {
    let (wqe, _) = srq.pop_message(&message(op, tag))?;
    Some((wqe.wr_id, wqe.tagged.unwrap().kind))
}

#[test]
fn tm_2_the_oldest_entry_that_matches_is_taken() {
    let mut srq = srq(4);
    add(&mut srq, 10, 0x12, 0xff, None);
    add(&mut srq, 11, 0x02, 0x0f, None);
    add(&mut srq, 12, 0x12, 0xff, None);
    assert_eq!(take(&mut srq, TagOp::Eager, 0xff12), Some((10, TagKind::Eager)));
    assert_eq!(take(&mut srq, TagOp::Eager, 0xff12), Some((11, TagKind::Eager)));
    let rvh = Rvh { va: 0x1000, rkey: 7, len: 100 };
    assert_eq!(take(&mut srq, TagOp::Rendezvous, 0x12), Some((12, TagKind::Rendezvous(rvh))));
    assert_eq!(take(&mut srq, TagOp::Eager, 0x12), Some((0, TagKind::Unexpected)));
}

#[test]
fn tm_2_messages_without_a_tag_are_never_matched_nor_counted() {
    let mut srq = srq(4);
    add(&mut srq, 10, 0, 0, None);
    assert_eq!(take(&mut srq, TagOp::NoTag, 5), Some((0, TagKind::NoTag)));
    assert_eq!(take(&mut srq, TagOp::Fin, 5), Some((1, TagKind::NoTag)));
    let (wqe, _) = srq.pop_message(&[3, 0, 0]).unwrap();
    assert_eq!((wqe.wr_id, wqe.tagged.unwrap().kind), (2, TagKind::NoTag));
    assert!(!srq.tag_op(ListOp::Sync, None).unwrap().sync_needed);
    assert_eq!(take(&mut srq, TagOp::Eager, 5), Some((10, TagKind::Eager)));
}

#[test]
fn tm_3_entries_added_before_all_is_known_match_nothing_until_it_is() {
    let mut srq = srq(4);
    add(&mut srq, 10, 1, !0, Some(0));
    assert_eq!(take(&mut srq, TagOp::Eager, 2), Some((0, TagKind::Unexpected)));
    // The program does not know of the unexpected message yet, and adds the entry for this message.
    assert!(add(&mut srq, 11, 2, !0, Some(0)).sync_needed);
    assert_eq!(take(&mut srq, TagOp::Eager, 2), Some((1, TagKind::Unexpected)), "order is kept");
    assert_eq!(take(&mut srq, TagOp::Eager, 1), Some((10, TagKind::Eager)), "older entries go on");
    assert!(srq.tag_op(ListOp::Sync, Some(1)).unwrap().sync_needed);
    assert!(!srq.tag_op(ListOp::Sync, Some(2)).unwrap().sync_needed);
    assert_eq!(take(&mut srq, TagOp::Eager, 2), Some((11, TagKind::Eager)));
}

#[test]
fn tm_3_a_message_that_finds_no_receive_changes_nothing() {
    let mut srq = srq(0);
    assert_eq!(take(&mut srq, TagOp::Eager, 2), None);
    assert!(!srq.tag_op(ListOp::Sync, None).unwrap().sync_needed, "it comes again");
}

#[test]
fn tm_2_the_list_is_bounded_and_entries_can_be_taken_out_once() {
    let mut srq = srq(1);
    let first = add(&mut srq, 10, 1, !0, None).handle;
    add(&mut srq, 11, 2, !0, None);
    add(&mut srq, 12, 3, !0, None);
    let one_more = ListOp::Add(TaggedBuffer { recv_wr_id: 0, sges: &[], tag: 0, mask: 0 });
    assert!(matches!(srq.tag_op(one_more, None), Err(PostError::QueueFull(_))));
    assert!(srq.tag_op(ListOp::Remove(first), None).unwrap().good);
    assert!(!srq.tag_op(ListOp::Remove(first), None).unwrap().good);
    assert_eq!(take(&mut srq, TagOp::Eager, 1), Some((0, TagKind::Unexpected)));
    let sges = [Sge::default(); 5];
    let long = ListOp::Add(TaggedBuffer { recv_wr_id: 0, sges: &sges, tag: 0, mask: 0 });
    assert!(matches!(srq.tag_op(long, None), Err(PostError::Invalid(_))));
    let mut plain = Srq::new(PdId(1), 8, 1);
    assert!(plain.tag_op(ListOp::Sync, None).is_err(), "another type of SRQ");
}
