//! Handles: how the pointers of programs become objects (CQN-10, and the same for all other kinds).
//!
//! A program may pass any pointer: a handle destroyed once or twice, before or while another thread
//! uses the handle; a handle of another kind; memory of its own. So no entry point dereferences a
//! pointer of the program. [`live`] and [`hot`] are the only ways to an object. Their answer keeps
//! the object until the answer is dropped.
//!
//! - Objects lie in slots of chunks. Each chunk holds a single kind and is never unmapped
//!   (`chunks`, `slab`). A table says whether an address is a slot of the right kind, without a
//!   read at the address.
//! - A slot has a word: whether its object lives, and how many threads are inside. Entering is one
//!   compare-and-swap, which fails on a dead object. Leaving is one subtraction. The last thread
//!   that leaves a dead object drops the library's part. The owner thread of a slot needs neither
//!   operation (`bias`).
//! - A dead slot rests until 4096 other objects of its kind have died. Its visible part stays
//!   unchanged. The inline functions of the header call through `qp->context->ops`. So with a dead
//!   handle they still come to the library's functions, which refuse the handle.
//! - A chain of requests or a poll stays pinned between calls by a [`Session`].
mod bias;
mod chunks;
mod slab;
#[cfg(test)]
mod tests;

pub use slab::{Reserved, Slab};

use crate::abi::ibv_context;
use adverb_device::{Errno, Error};
use core::marker::PhantomData;
use core::ops::Deref;
use core::sync::atomic::Ordering;
use slab::{Pin, Slot};

/// A kind of objects.
pub trait Kind: Sized + Send + Sync + 'static {
    /// The type in the header.
    type Visible: 'static;
    /// The number of the kind; 0 is no kind.
    const KIND: u8;
    /// The name in messages.
    const NAME: &'static str;
    /// Offset of the handle in the visible part.
    const AT: usize = 0;
    /// The slots of this kind.
    fn slab() -> &'static Slab<Self>;
    /// The current `context` and `handle` of the visible part.
    ///
    /// # Safety
    /// `visible` is the visible part of a slot.
    unsafe fn says(visible: *const Self::Visible) -> Says;
}

/// The fields of the visible part, as far as its type has them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Says {
    /// The context of the object.
    pub context: Option<*mut ibv_context>,
    /// The object's number in the device file.
    pub handle: Option<u32>,
}

/// A type of the header with pointers that are handles.
pub trait Handle: Sized {
    /// The kind of object behind the handles.
    type Object: Kind;
}

/// Lists the kinds: number, library's part, visible part, types of handles, where the handle points
/// into the visible part, and the name in messages. The last column says whether the first type of
/// handle has the fields `context` and `handle`. The visible part begins with this type, unless the
/// handle points elsewhere.
macro_rules! kinds {
    ($(
        $number:literal $object:ty: $visible:ty, [$first:ty $(, $handle:ty)*] $(at $at:expr)?, $name:literal,
        { $($field:ident)* };
    )*) => { $(
        impl $crate::handles::Kind for $object {
            type Visible = $visible;
            const KIND: u8 = $number;
            const NAME: &'static str = $name;
            $( const AT: usize = $at; )?
            fn slab() -> &'static $crate::handles::Slab<Self> {
                static SLAB: $crate::handles::Slab<$object> = $crate::handles::Slab::new();
                &SLAB
            }
            #[allow(clippy::needless_update, unused_variables, reason = "not every type has the fields")]
            unsafe fn says(visible: *const $visible) -> $crate::handles::Says {
                $crate::handles::Says {
                    // SAFETY: the caller guarantees memory of this type. The program may have
                    // written any value there.
                    $( $field: Some(unsafe { (*visible.cast::<$first>()).$field }), )*
                    ..Default::default()
                }
            }
        }
        impl $crate::handles::Handle for $first {
            type Object = $object;
        }
        $( impl $crate::handles::Handle for $handle {
            type Object = $object;
        } )*
    )* };
}
pub(crate) use kinds;

/// An open device file. Contexts on one file share the handles of their objects. No other file of
/// this process ever has the same number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileId(pub usize);

