//! The terminal while `adverb top` runs: the alternate screen, single keys, and the size. However
//! the command ends, except by SIGKILL, the terminal is as before.
use crate::stat::table::{COLUMNS, Line, Style};
use adverb_os::sys::terminal_size;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::termios::{
    LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcgetattr, tcsetattr,
};
use std::io::{IsTerminal, Read, Stdin, Write, stdin, stdout};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The alternate screen, no cursor, no wrapping of long lines.
const BEGIN: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const END: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
const TOP_LEFT: &str = "\x1b[H";
const REST_OF_LINE: &str = "\x1b[K";
const REST_OF_SCREEN: &str = "\x1b[J";
/// Ctrl-C, Ctrl-D.
const INTERRUPT: u8 = 3;
const END_OF_INPUT: u8 = 4;

/// What the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    None,
    /// Ask at once.
    Ask,
    /// The size has changed.
    Resized,
    End,
}

pub struct Screen {
    /// Settings of the terminal before, if standard input is a terminal.
    before: Option<Termios>,
    input: Option<Stdin>,
    signals: SignalFd,
    size: (u16, u16),
    /// The user wants colours (<https://no-color.org>).
    colours: bool,
}

impl Screen {
    pub fn begin() -> nix::Result<Self> {
        let mut set = SigSet::empty();
        for signal in
            [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGWINCH]
        {
            set.add(signal);
        }
        set.thread_block()?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let input = Some(stdin()).filter(IsTerminal::is_terminal);
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let mut screen = Screen { before: None, input, signals, size: (0, 0), colours };
        if let Some(input) = &screen.input {
            let before = tcgetattr(input)?;
            let mut keys = before.clone();
            // Single keys, not shown. Ctrl-C is a key, too, so that the terminal is restored.
            keys.local_flags &= !(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG);
            keys.control_chars[SpecialCharacterIndices::VMIN as usize] = 0;
            keys.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
            tcsetattr(input, SetArg::TCSADRAIN, &keys)?;
            screen.before = Some(before);
        }
        screen.measure();
        put(BEGIN);
        Ok(screen)
    }

    fn measure(&mut self) {
        self.size = terminal_size(stdout().as_fd()).unwrap_or((COLUMNS as u16, 24));
    }

    /// Columns and rows.
    pub fn size(&self) -> (usize, usize) {
        (self.size.0.into(), self.size.1.into())
    }

    /// Shows lines from the top of the screen on. The lines have no characters that a terminal
    /// obeys.
    pub fn draw(&self, lines: &[Line]) {
        put(&picture(lines, self.size, self.colours));
    }

    /// Waits for a key or a signal for at most this time.
    pub fn wait(&mut self, time: Duration) -> Key {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let signals = PollFd::new(self.signals.as_fd(), PollFlags::POLLIN);
            let mut fds = vec![signals];
            fds.extend(
                self.input.as_ref().map(|input| PollFd::new(input.as_fd(), PollFlags::POLLIN)),
            );
            match poll(&mut fds, timeout) {
                Ok(0) => return Key::None,
                Ok(_) => {}
                Err(nix::errno::Errno::EINTR) => continue,
                Err(_) => return Key::End,
            }
            let pressed = fds.get(1).is_some_and(|fd| fd.any() == Some(true));
            if let Ok(Some(signal)) = self.signals.read_signal() {
                if signal.ssi_signo != Signal::SIGWINCH as u32 {
                    return Key::End;
                }
                self.measure();
                return Key::Resized;
            }
            if pressed {
                match self.key() {
                    None | Some(b'q' | b'Q' | INTERRUPT | END_OF_INPUT) => return Key::End,
                    Some(b' ') => return Key::Ask,
                    Some(_) => {}
                }
            }
        }
    }

    /// A pressed key. `None`: the terminal was closed.
    fn key(&mut self) -> Option<u8> {
        let mut bytes = [0; 64];
        let n = self.input.as_mut()?.read(&mut bytes).ok()?;
        // The keys of an escape sequence are one key.
        bytes[..n].first().copied()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        put(END);
        if let (Some(input), Some(before)) = (&self.input, &self.before) {
            let _ = tcsetattr(input, SetArg::TCSADRAIN, before);
        }
    }
}

/// The bytes that draw lines on a screen of this size. A line is erased before its text: behind a
/// text that fills the line, the cursor stands on the last character.
fn picture(lines: &[Line], (columns, rows): (u16, u16), colours: bool) -> String {
    let mut text = String::from(TOP_LEFT) + "\x1b[0m";
    for (place, line) in lines.iter().take(rows.into()).enumerate() {
        if place > 0 {
            text += "\r\n";
        }
        text += REST_OF_LINE;
        text += match line.style {
            Style::Plain => "",
            Style::Head => "\x1b[7m",
            Style::Odd if colours => "\x1b[33m",
            Style::Wrong if colours => "\x1b[1;31m",
            Style::Odd | Style::Wrong => "\x1b[1m",
        };
        text.extend(line.text.chars().take(columns.into()));
        text += "\x1b[0m";
    }
    // Below the last line; there is no such line on a full screen.
    if lines.len() < usize::from(rows) { text + "\r\n" + REST_OF_SCREEN } else { text }
}

/// Writes to the terminal. There is no place to report a failure.
fn put(text: &str) {
    let mut out = stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TRU-6, TOP-6: a name with an escape sequence is written out, and lines are cut to the
    /// screen.
    #[test]
    fn top_6_names_do_not_steer_the_terminal() {
        let line = Line::new(Style::Plain, "evil\x1b[31m\nname");
        let text = picture(std::slice::from_ref(&line), (80, 24), true);
        assert!(text.contains("evil\\u001b[31m\\u000aname"), "{text:?}");
        let cut = picture(&[line.clone(), line], (4, 1), true);
        assert_eq!(cut, "\x1b[H\x1b[0m\x1b[Kevil\x1b[0m");
    }

    /// TOP-6: nothing is erased behind a text, which may fill its line.
    #[test]
    fn top_6_a_full_line_keeps_its_last_character() {
        let lines = vec![Line::new(Style::Wrong, &"x".repeat(80)); 2];
        let text = picture(&lines, (80, 2), true);
        assert!(text.ends_with("x\x1b[0m") && !text.contains("x\x1b[0m\x1b"), "{text:?}");
    }

    /// TOP-6: NO_COLOR.
    #[test]
    fn top_6_a_user_without_colours_gets_none() {
        let lines = [Style::Odd, Style::Wrong].map(|style| Line::new(style, "x"));
        assert!(picture(&lines, (80, 24), true).contains("\x1b[33m"));
        assert!(!picture(&lines, (80, 24), false).contains("\x1b[3"));
        assert!(!picture(&lines, (80, 24), false).contains(";31"));
    }
}
