use crate::Rights;
use crate::testing::pair;

#[test]
#[allow(unsafe_code, reason = "it registers memory of its own")]
fn memory_of_the_program_is_a_buffer_like_any_other() {
    let (a, b) = pair().unwrap();
    let memory = Box::into_raw(vec![0u8; 4096].into_boxed_slice());
    // SAFETY: the memory is leaked above and taken back after the buffer has ended. Nothing
    // refers to the memory meanwhile.
    let buffer =
        unsafe { b.pd.reg_raw(memory.cast(), 4096, Rights::LOCAL.remote_write()) }.unwrap();
    assert_eq!((buffer.addr(), buffer.len()), (memory.cast::<u8>() as u64, 4096));
    a.qp.write("into a box", buffer.remote().slice(100..)).post().unwrap();
    a.completion().unwrap();
    assert_eq!(buffer.to_vec(100..110).unwrap(), b"into a box");
    let remote = buffer.remote();
    buffer.destroy().unwrap();
    // SAFETY: the pointer is from a box, and the registration has ended.
    let memory = unsafe { Box::from_raw(memory) };
    a.qp.write("too late", remote).post().unwrap();
    assert!(a.completion().is_err());
    assert_eq!(memory[..8], [0; 8]);
    assert_eq!(&memory[100..110], b"into a box");
}

#[test]
#[allow(unsafe_code, reason = "it registers what is not there")]
fn memory_that_is_not_there_is_refused() {
    let (a, _b) = pair().unwrap();
    // SAFETY: nothing is mapped at this address. The call notices that and registers nothing.
    let refused =
        unsafe { a.pd.reg_raw(std::ptr::without_provenance_mut(4096), 4096, Rights::LOCAL) };
    assert_eq!(refused.unwrap_err().errno(), 14, "EFAULT");
}

#[test]
fn lent_memory_is_written_while_the_call_runs_and_not_behind_it() {
    let (a, b) = pair().unwrap();
    let mut memory = [0u8; 100];
    let remote =
        b.pd.lend(&mut memory[1..], Rights::LOCAL.remote_write(), |lent| {
            a.qp.write("in time", lent.slice(10..20).remote()).post().unwrap();
            a.completion().unwrap();
            lent.remote()
        })
        .unwrap();
    assert_eq!(&memory[11..18], b"in time");
    a.qp.write("too late", remote).post().unwrap();
    assert!(a.completion().is_err());
    assert_eq!(memory[1..9], [0; 8]);
}

#[test]
fn lent_memory_comes_back_from_a_panic() {
    let (a, b) = pair().unwrap();
    let mut memory = vec![0u8; 64];
    let mut remote = None;
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        b.pd.lend(&mut memory, Rights::LOCAL.remote_write(), |lent| {
            remote = Some(lent.remote());
            panic!("as a test");
        })
    }));
    assert!(panicked.is_err());
    a.qp.write("too late", remote.unwrap()).post().unwrap();
    assert!(a.completion().is_err());
    assert_eq!(memory, [0; 64]);
}

#[test]
fn windows_cannot_outlive_the_loan() {
    let (a, _b) = pair().unwrap();
    let refused = a.pd.lend(&mut [0; 8], Rights::ALL, |_| panic!("not called"));
    assert_eq!(refused.unwrap_err().errno(), 22, "EINVAL");
}
