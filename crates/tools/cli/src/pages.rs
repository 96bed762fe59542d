//! `adverb completions` and `adverb man`: made from the description of the command's options.
use crate::Cli;
use crate::out::out;
use clap::CommandFactory;
use clap_complete::{generate, shells};
use std::path::PathBuf;

#[derive(Clone, Copy, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints completions of this command for a shell
///
/// `make install` and the packages put the completions of all these shells into place.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  eval \"$(adverb completions bash)\"")]
pub struct CompletionsArgs {
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the manual page of this command
///
/// `make install` and the packages put the pages of all commands into place.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  adverb man | man -l -")]
pub struct ManArgs {
    /// Write the pages of all commands into this directory instead
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

pub fn completions(args: &CompletionsArgs) -> Result<(), String> {
    let (mut command, mut text) = (Cli::command(), Vec::new());
    match args.shell {
        Shell::Bash => generate(shells::Bash, &mut command, "adverb", &mut text),
        Shell::Zsh => generate(shells::Zsh, &mut command, "adverb", &mut text),
        Shell::Fish => generate(shells::Fish, &mut command, "adverb", &mut text),
    }
    print(&text)
}

pub fn man(args: &ManArgs) -> Result<(), String> {
    if let Some(directory) = &args.into {
        return clap_mangen::generate_to(Cli::command(), directory)
            .map_err(|e| format!("{}: no pages can be written there: {e}", directory.display()));
    }
    let mut text = Vec::new();
    let page = clap_mangen::Man::new(Cli::command().disable_help_subcommand(true));
    page.render(&mut text).map_err(|e| e.to_string())?;
    print(&text)
}

fn print(text: &[u8]) -> Result<(), String> {
    let text = str::from_utf8(text).map_err(|e| e.to_string())?;
    out!("{text}");
    Ok(())
}

/// A text whose lines are wrapped to this many columns. Further parts of a line begin where the
/// description of the line begins: behind an option, or behind the spaces in front.
pub fn wrapped(text: &str, columns: usize) -> String {
    let mut all = String::new();
    for line in text.split_inclusive('\n') {
        let spaces = line.len() - line.trim_start_matches(' ').len();
        let option = line.trim_start().find("  ").map(|gap| {
            let rest = &line[spaces + gap..];
            spaces + gap + rest.len() - rest.trim_start().len()
        });
        let indent = option.unwrap_or(spaces).min(columns / 2);
        let mut left = line;
        let mut room = columns;
        while left.trim_end().chars().count() > room {
            let end = left.char_indices().nth(room).map_or(left.len(), |(at, _)| at);
            // A word that is longer than a line stays whole.
            let first = left.len() - left.trim_start().len();
            let gap =
                left[first..].char_indices().filter(|(_, c)| *c == ' ').map(|(at, _)| at + first);
            let (before, after): (Vec<usize>, Vec<usize>) = gap.partition(|at| *at <= end);
            let Some(at) = before.last().or(after.first()) else { break };
            all += left[..*at].trim_end();
            all += "\n";
            all += &" ".repeat(indent);
            left = left[*at..].trim_start_matches(' ');
            room = columns - indent;
        }
        all += left;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn long_lines_of_help_are_wrapped() {
        let text =
            "One sentence about it\n\n  -x, --long X  What the option does\n    plain words here\n";
        assert_eq!(wrapped(text, 80), text);
        assert_eq!(wrapped(text, usize::MAX), text);
        assert_eq!(
            wrapped(text, 24),
            "One sentence about it\n\n  -x, --long X  What the\n            option does\n    plain words here\n"
        );
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for columns in 4..40 {
            assert_eq!(words(&wrapped(text, columns)), words(text), "{columns}");
        }
    }
}
