//! The control connection between the two processes of the demonstration. They exchange numbers,
//! and the reason of a failed check, as lines of text.
use std::io::{BufRead, Write};

/// One end of the control connection.
pub struct Control {
    from: Box<dyn BufRead>,
    to: Box<dyn Write>,
}

/// Marks a line that says why the other side gave up.
const FAILED: char = '!';

impl Control {
    pub fn new(from: impl BufRead + 'static, to: impl Write + 'static) -> Self {
        Control { from: Box::new(from), to: Box::new(to) }
    }

    /// Sends numbers and waits for the other side's numbers: a rendezvous.
    pub fn exchange(&mut self, numbers: &[u64]) -> Result<Vec<u64>, String> {
        let line: Vec<String> = numbers.iter().map(|n| format!("{n:x}")).collect();
        self.write(&line.join(" "))
            .map_err(|e| format!("cannot send to the other process: {e}"))?;
        match self.line()? {
            None => Err("the other process ended".into()),
            Some(line) => line
                .split_whitespace()
                .map(|n| {
                    u64::from_str_radix(n, 16)
                        .map_err(|e| format!("the other process said {line:?}: {e}"))
                })
                .collect(),
        }
    }

    /// Tells the other side why this side gives up.
    pub fn fail(&mut self, why: &str) {
        // If the write fails, the other side has already ended.
        let _ = self.write(&format!("{FAILED}{}", why.replace('\n', " ")));
    }

    /// Why the other side gave up, if it did. Waits until the other side has ended.
    pub fn other_failure(&mut self) -> Option<String> {
        loop {
            match self.line() {
                Err(why) => return Some(why),
                Ok(None) => return None,
                Ok(Some(_)) => {}
            }
        }
    }

    fn write(&mut self, line: &str) -> std::io::Result<()> {
        writeln!(self.to, "{line}")?;
        self.to.flush()
    }

    fn line(&mut self) -> Result<Option<String>, String> {
        let mut line = String::new();
        match self.from.read_line(&mut line) {
            Err(e) => Err(format!("cannot receive from the other process: {e}")),
            Ok(0) => Ok(None),
            Ok(_) => match line.trim_end().strip_prefix(FAILED) {
                Some(why) => Err(format!("the other process: {why}")),
                None => Ok(Some(line.trim_end().into())),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Control;

    #[test]
    fn numbers_cross() {
        let mut control = Control::new(&b"1 ff\n\n"[..], std::io::sink());
        assert_eq!(control.exchange(&[1]), Ok(vec![1, 255]));
        assert_eq!(control.exchange(&[]), Ok(vec![]));
        assert!(control.exchange(&[]).is_err(), "the line has ended");
    }

    #[test]
    fn a_failure_crosses() {
        let mut control = Control::new(&b"!because\n"[..], std::io::sink());
        assert_eq!(control.exchange(&[]), Err("the other process: because".into()));
        let mut control = Control::new(&b"1\n!because\n"[..], std::io::sink());
        assert_eq!(control.other_failure(), Some("the other process: because".into()));
    }
}
