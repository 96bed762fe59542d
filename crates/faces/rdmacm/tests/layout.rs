//! Compares our mirrors with the C headers: every type and field, as compiled by the C compiler.

use std::fmt::Write;
use std::process::Command;

use adverb_abi::{FieldLayout, TypeLayout, rdma_user_cm};
use rdmacm::abi::cma;

/// Types are laid out as in `rdma/rdma_cma.h`, `infiniband/verbs.h`, `infiniband/sa.h` and
/// `rdma/rdma_user_cm.h` (RCM-2).
#[test]
fn types_are_those_of_the_headers() {
    let mut source = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <rdma/rdma_cma.h>\n#include <infiniband/sa.h>\n",
    );
    source += "#include <rdma/rdma_verbs.h>\n";
    check("program", &source, &[cma::LAYOUTS]);
    // The two headers use some names for different things, so each gets its own C program.
    let source = "#include <stddef.h>\n#include <stdio.h>\n#include <netinet/in.h>\n#include <sys/socket.h>\n\
                  #include <rdma/rdma_user_cm.h>\n";
    check("kernel", source, &[rdma_user_cm::LAYOUTS]);
}

fn check(name: &str, includes: &str, types: &[&[TypeLayout]]) {
    let (mut source, mut expected) = (format!("{includes}int main(void) {{\n"), String::new());
    for ty in types.iter().copied().flatten() {
        let c = ty.c_name;
        writeln!(source, "printf(\"{c} %zu\\n\", sizeof({c}));").expect("a string");
        writeln!(expected, "{c} {}", ty.size).expect("a string");
        for FieldLayout { name: field, offset, size } in ty.fields {
            writeln!(
                source,
                "printf(\"{c}.{field} %zu %zu\\n\", offsetof({c}, {field}), sizeof((({c} *)0)->{field}));"
            )
            .expect("a string");
            writeln!(expected, "{c}.{field} {offset} {size}").expect("a string");
        }
    }
    source += "return 0; }\n";
    let directory =
        std::env::temp_dir().join(format!("adverb-rdmacm-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a temporary directory");
    let (file, program) = (directory.join("layout.c"), directory.join("layout"));
    std::fs::write(&file, source).expect("a file");
    let cc = Command::new("cc").arg("-w").arg("-o").arg(&program).arg(&file).output();
    let cc = cc.expect("a C compiler: run scripts/test-deps");
    assert!(cc.status.success(), "{}", String::from_utf8_lossy(&cc.stderr));
    let run = Command::new(&program).output().expect("the program was just built");
    std::fs::remove_dir_all(&directory).expect("ours");
    let printed = String::from_utf8(run.stdout).expect("ASCII");
    for (theirs, ours) in printed.lines().zip(expected.lines()) {
        assert_eq!(theirs, ours, "left is the header's");
    }
    assert_eq!(printed.lines().count(), expected.lines().count());
}
