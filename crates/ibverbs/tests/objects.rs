//! Objects through the C entry points: what they answer, write and refuse.
#![allow(unsafe_code, reason = "it calls the C ABI")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "every call here keeps the contract of its manual page: live handles, valid places"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use ibverbs::abi::*;
use ibverbs::handles::live;
use ibverbs::pure::sysfs::ibv_read_sysfs_file;
use ibverbs::verbs::{
    ah, async_event, comp_channel, cq, device, dm, dmabuf, import, mr, mw, pd, port, qp, srq, xrcd,
};
use libc::{EAGAIN, EBADF, EBUSY, EFAULT, EINVAL, ENODATA, ENOENT, ENOMEM, EOPNOTSUPP, EPERM};

const PORT: u8 = 1;
const RW: c_int = (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE) as c_int;

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

#[track_caller]
fn refused<T>(pointer: *mut T, code: c_int) {
    let now = errno();
    assert!(pointer.is_null(), "it was not refused");
    assert_eq!(now, code);
}

fn zeroed<T: Plain>() -> T {
    T::zeroed()
}

/// The loopback device, opened.
struct Open(*mut ibv_context);

impl Open {
    fn new() -> Self {
        let mut n = -1;
        unsafe {
            let list = device::ibv_get_device_list(&raw mut n);
            assert!(!list.is_null() && n > 0, "no device");
            let devices = std::slice::from_raw_parts(list, n as usize);
            let name =
                |d: &&*mut ibv_device| CStr::from_ptr(device::ibv_get_device_name(**d)) == c"adverb_lo";
            let lo = devices.iter().find(name).expect("the loopback device");
            let context = device::ibv_open_device(*lo);
            assert!(!context.is_null());
            assert!((*list.add(n as usize)).is_null(), "the list ends with null");
            device::ibv_free_device_list(list);
            Open(context)
        }
    }
    fn pd(&self) -> *mut ibv_pd {
        let pd = unsafe { pd::ibv_alloc_pd(self.0) };
        assert!(!pd.is_null());
        pd
    }
    fn table(&self) -> &verbs_context {
        unsafe { &*self.0.byte_sub(std::mem::offset_of!(verbs_context, context)).cast() }
    }
    /// Index of the GID of 127.0.0.1.
    fn ipv4_gid(&self) -> u8 {
        let wanted = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1];
        (0..16)
            .find(|&i| {
                let mut gid = ibv_gid { raw: [1; 16] };
                assert_eq!(unsafe { device::ibv_query_gid(self.0, PORT, i, &raw mut gid) }, 0);
                unsafe { gid.raw == wanted }
            })
            .expect("127.0.0.1 has a GID") as u8
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        assert_eq!(unsafe { device::ibv_close_device(self.0) }, 0);
    }
}

fn text(field: &[c_char]) -> String {
    unsafe { CStr::from_ptr(field.as_ptr()) }.to_str().unwrap().to_owned()
}

#[test]
fn a_device_outlives_its_list_and_keeps_its_address() {
    let (a, b) = (Open::new(), Open::new());
    let (da, db) = unsafe { ((*a.0).device, (*b.0).device) };
    assert_eq!(da, db, "one device, one address");
    drop(b);
    let d = unsafe { &*da };
    assert_eq!(text(&d.name), "adverb_lo");
    assert_eq!(text(&d.ibdev_path), "/sys/class/infiniband/adverb_lo");
    let index = unsafe { device::ibv_get_device_index(da) };
    assert_eq!(text(&d.dev_name), format!("uverbs{index}"));
    assert_eq!(text(&d.dev_path), format!("/sys/class/infiniband_verbs/uverbs{index}"));
    assert_eq!((d.node_type, d.transport_type), (IBV_NODE_CA, IBV_TRANSPORT_IB));
    // The word behind the device, which providers' libraries read.
    assert_eq!(unsafe { da.byte_add(664).cast::<usize>().read() }, 0);
    let mut attr = zeroed::<ibv_device_attr>();
    assert_eq!(unsafe { device::ibv_query_device(a.0, &raw mut attr) }, 0);
    assert_eq!(attr.node_guid, unsafe { device::ibv_get_device_guid(da) });
    assert_ne!(attr.node_guid, 0);
    // Null is allowed for the number.
    unsafe { device::ibv_free_device_list(device::ibv_get_device_list(null_mut())) };
}

