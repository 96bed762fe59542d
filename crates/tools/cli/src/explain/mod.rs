//! `adverb explain`: explains a number in `vendor_err` or a line of a log, and says where to look.
use crate::out::out;
use adverb_device::catalogue;
use std::fmt::Write;

mod asked;
mod mlx5;
mod page;
#[cfg(test)]
mod tests;

/// Explains a vendor_err number, or a pasted line of a log
///
/// Numbers are Adverb's own numbers and the numbers of ConnectX NICs (mlx5). A line may come from
/// Adverb, or from any program that prints a vendor_err: NCCL, UCX, perftest and others.
#[derive(clap::Args)]
pub struct Args {
    /// A number (0x81, 129), a name (RetryExceeded), or a line in quotes; without an argument,
    /// the command lists all
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
    text.push_str("\nadverb explain CODE says more, and also explains codes of mlx5\n");
    text
}

/// Everything that is known of the number, name or line.
fn explain(what: &str) -> Result<String, String> {
    let found = asked::find(what);
    if found.entries.is_empty() && found.mlx5.is_empty() {
        return Err(format!(
            "nothing is known of {what:?}: give a number such as 0x81, a name such as RetryExceeded, a line of Adverb's log, or \
             a line with a vendor_err; `adverb explain` lists the numbers and names"
        ));
    }
    let mut text = String::new();
    for entry in found.entries {
        if !text.is_empty() {
            text.push('\n');
        }
        let _ = writeln!(text, "{:#04x} ({}) {} on Adverb\n", entry.code, entry.code, entry.name);
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
    }
    for code in found.mlx5 {
        if !text.is_empty() {
            text.push('\n');
        }
        let _ = writeln!(
            text,
            "{:#04x} ({}) on a ConnectX NIC (mlx5), with status {}\n",
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
    }
    Ok(text)
}
