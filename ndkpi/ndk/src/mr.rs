//! Memory regions.
use crate::flags::{MrFlags, ObjectType, OpFlags};
use crate::mdl::Mdl;
use crate::object::{Lifecycle, RequestOutcome, complete_creation};
use crate::pd::Pd;
use crate::status::{NtStatus, status_of};
use adverb_device::engine::{Access, Key};
use adverb_device::{FastMr, Mr as DeviceMr};
use adverb_sync::Mutex;
use std::sync::Arc;

/// A memory region, for registration or for fast registration.
#[derive(Clone, Debug)]
pub struct Mr(Arc<MrInner>);

#[derive(Debug)]
struct MrInner {
    lifecycle: Arc<Lifecycle>,
    pd: Pd,
    fast_register: bool,
    state: Mutex<State>,
}

#[derive(Clone, Debug)]
enum State {
    Empty,
    Registered(Registered),
    Fast { mr: Arc<FastMr>, remote_access: bool },
}

/// A registration.
#[derive(Clone, Debug)]
struct Registered {
    mr: Arc<DeviceMr>,
    flags: MrFlags,
    address: u64,
    len: u64,
}

impl Pd {
    /// Creates a memory region for [`Mr::register`]. With `fast_register`, creates a region for
    /// [`Mr::initialize_fast_register`] and [`fast_register`](crate::Qp::fast_register).
    ///
    /// # Errors
    /// `DELETE_PENDING`; in line or through `completion`.
    pub fn create_mr(
        &self,
        fast_register: bool,
        completion: impl FnOnce(Result<Mr, NtStatus>) + Send + 'static,
    ) -> Result<RequestOutcome<Mr>, NtStatus> {
        complete_creation(self.hold()?, Mr::create(self, fast_register), Mr::lifecycle, completion)
    }
}

impl Mr {
    pub(crate) fn create(pd: &Pd, fast_register: bool) -> Result<Mr, NtStatus> {
        let lifecycle = pd.adapter().new_lifecycle(ObjectType::Mr, vec![pd.hold()?]);
        let inner = Arc::new(MrInner {
            lifecycle,
            pd: pd.clone(),
            fast_register,
            state: Mutex::new(State::Empty),
        });
        inner.lifecycle.keep(inner.clone());
        Ok(Mr(inner))
    }

    /// Registers the first `length` bytes of `mdl`. Requests address these bytes by their virtual
    /// addresses. The region keeps the memory alive and registered until [`Mr::deregister`] or the
    /// close.
    ///
    /// # Errors
    /// `INVALID_PARAMETER` (the list is shorter, or not contiguous; flags that do not exist),
    /// `INVALID_DEVICE_REQUEST` (a region for fast registration), `INVALID_DEVICE_STATE`
    /// (registered already), `ACCESS_VIOLATION` (not writable memory), `INSUFFICIENT_RESOURCES`,
    /// `DELETE_PENDING`; in line or through `completion`.
    pub fn register(
        &self,
        mdl: &Mdl,
        length: u64,
        flags: MrFlags,
        completion: impl FnOnce(Result<(), NtStatus>) + Send + 'static,
    ) -> Result<RequestOutcome, NtStatus> {
        let hold = self.0.lifecycle.hold()?;
        hold.complete(self.0.register(mdl, length, flags), completion)
    }

    /// Ends the registration. Waits for transfers in progress. Afterwards no access can begin.
    ///
    /// # Errors
    /// `INVALID_DEVICE_STATE` (not registered), `DEVICE_BUSY` (a window is bound to the region),
    /// `DELETE_PENDING`; in line or through `completion`.
    pub fn deregister(
        &self,
        completion: impl FnOnce(Result<(), NtStatus>) + Send + 'static,
    ) -> Result<RequestOutcome, NtStatus> {
        let hold = self.0.lifecycle.hold()?;
        hold.complete(self.0.deregister(), completion)
    }

    /// Prepares the region for fast registrations of up to `adapter_page_count` pages. The method
    /// may be called again. Then an existing fast registration ends.
    ///
    /// # Errors
    /// `IMPLEMENTATION_LIMIT` (too many pages), `INVALID_PARAMETER` (none),
    /// `INVALID_DEVICE_REQUEST` (a region for registration), `INSUFFICIENT_RESOURCES`,
    /// `DELETE_PENDING`; in line or through `completion`.
    pub fn initialize_fast_register(
        &self,
        adapter_page_count: u32,
        remote_access: bool,
        completion: impl FnOnce(Result<(), NtStatus>) + Send + 'static,
    ) -> Result<RequestOutcome, NtStatus> {
        let hold = self.0.lifecycle.hold()?;
        hold.complete(self.0.initialize_fast(adapter_page_count, remote_access), completion)
    }

    /// The token for local use. 0 before a registration or initialization. Posting a fast
    /// registration changes the token.
    #[must_use]
    pub fn get_local_token(&self) -> u32 {
        self.0.key().unwrap_or(0)
    }

    /// The token for the peer's use. 0 before a registration or initialization. Posting a fast
    /// registration changes the token.
    #[must_use]
    pub fn get_remote_token(&self) -> u32 {
        self.0.key().unwrap_or(0)
    }

    /// Closes the region. A registration ends, and windows bound to the region give no access any
    /// more.
    ///
    /// # Errors
    /// `DELETE_PENDING` for a second close.
    pub fn close(
        &self,
        completion: impl FnOnce() + Send + 'static,
    ) -> Result<RequestOutcome, NtStatus> {
        let me = self.clone();
        self.0.lifecycle.close(move || me.0.teardown(), completion)
    }

    pub(crate) fn lifecycle(&self) -> &Arc<Lifecycle> {
        &self.0.lifecycle
    }

