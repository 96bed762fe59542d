//! Standard output: who reads it may stop at any line, as `head` does, and that is no error.
use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// Writes text. A reader that has gone is not missed; ends the process when the text is lost for
/// another reason.
pub fn write(text: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    if let Err(e) = out.write_fmt(text).and_then(|()| out.flush())
        && e.kind() != ErrorKind::BrokenPipe
    {
        eprintln!("adverb: standard output cannot be written to: {e}");
        std::process::exit(crate::FAILED.into());
    }
}

/// `print!` by way of [`write`].
macro_rules! out {
    ($($text:tt)*) => { $crate::out::write(format_args!($($text)*)) };
}

/// `println!` by way of [`write`].
macro_rules! outln {
    ($($text:tt)*) => { $crate::out::write(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use {out, outln};