#[test]
fn sizes_passed_by_the_program_are_honoured() {
    let open = Open::new();
    let query = open.table().query_device_ex.unwrap();
    const OLD: usize = 376;
    let mut raw = [0xa5_u8; size_of::<ibv_device_attr_ex>() + 16];
    let attr = raw.as_mut_ptr().cast::<ibv_device_attr_ex>();
    let short = size_of::<ibv_device_attr>() - 1;
    let input = ibv_query_device_ex_input { comp_mask: 1 };
    unsafe {
        assert_eq!(query(open.0, null(), attr, short), EINVAL);
        assert_eq!(query(open.0, &raw const input, attr, OLD), EINVAL);
        assert_eq!(query(open.0, null(), attr, OLD), 0);
    }
    assert!(raw[OLD..].iter().all(|&b| b == 0xa5), "written beyond the size of version 17");
    let len = raw.len();
    assert_eq!(unsafe { query(open.0, null(), attr, len) }, 0);
    assert!(
        raw[size_of::<ibv_device_attr_ex>()..].iter().all(|&b| b == 0),
        "a newer program's fields are zero"
    );

    let mut raw = [0xa5_u8; 64];
    let attr = raw.as_mut_ptr().cast::<ibv_port_attr>();
    assert_eq!(unsafe { device::ibv_query_port(open.0, PORT, attr) }, 0);
    assert_eq!(unsafe { (*attr).state }, IBV_PORT_ACTIVE);
    assert!(raw[COMPAT_PORT_ATTR_SIZE..].iter().all(|&b| b == 0xa5), "written beyond the old size");
    let query = open.table().query_port.unwrap();
    unsafe {
        assert_eq!(query(open.0, PORT, attr, 52), 0);
        assert_eq!(query(open.0, 2, attr, 52), EINVAL);
        assert_eq!(query(open.0, 0, attr, 52), EINVAL);
    }
    assert!(raw[52..].iter().all(|&b| b == 0xa5));
}

#[test]
fn the_gid_table_has_valid_and_empty_rows() {
    let open = Open::new();
    let size = size_of::<ibv_gid_entry>();
    let mut rows = [zeroed::<ibv_gid_entry>(); 17];
    let table = |rows: *mut ibv_gid_entry, n, flags| unsafe {
        device::_ibv_query_gid_table(open.0, rows, n, flags, size)
    };
    let n = table(rows.as_mut_ptr(), 16, 0);
    assert!((1..16).contains(&n), "{n} rows");
    assert_eq!(table(rows.as_mut_ptr(), n as usize - 1, 0), -(EINVAL as isize));
    assert_eq!(table(rows.as_mut_ptr(), 16, 1), -(EINVAL as isize));
    for row in &rows[..n as usize] {
        assert_eq!((row.gid_type, row.port_num), (IBV_GID_TYPE_ROCE_V2, 1));
        assert_ne!(row.ndev_ifindex, 0);
    }
    let mut row = [zeroed::<ibv_gid_entry>(); 2];
    let one = |row: *mut ibv_gid_entry, port, index, flags| unsafe {
        device::_ibv_query_gid_ex(open.0, port, index, row, flags, size)
    };
    assert_eq!(one(row.as_mut_ptr(), 1, 0, 0), 0);
    assert_eq!(one(row.as_mut_ptr(), 1, 15, 0), ENODATA);
    assert_eq!(one(row.as_mut_ptr(), 1, 16, 0), EINVAL);
    assert_eq!(one(row.as_mut_ptr(), 257, 0, 0), EINVAL, "a port number is not cut to a byte");
    assert_eq!(one(row.as_mut_ptr(), 1, 0, 1), EINVAL);
    unsafe {
        let mut gid = ibv_gid { raw: [1; 16] };
        assert_eq!(device::ibv_query_gid(open.0, PORT, 15, &raw mut gid), 0);
        assert_eq!(gid.raw, [0; 16], "an empty row is zeros");
        assert_eq!((device::ibv_query_gid(open.0, PORT, 16, &raw mut gid), errno()), (-1, EINVAL));
        assert_eq!((device::ibv_query_gid(open.0, PORT, -1, &raw mut gid), errno()), (-1, EINVAL));
        let mut kind = 9;
        assert_eq!(device::ibv_query_gid_type(open.0, PORT, 0, &raw mut kind), 0);
        assert_eq!(kind, 1);
        let mut pkey = 0;
        assert_eq!(device::ibv_query_pkey(open.0, PORT, 0, &raw mut pkey), 0);
        assert_eq!(pkey, 0xffff);
        assert_eq!((device::ibv_query_pkey(open.0, PORT, 1, &raw mut pkey), errno()), (-1, EINVAL));
        assert_eq!(device::ibv_get_pkey_index(open.0, PORT, pkey), 0);
        assert_eq!(device::ibv_get_pkey_index(open.0, PORT, 1), -1);
    }
}

