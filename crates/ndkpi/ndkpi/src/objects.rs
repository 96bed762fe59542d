//! The C objects: what consumers see first, ours behind it.
//!
//! Each is one allocation that begins with the header's type, so that a pointer to it is the
//! handle. The visible part is only touched through raw pointers: the consumer may read it at any
//! time.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicUsize, Ordering};

use adverb_ndk::{NtStatus, Version};
use adverb_sync::Mutex;

use crate::abi::*;

/// A version as headers have it.
pub fn header_version(version: Version) -> NDK_VERSION {
    let (major, minor) = version.numbers();
    NDK_VERSION { Major: major, Minor: minor }
}

/// The version that C says, if it is one of NDKPI.
pub fn known_version(version: NDK_VERSION) -> Option<Version> {
    Version::of(version.Major, version.Minor)
}

/// A type of object.
///
/// # Safety
/// [`Kind::C`] is one of the header's objects: `repr(C)`, a header and then a pointer to a table.
pub unsafe trait Kind: Sized + 'static {
    /// The type in the header.
    type C;
    /// What stands behind it.
    type Inner: Clone + Send + Sync + 'static;
    /// Its `NDK_OBJECT_TYPE`.
    const TYPE: u32;
    /// The name of [`Kind::C`].
    const NAME: &str;
    /// The visible part of a new object.
    fn visible(header: NDK_OBJECT_HEADER) -> Self::C;
    /// The version of its adapter.
    fn version(inner: &Self::Inner) -> Version;
}

/// An object of type `K`.
#[repr(C)]
pub struct Object<K: Kind> {
    c: K::C,
    /// The object's own address while it may be used, else 0: tells a closed or a foreign object.
    alive: AtomicUsize,
    inner: ManuallyDrop<K::Inner>,
}

/// Makes an object for the consumer.
pub fn enter<K: Kind>(inner: K::Inner) -> *mut K::C {
    let header = NDK_OBJECT_HEADER {
        Version: header_version(K::version(&inner)),
        ObjectType: K::TYPE,
        NdkReserved: NDK_OBJECT_HEADER_RESERVED_BLOCK { rf: [core::ptr::null_mut(); 4] },
    };
    let object =
        Object::<K> { c: K::visible(header), alive: AtomicUsize::new(0), inner: ManuallyDrop::new(inner) };
    let object = Box::into_raw(Box::new(object));
    // SAFETY: made by the line above, and nobody else has it yet.
    unsafe { (*object).alive.store(object as usize, Ordering::Release) };
    object.cast()
}

/// Is this a live object of type `K`? The header is looked at first: no more than it is read of an
/// object of another type.
///
/// # Safety
/// `c` is null, or points to a readable header and, if that says `K::TYPE`, to as much memory as
/// our object takes.
unsafe fn alive<'a, K: Kind>(c: *mut K::C) -> Option<&'a AtomicUsize> {
    let header = c.cast::<NDK_OBJECT_HEADER>();
    if header.is_null() || !header.is_aligned() {
        return None;
    }
    // SAFETY: the caller's promise. Volatile: closing another handle of the same memory may write
    // it (a consumer's error).
    let (version, kind) = unsafe { ((&raw const (*header).Version).read_volatile(), object_type(header)) };
    if known_version(version).is_none() || kind != K::TYPE {
        return None;
    }
    // SAFETY: the caller's promise; the atomic is read through its own field only.
    let alive = unsafe { &(*c.cast::<Object<K>>()).alive };
    (alive.load(Ordering::Acquire) == c as usize).then_some(alive)
}

/// The type that a header says.
///
/// # Safety
/// `header` points to a readable header.
pub unsafe fn object_type(header: *const NDK_OBJECT_HEADER) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { (&raw const (*header).ObjectType).read_volatile() }
}

/// What stands behind an object.
///
/// # Errors
/// `INVALID_PARAMETER` for null, an object of another type, a closed one, and memory that is no
/// object.
///
/// # Safety
/// As for a pointer that C gives us: null, or memory of at least an object's size that stays for
/// the call. The reference ends with the call; a call whose completion may close the object takes a
/// clone instead.
pub unsafe fn behind<'a, K: Kind>(c: *mut K::C) -> Result<&'a K::Inner, NtStatus> {
    // SAFETY: the caller's promise.
    match unsafe { alive::<K>(c) } {
        // SAFETY: alive, so made by `enter::<K>` and not buried.
        Some(_) => Ok(unsafe { &(*c.cast::<Object<K>>()).inner }),
        None => Err(refuse::<K>(c)),
    }
}

