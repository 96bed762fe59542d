//! The page of causes, and text of a fixed width.
use super::mlx5;
use adverb_device::catalogue::{self, CatalogueEntry};
use std::fmt::Write;

/// Columns of a usual terminal.
const WIDTH: usize = 80;

/// Breaks a text into lines. `lead` stands before the first line, and as many spaces before the
/// others.
pub fn wrap(text: &str, lead: &str) -> String {
    let indent = " ".repeat(lead.chars().count());
    crate::out::wrap(text.split_whitespace(), lead, &indent, WIDTH).join("\n") + "\n"
}

/// docs/causes.md.
pub fn page() -> String {
    let mut text = String::from(
        "# Causes\n\nThis page lists the causes of failures that Adverb reports. Each has a number, which stands in `vendor_err` and \
         never changes.\n`adverb explain 0x81`, `adverb explain RetryExceeded` and `adverb explain 'a line of the log'` print the \
         same.\n`make causes` makes this page from the list in the source.\n\n| code | name |\n|--:|---|\n",
    );
    for entry in catalogue::all() {
        let _ = writeln!(
            text,
            "| {:#04x} | [{}](#{}) |",
            entry.code,
            entry.name,
            entry.name.to_lowercase()
        );
    }
    text.push_str("\n0 means no detail: the completion succeeded.\n");
    for entry in catalogue::CAUSES {
        section(&mut text, entry);
    }
    text.push_str("\n# Reports\n\nThese lines of the log are not the cause of a completion. Their numbers never stand in `vendor_err`.\n");
    for entry in catalogue::REPORTS {
        section(&mut text, entry);
    }
    text.push_str(
        "\n# Numbers of mlx5\n\nPrograms print these numbers on ConnectX NICs. The status is the status in public reports, because the \
         vendor publishes no list.\n\n| number | | status | meaning | name here |\n|--:|--:|---|---|---|\n",
    );
    for code in mlx5::CODES {
        let cause = code.cause.and_then(catalogue::by_code).map_or("", |e| e.name);
        let _ = writeln!(
            text,
            "| {:#04x} | {} | {} | {} | {cause} |",
            code.number, code.number, code.status, code.meaning
        );
    }
    text
}

fn section(text: &mut String, entry: &CatalogueEntry) {
    let _ = writeln!(
        text,
        "\n## {}\n\n`{:#04x}`, {}. {}",
        entry.name, entry.code, entry.code, entry.meaning
    );
    if !entry.values.is_empty() {
        let _ = writeln!(text, "\nValues in the text: {}.", entry.values.join("; "));
    }
    text.push_str("\nWhat to look at:\n\n");
    for look in entry.look {
        let _ = writeln!(text, "- {look}");
    }
}