    /// The region that fast registrations change. Fails if `flags` allow more than the region was
    /// prepared for.
    pub(crate) fn fast(&self, flags: OpFlags) -> Result<Arc<FastMr>, NtStatus> {
        match &*self.0.state.lock() {
            State::Fast { mr, remote_access } => {
                let remote = OpFlags::ALLOW_REMOTE_READ | remote_write_bit();
                if flags.intersects(remote) && !remote_access {
                    return Err(NtStatus::ACCESS_VIOLATION);
                }
                Ok(mr.clone())
            }
            State::Empty | State::Registered(_) => Err(NtStatus::INVALID_DEVICE_STATE),
        }
    }

    /// The key of a registered region to which a window can be bound. The window has `len` bytes at
    /// `address` and the rights in `flags`.
    pub(crate) fn key_to_bind(
        &self,
        address: u64,
        len: u64,
        flags: OpFlags,
    ) -> Result<Key, NtStatus> {
        match &*self.0.state.lock() {
            State::Registered(r) => {
                if flags.intersects(remote_write_bit())
                    && !r.flags.contains(MrFlags::ALLOW_LOCAL_WRITE)
                {
                    return Err(NtStatus::ACCESS_VIOLATION);
                }
                let offset = address.checked_sub(r.address).ok_or(NtStatus::INVALID_PARAMETER)?;
                if len == 0 || len > r.len || offset > r.len - len {
                    return Err(NtStatus::INVALID_PARAMETER);
                }
                Ok(r.mr.key())
            }
            State::Empty | State::Fast { .. } => Err(NtStatus::INVALID_DEVICE_STATE),
        }
    }

    /// The key that an invalidate request invalidates.
    pub(crate) fn key_to_invalidate(&self) -> Result<Key, NtStatus> {
        match &*self.0.state.lock() {
            State::Fast { mr, .. } => Ok(mr.key()),
            State::Registered(_) => Err(NtStatus::INVALID_PARAMETER),
            State::Empty => Err(NtStatus::INVALID_DEVICE_STATE),
        }
    }
}

/// The bit of `ALLOW_REMOTE_WRITE` that `ALLOW_LOCAL_WRITE` does not contain.
pub(crate) fn remote_write_bit() -> OpFlags {
    OpFlags::ALLOW_REMOTE_WRITE - OpFlags::ALLOW_LOCAL_WRITE
}

/// The device's rights for a registration.
fn access_of(flags: MrFlags) -> Result<Access, NtStatus> {
    let remote_write = MrFlags::ALLOW_REMOTE_WRITE - MrFlags::ALLOW_LOCAL_WRITE;
    let writes_alone =
        flags.intersects(remote_write) && !flags.contains(MrFlags::ALLOW_LOCAL_WRITE);
    if !MrFlags::all().contains(flags) || writes_alone {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let mut access = Access::MW_BIND;
    access.set(Access::LOCAL_WRITE, flags.contains(MrFlags::ALLOW_LOCAL_WRITE));
    access.set(Access::REMOTE_READ, flags.contains(MrFlags::ALLOW_REMOTE_READ));
    access.set(Access::REMOTE_WRITE, flags.intersects(remote_write));
    Ok(access)
}

impl MrInner {
    fn key(&self) -> Option<Key> {
        match &*self.state.lock() {
            State::Empty => None,
            State::Registered(r) => Some(r.mr.key()),
            State::Fast { mr, .. } => Some(mr.key()),
        }
    }

    fn register(&self, mdl: &Mdl, length: u64, flags: MrFlags) -> Result<(), NtStatus> {
        if self.fast_register {
            return Err(NtStatus::INVALID_DEVICE_REQUEST);
        }
        let access = access_of(flags)?;
        let span = mdl.span(length)?;
        let mut state = self.state.lock();
        if !matches!(*state, State::Empty) {
            return Err(NtStatus::INVALID_DEVICE_STATE);
        }
        let address = span.address();
        let mr = self
            .pd
            .device()
            .reg_mapping(&span.mapping, span.offset, span.len, address, access)
            .map_err(|e| status_of(&e))?;
        *state = State::Registered(Registered { mr, flags, address, len: span.len });
        Ok(())
    }

    fn deregister(&self) -> Result<(), NtStatus> {
        let mut state = self.state.lock();
        let State::Registered(registered) = &*state else {
            return Err(NtStatus::INVALID_DEVICE_STATE);
        };
        registered.mr.dereg().map_err(|e| status_of(&e))?;
        *state = State::Empty;
        Ok(())
    }

    fn initialize_fast(&self, pages: u32, remote_access: bool) -> Result<(), NtStatus> {
        if !self.fast_register {
            return Err(NtStatus::INVALID_DEVICE_REQUEST);
        }
        if pages == 0 {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        if pages > adverb_device::fast_mr::MAX_FAST_PAGES {
            return Err(NtStatus::IMPLEMENTATION_LIMIT);
        }
        let mr = self.pd.device().alloc_fast_mr(pages).map_err(|e| status_of(&e))?;
        let old = std::mem::replace(&mut *self.state.lock(), State::Fast { mr, remote_access });
        end(&old);
        Ok(())
    }

    fn teardown(&self) {
        let state = std::mem::replace(&mut *self.state.lock(), State::Empty);
        end(&state);
    }
}

fn end(state: &State) {
    let ended = match state {
        State::Empty => Ok(()),
        // A close cannot fail, so windows that are bound to the region lose the memory, too.
        State::Registered(r) => r.mr.revoke(),
        State::Fast { mr, .. } => mr.dereg(),
    };
    if let Err(e) = ended {
        log::warn!("a memory region is closed, but its registration stays: {e}");
    }
}
