//! Registrations, device memory and windows.
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::rig::*;
use ibverbs::abi::*;
use ibverbs::verbs::{buf, dm, dmabuf, mr, mw, pd};
use libc::{EBUSY, EFAULT, EINVAL, ENODATA, ENOENT, EOPNOTSUPP, EPERM};

#[test]
fn registrations_are_checked() {
    let open = Open::new();
    let pd = open.pd();
    let mut buf = buffer();
    let addr = buf.as_mut_ptr().cast::<c_void>();
    let reg = |addr, len, access: u32| unsafe {
        mr::ibv_reg_mr_iova2(pd, addr, len, addr as u64, access)
    };
    refused(reg(addr, 8192, 1 << 15), EINVAL);
    refused(reg(addr, 8192, IBV_ACCESS_REMOTE_WRITE), EINVAL);
    refused(reg(addr, 0, IBV_ACCESS_REMOTE_WRITE), EINVAL);
    refused(reg(std::ptr::without_provenance_mut(4096), 4096, 0), EFAULT);
    refused(unsafe { dmabuf::ibv_reg_dmabuf_mr(pd, 0, 1, 0, -1, 0) }, EOPNOTSUPP);
    for (at, access) in [(addr, IBV_ACCESS_LOCAL_WRITE), (null_mut(), 0)] {
        let empty = reg(at, 0, access);
        assert!(!empty.is_null(), "a region may have no bytes");
        unsafe {
            assert_eq!(((*empty).addr, (*empty).length, mr::ibv_dereg_mr(empty)), (at, 0, 0))
        };
    }
    let region = reg(addr, 8192, IBV_ACCESS_LOCAL_WRITE | 1 << 29);
    assert!(!region.is_null(), "an optional bit that is not known is ignored");
    unsafe {
        assert_eq!(((*region).addr, (*region).length, (*region).pd), (addr, 8192, pd));
        assert_eq!((*region).context, open.0);
        assert_eq!(pd::ibv_dealloc_pd(pd), EBUSY);
        assert_eq!(mr::ibv_dereg_mr(region), 0);
        assert_eq!(pd::ibv_dealloc_pd(pd), 0);
    }
}

#[test]
fn reregistering_answers_where_it_failed() {
    let open = Open::new();
    let (pd, other) = (open.pd(), open.pd());
    let mut buf = buffer();
    let addr = buf.as_mut_ptr().cast::<c_void>();
    const TRANSLATION: c_int = IBV_REREG_MR_CHANGE_TRANSLATION as c_int;
    unsafe {
        let region = mr::ibv_reg_mr(pd, addr, 4096, RW);
        let lkey = (*region).lkey;
        let rereg = |flags: c_int, pd, addr, len, access| {
            mr::ibv_rereg_mr(region, flags, pd, addr, len, access)
        };
        assert_eq!(rereg(8, pd, addr, 4096, 0), IBV_REREG_MR_ERR_INPUT);
        assert_eq!(rereg(TRANSLATION, pd, addr, 0, 0), IBV_REREG_MR_ERR_INPUT);
        assert_eq!(rereg(TRANSLATION, pd, null_mut(), 1, 0), IBV_REREG_MR_ERR_INPUT);
        assert_eq!(rereg(TRANSLATION, pd, addr, 4096, RW), IBV_REREG_MR_ERR_INPUT);
        assert_eq!((rereg(0, pd, addr, 0, 0), errno()), (IBV_REREG_MR_ERR_CMD, EINVAL));
        let nowhere = std::ptr::without_provenance_mut(4096);
        assert_eq!(
            (rereg(TRANSLATION, pd, nowhere, 1, 0), errno()),
            (IBV_REREG_MR_ERR_CMD, EFAULT)
        );
        assert_eq!((*region).addr, addr, "a failure changes nothing");
        let flags = TRANSLATION | IBV_REREG_MR_CHANGE_PD as c_int;
        assert_eq!(rereg(flags, other, addr.byte_add(16), 8000, 0), 0);
        assert_eq!(((*region).pd, (*region).addr), (other, addr.byte_add(16)));
        assert_eq!(((*region).length, (*region).lkey), (8000, lkey));
        assert_eq!(pd::ibv_dealloc_pd(pd), 0, "the region left this domain");
        assert_eq!(pd::ibv_dealloc_pd(other), EBUSY);
        assert_eq!(mr::ibv_dereg_mr(region), 0);
        let null = mr::alloc_null_mr(other);
        assert_eq!(((*null).length, (*null).rkey), (usize::MAX, 0));
        assert_eq!(mr::ibv_rereg_mr(null, TRANSLATION, other, addr, 8, 0), IBV_REREG_MR_ERR_INPUT);
        assert_eq!(pd::ibv_dealloc_pd(other), 0, "a null region does not keep it busy");
        assert_eq!(mr::ibv_dereg_mr(null), 0);
    }
}

