//! An explanation with a right order of calls.
use super::page::wrap;
use std::fmt::Write;

pub struct Topic {
    /// The first line.
    pub title: String,
    pub meaning: &'static str,
    /// Why a device may do this, or why the program's calls are a mistake.
    pub why: &'static str,
    /// The right order in C.
    pub order: &'static str,
    /// How to suppress a report.
    pub suppress: String,
}

impl Topic {
    pub fn text(&self) -> String {
        let mut text = format!("{}\n\n", self.title);
        text.push_str(&wrap(self.meaning, "  "));
        text.push_str(&wrap(&format!("Why: {}", self.why), "  "));
        text.push_str("\n  The right order:\n");
        for line in self.order.lines() {
            let _ = writeln!(text, "      {line}");
        }
        text.push('\n');
        text.push_str(&wrap(&format!("To suppress: {}", self.suppress), "  "));
        text
    }
}
