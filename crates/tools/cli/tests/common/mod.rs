//! The command as a user calls it.
#![allow(dead_code, reason = "each test file uses its part")]
use std::process::{Command, Output};

pub fn adverb(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adverb"));
    command
        .args(args)
        .env_remove("ADVERB_LOG")
        .env_remove("LD_PRELOAD")
        .env_remove("LD_LIBRARY_PATH");
    command.output().expect("the command starts")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
