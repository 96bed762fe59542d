//! The table of goodput.
use std::fmt::Write;

use adverb_bench::Result;

use crate::transfer::TransferOutcome;

const BEGIN: &str = "<!-- goodput: begin -->\n";
const END: &str = "<!-- goodput: end -->";

type Row<'a> = (&'a str, Vec<Result<TransferOutcome>>);

/// Goodput by kind of fault and verb, in MB/s.
pub(crate) fn table(mib: u64, rows: &[Row<'_>]) -> String {
    let mut out = String::from(
        "| what befalls packets | Write MB/s | Send MB/s | Read MB/s |\n|---|---:|---:|---:|\n",
    );
    for (name, cells) in rows {
        let cell = |c: &Result<TransferOutcome>| match c {
            Ok(o) => format!("{:.1}", (mib << 20) as f64 / o.seconds / 1e6),
            Err(_) => "failed".to_owned(),
        };
        let cells: Vec<String> = cells.iter().map(cell).collect();
        let _ = writeln!(out, "| {name} | {} |", cells.join(" | "));
    }
    out
}

/// Puts a table between the markers of a file.
pub(crate) fn write(file: &str, table: &str) -> Result<()> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    let (head, rest) =
        text.split_once(BEGIN).ok_or_else(|| format!("{file} has no {}", BEGIN.trim()))?;
    let (_, tail) = rest.split_once(END).ok_or_else(|| format!("{file} has no {END}"))?;
    std::fs::write(file, format!("{head}{BEGIN}{table}{END}{tail}"))
        .map_err(|e| format!("{file}: {e}"))
}
