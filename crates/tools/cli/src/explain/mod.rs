//! `adverb explain`: explains a number in `vendor_err`, a report, a choice, a status, an event or a
//! line of a log, and says where to look.
use crate::out::out;
use adverb_device::catalogue;
use std::fmt::Write;

mod asked;
mod choices;
mod events;
mod mlx5;
mod named;
mod page;
mod reports;
mod statuses;
#[cfg(test)]
mod tests;
mod topic;

/// Explains a vendor_err number, a report, a choice, a status, an event, or pasted lines of a log
///
/// Numbers are Adverb's own numbers and the numbers of ConnectX NICs (mlx5). Names are reports of
/// --check (region-in-use), choices of the hunt (post late), statuses (IBV_WC_LOC_LEN_ERR) and
/// events of rdma_cm (RDMA_CM_EVENT_REJECTED). A line may come from Adverb, or from any program
/// that prints a vendor_err: NCCL, UCX, perftest and others.
#[derive(clap::Args)]
pub struct Args {
    /// A number (0x81, 129), a name (RetryExceeded), or a line in quotes; `-` reads lines from
    /// standard input; without an argument, the command lists all
    #[arg(value_name = "CODE|LINE")]
    what: Vec<String>,
    /// Print the page docs/causes.md
    #[arg(long, hide = true, conflicts_with = "what")]
    page: bool,
}

pub fn main(args: &Args) -> Result<(), String> {
    if args.page {
        out!("{}", page::page());
    } else if args.what.is_empty() {
        out!("{}", list());
    } else if args.what == ["-"] {
        let lines = std::io::read_to_string(std::io::stdin())
            .map_err(|e| format!("standard input cannot be read: {e}"))?;
        out!("{}", explain(&lines)?);
    } else {
        out!("{}", explain(&args.what.join(" "))?);
    }
    Ok(())
}

/// Codes and names, one pair a line.
fn list() -> String {
    let mut text = String::from("code   name\n");
    for entry in catalogue::all() {
        let _ = writeln!(text, "{:#05x}  {}", entry.code, entry.name);
    }
    for (kind, names) in named::names() {
        let _ = write!(text, "\n{kind}\n");
        names.iter().for_each(|name| text.push_str(&format!("       {name}\n")));
    }
    text.push_str("\nadverb explain CODE says more, and also explains codes of mlx5\n");
    text
}

/// Everything that is known of the number, name or lines, each once.
fn explain(what: &str) -> Result<String, String> {
    let mut all: Vec<String> = Vec::new();
    for line in what.lines() {
        let known =
            std::iter::once(numbered(line)).chain(named::find(line).into_iter().map(|t| t.text()));
        for text in known.filter(|text| !text.is_empty()) {
            if !all.contains(&text) {
                all.push(text);
            }
        }
    }
    if all.is_empty() {
        return Err(format!(
            "nothing is known of {what:?}: give a number such as 0x81, a name such as RetryExceeded or region-in-use, a line of \
             Adverb's log, or a line with a vendor_err; `adverb explain` lists the numbers and names"
        ));
    }
    Ok(all.join("\n"))
}

/// The causes and numbers of a line; empty if the line has none.
fn numbered(what: &str) -> String {
    let found = asked::find(what);
    let mut all = Vec::new();
    for entry in found.entries {
        let mut text = format!("{:#04x} ({}) {} on Adverb\n\n", entry.code, entry.code, entry.name);
        text.push_str(&page::wrap(entry.meaning, "  "));
        if !entry.values.is_empty() {
            text.push_str(&page::wrap(
                &format!("Values in the text: {}.", entry.values.join("; ")),
                "  ",
            ));
        }
        text.push_str("\n  What to look at:\n");
        for look in entry.look {
            text.push_str(&page::wrap(look, "  - "));
        }
        all.push(text);
    }
    for code in found.mlx5 {
        let mut text = format!(
            "{:#04x} ({}) on a ConnectX NIC (mlx5), with status {}\n\n",
            code.number, code.number, code.status
        );
        text.push_str(&page::wrap(code.meaning, "  "));
        if let Some(entry) = code.cause.and_then(catalogue::by_code) {
            let line = format!(
                "Adverb's name for this is {} ({:#04x}): adverb explain {:#04x}",
                entry.name, entry.code, entry.code
            );
            text.push_str(&page::wrap(&line, "  "));
        }
        all.push(text);
    }
    all.join("\n")
}
