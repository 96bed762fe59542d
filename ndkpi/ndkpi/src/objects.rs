//! The C objects: a visible part for the consumer, followed by the provider's part.
//!
//! Each object is a single allocation that begins with the header's type, so a pointer to the
//! allocation is the handle. The visible part is accessed only through raw pointers, because the
//! consumer may read it at any time.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicUsize, Ordering};

use adverb_ndk::{NtStatus, Version};
use adverb_sync::Mutex;

use crate::abi::*;

/// A version in the header's type.
pub fn header_version(version: Version) -> NDK_VERSION {
    let (major, minor) = version.numbers();
    NDK_VERSION { Major: major, Minor: minor }
}

/// The version that C passes, if it is a version of NDKPI.
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
    /// The provider's object behind the C object.
    type Inner: Clone + Send + Sync + 'static;
    /// The object's `NDK_OBJECT_TYPE`.
    const TYPE: u32;
    /// The name of [`Kind::C`].
    const NAME: &str;
    /// The visible part of a new object.
    fn visible(header: NDK_OBJECT_HEADER) -> Self::C;
    /// The NDKPI version of the object's adapter.
    fn version(inner: &Self::Inner) -> Version;
}

/// An object of type `K`.
#[repr(C)]
pub struct Object<K: Kind> {
    c: K::C,
    /// The object's own address while the object may be used, else 0. Tells apart an open object
    /// from a closed object and from other memory.
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
    let object = Object::<K> {
        c: K::visible(header),
        alive: AtomicUsize::new(0),
        inner: ManuallyDrop::new(inner),
    };
    let object = Box::into_raw(Box::new(object));
    // SAFETY: `object` was allocated by the line above, and no other thread has the pointer yet.
    unsafe { (*object).alive.store(object as usize, Ordering::Release) };
    object.cast()
}

/// Returns the `alive` field if `c` is a live object of type `K`. The function checks the header
/// first, because it may not read more than the header of an object of another type.
///
/// # Safety
/// `c` is null, or points to a readable header. If the header has the type `K::TYPE`, the whole
/// `Object<K>` is readable.
unsafe fn alive<'a, K: Kind>(c: *mut K::C) -> Option<&'a AtomicUsize> {
    let header = c.cast::<NDK_OBJECT_HEADER>();
    if header.is_null() || !header.is_aligned() {
        return None;
    }
    // SAFETY: the caller promises a readable header. The reads are volatile, because another thread
    // may close a handle of the same memory and write the header (a consumer's error).
    let (version, kind) =
        unsafe { ((&raw const (*header).Version).read_volatile(), object_type(header)) };
    if known_version(version).is_none() || kind != K::TYPE {
        return None;
    }
    // SAFETY: the header has the type `K::TYPE`, so the caller promises that the whole object is
    // readable. The atomic is accessed only through its own field.
    let alive = unsafe { &(*c.cast::<Object<K>>()).alive };
    (alive.load(Ordering::Acquire) == c as usize).then_some(alive)
}

/// The object type in a header.
///
/// # Safety
/// `header` points to a readable header.
pub unsafe fn object_type(header: *const NDK_OBJECT_HEADER) -> u32 {
    // SAFETY: the caller promises a readable header.
    unsafe { (&raw const (*header).ObjectType).read_volatile() }
}

/// The provider's object behind a C object.
///
/// # Errors
/// `INVALID_PARAMETER` for null, for an object of another type, for a closed object, and for memory
/// that is no object.
///
/// # Safety
/// `c` is a pointer from C: null, or a pointer to memory of at least an object's size. The memory
/// stays valid during the call. The returned reference must not outlive the call. If the completion
/// of the call may close the object, the caller takes a clone instead.
pub unsafe fn behind<'a, K: Kind>(c: *mut K::C) -> Result<&'a K::Inner, NtStatus> {
    // SAFETY: the caller promises a pointer from C, as `alive` requires.
    match unsafe { alive::<K>(c) } {
        // SAFETY: the object is alive, so `enter::<K>` made it and `Closing` has not dropped its
        // inner part.
        Some(_) => Ok(unsafe { &(*c.cast::<Object<K>>()).inner }),
        None => Err(refuse::<K>(c)),
    }
}

fn refuse<K: Kind>(c: *mut K::C) -> NtStatus {
    log::warn!("{c:p} is no open {}", K::NAME);
    NtStatus::INVALID_PARAMETER
}

