use super::*;
use crate::{Context, device};
use adverb_engine::keys::{KeyOp, MwType};

fn pd() -> Arc<Pd> {
    let device = device::list().unwrap().pop().expect("an interface that is up");
    let context: Arc<Context> = device.open().unwrap();
    Pd::new(&context).unwrap()
}

#[test]
fn bytes_go_in_and_out_within_bounds_only() {
    let pd = pd();
    let buffer = Buffer::new(&pd, 10_000, Access::LOCAL_WRITE).unwrap();
    assert!(buffer.write_at(9_000, &[7; 1_000]));
    assert!(!buffer.write_at(9_001, &[8; 1_000]));
    assert!(!buffer.write_at(usize::MAX, &[8; 2]));
    let mut found = [0; 1_001];
    assert!(buffer.read_at(8_999, &mut found));
    assert_eq!((found[0], &found[1..]), (0, &[7; 1_000][..]));
    assert!(!buffer.read_at(9_000, &mut found));
    let sge = buffer.sge(16, 8);
    assert_eq!((sge.addr, sge.length, sge.lkey), (buffer.addr() + 16, 8, buffer.key()));
    let zero_based = Buffer::new(&pd, 100, Access::LOCAL_WRITE | Access::ZERO_BASED).unwrap();
    assert_eq!(zero_based.sge(16, 8).addr, 16);
}

#[test]
fn dropped_it_is_deregistered() {
    let pd = pd();
    let buffer = Buffer::new(&pd, 100, Access::LOCAL_WRITE).unwrap();
    let key = buffer.key();
    let known = || pd.context().node().keys.read().region(key).is_some();
    assert!(known());
    assert!(pd.dealloc().is_err(), "the buffer uses the domain");
    drop(buffer);
    assert!(!known());
    pd.dealloc().unwrap();
}

#[test]
fn with_a_window_bound_the_pages_stay() {
    let pd = pd();
    let buffer = Buffer::new(&pd, 4096, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
    assert!(buffer.write_at(0, &[9; 4096]));
    let (addr, key) = (buffer.addr(), buffer.key());
    let mw = pd.alloc_mw(MwType::Type2).unwrap();
    let bind = mw.bind_request(key, addr, 4096, Access::REMOTE_READ);
    pd.context().node().keys.write().apply(&KeyOp::Bind { bind, pd: pd.id(), qpn: 5 }).unwrap();
    drop(buffer);
    assert!(pd.context().node().keys.read().region(key).is_some(), "peers can still reach it");
    assert_eq!(adverb_memory::check_memory(addr, 4096, true), Ok(()));
}
