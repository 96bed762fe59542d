//! Logical address mappings: the adapter's addresses of pages, as an IOMMU assigns them.
use crate::mdl::{Mdl, Span};
use crate::status::{NtStatus, status_of};
use adverb_device::engine::Access;
use adverb_device::{Mr as DeviceMr, Page, Pd as DevicePd};
use adverb_sync::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Size of an adapter page, in bytes.
pub const PAGE_SIZE: u64 = 4096;

/// An address of the adapter: the address of a page in a [`Lam`], or (in a scatter/gather entry) of
/// a byte in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct LogicalAddress(pub u64);

/// A mapping of memory for the adapter (`NDK_LOGICAL_ADDRESS_MAPPING`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lam {
    /// The logical addresses of the pages, each aligned to [`PAGE_SIZE`].
    pub pages: Vec<LogicalAddress>,
    /// Offset of the first byte in the first page.
    pub fbo: u32,
}

/// The first logical address. It is so high that a consumer does not mistake a logical address for
/// a pointer.
const BASE: u64 = 1 << 56;

/// The page table of an adapter.
#[derive(Debug, Default)]
pub(crate) struct Lams {
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Mappings by the logical address of the first page.
    mapped: BTreeMap<u64, Arc<Mapped>>,
    /// Number of pages assigned so far. Addresses are never assigned again, so a released address
    /// gives no access.
    used: u64,
}

#[derive(Debug)]
struct Mapped {
    span: Span,
    /// Logical address of the first page, and of the first byte.
    base: u64,
    first: u64,
    /// For the privileged token: a local registration in each protection domain that has used the
    /// mapping.
    registered: Mutex<Vec<(Arc<DevicePd>, Arc<DeviceMr>)>>,
}

impl Lams {
    pub(crate) fn build(&self, mdl: &Mdl, length: u64) -> Result<Lam, NtStatus> {
        let span = mdl.span(length)?;
        let fbo = span.address() % PAGE_SIZE;
        let count = (fbo + span.len).div_ceil(PAGE_SIZE);
        let mut table = self.table.write();
        let base = BASE + table.used * PAGE_SIZE;
        // A page stays free between two mappings, so an access beyond the end of a mapping never
        // reaches the next mapping.
        table.used = table.used.checked_add(count + 1).ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
        let mapped = Mapped { span, base, first: base + fbo, registered: Mutex::default() };
        table.mapped.insert(base, Arc::new(mapped));
        let pages = (0..count).map(|i| LogicalAddress(base + i * PAGE_SIZE)).collect();
        Ok(Lam { pages, fbo: fbo as u32 })
    }

    pub(crate) fn release(&self, lam: &Lam) {
        let Some(LogicalAddress(base)) = lam.pages.first() else { return };
        let removed = self.table.write().mapped.remove(base);
        if let Some(mapped) = removed {
            mapped.end(|_| true);
        }
    }

    pub(crate) fn clear(&self) {
        let table = std::mem::take(&mut self.table.write().mapped);
        table.values().for_each(|m| m.end(|_| true));
    }

    /// Releases the registrations in a protection domain that is being closed.
    pub(crate) fn forget(&self, pd: &Arc<DevicePd>) {
        let mapped: Vec<_> = self.table.read().mapped.values().cloned().collect();
        mapped.iter().for_each(|m| m.end(|p| Arc::ptr_eq(p, pd)));
    }

    /// The host's pages behind logical addresses.
    pub(crate) fn pages(&self, addresses: &[LogicalAddress]) -> Result<Vec<Page>, NtStatus> {
        let table = self.table.read();
        let host = |LogicalAddress(address): &LogicalAddress| {
            if address % PAGE_SIZE != 0 {
                return None;
            }
            let mapped = table.find(*address)?;
            let start = mapped.span.address() & !(PAGE_SIZE - 1);
            Some(Page {
                mapping: mapped.span.mapping.clone(),
                addr: start + (address - mapped.base),
            })
        };
        addresses.iter().map(|a| host(a).ok_or(NtStatus::INVALID_PARAMETER)).collect()
    }

