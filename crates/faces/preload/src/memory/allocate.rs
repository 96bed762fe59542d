//! Gives page-aligned allocations whole pages, which the device may share. Shows freed and
//! reallocated memory to the device.

use core::ffi::{c_int, c_void};

use super::functions::{
    ALIGNED_ALLOC, FREE, MALLOC_USABLE_SIZE, MEMALIGN, POSIX_MEMALIGN, PVALLOC, REALLOC, VALLOC,
};
use super::hooks::{hooks, page};
use crate::real::{errno, real, set_errno};
use adverb_hooks::memory::Hooks;

/// How to make an allocation.
enum Plan {
    /// The program's allocator makes the allocation unchanged.
    Private,
    /// The program's allocator makes an allocation of this many bytes, whole pages, and the device
    /// may share the memory.
    Block(&'static Hooks, usize),
    /// A pooled block serves the allocation.
    Pooled(*mut c_void),
}

/// Decides how to make an allocation. If the device is present, it decides about allocations with
/// page alignment.
fn plan(align: usize, size: usize) -> Plan {
    let Some(hooks) = hooks() else { return Plan::Private };
    let page = page();
    if align < page || size == 0 {
        return Plan::Private;
    }
    let Some(len) = size.checked_next_multiple_of(page) else { return Plan::Private };
    match (hooks.plan)(align as u64, len as u64) {
        0 => Plan::Private,
        1 => Plan::Block(hooks, len),
        at => Plan::Pooled(at as *mut c_void),
    }
}

/// Makes an allocation with `make`, which takes the number of bytes. If the device may share the
/// memory, the number is a multiple of the page size.
fn allocate(align: usize, size: usize, make: impl Fn(usize) -> *mut c_void) -> *mut c_void {
    match plan(align, size) {
        Plan::Private => make(size),
        Plan::Pooled(at) => at,
        Plan::Block(hooks, len) => {
            let got = make(len);
            share(hooks, got, len);
            got
        }
    }
}

/// Shows new memory to the device.
fn share(hooks: &Hooks, got: *mut c_void, len: usize) {
    if !got.is_null() && got.addr().is_multiple_of(page()) {
        (hooks.share)(got as u64, len as u64);
    }
}

/// Defines the functions that answer an aligned allocation.
macro_rules! allocating {
    ($($symbol:ident = $real:ident($($align:ident: $type:ty)?), $at:expr;)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol($($align: $type,)? size: usize) -> *mut c_void {
            let real = real!($real: fn($($type,)? usize) -> *mut c_void);
            let Some(real) = real else { return no_memory() };
            // SAFETY: the caller's arguments.
            allocate($at, size, |size| unsafe { real($($align,)? size) })
        }
    )* };
}

allocating! {
    adverb_preload_memalign = MEMALIGN(align: usize), align;
    adverb_preload_aligned_alloc = ALIGNED_ALLOC(align: usize), align;
    adverb_preload_valloc = VALLOC(), page();
    adverb_preload_pvalloc = PVALLOC(), page();
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_posix_memalign(
    to: *mut *mut c_void,
    align: usize,
    size: usize,
) -> c_int {
    let Some(real) = real!(POSIX_MEMALIGN: fn(*mut *mut c_void, usize, usize) -> c_int) else {
        return libc::ENOMEM;
    };
    // Our own variable, so that no other thread sees the memory before it is ready.
    let mut got = core::ptr::null_mut();
    let error = match plan(align, size) {
        // SAFETY: the caller's arguments.
        Plan::Private => return unsafe { real(to, align, size) },
        Plan::Pooled(at) => {
            got = at;
            0
        }
        Plan::Block(hooks, len) => {
            // SAFETY: the caller's arguments, except for the result's address, which is ours.
            let error = unsafe { real(&raw mut got, align, len) };
            if error == 0 {
                share(hooks, got, len);
            }
            error
        }
    };
    if error == 0 {
        // SAFETY: `to` is the caller's.
        unsafe { *to = got };
    }
    error
}

fn no_memory() -> *mut c_void {
    set_errno(libc::ENOMEM);
    core::ptr::null_mut()
}

/// If the device shares a block that begins at `at`: the hooks, and the usable size that the
/// allocator reports. The allocator may have freed the block without calling us, so the address may
/// now be another allocation.
fn block(at: *mut c_void) -> Option<(&'static Hooks, usize)> {
    if !at.addr().is_multiple_of(4096) || at.is_null() {
        return None;
    }
    let hooks = hooks()?;
    if (hooks.block)(at as u64) == 0 {
        return None;
    }
    let usable = real!(MALLOC_USABLE_SIZE: fn(*mut c_void) -> usize)?;
    // SAFETY: memory of the allocator, owned by the program.
    Some((hooks, unsafe { usable(at) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_free(at: *mut c_void) {
    // SAFETY: the caller's argument.
    unsafe { release(at) }
}

/// The body of `free`.
#[inline(never)]
unsafe fn release(at: *mut c_void) {
    let before = errno();
    if let Some((hooks, usable)) = block(at) {
        let now = (hooks.release)(at as u64, usable as u64);
        set_errno(before);
        if now == 0 {
            return;
        }
    }
    // If this call happens during the lookup of `free`, nothing is freed. The lookup happens once
    // and needs little memory.
    if let Some(real) = real!(FREE: fn(*mut c_void)) {
        // SAFETY: the caller's argument.
        unsafe { real(at) }
    }
}

/// Replaces the C library's function of this name. A block that grows moves to ordinary memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_realloc(at: *mut c_void, size: usize) -> *mut c_void {
    let Some(real) = real!(REALLOC: fn(*mut c_void, usize) -> *mut c_void) else {
        return no_memory();
    };
    let Some((hooks, len)) = block(at) else {
        // SAFETY: the caller's arguments.
        return unsafe { real(at, size) };
    };
    if size == 0 {
        // The C library frees the memory in this case.
        // SAFETY: the caller's argument.
        unsafe { release(at) };
        return core::ptr::null_mut();
    }
    if size <= len && size > len / 2 {
        return at;
    }
    // Pages that were never touched are not copied, and take no memory in the new allocation.
    //
    // SAFETY: the allocation is new. The block has `len` bytes, and is freed after the copy.
    unsafe {
        let new = real(core::ptr::null_mut(), size);
        if !new.is_null() {
            (hooks.copy)(at as u64, new as u64, len.min(size) as u64);
            release(at);
        }
        new
    }
}
