//! Handles: how the pointers that programs pass become objects (CQN-10, and the like for all other
//! kinds).
//!
//! A program may pass anything: a handle it destroyed, once or twice, before or while another
//! thread uses it; a handle of another kind; memory of its own. So no entry point dereferences a
//! pointer it was given. [`live`] and [`hot`] are the only ways to an object; their answer keeps it
//! until it is dropped.
//!
//! - Objects lie in slots of chunks that hold one kind each and are never unmapped (`chunks`,
//!   `slab`). Whether an address is a slot of the right kind is known from a table, without a look
//!   at the address.
//! - A slot has a word: whether its object lives, and how many threads are inside. Entering is one
//!   compare-and-swap, which fails on a dead object; leaving is one subtraction. The last one out
//!   of a dead object ends what stands behind it. The one thread that an object belongs to needs
//!   neither (`bias`).
//! - A dead slot rests until 4096 others of its kind have died, with its visible part as it was. So
//!   the inline functions of the header, which call through `qp->context->ops`, come to our
//!   functions with a dead handle as they do with a live one, and these refuse it.
//! - What stays pinned between calls, a chain of requests or a poll, is a [`Session`].
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
    /// The header's type.
    type Visible: 'static;
    /// Its number; 0 is none.
    const KIND: u8;
    /// What messages call it.
    const NAME: &'static str;
    /// Where in the visible part handles point to.
    const AT: usize = 0;
    /// Its slots.
    fn slab() -> &'static Slab<Self>;
    /// `context` and `handle` as the visible part has them now.
    ///
    /// # Safety
    /// `visible` is the visible part of a slot.
    unsafe fn says(visible: *const Self::Visible) -> Says;
}

/// What the visible part says of an object, as far as its type does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Says {
    /// Its context.
    pub context: Option<*mut ibv_context>,
    /// Its number in the device file.
    pub handle: Option<u32>,
}

/// A type of the header whose pointers are handles.
pub trait Handle: Sized {
    /// The objects they stand for.
    type Object: Kind;
}

/// Where an object comes from.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Its context; it may be closed.
    pub context: *mut ibv_context,
    /// The device file of its context.
    pub file: usize,
    /// Its number in that file.
    pub handle: u32,
}

/// Takes a slot for a new object: before anything is made that would have to be undone.
///
/// # Errors
/// ENOMEM.
pub fn reserve<K: Kind>() -> Result<Reserved<K>, Error> {
    K::slab().reserve()
}

/// The object of a handle, for the data path: one load from the table, and for all threads but the
/// one that the object belongs to one compare-and-swap.
#[inline(always)]
pub fn hot<H: Handle>(handle: *mut H) -> Result<Live<H::Object>, Error> {
    let pinned = Slot::<H::Object>::at(handle as usize).and_then(|slot| Some((slot, slot.pin()?)));
    match pinned {
        Some((slot, pin)) => Ok(Live::new(slot, pin)),
        None => Err(refuse::<H::Object>(handle as usize)),
    }
}

/// The object of a handle. Where the kernel would look at `context` and `handle`, so does this.
///
/// # Errors
/// EINVAL for what is no living object of this kind, or whose `context` was changed; ENOENT if its
/// `handle` was.
pub fn live<H: Handle>(handle: *mut H) -> Result<Live<H::Object>, Error> {
    let object = hot(handle)?;
    // SAFETY: the visible part of a slot.
    let says = unsafe { H::Object::says(object.slot.visible()) };
    let origin = object.slot.origin();
    let name = H::Object::NAME;
    if says.context.is_some_and(|c| c != origin.context) {
        return Err(Error::invalid(
            format!("context of the {name} {handle:p}"),
            format!("it was changed, the object belongs to {:p}", origin.context),
        ));
    }
    match says.handle {
        Some(number) if number != origin.handle => Err(Error::new(
            Errno::ENOENT,
            format!("no {name} has the handle {number}: the field was changed, it was {}", origin.handle),
        )),
        _ => Ok(object),
    }
}

/// As [`live`], for an object that is to be used with others of a device file.
///
/// # Errors
/// As [`live`]; EINVAL if it belongs to another device file.
pub fn live_in<H: Handle>(handle: *mut H, file: usize) -> Result<Live<H::Object>, Error> {
    let object = live(handle)?;
    if object.origin().file == file {
        return Ok(object);
    }
    Err(Error::invalid(
        format!("the {} {handle:p}", H::Object::NAME),
        "it belongs to another context than the object it is to be used with",
    ))
}

/// As [`live_in`], where null means none.
///
/// # Errors
/// As [`live_in`].
pub fn maybe_in<H: Handle>(handle: *mut H, file: usize) -> Result<Option<Live<H::Object>>, Error> {
    if handle.is_null() { Ok(None) } else { live_in(handle, file).map(Some) }
}

