use super::*;
use std::io::Write;
use std::os::unix::net::{UnixDatagram, UnixStream};

fn given(doorbell: &Doorbell) -> OwnedFd {
    doorbell.to_give().unwrap().try_clone_to_owned().unwrap()
}

#[test]
fn who_rings_is_heard_once() {
    let doorbells = Doorbells::new(Arc::default()).unwrap();
    let (doorbell, other) = (doorbells.make().unwrap(), doorbells.make().unwrap());
    let (handle, other_handle) =
        (doorbells.handle(given(&doorbell)).unwrap(), doorbells.handle(given(&other)).unwrap());
    doorbells.watch(&doorbell, &handle, None, 7).unwrap();
    doorbells.watch(&other, &other_handle, None, 8).unwrap();
    let mut tokens = [0; EVENTS];
    assert_eq!((doorbells.ready(&mut tokens), doorbell.take()), (0, Rung::No));
    handle.ring();
    assert_eq!(doorbells.ready(&mut tokens), 1);
    assert_eq!((tokens[0], doorbell.take(), doorbell.take()), (7, Rung::Yes, Rung::No));
    assert_eq!(doorbells.ready(&mut tokens), 0);
    other_handle.ring();
    assert_eq!((doorbells.ready(&mut tokens), tokens[0]), (1, 8));
    doorbells.forget(&other, &other_handle, None);
    assert_eq!((doorbells.ready(&mut tokens), other.take()), (0, Rung::Yes));
    assert_eq!(other.take(), Rung::Broken);
}

/// TRU-3: ringing a full doorbell in blocking mode blocks no process.
#[test]
fn tru_3_a_full_doorbell_that_blocks_holds_nobody() {
    let doorbells = Doorbells::new(Arc::default()).unwrap();
    let doorbell = doorbells.make().unwrap();
    let end = given(&doorbell);
    let mut writer = UnixStream::from(end.try_clone().unwrap());
    while writer.write(&[1; 4096]).is_ok() {}
    writer.set_nonblocking(false).unwrap();
    let handle = doorbells.handle(end).unwrap();
    (0..1000).for_each(|_| handle.ring());
    let mut looks = 0;
    while doorbell.take() == Rung::Yes {
        looks += 1;
        assert!(looks < 1 << 16, "it never ends");
    }
    assert!(looks > 0);
    assert_eq!(doorbell.take(), Rung::No);
}

/// TRU-3: a peer that breaks its doorbell breaks no other doorbell.
#[test]
fn tru_3_who_breaks_a_doorbell_breaks_only_that() {
    let doorbells = Doorbells::new(Arc::default()).unwrap();
    let (doorbell, other) = (doorbells.make().unwrap(), doorbells.make().unwrap());
    UnixStream::from(given(&doorbell)).shutdown(std::net::Shutdown::Both).unwrap();
    assert_eq!((doorbell.take(), other.take()), (Rung::Broken, Rung::No));
    let handle = doorbells.handle(given(&other)).unwrap();
    handle.ring();
    assert_eq!(other.take(), Rung::Yes);
}

/// TRU-3: a socket on which calls may wait for another holder is refused as a doorbell.
#[test]
fn tru_3_other_descriptors_are_no_doorbells() {
    let doorbells = Doorbells::new(Arc::default()).unwrap();
    let others: [OwnedFd; 4] = [
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().into(),
        UnixDatagram::unbound().unwrap().into(),
        std::io::pipe().unwrap().1.into(),
        std::fs::File::open("/dev/null").unwrap().into(),
    ];
    for fd in others {
        assert!(doorbells.handle(fd).err().unwrap().to_string().contains("AF_UNIX stream"));
    }
    // The end of the giver is seen.
    let doorbell = doorbells.make().unwrap();
    let handle = doorbells.handle(given(&doorbell)).unwrap();
    doorbells.watch(&doorbells.make().unwrap(), &handle, None, 3).unwrap();
    let mut tokens = [0; EVENTS];
    assert_eq!(doorbells.ready(&mut tokens), 0);
    drop(doorbell);
    // A child being started by another test may have a copy for a moment.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let mut ready = 0;
    while ready == 0 {
        assert!(std::time::Instant::now() < until, "its end is not seen");
        ready = doorbells.ready(&mut tokens);
    }
    assert_eq!((ready, tokens[0]), (1, 3));
}