    /// The local key that gives a protection domain access at `address`.
    pub(crate) fn local_key(
        &self,
        pd: &Arc<DevicePd>,
        address: u64,
        len: u32,
    ) -> Result<u32, NtStatus> {
        let mapped = self.table.read().find(address).cloned().ok_or(NtStatus::ACCESS_VIOLATION)?;
        let end = address.checked_add(len.into()).ok_or(NtStatus::ACCESS_VIOLATION)?;
        if address < mapped.first || end > mapped.first + mapped.span.len {
            return Err(NtStatus::ACCESS_VIOLATION);
        }
        let mut registered = mapped.registered.lock();
        if let Some((_, mr)) = registered.iter().find(|(p, _)| Arc::ptr_eq(p, pd)) {
            return Ok(mr.key());
        }
        let span = &mapped.span;
        let mr = pd
            .reg_mapping(&span.mapping, span.offset, span.len, mapped.first, Access::LOCAL_WRITE)
            .map_err(|e| status_of(&e))?;
        let key = mr.key();
        registered.push((pd.clone(), mr));
        Ok(key)
    }
}

impl Table {
    /// The mapping that contains this address.
    fn find(&self, address: u64) -> Option<&Arc<Mapped>> {
        let (_, mapped) = self.mapped.range(..=address).next_back()?;
        (address < mapped.first + mapped.span.len).then_some(mapped)
    }
}

impl Mapped {
    fn end(&self, which: impl Fn(&Arc<DevicePd>) -> bool) {
        self.registered.lock().retain(|(pd, mr)| {
            let ends = which(pd);
            if ends && let Err(e) = mr.dereg() {
                log::warn!("the registration of a logical address mapping stays: {e}");
            }
            !ends
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adverb_device::Mapping;

    #[test]
    fn logical_pages_lead_to_the_hosts_and_end_with_their_mapping() {
        let lams = Lams::default();
        let memory = Mapping::alloc(5 * 4096).unwrap();
        let lam = lams.build(&Mdl::new(&memory, 100, 9000).unwrap(), 8192).unwrap();
        assert_eq!((lam.pages.len(), lam.fbo), (3, 100));
        let other = lams.build(&Mdl::of(&memory), 4096).unwrap();
        assert_eq!((other.pages.len(), other.fbo), (1, 0));
        let pages = lams.pages(&[lam.pages[2], lam.pages[0], other.pages[0]]).unwrap();
        let addresses: Vec<u64> = pages.iter().map(|p| p.addr).collect();
        assert_eq!(addresses, [memory.addr() + 8192, memory.addr(), memory.addr()]);
        // Invented addresses are refused.
        for made_up in [0, 0x1000, lam.pages[0].0 + 8, lam.pages[2].0 + 4096, lam.pages[0].0 - 4096]
        {
            assert!(lams.pages(&[LogicalAddress(made_up)]).is_err(), "{made_up:#x}");
        }
        lams.release(&lam);
        assert!(lams.pages(&lam.pages).is_err());
        assert!(lams.pages(&other.pages).is_ok());
    }

    #[test]
    fn what_the_privileged_token_opens_is_never_remote() {
        let context = adverb_device::device::loopback().unwrap().unwrap().open().unwrap();
        let pd = DevicePd::new(&context).unwrap();
        let (lams, memory) = (Lams::default(), Mapping::alloc(4096).unwrap());
        let lam = lams.build(&Mdl::of(&memory), 4096).unwrap();
        let key = lams.local_key(&pd, lam.pages[0].0, 8).unwrap();
        assert_eq!(
            lams.local_key(&pd, lam.pages[0].0 + 100, 8),
            Ok(key),
            "one registration a domain"
        );
        let mapped = lams.table.read().find(lam.pages[0].0).cloned().unwrap();
        let rights: Vec<Access> =
            mapped.registered.lock().iter().map(|(_, mr)| mr.region().access).collect();
        assert_eq!(rights, [Access::LOCAL_WRITE]);
        lams.release(&lam);
        pd.dealloc().unwrap();
    }
}
