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
