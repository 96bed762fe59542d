//! Slots of kinds that only these tests use.
use super::*;
use core::sync::atomic::AtomicUsize;
use std::collections::HashSet;
use std::sync::Arc;

/// Counts the living values.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[repr(C)]
struct Visible {
    words: [u64; 5],
}

kinds! {
    200 Counted: Visible, [Visible], "counted object", {};
    201 Watched: WatchedVisible, [WatchedVisible], "watched object", {};
}

fn make(count: &Arc<AtomicUsize>) -> *mut Visible {
    count.fetch_add(1, Ordering::SeqCst);
    let context = core::ptr::without_provenance_mut(8);
    let origin = Origin { context, file: FileId(0), handle: 0 };
    reserve().expect("memory").fill(Visible { words: [7; 5] }, Counted(count.clone()), origin)
}

fn end(handle: *mut Visible) {
    live(handle).and_then(|o| o.end()).expect("it lives").finish();
}

#[test]
fn memory_is_bounded_and_a_handle_is_not_used_again_soon() {
    let count = Arc::new(AtomicUsize::new(0));
    let mut last = std::collections::VecDeque::new();
    let mut places = HashSet::new();
    for _ in 0..50_000 {
        let handle = make(&count);
        assert!(!last.contains(&(handle as usize)) || last.len() < 64);
        places.insert(handle as usize);
        end(handle);
        assert!(live(handle).is_err());
        // SAFETY: a slot stays readable.
        assert_eq!(unsafe { (*handle).words }, [7; 5], "the visible part stays as it was");
        last.push_back(handle as usize);
        if last.len() > 64 {
            last.pop_front();
        }
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
    assert!(
        places.len() > slab::QUARANTINE,
        "{} places: none was used again too soon",
        places.len()
    );
    assert!(places.len() < 2 * slab::QUARANTINE, "{} places", places.len());

    // The library's part is dropped by the last thread that leaves, and not with the handle.
    let handle = make(&count);
    let inside = live(handle).expect("it lives");
    end(handle);
    assert!(hot(handle).is_err());
    assert_eq!(count.load(Ordering::SeqCst), 1);
    drop(inside);
    assert_eq!(count.load(Ordering::SeqCst), 0);

    // An end that is given up leaves the object alive. Only one thread can claim the end.
    let handle = make(&count);
    let claim = live(handle).and_then(|o| o.end()).expect("it lives");
    assert!(live(handle).and_then(|o| o.end()).is_err());
    assert!(live(handle).is_ok());
    drop(claim);
    live(handle).expect("it lives").enter(5);
    end(handle);
    assert!(session(handle, 6).is_none(), "of a dead object only the holder's");
    assert_eq!(count.load(Ordering::SeqCst), 1);
    drop(session(handle, 5).expect("the holder's").leave());
    assert!(session(handle, 5).is_none());
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

/// A thread inside keeps the library's part, owner or not. The last thread that leaves drops the
/// part.
#[test]
fn cqn_10_a_thread_that_an_object_belongs_to_keeps_it_too() {
    let count = Arc::new(AtomicUsize::new(0));
    let handle = make(&count);
    let owned = || (0..1000).all(|_| hot(handle).is_ok());
    assert!(owned());
    // The owner is inside twice, while another thread destroys the object.
    let (outer, inner) = (hot(handle).expect("it lives"), hot(handle).expect("it lives"));
    let address = handle as usize;
    let destroy = move || end(address as *mut Visible);
    std::thread::spawn(destroy).join().expect("no panic");
    assert!(hot(handle).is_err());
    drop(inner);
    assert_eq!(count.load(Ordering::SeqCst), 1);
    drop(outer);
    assert_eq!(count.load(Ordering::SeqCst), 0);

    // Another thread is inside while the owner destroys the object.
    let handle = make(&count);
    assert!((0..1000).all(|_| hot(handle).is_ok()));
    let address = handle as usize;
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (say, hear) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        let inside = hot(address as *mut Visible).expect("it lives");
        say.send(()).expect("heard");
        wait.recv().expect("said");
        drop(inside);
    });
    hear.recv().expect("said");
    end(handle);
    assert_eq!(count.load(Ordering::SeqCst), 1);
    go.send(()).expect("heard");
    other.join().expect("no panic");
    assert_eq!(count.load(Ordering::SeqCst), 0);

    // The pin of a chain goes with the end of the chain, in any thread.
    let handle = make(&count);
    assert!((0..1000).all(|_| hot(handle).is_ok()));
    hot(handle).expect("it lives").enter(5);
    end(handle);
    assert_eq!(count.load(Ordering::SeqCst), 1);
    let address = handle as usize;
    let leave = move || drop(session(address as *mut Visible, 5).expect("the holder's").leave());
    std::thread::spawn(leave).join().expect("no panic");
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

/// An object that reports a use after its end.
struct Watched {
    ended: std::sync::atomic::AtomicBool,
    count: Arc<AtomicUsize>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        self.count.fetch_sub(1, Ordering::SeqCst);
    }
}

#[repr(C)]
struct WatchedVisible(u64);

/// Threads use an object, one of them as owner, while another thread destroys the object. No thread
/// is inside when the library's part is dropped, and the part is dropped.
#[test]
fn cqn_10_objects_are_destroyed_while_threads_use_them() {
    let count = Arc::new(AtomicUsize::new(0));
    for round in 0..500 {
        count.fetch_add(1, Ordering::SeqCst);
        let context = core::ptr::without_provenance_mut(8);
        let inner = Watched { ended: false.into(), count: count.clone() };
        let origin = Origin { context, file: FileId(0), handle: 0 };
        let handle = reserve().expect("memory").fill(WatchedVisible(1), inner, origin) as usize;
        let begun = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for nth in 0..2 {
                let begun = &begun;
                scope.spawn(move || {
                    // The first thread becomes the owner before the second comes.
                    assert!(
                        (0..200).all(|_| nth > 0 || hot(handle as *mut WatchedVisible).is_ok())
                    );
                    begun.fetch_add(1, Ordering::SeqCst);
                    while let Ok(inside) = hot(handle as *mut WatchedVisible) {
                        assert!(!inside.ended.load(Ordering::Relaxed), "used after its end");
                    }
                });
                while begun.load(Ordering::SeqCst) <= nth {
                    std::hint::spin_loop();
                }
            }
            for _ in 0..round * 7 % 500 {
                std::hint::spin_loop();
            }
            let ending = live(handle as *mut WatchedVisible).and_then(|o| o.end());
            ending.expect("it lives").finish();
        });
        assert_eq!(count.load(Ordering::SeqCst), 0, "round {round}: it was not ended");
    }
}
