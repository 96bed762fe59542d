//! Standard output and standard error. All that the command says is written here, where what a
//! terminal would obey is written out: names may come from other users, and from other hosts.
//!
//! The reader of standard output may stop at any line, as `head` does, and that is no error.
use adverb_device::printable::printable;
use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// Writes text. A reader that has gone is not missed; ends the process when the text is lost for
/// another reason.
pub fn write(text: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    let text = text.to_string();
    if let Err(e) = out.write_all(printable(&text).as_bytes()).and_then(|()| out.flush())
        && e.kind() != ErrorKind::BrokenPipe
    {
        write_error(format_args!("adverb: standard output cannot be written to: {e}\n"));
        std::process::exit(crate::FAILED.into());
    }
}

/// Writes text to standard error. Where nothing takes the text, nothing can be told of that.
pub fn write_error(text: Arguments<'_>) {
    let text = text.to_string();
    let _ = std::io::stderr().write_all(printable(&text).as_bytes());
}

/// `print!` by way of [`write`].
macro_rules! out {
    ($($text:tt)*) => { $crate::out::write(format_args!($($text)*)) };
}

/// `println!` by way of [`write`].
macro_rules! outln {
    ($($text:tt)*) => { $crate::out::write(format_args!("{}\n", format_args!($($text)*))) };
}

/// `eprintln!` by way of [`write_error`].
macro_rules! errln {
    ($($text:tt)*) => { $crate::out::write_error(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use {errln, out, outln};
