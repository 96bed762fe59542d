use super::*;
use crate::Pages;

/// The mapping at an address, by both methods.
fn both(addr: u64) -> [Option<Vma>; 2] {
    [Maps::open().unwrap(), Maps::open_old().unwrap()].map(|maps| maps.first(addr, addr + 1))
}

#[test]
fn both_ways_say_the_same() {
    let pages = Pages::new(3 * 4096).unwrap();
    let stack = 0_u8;
    let code = both_ways_say_the_same as *const () as u64;
    for addr in [pages.addr(), &raw const stack as u64, code] {
        // A concurrent test may map memory next to this mapping and so extend it.
        let mut ways = (0..1000).map(|_| both(addr));
        let [new, _] = ways.find(|[new, old]| new == old).expect("both ways say the same");
        assert!(new.is_some_and(|vma| (vma.start..vma.end).contains(&addr)));
    }
    assert_eq!(both(4096), [None, None]);
    let vma = both(code)[0].unwrap();
    assert_eq!((vma.flags & (READ | EXEC | WRITE), vma.file.inode != 0), (READ | EXEC, true));
}

#[test]
fn lines_of_the_kernel() {
    let text = b"7ffff7fc1000-7ffff7fc3000 r-xp 00000000 00:00 0                          [vdso]\n\
        7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0                          [stack]\n\
        555555559000-55555557a000 rw-p 00000000 00:00 0                          [heap]\n\
        7f0000000000-7f0000001000 rw-s 7f0000000000 00:01 1042                  /memfd:adverb (deleted)\n\
        7f0000002000-7f0000003000 ---p 00000000 00:00 0 \n\
        7f0000004000-7f0000005000 rw-p 00000000 00:00 0                          [anon: glibc: malloc]\n\
        not a line\n";
    let all: Vec<_> = text.split(|b| *b == b'\n').filter_map(parse_line).collect();
    assert_eq!(all.len(), 6);
    let file = all[3];
    assert_eq!(
        (file.offset, file.file),
        (0x7f00_0000_0000, FileId { major: 0, minor: 1, inode: 1042 })
    );
    assert!(file.shares(file.file) && !file.shares(FileId { minor: 2, ..file.file }));
    assert_eq!((all[4].flags, all[3].flags), (0, READ | WRITE | SHARED));
    assert_eq!(all[0].prot(), libc::PROT_READ | libc::PROT_EXEC);
}
