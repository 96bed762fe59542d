use super::*;
use crate::wr::Sge;

const PD: PdId = PdId(3);

fn post(srq: &mut Srq, wr_id: u64, sges: usize) -> Result<(), PostError> {
    srq.post(&RecvWr { wr_id, sges: &alloc::vec![Sge { addr: wr_id, length: 1, lkey: 2 }; sges] })
}

fn filled(n: u32) -> Srq {
    let mut srq = Srq::new(PD, 8, 2);
    for i in 0..n {
        post(&mut srq, i.into(), 1).unwrap();
    }
    srq
}

#[test]
fn first_in_first_out_with_the_srqs_pd() {
    let mut srq = filled(3);
    post(&mut srq, 3, 0).unwrap();
    for i in 0..4u64 {
        let (wqe, reached) = srq.pop().unwrap();
        assert_eq!((wqe.wr_id, wqe.pd, reached), (i, PD, false));
        assert_eq!(wqe.sges.as_slice().len(), usize::from(i < 3));
    }
    assert!(srq.pop().is_none());
    assert!(srq.is_empty());
}

#[test]
fn refusals_queue_nothing() {
    let mut srq = filled(7);
    let too_many = PostError::Invalid(Cause::TooManySges { given: 3, max: 2 });
    assert_eq!(post(&mut srq, 9, 3), Err(too_many));
    post(&mut srq, 9, 2).unwrap();
    assert!(matches!(
        post(&mut srq, 9, 2),
        Err(PostError::QueueFull(Cause::QueueFull { depth: 8, .. }))
    ));
    assert_eq!(srq.len(), 8);
}

#[test]
fn limit_fires_once_below_the_limit() {
    let mut srq = filled(5);
    srq.modify(None, Some(3)).unwrap();
    let fired: alloc::vec::Vec<bool> =
        core::iter::from_fn(|| srq.pop()).map(|(_, reached)| reached).collect();
    assert_eq!(fired, [false, false, true, false, false], "2 left is the first number below 3");
    assert_eq!(srq.attributes(), (8, 2, 0));
    for i in 0..5 {
        post(&mut srq, i, 1).unwrap();
    }
    while let Some((_, reached)) = srq.pop() {
        assert!(!reached, "not armed again");
    }
}

#[test]
fn limit_rearmed_disarmed_and_armed_below() {
    let mut srq = filled(4);
    srq.modify(None, Some(4)).unwrap();
    srq.modify(None, Some(0)).unwrap();
    assert!(!srq.pop().unwrap().1, "disarmed");
    srq.modify(None, Some(8)).unwrap();
    assert!(srq.pop().unwrap().1, "armed while below: at the next take");
    srq.modify(None, Some(2)).unwrap();
    assert!(srq.pop().unwrap().1, "armed again, fires again");
}

#[test]
fn modify_rules() {
    let bad = |r: Result<(), Cause>, name: &str| {
        assert!(matches!(r, Err(Cause::BadArgument { what, .. }) if what == name), "{name}");
    };
    let mut srq = filled(5);
    bad(srq.modify(None, Some(9)), "srq_limit");
    bad(srq.modify(Some(4), None), "max_wr");
    bad(Srq::new(PD, 8, 1).modify(Some(0), None), "max_wr");
    bad(srq.modify(Some(6), Some(7)), "srq_limit");
    assert_eq!(srq.attributes(), (8, 2, 0), "refusals change nothing");
    srq.modify(Some(16), Some(12)).unwrap();
    assert_eq!(srq.attributes(), (16, 2, 12));
    bad(srq.modify(Some(11), None), "srq_limit");
    srq.modify(None, Some(5)).unwrap();
    srq.modify(Some(5), None).unwrap();
    assert!(matches!(post(&mut srq, 0, 1), Err(PostError::QueueFull(_))));
}
