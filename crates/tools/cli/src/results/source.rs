//! Parses the device's descriptions of places in a program, and quotes commands for a shell.
use std::ffi::OsString;
use std::fmt::Write;

/// A line of the program's source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The path in the debug information.
    pub path: String,
    pub number: u32,
    pub function: String,
}

/// The frames of a described place, innermost first: the function, and the line if known.
fn frames(words: &str) -> impl Iterator<Item = (&str, Option<(&str, u32)>)> {
    words.split(" in ").skip(1).map(|frame| {
        let line = frame.rsplit_once(", ").and_then(|(function, line)| {
            let (path, number) = line.rsplit_once(':')?;
            Some((function, (path, number.parse().ok()?)))
        });
        line.map_or((frame, None), |(function, line)| (function, Some(line)))
    })
}

fn file_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The frames with a line: the path, the number and the function. Lines of inline functions in the
/// header `verbs.h` are skipped.
fn lines(words: &str) -> impl Iterator<Item = (&str, u32, &str)> {
    frames(words).filter_map(|(function, line)| {
        let (path, number) = line.filter(|(path, _)| file_of(path) != "verbs.h")?;
        Some((path, number, function))
    })
}

/// The program's source line, if the debug information has it.
pub fn source_of(words: &str) -> Option<Line> {
    let (path, number, function) = lines(words).next()?;
    Some(Line { path: path.to_owned(), number, function: function.to_owned() })
}

/// The program's source line, or the nearest description that the debug information allows.
pub fn line_of(words: &str) -> String {
    if let Some(Line { path, number, function }) = source_of(words) {
        return format!("{}:{number} in {function}", file_of(&path));
    }
    let place = words.split(" in ").next().unwrap_or(words);
    let unlined = frames(words).find(|(_, line)| line.is_none());
    unlined.map_or_else(|| place.to_owned(), |(function, _)| format!("{place} in {function}"))
}

/// As [`line_of`], with the caller if the line is of an inline function in another file.
pub fn line_with_caller(words: &str) -> String {
    let own = line_of(words);
    let mut lines = lines(words).map(|(path, number, function)| (file_of(path), number, function));
    let first = lines.next().map(|(file, ..)| file);
    let caller = lines.find(|(file, ..)| first != Some(*file));
    let Some((file, number, function)) = caller else { return own };
    format!("{own}, called at {file}:{number} in {function}")
}

/// A command, quoted for a shell.
pub fn line(command: &[OsString]) -> String {
    let mut text = String::new();
    for (i, word) in command.iter().enumerate() {
        let word = word.to_string_lossy();
        let space = if i == 0 { "" } else { " " };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
        let _ = match word.chars().all(plain) && !word.is_empty() {
            true => write!(text, "{space}{word}"),
            false => write!(text, "{space}'{}'", word.replace('\'', "'\\''")),
        };
    }
    text
}
