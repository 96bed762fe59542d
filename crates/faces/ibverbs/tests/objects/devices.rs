//! Devices: their lists, attributes, GIDs and files; objects taken over from another process.
use std::ffi::{CStr, c_char};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::ptr::{null, null_mut};

use super::rig::*;
use ibverbs::abi::*;
use ibverbs::pure::sysfs::ibv_read_sysfs_file;
use ibverbs::verbs::{attributes, device, import, mr, pd, port};
use libc::{EBUSY, EINVAL, ENODATA, ENOENT};

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
    assert_eq!(unsafe { attributes::ibv_query_device(a.0, &raw mut attr) }, 0);
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
    assert_eq!(unsafe { port::ibv_query_port(open.0, PORT, attr) }, 0);
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
        port::_ibv_query_gid_table(open.0, rows, n, flags, size)
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
        port::_ibv_query_gid_ex(open.0, port, index, row, flags, size)
    };
    assert_eq!(one(row.as_mut_ptr(), 1, 0, 0), 0);
    assert_eq!(one(row.as_mut_ptr(), 1, 63, 0), ENODATA);
    assert_eq!(one(row.as_mut_ptr(), 1, 64, 0), EINVAL);
    assert_eq!(one(row.as_mut_ptr(), 257, 0, 0), EINVAL, "a port number is not cut to a byte");
    assert_eq!(one(row.as_mut_ptr(), 1, 0, 1), EINVAL);
    unsafe {
        let mut gid = ibv_gid { raw: [1; 16] };
        assert_eq!(port::ibv_query_gid(open.0, PORT, 63, &raw mut gid), 0);
        assert_eq!(gid.raw, [0; 16], "an empty row is zeros");
        assert_eq!((port::ibv_query_gid(open.0, PORT, 64, &raw mut gid), errno()), (-1, EINVAL));
        assert_eq!((port::ibv_query_gid(open.0, PORT, -1, &raw mut gid), errno()), (-1, EINVAL));
        let mut kind = 9;
        assert_eq!(port::ibv_query_gid_type(open.0, PORT, 0, &raw mut kind), 0);
        assert_eq!(kind, 1);
        let mut pkey = 0;
        assert_eq!(port::ibv_query_pkey(open.0, PORT, 0, &raw mut pkey), 0);
        assert_eq!(pkey, 0xffff);
        assert_eq!((port::ibv_query_pkey(open.0, PORT, 1, &raw mut pkey), errno()), (-1, EINVAL));
        assert_eq!(port::ibv_get_pkey_index(open.0, PORT, pkey), 0);
        assert_eq!(port::ibv_get_pkey_index(open.0, PORT, 1), -1);
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
    assert_eq!(
        read(c"ports/1/gids/15").as_deref(),
        Some("0000:0000:0000:0000:0000:0000:0000:0000")
    );
    assert_eq!(read(c"ports/2/state"), None);
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