fn refuse<K: Kind>(c: *mut K::C) -> NtStatus {
    log::warn!("{c:p} is no open {}", K::NAME);
    NtStatus::INVALID_PARAMETER
}

/// An object whose close has begun: no call finds it any more. Dropped when the close is complete,
/// and with it what stands behind the object; its memory is kept for a while.
#[must_use]
pub struct Closing<K: Kind>(*mut Object<K>);

// SAFETY: the object behind it is `Send` and `Sync` (`Kind::Inner`), and one `Closing` exists of
// it.
unsafe impl<K: Kind> Send for Closing<K> {}

/// Ends the use of an object, for one caller only.
///
/// # Errors
/// As [`behind`].
///
/// # Safety
/// As [`behind`].
pub unsafe fn begin_close<K: Kind>(c: *mut K::C) -> Result<(Closing<K>, K::Inner), NtStatus> {
    // SAFETY: the caller's promise.
    let Some(alive) = (unsafe { alive::<K>(c) }) else { return Err(refuse::<K>(c)) };
    // A consumer that closes it twice at once: the exchange tells who was first, and what stands
    // behind it is touched after it only, since the first one may drop that.
    if alive.compare_exchange(c as usize, 0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return Err(refuse::<K>(c));
    }
    let object = c.cast::<Object<K>>();
    // SAFETY: made by `enter::<K>` and not buried, since it was alive; ours alone since the
    // exchange.
    let inner: &K::Inner = unsafe { &(*object).inner };
    let inner = inner.clone();
    // SAFETY: as above.
    unsafe { set_type(object, NdkObjectTypeUndefined) };
    Ok((Closing(object), inner))
}

/// Says another type in an object's header.
///
/// # Safety
/// `object` points to an object that was not freed.
unsafe fn set_type<K: Kind>(object: *mut Object<K>, kind: u32) {
    // SAFETY: the caller's promise; the visible part begins with the header (`Kind`).
    unsafe { (&raw mut (*object.cast::<NDK_OBJECT_HEADER>()).ObjectType).write_volatile(kind) };
}

impl<K: Kind> Closing<K> {
    /// The close did not take place: the object may be used again.
    pub fn reopen(self) {
        // SAFETY: `begin_close` made this from a live object, and only dropping it, which does not
        // happen, ends that.
        unsafe {
            set_type(self.0, K::TYPE);
            (*self.0).alive.store(self.0 as usize, Ordering::Release);
        }
        std::mem::forget(self);
    }
}

impl<K: Kind> Drop for Closing<K> {
    fn drop(&mut self) {
        // SAFETY: as in `reopen`; this is the one `Closing` of the object, so it happens once.
        unsafe { ManuallyDrop::drop(&mut (*self.0).inner) };
        let mut graves = GRAVEYARD.lock();
        graves.push_back(Grave { object: self.0 as usize, free: free::<K> });
        if graves.len() > GRAVES
            && let Some(oldest) = graves.pop_front()
        {
            drop(graves);
            // SAFETY: `free` goes with the object; it was buried once and is now out of the
            // graveyard.
            unsafe { (oldest.free)(oldest.object) };
        }
    }
}

/// Closed objects whose memory is kept, so that a handle used too late is told from an open one
/// instead of reading memory that is somebody else's by now.
static GRAVEYARD: Mutex<VecDeque<Grave>> = Mutex::new(VecDeque::new());
/// How many of them.
const GRAVES: usize = 1024;

struct Grave {
    object: usize,
    free: unsafe fn(usize),
}