/// An object that is being closed: no call accepts the object any more. `Closing` is dropped when
/// the close is complete. The drop also drops the provider's object, and keeps the object's memory
/// for a while.
#[must_use]
pub struct Closing<K: Kind>(*mut Object<K>);

// SAFETY: the provider's object is `Send` and `Sync` (`Kind::Inner`), and only a single `Closing`
// of an object exists.
unsafe impl<K: Kind> Send for Closing<K> {}

/// Marks an object as closing, for a single caller.
///
/// # Errors
/// As [`behind`].
///
/// # Safety
/// As [`behind`].
pub unsafe fn begin_close<K: Kind>(c: *mut K::C) -> Result<(Closing<K>, K::Inner), NtStatus> {
    // SAFETY: the caller promises a pointer from C, as `alive` requires.
    let Some(alive) = (unsafe { alive::<K>(c) }) else { return Err(refuse::<K>(c)) };
    // A consumer may close an object twice at the same time. The exchange decides which call is
    // first. Only the first call touches the provider's object, because the first call may drop
    // that object.
    if alive.compare_exchange(c as usize, 0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return Err(refuse::<K>(c));
    }
    let object = c.cast::<Object<K>>();
    // SAFETY: the object was alive, so `enter::<K>` made it and its inner part is not dropped.
    // Since the exchange, only this call can drop the inner part.
    let inner: &K::Inner = unsafe { &(*object).inner };
    let inner = inner.clone();
    // SAFETY: as above, the object is not freed.
    unsafe { set_type(object, NdkObjectTypeUndefined) };
    Ok((Closing(object), inner))
}

/// Writes another type into an object's header.
///
/// # Safety
/// `object` points to an object that is not freed.
unsafe fn set_type<K: Kind>(object: *mut Object<K>, kind: u32) {
    // SAFETY: the caller promises that the object is not freed. The visible part begins with the
    // header (`Kind`).
    unsafe { (&raw mut (*object.cast::<NDK_OBJECT_HEADER>()).ObjectType).write_volatile(kind) };
}

impl<K: Kind> Closing<K> {
    /// Undoes [`begin_close`] if the close fails: the object can be used again.
    pub fn reopen(self) {
        // SAFETY: `begin_close` made this `Closing` from a live object. Only dropping the `Closing`
        // ends the object, and `forget` prevents the drop.
        unsafe {
            set_type(self.0, K::TYPE);
            (*self.0).alive.store(self.0 as usize, Ordering::Release);
        }
        std::mem::forget(self);
    }
}

impl<K: Kind> Drop for Closing<K> {
    fn drop(&mut self) {
        // SAFETY: as in `reopen`, the object is not freed. This is the only `Closing` of the
        // object, so the inner part is dropped once.
        unsafe { ManuallyDrop::drop(&mut (*self.0).inner) };
        let mut graves = GRAVEYARD.lock();
        graves.push_back(Grave { object: self.0 as usize, free: free::<K> });
        if graves.len() > GRAVES
            && let Some(oldest) = graves.pop_front()
        {
            drop(graves);
            // SAFETY: `free` belongs to the type of the object. The object was put into the
            // graveyard once and has now left it, so it is freed once.
            unsafe { (oldest.free)(oldest.object) };
        }
    }
}

/// Closed objects with memory that is kept for a while. A late use of a handle then finds a closed
/// object, instead of memory that has another use by now.
static GRAVEYARD: Mutex<VecDeque<Grave>> = Mutex::new(VecDeque::new());
/// Maximum number of kept objects.
const GRAVES: usize = 1024;

struct Grave {
    object: usize,
    free: unsafe fn(usize),
}

/// Frees the memory of an object.
///
/// # Safety
/// `object` is the address of an `Object<K>` that was in the graveyard.
unsafe fn free<K: Kind>(object: usize) {
    // SAFETY: `enter` made the object as a box. The inner part is already dropped and is not
    // dropped again (`ManuallyDrop`).
    drop(unsafe { Box::from_raw(object as *mut Object<K>) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls;
    use std::sync::Arc;

    /// Completion queues of a test provider. The inner object counts handles.
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

    /// The same inner object with another type.
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
        // SAFETY: the object is live. Only its bytes are copied; `MaybeUninit` drops nothing.
        unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(cq.cast(), 1) };
        assert!(!found(copy.as_mut_ptr().cast()), "a copy is not the object");
        // SAFETY: the object of this test.
        assert!(unsafe { behind::<Other>(cq) }.is_err());
        // SAFETY: as above. The version is read-only for consumers, and an unknown version is no
        // object of the provider.
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