#[test]
fn prefetch_is_for_on_demand_regions_of_the_domain() {
    let open = Open::new();
    let (pd, other) = (open.pd(), open.pd());
    let mut buf = buffer();
    let addr = buf.as_mut_ptr().cast::<c_void>();
    let odp = IBV_ACCESS_ON_DEMAND as c_int;
    unsafe {
        let plain = mr::ibv_reg_mr(pd, addr, 8192, RW);
        let readable = mr::ibv_reg_mr(pd, addr, 8192, odp);
        let whole = mr::ibv_reg_mr(pd, null_mut(), usize::MAX, odp | RW);
        let advise = |pd, advice, flags, lkey, at: u64, length| {
            let mut sge = ibv_sge { addr: at, length, lkey };
            mr::advise_mr(pd, advice, flags, &raw mut sge, 1)
        };
        let (read, write) = (IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE);
        let (now, at) = (IBV_ADVISE_MR_FLAG_FLUSH, addr as u64);
        assert_eq!(advise(pd, read, now, (*readable).lkey, at, 8192), 0);
        assert_eq!(advise(pd, read, now, (*readable).lkey, at, 8193), EFAULT);
        assert_eq!(advise(pd, write, now, (*readable).lkey, at, 8), EPERM);
        assert_eq!(advise(other, read, now, (*readable).lkey, at, 8), EPERM);
        assert_eq!(advise(pd, read, now, (*readable).lkey ^ 1, at, 8), ENOENT);
        assert_eq!(advise(pd, read, now, (*plain).lkey, at, 8), ENOENT, "mlx5 finds no such key");
        let (plain_key, odp_key) = ((*plain).lkey, (*readable).lkey);
        assert_eq!(advise(pd, read, 0, plain_key, at, 8), 0, "a hint about resident pages");
        assert_eq!(
            advise(pd, read, 0, odp_key, at, 8193),
            0,
            "a hint is not checked against the bounds"
        );
        assert_eq!(advise(other, read, 0, plain_key, at, 8), EPERM);
        assert_eq!(advise(pd, write, 0, odp_key, at, 8), EPERM);
        assert_eq!(advise(pd, read, 0, odp_key ^ 1, at, 8), ENOENT);
        assert_eq!(advise(pd, read, 2, (*readable).lkey, at, 8), EINVAL);
        assert_eq!(advise(pd, write, now, (*whole).lkey, at, 8192), 0);
        assert_eq!(
            advise(pd, write, now, (*whole).lkey, 4096, 8),
            EFAULT,
            "nothing is mapped there"
        );
        assert_eq!(advise(pd, write, 0, (*whole).lkey, 4096, 8), 0, "without waiting it is a hint");
        assert_eq!(mr::advise_mr(pd, read, now, null_mut(), 0), EINVAL);
        for region in [plain, readable, whole] {
            assert_eq!(mr::ibv_dereg_mr(region), 0);
        }
        assert_eq!((pd::ibv_dealloc_pd(pd), pd::ibv_dealloc_pd(other)), (0, 0));
    }
}