#[test]
fn sysfs_files_of_a_device_are_answered_by_the_library() {
    let open = Open::new();
    let dir = unsafe { (&raw const (*(*open.0).device).ibdev_path).cast::<c_char>() };
    let read = |file: &CStr| {
        let mut buf = [0_u8; 64];
        let n = unsafe { ibv_read_sysfs_file(dir, file.as_ptr(), buf.as_mut_ptr().cast(), 64) };
        (n >= 0).then(|| String::from_utf8_lossy(&buf[..n as usize]).into_owned())
    };
    assert_eq!(read(c"board_id").as_deref(), Some("adverb"));
    assert_eq!(read(c"ports/1/gid_attrs/types/0").as_deref(), Some("RoCE v2"));
    assert_eq!(read(c"ports/1/gid_attrs/ndevs/0").as_deref(), Some("lo"));
    assert_eq!(read(c"ports/1/gids/15").as_deref(), Some("0000:0000:0000:0000:0000:0000:0000:0000"));
    assert_eq!(read(c"ports/2/state"), None);
}

/// A free-standing buffer to register.
fn buffer() -> Box<[u8; 8192]> {
    Box::new([0; 8192])
}

#[test]
fn registrations_are_checked() {
    let open = Open::new();
    let pd = open.pd();
    let mut buf = buffer();
    let addr = buf.as_mut_ptr().cast::<c_void>();
    let reg = |addr, len, access: u32| unsafe { mr::ibv_reg_mr_iova2(pd, addr, len, addr as u64, access) };
    refused(reg(addr, 8192, 1 << 15), EINVAL);
    refused(reg(addr, 8192, IBV_ACCESS_REMOTE_WRITE), EINVAL);
    refused(reg(addr, 0, IBV_ACCESS_REMOTE_WRITE), EINVAL);
    refused(reg(std::ptr::without_provenance_mut(4096), 4096, 0), EFAULT);
    refused(unsafe { dmabuf::ibv_reg_dmabuf_mr(pd, 0, 1, 0, -1, 0) }, EBADF);
    for (at, access) in [(addr, IBV_ACCESS_LOCAL_WRITE), (null_mut(), 0)] {
        let empty = reg(at, 0, access);
        assert!(!empty.is_null(), "a region may have no bytes");
        unsafe { assert_eq!(((*empty).addr, (*empty).length, mr::ibv_dereg_mr(empty)), (at, 0, 0)) };
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
        let rereg =
            |flags: c_int, pd, addr, len, access| mr::ibv_rereg_mr(region, flags, pd, addr, len, access);
        assert_eq!(rereg(8, pd, addr, 4096, 0), IBV_REREG_MR_ERR_INPUT);
        assert_eq!(rereg(TRANSLATION, pd, addr, 0, 0), IBV_REREG_MR_ERR_INPUT);
        assert_eq!(rereg(TRANSLATION, pd, null_mut(), 1, 0), IBV_REREG_MR_ERR_INPUT);
        assert_eq!(rereg(TRANSLATION, pd, addr, 4096, RW), IBV_REREG_MR_ERR_INPUT);
        assert_eq!((rereg(0, pd, addr, 0, 0), errno()), (IBV_REREG_MR_ERR_CMD, EINVAL));
        let nowhere = std::ptr::without_provenance_mut(4096);
        assert_eq!((rereg(TRANSLATION, pd, nowhere, 1, 0), errno()), (IBV_REREG_MR_ERR_CMD, EFAULT));
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
        assert_eq!(advise(pd, read, now, (*plain).lkey, at, 8), EINVAL);
        assert_eq!(advise(pd, read, 2, (*readable).lkey, at, 8), EINVAL);
        assert_eq!(advise(pd, write, now, (*whole).lkey, at, 8192), 0);
        assert_eq!(advise(pd, write, now, (*whole).lkey, 4096, 8), EFAULT, "nothing is mapped there");
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
        let addr = mr::ibv_alloc_buf(pd, 10_000, &raw mut buf);
        assert!(!addr.is_null());
        addr.cast::<u8>().add(9_999).write(1);
        refused(mr::ibv_reg_buf_mr(other, buf, addr, 10_000, RW), EINVAL);
        refused(mr::ibv_reg_buf_mr(pd, buf, addr, 10_001, RW), EINVAL);
        refused(mr::ibv_reg_buf_mr(pd, buf, addr.byte_sub(1), 2, RW), EINVAL);
        let region = mr::ibv_reg_buf_mr(pd, buf, addr.byte_add(1), 9_999, RW);
        assert!(!region.is_null());
        assert_eq!((mr::ibv_export_buf_dmabuf_fd(buf), errno()), (-1, ENODATA));
        assert_eq!(mr::ibv_dereg_mr(region), 0);
        mr::ibv_free_buf(buf);
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
            assert_eq!(from(host.as_mut_ptr().cast(), memory, offset, len), EINVAL, "{offset} {len}");
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
fn objects_are_taken_over_by_handle_on_the_same_device_file() {
    let (open, stranger) = (Open::new(), Open::new());
    let pd = open.pd();
    let mut buf = buffer();
    unsafe {
        refused(import::ibv_import_device(-1), libc::EBADF);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        refused(import::ibv_import_device(socket.as_raw_fd()), EINVAL);
        drop(socket);
        let region = mr::ibv_reg_mr(pd, buf.as_mut_ptr().cast(), 8192, RW);
        let imported = import::ibv_import_device(libc::dup((*open.0).cmd_fd));
        assert!(!imported.is_null());
        assert_ne!((*imported).async_fd, (*open.0).async_fd, "each has its own events");
        refused(import::ibv_import_pd(stranger.0, (*pd).handle), ENOENT);
        refused(import::ibv_import_pd(imported, 0xdead_beef), ENOENT);
        let pd2 = import::ibv_import_pd(imported, (*pd).handle);
        assert_eq!(((*pd2).context, (*pd2).handle), (imported, (*pd).handle));
        let mr2 = import::ibv_import_mr(pd2, (*region).handle);
        assert_eq!(((*mr2).lkey, (*mr2).rkey), ((*region).lkey, (*region).rkey));
        assert!((*mr2).addr.is_null() && (*mr2).length == 0);
        // Objects made through the imported domain hold the domain itself.
        let mine = mr::ibv_reg_mr(pd2, buf.as_mut_ptr().cast(), 16, 0);
        import::ibv_unimport_mr(mr2);
        assert_eq!(mr::ibv_dereg_mr(region), 0);
        assert_eq!(pd::ibv_dealloc_pd(pd), EBUSY);
        assert_eq!(mr::ibv_dereg_mr(mine), 0);
        import::ibv_unimport_pd(pd2);
        assert_eq!(pd::ibv_dealloc_pd(pd), 0);
        assert_eq!(device::ibv_close_device(imported), 0);
    }
}

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn alloc(
    _pd: *mut ibv_pd,
    context: *mut c_void,
    size: usize,
    _: usize,
    _: u64,
) -> *mut c_void {
    match context as usize {
        0 => null_mut(),
        1 => IBV_ALLOCATOR_USE_DEFAULT,
        _ => {
            ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
            unsafe { libc::calloc(1, size) }
        }
    }
}

unsafe extern "C" fn free(_pd: *mut ibv_pd, _context: *mut c_void, memory: *mut c_void, _: u64) {
    ALLOCATIONS.fetch_sub(1, Ordering::SeqCst);
    unsafe { libc::free(memory) };
}

fn parent(open: &Open, below: *mut ibv_pd, td: *mut ibv_td, context: usize) -> *mut ibv_pd {
    let mut attr = ibv_parent_domain_init_attr {
        pd: below,
        td,
        comp_mask: IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
        alloc: Some(alloc),
        free: Some(free),
        pd_context: std::ptr::without_provenance_mut(context),
    };
    unsafe { pd::alloc_parent_domain(open.0, &raw mut attr) }
}

fn srq_of(pd: *mut ibv_pd) -> *mut ibv_srq {
    let mut attr = zeroed::<ibv_srq_init_attr>();
    (attr.attr.max_wr, attr.attr.max_sge) = (10, 1);
    unsafe { srq::ibv_create_srq(pd, &raw mut attr) }
}

#[test]
fn parent_domains_use_the_programs_allocator() {
    let open = Open::new();
    let below = open.pd();
    unsafe {
        let mut td_attr = ibv_td_init_attr { comp_mask: 0 };
        let td = pd::alloc_td(open.0, &raw mut td_attr);
        let (full, default, own) = (
            parent(&open, below, td, 0),
            parent(&open, below, null_mut(), 1),
            parent(&open, below, null_mut(), 2),
        );
        refused(parent(&open, null_mut(), null_mut(), 2), EINVAL);
        assert_eq!((*own).handle, (*below).handle);
        assert_eq!(pd::dealloc_td(td), EBUSY);
        assert_eq!(pd::ibv_dealloc_pd(below), EBUSY);
        refused(srq_of(full), ENOMEM);
        let queue = srq_of(default);
        assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), 0);
        assert_eq!(srq::ibv_destroy_srq(queue), 0);
        let queue = srq_of(own);
        assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), 1);
        assert_eq!((*queue).pd, own);
        assert_eq!(pd::ibv_dealloc_pd(own), EBUSY);
        assert_eq!(srq::ibv_destroy_srq(queue), 0);
        assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), 0);
        for domain in [full, default, own, below] {
            assert_eq!(pd::ibv_dealloc_pd(domain), 0);
        }
        assert_eq!(pd::dealloc_td(td), 0);
    }
}

