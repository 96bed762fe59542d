//! The list of the objects of a process, except queue pairs, for other processes of the user.
use crate::ranks;
use adverb_memory::ProcessIdentity;
use adverb_nldev::Object;
use adverb_sync::Ranked;
use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::sync::{Arc, Weak};

/// An object of a device, except queue pairs.
pub(crate) trait Listed: Send + Sync {
    /// The name of the device, and the object; `None` after the end of the object.
    fn describe(&self) -> Option<(String, Object)>;
}

/// The last serial number, and the objects by serial number. `None`: the object is being made.
#[derive(Default)]
struct Serials {
    last: u32,
    objects: BTreeMap<u32, Option<Weak<dyn Listed>>>,
}

/// The objects of the process.
pub(crate) struct ObjectList {
    process: ProcessIdentity,
    serials: Ranked<Serials, ranks::ObjectList>,
}

impl ObjectList {
    /// Serial numbers are smaller.
    pub(super) const NUMBERS: u32 = 1 << 30;

    /// The list of this process.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(ObjectList { process: ProcessIdentity::current(), serials: Ranked::default() })
    }

    /// The objects from a serial number on. Copied, because the last reference to an object may end
    /// at the caller, and the object's place with it.
    pub(super) fn from(&self, serial: u32) -> Vec<(u32, Option<Weak<dyn Listed>>)> {
        let serials = self.serials.lock();
        serials.objects.range(serial..).map(|(n, object)| (*n, object.clone())).collect()
    }

    /// A place, empty until [`ListPlace::fill`].
    pub(crate) fn place(self: &Arc<Self>) -> ListPlace {
        let mut serials = self.serials.lock();
        let Serials { last, objects } = &mut *serials;
        loop {
            *last = (*last + 1) % Self::NUMBERS;
            if !objects.contains_key(last) {
                break;
            }
        }
        objects.insert(*last, None);
        ListPlace { list: self.clone(), serial: *last }
    }
}

/// The place of an object in the list. The object leaves the list with its place.
pub(crate) struct ListPlace {
    list: Arc<ObjectList>,
    serial: u32,
}

impl ListPlace {
    /// The number of the place, unique in the process.
    pub(crate) fn serial(&self) -> u32 {
        self.serial
    }

    /// The object is listed from now on.
    pub(crate) fn fill<T: Listed + 'static>(&self, object: &Arc<T>) {
        let object: Weak<T> = Arc::downgrade(object);
        self.list.serials.lock().objects.insert(self.serial, Some(object));
    }
}

impl Debug for ListPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.serial)
    }
}

impl Drop for ListPlace {
    fn drop(&mut self) {
        // Objects inherited over a `fork` are in the list of the parent.
        if !self.list.process.is_over() {
            self.list.serials.lock().objects.remove(&self.serial);
        }
    }
}
