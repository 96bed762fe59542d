//! Protection domains and regions in the list of the process's objects.
use super::{Mr, Pd};
use crate::node::Listed;
use adverb_nldev::Object;

impl Listed for Pd {
    fn describe(&self) -> Option<(String, Object)> {
        let (number, context) = (self.id.0, self.context.place.serial());
        let object = Object::Pd { number, context, users: self.uses.count() };
        Some((self.context.device().name().to_owned(), object))
    }
}

impl Listed for Mr {
    /// A region that is ending, or that changes at this moment, is left out. A wait for the end of
    /// a region could be long.
    fn describe(&self) -> Option<(String, Object)> {
        let inner = self.inner.try_lock().filter(|inner| !inner.ended)?;
        let (pd, len) = (&inner.pd, inner.region.len);
        let object = Object::Mr { number: self.place.serial(), pd: pd.id.0, len };
        Some((pd.context.device().name().to_owned(), object))
    }
}