#[test]
fn buffers_are_registered_within_their_bounds() {
    let open = Open::new();
    let (pd, other) = (open.pd(), open.pd());
    unsafe {
        let mut buf = null_mut();
        let addr = buf::ibv_alloc_buf(pd, 10_000, &raw mut buf);
        assert!(!addr.is_null());
        addr.cast::<u8>().add(9_999).write(1);
        refused(buf::ibv_reg_buf_mr(other, buf, addr, 10_000, RW), EINVAL);
        refused(buf::ibv_reg_buf_mr(pd, buf, addr, 10_001, RW), EINVAL);
        refused(buf::ibv_reg_buf_mr(pd, buf, addr.byte_sub(1), 2, RW), EINVAL);
        let region = buf::ibv_reg_buf_mr(pd, buf, addr.byte_add(1), 9_999, RW);
        assert!(!region.is_null());
        assert_eq!((buf::ibv_export_buf_dmabuf_fd(buf), errno()), (-1, ENODATA));
        assert_eq!(mr::ibv_dereg_mr(region), 0);
        buf::ibv_free_buf(buf);
        assert_eq!((pd::ibv_dealloc_pd(pd), pd::ibv_dealloc_pd(other)), (0, 0));
    }
}

#[test]
fn device_memory_is_reached_in_words_and_within_bounds() {
    let open = Open::new();
    let pd = open.pd();
    unsafe {
        let alloc = |length, comp_mask| {
            let mut attr = ibv_alloc_dm_attr { length, log_align_req: 0, comp_mask };
            dm::alloc_dm(open.0, &raw mut attr)
        };
        refused(alloc(100, 1), EINVAL);
        refused(alloc(usize::MAX, 0), EINVAL);
        let memory = alloc(100, 0);
        let (to, from) = ((*memory).memcpy_to_dm.unwrap(), (*memory).memcpy_from_dm.unwrap());
        let mut host = [7_u8; 104];
        assert_eq!(to(memory, 96, host.as_ptr().cast(), 4), 0);
        for (offset, len) in [(3, 4), (4, 3), (104, 4), (0, 104)] {
            assert_eq!(to(memory, offset, host.as_ptr().cast(), len), EINVAL, "{offset} {len}");
            assert_eq!(
                from(host.as_mut_ptr().cast(), memory, offset, len),
                EINVAL,
                "{offset} {len}"
            );
        }
        assert_eq!(from(host.as_mut_ptr().cast(), memory, 92, 8), 0);
        assert_eq!(host[..8], [0, 0, 0, 0, 7, 7, 7, 7]);
        let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED;
        refused(dm::reg_dm_mr(pd, memory, 4, 100, access), EINVAL);
        let region = dm::reg_dm_mr(pd, memory, 4, 96, access);
        assert!(!region.is_null());
        assert_eq!(dm::free_dm(memory), EBUSY);
        assert_eq!(mr::ibv_dereg_mr(region), 0);
        assert_eq!(dm::free_dm(memory), 0);
        assert_eq!(pd::ibv_dealloc_pd(pd), 0);
    }
}

#[test]
fn windows_have_a_type_and_a_key() {
    let open = Open::new();
    let pd = open.pd();
    unsafe {
        refused(mw::alloc_mw(pd, 3), EINVAL);
        let window = mw::alloc_mw(pd, IBV_MW_TYPE_1);
        assert_eq!(((*window).pd, (*window).type_), (pd, IBV_MW_TYPE_1));
        assert_ne!((*window).rkey, 0);
        assert_eq!(pd::ibv_dealloc_pd(pd), EBUSY);
        assert_eq!(mw::dealloc_mw(window), 0);
        assert_eq!(pd::ibv_dealloc_pd(pd), 0);
    }
}