/// The origin of an object.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The context, which may be closed.
    pub context: *mut ibv_context,
    /// The device file of the context.
    pub file: FileId,
    /// The object's number in the device file.
    pub handle: u32,
}

/// Reserves a slot for a new object. Called before anything is made that would have to be undone.
///
/// # Errors
/// ENOMEM.
pub fn reserve<K: Kind>() -> Result<Reserved<K>, Error> {
    K::slab().reserve()
}

/// The object of a handle, for the data path. Costs a load from the table, and for threads other
/// than the owner a compare-and-swap.
#[inline(always)]
pub fn hot<H: Handle>(handle: *mut H) -> Result<Live<H::Object>, Error> {
    let pinned = Slot::<H::Object>::at(handle as usize).and_then(|slot| Some((slot, slot.pin()?)));
    match pinned {
        Some((slot, pin)) => Ok(Live::new(slot, pin)),
        None => Err(refuse::<H::Object>(handle as usize)),
    }
}

/// The object of a handle. Checks `context` and `handle`, where the kernel would look at them.
///
/// # Errors
/// EINVAL if there is no living object of this kind, or if `context` was changed; ENOENT if
/// `handle` was changed.
pub fn live<H: Handle>(handle: *mut H) -> Result<Live<H::Object>, Error> {
    let object = hot(handle)?;
    // SAFETY: this is the visible part of a slot.
    let says = unsafe { H::Object::says(object.slot.visible()) };
    let origin = object.slot.origin();
    let name = H::Object::NAME;
    if says.context.is_some_and(|c| c != origin.context) {
        return Err(Error::invalid(
            format!("context of the {name} {handle:p}"),
            format!("the field was changed; the object belongs to {:p}", origin.context),
        ));
    }
    match says.handle {
        Some(number) if number != origin.handle => Err(Error::new(
            Errno::ENOENT,
            format!(
                "no {name} has the handle {number}: the field was changed from {}",
                origin.handle
            ),
        )),
        _ => Ok(object),
    }
}

/// As [`live`], for an object used together with objects of a device file.
///
/// # Errors
/// As [`live`]; EINVAL if the object belongs to another device file.
pub fn live_in<H: Handle>(handle: *mut H, file: FileId) -> Result<Live<H::Object>, Error> {
    let object = live(handle)?;
    if object.origin().file == file {
        return Ok(object);
    }
    Err(Error::invalid(
        format!("the {} {handle:p}", H::Object::NAME),
        "this object and the object used with it belong to different contexts",
    ))
}

/// As [`live_in`], where null means none.
///
/// # Errors
/// As [`live_in`].
pub fn maybe_in<H: Handle>(handle: *mut H, file: FileId) -> Result<Option<Live<H::Object>>, Error> {
    if handle.is_null() { Ok(None) } else { live_in(handle, file).map(Some) }
}

/// Explains why a pointer is no handle.
#[cold]
fn refuse<K: Kind>(handle: usize) -> Error {
    let (name, what) = (K::NAME, handle as *const ());
    let why = match (Slot::<K>::at(handle), chunks::find(handle)) {
        _ if handle == 0 => return Error::new(Errno::EINVAL, format!("the {name} is null")),
        (Some(slot), _) if slot.was_used() => "it was destroyed",
        (None, Some((_, kind))) if kind != K::KIND => "the object is of another kind",
        _ => "this library made no such object",
    };
    Error::new(Errno::EINVAL, format!("{what:p} is no {name}: {why}"))
}

/// An object that is kept, alive or not, until this value is dropped in its thread.
pub struct Live<K: Kind> {
    slot: &'static Slot<K>,
    pin: Pin,
    /// The value stays in its thread, which may be the owner of the slot.
    not_send: PhantomData<*const ()>,
}