#[test]
fn srqs_are_changed_and_queried() {
    let open = Open::new();
    let pd = open.pd();
    unsafe {
        let mut bad = zeroed::<ibv_srq_init_attr>();
        bad.attr.max_wr = 1 << 30;
        refused(srq::ibv_create_srq(pd, &raw mut bad), EINVAL);
        let queue = srq_of(pd);
        let mut attr = zeroed::<ibv_srq_attr>();
        assert_eq!(srq::ibv_query_srq(queue, &raw mut attr), 0);
        assert!(attr.max_wr >= 10 && attr.max_sge >= 1 && attr.srq_limit == 0);
        attr.srq_limit = 5;
        assert_eq!(srq::ibv_modify_srq(queue, &raw mut attr, 4), EINVAL);
        assert_eq!(srq::ibv_modify_srq(queue, &raw mut attr, IBV_SRQ_LIMIT as c_int), 0);
        attr.srq_limit = 0;
        assert_eq!(srq::ibv_query_srq(queue, &raw mut attr), 0);
        assert_eq!(attr.srq_limit, 5);
        let mut number = 0;
        assert_eq!(srq::get_srq_num(queue, &raw mut number), 0);
        assert_ne!(number, 0);
        let mut ex = zeroed::<ibv_srq_init_attr_ex>();
        (ex.attr.max_wr, ex.pd) = (10, pd);
        ex.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
        refused(srq::create_srq_ex(open.0, &raw mut ex), EINVAL);
        ex.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        ex.srq_type = IBV_SRQT_TM;
        refused(srq::create_srq_ex(open.0, &raw mut ex), EINVAL);
        ex.srq_type = IBV_SRQT_XRC;
        refused(srq::create_srq_ex(open.0, &raw mut ex), EINVAL);
        assert_eq!(srq::ibv_destroy_srq(queue), 0);
        assert_eq!(pd::ibv_dealloc_pd(pd), 0);
    }
}

