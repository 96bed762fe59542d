//! Standard output and standard error. All output of the command goes through this module, which
//! escapes control characters of the terminal. Names in the output may come from other users, and
//! from other hosts.
//!
//! The reader of standard output may stop at any line, as `head` does. This is no error.
use adverb_device::printable::printable;
use std::fmt::{Arguments, Display};
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;

/// Writes text to standard output. A closed pipe is no error. If the text is lost for another
/// reason, the process ends.
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

/// Writes text to standard error. If this fails, there is no other place to report the failure.
pub fn write_error(text: Arguments<'_>) {
    let text = text.to_string();
    let _ = std::io::stderr().write_all(printable(&text).as_bytes());
}

/// The lines of words, of at most `width` columns each. `lead` stands before the first line, and
/// `indent` before the others.
pub fn wrap(
    words: impl IntoIterator<Item = impl AsRef<str>>,
    lead: &str,
    indent: &str,
    width: usize,
) -> Vec<String> {
    let (mut lines, mut line, mut is_empty) = (Vec::new(), lead.to_owned(), true);
    for word in words {
        let word = word.as_ref();
        if !is_empty && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, indent.to_owned()));
            is_empty = true;
        }
        line += if is_empty { "" } else { " " };
        line += word;
        is_empty = false;
    }
    lines.push(line);
    lines
}

/// The text of an error of a file.
pub fn at<E: Display>(path: &Path) -> impl FnOnce(E) -> String {
    move |e| format!("{}: {e}", path.display())
}

/// Shows a line on a terminal, in place of the last such line. An empty line removes the last one.
pub fn progress(text: &str) {
    let mut terminal = std::io::stderr().lock();
    if terminal.is_terminal() {
        let _ = write!(terminal, "\r\x1b[K{}", printable(text));
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

/// `eprintln!` by way of [`write_error`].
macro_rules! errln {
    ($($text:tt)*) => { $crate::out::write_error(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use {errln, out, outln};
