//! Runs every example: each asserts its own results and ends by itself.

macro_rules! examples {
    ($($name:ident $path:literal)*) => {
        $(
            #[path = $path]
            mod $name;

            #[test]
            fn $name() {
                $name::main().unwrap();
            }
        )*

        /// The list is complete.
        #[test]
        fn no_example_is_left_out() {
            let listed = [$(stringify!($name)),*];
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_stem().unwrap().to_str().unwrap();
                assert!(listed.contains(&name), "{name}");
            }
        }
    };
}

examples! {
    async_tokio "../examples/async_tokio.rs"
    atomics "../examples/atomics.rs"
    batch "../examples/batch.rs"
    connect "../examples/connect.rs"
    events_blocking "../examples/events_blocking.rs"
    events_nonblocking "../examples/events_nonblocking.rs"
    imm_inv "../examples/imm_inv.rs"
    inline "../examples/inline.rs"
    moderation "../examples/moderation.rs"
    mw "../examples/mw.rs"
    lost_wakeup "../examples/lost_wakeup.rs"
    peek "../examples/peek.rs"
    persistent "../examples/persistent.rs"
    read "../examples/read.rs"
    send_recv "../examples/send_recv.rs"
    srq "../examples/srq.rs"
    stream "../examples/stream.rs"
    ud "../examples/ud.rs"
    write "../examples/write.rs"
    xrc "../examples/xrc.rs"
}