/// Frees the memory of an object.
///
/// # Safety
/// `object` is the address of a buried `Object<K>`.
unsafe fn free<K: Kind>(object: usize) {
    // SAFETY: `enter` made it as a box; what has a destructor is gone (ManuallyDrop).
    drop(unsafe { Box::from_raw(object as *mut Object<K>) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls;
    use std::sync::Arc;

    /// CQs of a provider that is a count of handles.
    enum Counted {}

    // SAFETY: `NDK_CQ` is one of the header's objects.
    unsafe impl Kind for Counted {
        type C = NDK_CQ;
        type Inner = Arc<()>;
        const TYPE: u32 = NdkObjectTypeCq;
        const NAME: &str = "NDK_CQ";
        fn visible(header: NDK_OBJECT_HEADER) -> NDK_CQ {
            NDK_CQ { Header: header, Dispatch: &calls::cq::DISPATCH }
        }
        fn version(_: &Arc<()>) -> Version {
            Version::V1_2
        }
    }

    /// The same, of another type.
    enum Other {}

    // SAFETY: as above.
    unsafe impl Kind for Other {
        type C = NDK_CQ;
        type Inner = Arc<()>;
        const TYPE: u32 = NdkObjectTypeQp;
        const NAME: &str = "another";
        fn visible(header: NDK_OBJECT_HEADER) -> NDK_CQ {
            Counted::visible(header)
        }
        fn version(inner: &Arc<()>) -> Version {
            Counted::version(inner)
        }
    }

    fn found(cq: *mut NDK_CQ) -> bool {
        // SAFETY: objects of this test, or null.
        unsafe { behind::<Counted>(cq) }.is_ok()
    }

    #[test]
    fn an_object_lives_until_its_close_begins_and_is_dropped_once() {
        let inner = Arc::new(());
        let cq = enter::<Counted>(inner.clone());
        assert!(found(cq) && Arc::strong_count(&inner) == 2);
        // SAFETY: the object of this test.
        let (closing, handle) = unsafe { begin_close::<Counted>(cq) }.expect("open");
        drop(handle);
        assert!(!found(cq) && Arc::strong_count(&inner) == 2);
        // SAFETY: as above.
        assert!(unsafe { begin_close::<Counted>(cq) }.is_err(), "closed twice");
        closing.reopen();
        assert!(found(cq) && Arc::strong_count(&inner) == 2);
        // SAFETY: as above.
        drop(unsafe { begin_close::<Counted>(cq) });
        assert!(!found(cq) && Arc::strong_count(&inner) == 1);
    }

    #[test]
    fn of_two_closes_at_once_one_is_refused() {
        for _ in 0..200 {
            let inner = Arc::new(());
            let cq = enter::<Counted>(inner.clone()) as usize;
            // SAFETY: the object of this test, which is buried only when both are done.
            let close = || unsafe { begin_close::<Counted>(cq as *mut NDK_CQ) }.ok();
            let closed = std::thread::scope(|s| {
                let other = s.spawn(close);
                [close(), other.join().expect("no panic")]
            });
            assert_eq!(closed.iter().flatten().count(), 1);
            drop(closed);
            assert_eq!(Arc::strong_count(&inner), 1);
        }
    }

    #[test]
    fn what_is_no_object_of_the_type_is_not_found() {
        let cq = enter::<Counted>(Arc::new(()));
        assert!(!found(core::ptr::null_mut()));
        assert!(!found(cq.wrapping_byte_add(1)), "not aligned");
        let mut copy = core::mem::MaybeUninit::<Object<Counted>>::uninit();
        // SAFETY: a live object; the bytes are copied, not what they own.
        unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(cq.cast(), 1) };
        assert!(!found(copy.as_mut_ptr().cast()), "a copy is not the object");
        // SAFETY: the object of this test.
        assert!(unsafe { behind::<Other>(cq) }.is_err());
        // SAFETY: as above; the version is the consumer's to read only, and an old one is not ours.
        unsafe { (*cq).Header.Version.Minor = 1 };
        assert!(!found(cq));
        // SAFETY: as above.
        unsafe { (*cq).Header.Version = header_version(Version::V2_1) };
        // SAFETY: as above.
        drop(unsafe { begin_close::<Counted>(cq) });
    }

    #[test]
    fn closed_objects_leave_the_graveyard_one_day() {
        for _ in 0..2 * GRAVES {
            let cq = enter::<Counted>(Arc::new(()));
            // SAFETY: the object of this test.
            drop(unsafe { begin_close::<Counted>(cq) });
            assert!(!found(cq));
        }
        assert!(GRAVEYARD.lock().len() <= GRAVES);
    }
}
