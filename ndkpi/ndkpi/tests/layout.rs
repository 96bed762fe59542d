//! Compares the headers, the Rust mirrors and the committed facts (`layout.txt`): sizes, offsets
//! and constants.

use std::collections::BTreeMap;
use std::fmt::Write;

use adverb_ndk::{AdapterFlags, MrFlags, NtStatus, OpFlags};
use bitflags::Flags;
use ndkpi::abi::{self, TypeLayout};
use ndkpi::status::{NO_SUCH_DEVICE, STATUSES};

mod common;

type Facts = BTreeMap<String, i64>;

/// The facts of the Rust mirrors.
fn mirrored() -> Facts {
    let mut facts = Facts::new();
    for TypeLayout { name, size, fields } in abi::layouts() {
        facts.insert(format!("sizeof {name}"), *size as i64);
        for (field, offset) in *fields {
            facts.insert(format!("offsetof {name} {field}"), *offset as i64);
        }
    }
    for (name, value) in abi::CONSTANTS {
        facts.insert(format!("value {name}"), *value);
    }
    for (status, name) in STATUSES {
        facts.insert(format!("value {}", name.to_str().expect("ASCII")), i64::from(status.0));
    }
    flags::<OpFlags>(&mut facts, "NDK_OP_FLAG_");
    flags::<MrFlags>(&mut facts, "NDK_MR_FLAG_");
    flags::<AdapterFlags>(&mut facts, "NDK_ADAPTER_FLAG_");
    facts
}

fn flags<F: Flags<Bits = u32>>(facts: &mut Facts, prefix: &str) {
    for flag in F::FLAGS {
        facts.insert(format!("value {prefix}{}", flag.name()), flag.value().bits().into());
    }
}

/// A C program that prints the answer to each of `questions`.
fn program<'a>(questions: impl Iterator<Item = &'a String>) -> String {
    let mut text = String::from("#include <adverb_ndk.h>\n#include <stdio.h>\nint main(void) {\n");
    for question in questions {
        let words: Vec<&str> = question.split(' ').collect();
        let expression = match words[..] {
            ["sizeof", ty] => format!("sizeof({ty})"),
            ["offsetof", ty, field] => format!("offsetof({ty}, {field})"),
            ["value", name] => name.to_owned(),
            _ => unreachable!("{question}"),
        };
        writeln!(text, "printf(\"{question} %lld\\n\", (long long)({expression}));")
            .expect("a string");
    }
    text + "return 0;\n}\n"
}

fn parse(answers: &str) -> Facts {
    let lines = answers.lines().map(|line| line.rsplit_once(' ').expect("a question and a number"));
    lines.map(|(question, value)| (question.to_owned(), value.parse().expect("a number"))).collect()
}

/// The facts in `layout.txt`.
fn committed() -> Facts {
    let mut facts = Facts::new();
    let mut ty = "";
    for line in include_str!("layout.txt").lines().filter(|l| !l.starts_with('#')) {
        let (name, value) = line.trim().split_once(" 0x").expect("a name and a hexadecimal number");
        let value = i64::from_str_radix(value, 16).expect("hexadecimal");
        if line.starts_with(' ') {
            facts.insert(format!("offsetof {ty} {name}"), value);
        } else {
            ty = name;
            facts.insert(format!("sizeof {ty}"), value);
        }
    }
    facts
}

#[test]
fn the_headers_lay_out_what_the_mirrors_do() {
    let mirrored = mirrored();
    let answers = common::c::run_source("layout", &program(mirrored.keys()));
    assert_eq!(parse(&answers), mirrored);
}

#[test]
fn the_layouts_are_those_of_64_bit_windows() {
    let (mirrored, committed) = (mirrored(), committed());
    let wrong: Vec<_> =
        committed.iter().filter(|(what, value)| mirrored.get(*what) != Some(value)).collect();
    assert!(wrong.is_empty(), "not as on Windows: {wrong:?}");
    // Every object, table and request value must have facts, so that a new type cannot be left
    // unchecked.
    let unchecked: Vec<_> =
        abi::layouts().filter(|t| !committed.contains_key(&format!("sizeof {}", t.name))).collect();
    assert!(unchecked.iter().all(|t| t.name.starts_with("ADVERB_")), "no facts for {unchecked:?}");
}

#[test]
fn the_headers_compile_as_every_dialect() {
    let text = "#include <adverb_ndk.h>\nint main(void) { return sizeof(NDK_SGE) == 0; }\n";
    for (language, standard) in [("c", "c99"), ("c", "c11"), ("c++", "c++11"), ("c++", "c++17")] {
        common::c::check(text, language, &["-std=".to_owned() + standard, "-pedantic".to_owned()]);
    }
    for header in ["ndkpi.h", "ndkinfo.h", "adverb_nt.h"] {
        common::c::check(&format!("#include <{header}>\n"), "c", &["-std=c99".to_owned()]);
    }
}

/// Every status that the provider may return has a name in C.
#[test]
fn every_status_of_the_provider_has_its_name() {
    for (status, name) in STATUSES.iter().filter(|(status, _)| *status != NO_SUCH_DEVICE) {
        let rust = status.name().map(|name| format!("STATUS_{name}"));
        assert_eq!(rust.as_deref(), name.to_str().ok());
    }
    // All possible values of a status. The provider's own list says which of these values exist.
    let named = |code: u32| NtStatus(code as i32).name().is_some();
    let codes = [0, 0x4000_0000, 0x8000_0000, 0xc000_0000]
        .into_iter()
        .flat_map(|kind| kind..kind + 0x1_0000);
    for code in codes.filter(|&code| named(code)) {
        assert!(
            STATUSES.iter().any(|(status, _)| status.0 == code as i32),
            "{} has no macro",
            NtStatus(code as i32)
        );
    }
}