#[test]
fn xrc_domains_of_a_file_follow_the_flags() {
    let open = Open::new();
    let path = std::env::temp_dir().join(format!("adverb-xrcd-{}", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let fd = file.into_raw_fd();
    let try_open = |fd, oflags, comp_mask| {
        let mut attr = ibv_xrcd_init_attr { comp_mask, fd, oflags };
        unsafe { xrcd::open_xrcd(open.0, &raw mut attr) }
    };
    const BOTH: u32 = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    refused(try_open(-1, libc::O_CREAT, IBV_XRCD_INIT_ATTR_FD), EINVAL);
    refused(try_open(-1, libc::O_CREAT, BOTH | 4), EOPNOTSUPP);
    refused(try_open(-1, libc::O_APPEND, BOTH), EINVAL);
    refused(try_open(fd, 0, BOTH), EAGAIN);
    refused(try_open(1 << 20, libc::O_CREAT, BOTH), libc::EBADF);
    let first = try_open(fd, libc::O_CREAT | libc::O_EXCL, BOTH);
    assert!(!first.is_null());
    refused(try_open(fd, libc::O_CREAT | libc::O_EXCL, BOTH), EINVAL);
    let second = try_open(fd, 0, BOTH);
    let anonymous = try_open(-1, libc::O_CREAT, BOTH);
    assert!(!second.is_null() && !anonymous.is_null());
    unsafe {
        for domain in [first, second, anonymous] {
            assert_eq!(xrcd::close_xrcd(domain), 0);
        }
        refused(try_open(fd, 0, BOTH), EAGAIN);
        libc::close(fd);
    }
}

#[test]
fn channels_and_events() {
    let open = Open::new();
    unsafe {
        let channel = comp_channel::ibv_create_comp_channel(open.0);
        let queue = cq::ibv_create_cq(open.0, 4, channel.cast(), channel, 0);
        assert!(!queue.is_null());
        // CHN-6.
        assert_eq!(comp_channel::ibv_destroy_comp_channel(channel), EBUSY);
        libc::fcntl((*channel).fd, libc::F_SETFL, libc::O_NONBLOCK);
        let (mut found, mut context) = (null_mut(), null_mut());
        let got = comp_channel::ibv_get_cq_event(channel, &raw mut found, &raw mut context);
        assert_eq!((got, errno()), (-1, EAGAIN));
        assert_eq!(cq::ibv_destroy_cq(queue), 0);
        assert_eq!(comp_channel::ibv_destroy_comp_channel(channel), 0);
        let mut event = zeroed::<ibv_async_event>();
        libc::fcntl((*open.0).async_fd, libc::F_SETFL, libc::O_NONBLOCK);
        assert_eq!((async_event::ibv_get_async_event(open.0, &raw mut event), errno()), (-1, EAGAIN));
    }
}

/// What providers refuse, and with which number.
#[test]
fn attributes_that_mean_nothing_are_refused() {
    let open = Open::new();
    let pd = open.pd();
    unsafe {
        let make = |comp_mask, flags, domain| {
            let mut attr = zeroed::<ibv_cq_init_attr_ex>();
            (attr.cqe, attr.comp_mask, attr.flags, attr.parent_domain) = (4, comp_mask, flags, domain);
            cq::create_cq_ex(open.0, &raw mut attr)
        };
        refused(make(1 << 5, 0, null_mut()), EINVAL);
        refused(make(IBV_CQ_INIT_ATTR_MASK_FLAGS, 1 << 5, null_mut()), EINVAL);
        refused(make(IBV_CQ_INIT_ATTR_MASK_PD, 0, pd), EINVAL);
        let queue = make(0, 1 << 5, pd).cast::<ibv_cq>();
        assert!(!queue.is_null(), "what the mask does not name is not looked at");
        let mut attr = zeroed::<ibv_modify_cq_attr>();
        attr.attr_mask = 1 << 5;
        assert_eq!((cq::modify_cq(queue, &raw mut attr), errno()), (EOPNOTSUPP, EOPNOTSUPP));
        let mut init = zeroed::<ibv_qp_init_attr>();
        (init.send_cq, init.recv_cq, init.qp_type) = (queue, queue, IBV_QPT_RC);
        (init.cap.max_send_wr, init.cap.max_send_sge) = (1, 1);
        let pair = qp::ibv_create_qp(pd, &raw mut init);
        let post = (*open.0).ops.post_send.unwrap();
        for (opcode, code) in [(99, EINVAL), (IBV_WR_TSO, EOPNOTSUPP)] {
            let (mut wr, mut bad) = (zeroed::<ibv_send_wr>(), null_mut());
            wr.opcode = opcode;
            assert_eq!((post(pair, &raw mut wr, &raw mut bad), errno()), (code, code));
            assert_eq!(bad, &raw mut wr);
        }
        assert_eq!((qp::ibv_destroy_qp(pair), cq::ibv_destroy_cq(queue)), (0, 0));
        assert_eq!(pd::ibv_dealloc_pd(pd), 0);
    }
}

/// A queue pair on an SRQ tells when it takes no more from it; destroying it waits for the
/// acknowledgement.
#[test]
fn an_asynchronous_event_names_its_queue_pair() {
    let open = Open::new();
    let pd = open.pd();
    unsafe {
        let (queue, srq) = (cq::ibv_create_cq(open.0, 4, null_mut(), null_mut(), 0), srq_of(pd));
        let mut init = zeroed::<ibv_qp_init_attr>();
        (init.send_cq, init.recv_cq, init.srq, init.qp_type) = (queue, queue, srq, IBV_QPT_RC);
        (init.cap.max_send_wr, init.cap.max_send_sge) = (1, 1);
        let pair = qp::ibv_create_qp(pd, &raw mut init);
        assert!(!pair.is_null());
        assert_eq!(srq::ibv_destroy_srq(srq), EBUSY);
        let mut attr = zeroed::<ibv_qp_attr>();
        (attr.qp_state, attr.port_num) = (IBV_QPS_INIT, PORT);
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        assert_eq!(qp::ibv_modify_qp(pair, &raw mut attr, mask as c_int), 0);
        attr.qp_state = IBV_QPS_ERR;
        assert_eq!(qp::ibv_modify_qp(pair, &raw mut attr, IBV_QP_STATE as c_int), 0);
        let mut event = zeroed::<ibv_async_event>();
        let mut fd = libc::pollfd { fd: (*open.0).async_fd, events: libc::POLLIN, revents: 0 };
        assert_eq!(libc::poll(&raw mut fd, 1, 2_000), 1, "no event");
        assert_eq!(async_event::ibv_get_async_event(open.0, &raw mut event), 0);
        assert_eq!((event.event_type, event.element.qp), (IBV_EVENT_QP_LAST_WQE_REACHED, pair));
        assert_eq!((*pair).events_completed, 0);
        async_event::ibv_ack_async_event(&raw mut event);
        assert_eq!((*pair).events_completed, 1, "CHN-9");
        assert_eq!(qp::ibv_destroy_qp(pair), 0);
        assert_eq!((srq::ibv_destroy_srq(srq), cq::ibv_destroy_cq(queue)), (0, 0));
        assert_eq!(pd::ibv_dealloc_pd(pd), 0);
    }
}

/// OBJ-7: a queue pair that fails by itself shows it to those who ask for its state, and nowhere
/// else. CHN-9: what was acknowledged is counted in the structure.
#[test]
fn obj_7_chn_9_the_structures_fields_follow_the_programs_own_calls() {
    let open = Open::new();
    let pd = open.pd();
    unsafe {
        let channel = comp_channel::ibv_create_comp_channel(open.0);
        let queue = cq::ibv_create_cq(open.0, 4, null_mut(), channel, 0);
        let mut init = zeroed::<ibv_qp_init_attr>();
        (init.send_cq, init.recv_cq, init.qp_type) = (queue, queue, IBV_QPT_RC);
        (init.cap.max_send_wr, init.cap.max_send_sge) = (1, 1);
        let pair = qp::ibv_create_qp(pd, &raw mut init);
        let mut attr = zeroed::<ibv_qp_attr>();
        (attr.qp_state, attr.port_num) = (IBV_QPS_INIT, PORT);
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        assert_eq!(qp::ibv_modify_qp(pair, &raw mut attr, mask as c_int), 0);
        (attr.qp_state, attr.path_mtu, attr.dest_qp_num) = (IBV_QPS_RTR, IBV_MTU_1024, (*pair).qp_num);
        (attr.ah_attr.is_global, attr.ah_attr.port_num) = (1, PORT);
        attr.ah_attr.grh.sgid_index = open.ipv4_gid();
        assert_eq!(
            port::ibv_query_gid(open.0, PORT, open.ipv4_gid().into(), &raw mut attr.ah_attr.grh.dgid),
            0
        );
        let mask = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        assert_eq!(qp::ibv_modify_qp(pair, &raw mut attr, mask as c_int), 0);
        (attr.qp_state, attr.timeout) = (IBV_QPS_RTS, 14);
        let mask = IBV_QP_STATE
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC;
        assert_eq!(qp::ibv_modify_qp(pair, &raw mut attr, mask as c_int), 0);
        assert_eq!((*pair).state, IBV_QPS_RTS);

        // A write that nobody allows: the queue pair fails.
        let context = &(*open.0).ops;
        assert_eq!((context.req_notify_cq.expect("an entry"))(queue, 0), 0);
        let mut wr = zeroed::<ibv_send_wr>();
        (wr.opcode, wr.send_flags) = (IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED);
        let mut bad = null_mut();
        assert_eq!((context.post_send.expect("an entry"))(pair, &raw mut wr, &raw mut bad), 0);
        let (mut of, mut own) = (null_mut(), null_mut());
        assert_eq!(comp_channel::ibv_get_cq_event(channel, &raw mut of, &raw mut own), 0);
        assert_eq!((of, (*queue).comp_events_completed), (queue, 0));
        comp_channel::ibv_ack_cq_events(queue, 1);
        assert_eq!((*queue).comp_events_completed, 1);
        assert_eq!((*pair).state, IBV_QPS_RTS, "nobody asked");
        assert_eq!(qp::ibv_query_qp(pair, &raw mut attr, IBV_QP_AV as c_int, &raw mut init), 0);
        assert_eq!((*pair).state, IBV_QPS_RTS, "nor now");
        assert_eq!(qp::ibv_query_qp(pair, &raw mut attr, IBV_QP_STATE as c_int, &raw mut init), 0);
        assert_eq!((attr.qp_state, (*pair).state), (IBV_QPS_ERR, IBV_QPS_ERR));
        assert_eq!((qp::ibv_destroy_qp(pair), cq::ibv_destroy_cq(queue)), (0, 0));
        assert_eq!((comp_channel::ibv_destroy_comp_channel(channel), pd::ibv_dealloc_pd(pd)), (0, 0));
    }
}

#[test]
fn events_name_a_living_handle_of_a_shared_queue_pair() {
    let open = Open::new();
    unsafe {
        let mut domain = zeroed::<ibv_xrcd_init_attr>();
        (domain.comp_mask, domain.fd, domain.oflags) = (3, -1, libc::O_CREAT);
        let xrcd = xrcd::open_xrcd(open.0, &raw mut domain);
        let mut init = zeroed::<ibv_qp_init_attr_ex>();
        (init.qp_type, init.comp_mask, init.xrcd) = (IBV_QPT_XRC_RECV, IBV_QP_INIT_ATTR_XRCD, xrcd);
        let first = qp::create_qp_ex(open.0, &raw mut init);
        assert!(!first.is_null());
        let mut attr = zeroed::<ibv_qp_open_attr>();
        attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD;
        (attr.qp_num, attr.xrcd) = ((*first).qp_num, xrcd);
        let [second, third] = [(); 2].map(|()| qp::open_qp(open.0, &raw mut attr));
        assert!(!second.is_null() && !third.is_null());
        let shared = live(third).unwrap().qp.clone();
        let named = || shared.cookie() as *mut ibv_qp;
        assert_eq!(named(), first);
        assert_eq!((qp::ibv_destroy_qp(first), named()), (0, second));
        assert_eq!((qp::ibv_destroy_qp(second), named()), (0, third));
        assert_eq!(qp::ibv_destroy_qp(third), 0);
        assert_eq!(xrcd::close_xrcd(xrcd), 0);
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

#[test]
fn addresses_come_from_attributes_and_from_datagrams() {
    let open = Open::new();
    let pd = open.pd();
    let gid = open.ipv4_gid();
    unsafe {
        let mut attr = zeroed::<ibv_ah_attr>();
        (attr.port_num, attr.grh.sgid_index) = (PORT, gid);
        attr.grh.dgid.raw = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 9];
        refused(ah::ibv_create_ah(pd, &raw mut attr), EINVAL);
        attr.is_global = 1;
        let handle = ah::ibv_create_ah(pd, &raw mut attr);
        assert!(!handle.is_null());
        assert_eq!(pd::ibv_dealloc_pd(pd), EBUSY);
        assert_eq!(ah::ibv_destroy_ah(handle), 0);
        let mut mac = [1_u8; 6];
        let mut vid = 0_u16;
        attr.grh.dgid.raw[15] = 1;
        assert_eq!(ah::ibv_resolve_eth_l2_from_gid(open.0, &raw mut attr, mac.as_mut_ptr(), &raw mut vid), 0);
        assert_eq!((mac, vid), ([0; 6], 0xffff), "the loopback interface has no address");

        // IPv4: from 127.0.0.7 to 127.0.0.1, TTL 64, TOS 0xb8.
        let mut area = [0_u8; 40];
        area[20..]
            .copy_from_slice(&[0x45, 0xb8, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0, 127, 0, 0, 7, 127, 0, 0, 1]);
        let mut wc = zeroed::<ibv_wc>();
        wc.wc_flags = IBV_WC_GRH;
        let from = |area: &mut [u8; 40], wc: &mut ibv_wc, attr: &mut ibv_ah_attr| {
            ah::ibv_init_ah_from_wc(open.0, PORT, &raw mut *wc, area.as_mut_ptr().cast(), &raw mut *attr)
        };
        assert_eq!(from(&mut area, &mut wc, &mut attr), 0);
        assert_eq!(attr.grh.dgid.raw[12..], [127, 0, 0, 7]);
        let grh = &attr.grh;
        assert_eq!((grh.sgid_index, grh.hop_limit, grh.traffic_class, attr.is_global), (gid, 64, 0xb8, 1));
        let handle = ah::ibv_create_ah_from_wc(pd, &raw mut wc, area.as_mut_ptr().cast(), PORT);
        assert!(!handle.is_null());
        assert_eq!(ah::ibv_destroy_ah(handle), 0);
        area[39] = 77;
        assert_eq!((from(&mut area, &mut wc, &mut attr), errno()), (-1, EINVAL), "sent to somebody else");
        area[20] = 0;
        assert_eq!((from(&mut area, &mut wc, &mut attr), errno()), (-1, libc::EPROTONOSUPPORT));
        // IPv6: from ::2 to ::1.
        let mut area = [0_u8; 40];
        area[..8].copy_from_slice(&[0x6b, 0x81, 0x23, 0x45, 0, 40, 17, 9]);
        (area[23], area[39]) = (2, 1);
        if from(&mut area, &mut wc, &mut attr) == 0 {
            assert_eq!(attr.grh.dgid.raw[15], 2);
            let grh = &attr.grh;
            assert_eq!((grh.hop_limit, grh.traffic_class, grh.flow_label), (9, 0xb8, 0x12345));
        } else {
            let mut gid = ibv_gid { raw: [0; 16] };
            let own = |i| {
                device::ibv_query_gid(open.0, PORT, i, &raw mut gid) == 0
                    && gid.raw[15] == 1
                    && gid.raw[..15] == [0; 15]
            };
            assert!(!(0..16).any(own), "::1 is a GID of the port");
        }
        assert_eq!(pd::ibv_dealloc_pd(pd), 0);
    }
}