impl<K: Kind> Live<K> {
    fn new(slot: &'static Slot<K>, pin: Pin) -> Self {
        Live { slot, pin, not_send: PhantomData }
    }
    /// The visible part. The program may change it, so it is read and written field by field.
    pub fn visible(&self) -> *mut K::Visible {
        self.slot.visible()
    }
    /// The origin of the object.
    pub fn origin(&self) -> Origin {
        self.slot.origin()
    }
    /// Claims the end of the object.
    ///
    /// # Errors
    /// EINVAL if another thread is destroying it.
    pub fn end(self) -> Result<Ending<K>, Error> {
        if self.slot.claim() {
            return Ok(Ending { live: self, done: false });
        }
        Err(Error::new(
            Errno::EINVAL,
            format!("the {} {:p} is being destroyed by another thread", K::NAME, self.visible()),
        ))
    }
    /// Keeps the object beyond this call until [`Session::leave`], which another thread may call.
    /// `holder` (not 0) names the holder.
    pub fn enter(self, holder: usize) {
        self.slot.session().store(holder, Ordering::Relaxed);
        match self.pin {
            Pin::Counted => core::mem::forget(self),
            Pin::Owner => self.slot.pin_again(),
        }
    }
    /// The holder of the session; 0 without a session.
    #[inline]
    pub fn holder(&self) -> usize {
        self.slot.session().load(Ordering::Relaxed)
    }
}

impl<K: Kind> Deref for Live<K> {
    type Target = K;
    #[inline]
    fn deref(&self) -> &K {
        // SAFETY: `self` is a pin.
        unsafe { self.slot.inner() }
    }
}

impl<K: Kind> Drop for Live<K> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: removes this pin, which is not used afterwards.
        unsafe { self.slot.unpin(self.pin) };
    }
}

/// An object whose end this thread has claimed. A drop without [`Ending::finish`] gives the claim
/// up, and the object lives on.
pub struct Ending<K: Kind> {
    live: Live<K>,
    done: bool,
}

impl<K: Kind> Ending<K> {
    /// Marks the handle dead.
    pub fn finish(mut self) {
        self.done = true;
        self.live.slot.kill();
    }
}

impl<K: Kind> Deref for Ending<K> {
    type Target = Live<K>;
    fn deref(&self) -> &Live<K> {
        &self.live
    }
}

impl<K: Kind> Drop for Ending<K> {
    fn drop(&mut self) {
        if !self.done {
            self.live.slot.unclaim();
        }
    }
}

/// An object that a chain of requests or a poll keeps between calls. If the object is dead, only
/// the holder of the session gets here.
pub struct Session<K: Kind> {
    slot: &'static Slot<K>,
}

/// The session of a handle. While the object lives, any thread gets the session, because programs
/// may continue in another thread. On a dead object only the holder `me` gets it.
#[inline]
pub fn session<H: Handle>(handle: *mut H, me: usize) -> Option<Session<H::Object>> {
    let slot = Slot::<H::Object>::at(handle as usize)?;
    let holder = slot.session().load(Ordering::Relaxed);
    (holder != 0 && (holder == me || slot.is_live())).then_some(Session { slot })
}

impl<K: Kind> Session<K> {
    /// Was the object not destroyed meanwhile?
    #[inline]
    pub fn is_live(&self) -> bool {
        self.slot.is_live()
    }
    /// The visible part.
    #[inline]
    pub fn visible(&self) -> *mut K::Visible {
        self.slot.visible()
    }
    /// Ends the session and answers its pin. `None` if another thread was first.
    #[inline]
    pub fn leave(self) -> Option<Live<K>> {
        (self.slot.session().swap(0, Ordering::Relaxed) != 0)
            .then(|| Live::new(self.slot, Pin::Counted))
    }
}

impl<K: Kind> Deref for Session<K> {
    type Target = K;
    #[inline]
    fn deref(&self) -> &K {
        // SAFETY: an open session has a pin. The thread inside ends the session. Otherwise the
        // program breaks the rule that only one thread at a time is between start and end.
        unsafe { self.slot.inner() }
    }
}

/// A number that no other living thread of the process has.
#[inline]
pub fn this_thread() -> usize {
    let pointer: usize;
    // SAFETY: reads the word which the ABI places at the thread pointer: its own address.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!("mov {}, fs:[0]", out(reg) pointer,
            options(nostack, preserves_flags, readonly, pure));
    }
    // SAFETY: reads the thread pointer.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags));
    }
    pointer
}