/// Why a pointer is no handle.
#[cold]
fn refuse<K: Kind>(handle: usize) -> Error {
    let (name, what) = (K::NAME, handle as *const ());
    let why = match (Slot::<K>::at(handle), chunks::find(handle)) {
        _ if handle == 0 => return Error::new(Errno::EINVAL, format!("the {name} is null")),
        (Some(slot), _) if slot.was_used() => "it was destroyed",
        (None, Some((_, kind))) if kind != K::KIND => "it is an object of another kind",
        _ => "this library made no such object",
    };
    Error::new(Errno::EINVAL, format!("{what:p} is no {name}: {why}"))
}

/// An object that is kept, alive or not, until this is dropped: by the thread that has it.
pub struct Live<K: Kind> {
    slot: &'static Slot<K>,
    pin: Pin,
    /// It stays with its thread, which may be the owner.
    not_send: PhantomData<*const ()>,
}

impl<K: Kind> Live<K> {
    fn new(slot: &'static Slot<K>, pin: Pin) -> Self {
        Live { slot, pin, not_send: PhantomData }
    }
    /// The visible part, which is the program's: read and written field by field.
    pub fn visible(&self) -> *mut K::Visible {
        self.slot.visible()
    }
    /// Where it comes from.
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
    /// Keeps the object beyond this call, for who `holder` (not 0) stands for, until
    /// [`Session::leave`], which another thread may call.
    pub fn enter(self, holder: usize) {
        self.slot.session().store(holder, Ordering::Relaxed);
        match self.pin {
            Pin::Counted => core::mem::forget(self),
            Pin::Owner => self.slot.pin_again(),
        }
    }
    /// Who keeps it; 0: nobody.
    #[inline]
    pub fn holder(&self) -> usize {
        self.slot.session().load(Ordering::Relaxed)
    }
}

impl<K: Kind> Deref for Live<K> {
    type Target = K;
    #[inline]
    fn deref(&self) -> &K {
        // SAFETY: this is a pin.
        unsafe { self.slot.inner() }
    }
}

impl<K: Kind> Drop for Live<K> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this pin, whose last use was before.
        unsafe { self.slot.unpin(self.pin) };
    }
}

/// An object whose end this thread has claimed. Dropped without [`Ending::finish`], it lives on.
pub struct Ending<K: Kind> {
    live: Live<K>,
    done: bool,
}

impl<K: Kind> Ending<K> {
    /// The handle is dead from here on.
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
/// its holder gets here.
pub struct Session<K: Kind> {
    slot: &'static Slot<K>,
}

/// The session of a handle: of whoever, as long as the object lives (programs may go on in another
/// thread); of `me` on a dead one.
#[inline]
pub fn session<H: Handle>(handle: *mut H, me: usize) -> Option<Session<H::Object>> {
    let slot = Slot::<H::Object>::at(handle as usize)?;
    let holder = slot.session().load(Ordering::Relaxed);
    (holder != 0 && (holder == me || slot.is_live())).then_some(Session { slot })
}

impl<K: Kind> Session<K> {
    /// The object has not been destroyed meanwhile.
    #[inline]
    pub fn is_live(&self) -> bool {
        self.slot.is_live()
    }
    /// The visible part.
    #[inline]
    pub fn visible(&self) -> *mut K::Visible {
        self.slot.visible()
    }
    /// Ends it; what keeps the object is the answer. `None` if another thread was first.
    #[inline]
    pub fn leave(self) -> Option<Live<K>> {
        (self.slot.session().swap(0, Ordering::Relaxed) != 0).then(|| Live::new(self.slot, Pin::Counted))
    }
}

impl<K: Kind> Deref for Session<K> {
    type Target = K;
    #[inline]
    fn deref(&self) -> &K {
        // SAFETY: an open session holds a pin. The thread that is inside ends it, or breaks the
        // rule of the interface that one thread at a time is between start and end.
        unsafe { self.slot.inner() }
    }
}

/// A number that no other thread of the process has while this one lives.
#[inline]
pub fn this_thread() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let pointer: usize;
        // SAFETY: reads the word that the ABI has at the thread pointer: its own address.
        unsafe {
            core::arch::asm!("mov {}, fs:[0]", out(reg) pointer,
                options(nostack, preserves_flags, readonly, pure));
        }
        pointer
    }
    #[cfg(target_arch = "aarch64")]
    {
        let pointer: usize;
        // SAFETY: reads the thread pointer.
        unsafe {
            core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags));
        }
        pointer
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        thread_local!(static HERE: u8 = const { 0 });
        HERE.with(|here| core::ptr::from_ref(here) as usize)
    }
}
