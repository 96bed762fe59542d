//! `adverb env`: prints the variables that `adverb run` sets, for programs that are started by
//! other means.
use crate::out::outln;
use crate::run::{Options, variables};
use std::ffi::OsStr;

/// Prints the environment that `adverb run` gives a program
///
/// For services and shells that start many programs themselves. `adverb run` does more: the command
/// names obstacles in the program's own file, ends the connections of a killed program, and answers
/// `rdma res`. The variables name a directory that the next boot removes, so call `adverb env` at
/// each start of a service, and keep no output.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  adverb env >>\"$GITHUB_ENV\"\n  set -a; eval \"$(adverb env \
                        --shell)\"; set +a")]
pub struct Args {
    /// Quote the values for a shell; without this option, lines NAME=VALUE are not quoted
    #[arg(long)]
    shell: bool,
    #[command(flatten)]
    options: Options,
}

pub fn main(args: &Args) -> Result<(), String> {
    // The word names these variables in the record of warnings, as a process number does for
    // `adverb run`.
    let word = format!("env-{}", std::process::id());
    let run = ("ADVERB_RUN", word.into());
    for (name, value) in variables(&args.options, None)?.into_iter().chain([run]) {
        outln!("{}", line(name, &value, args.shell)?);
    }
    Ok(())
}

/// A variable as a line of text.
fn line(name: &str, value: &OsStr, shell: bool) -> Result<String, String> {
    let text = value.to_str().filter(|v| !v.contains('\n'));
    let text = text.ok_or_else(|| {
        format!("{name} cannot be written as a line of text: {}", value.display())
    })?;
    Ok(if shell { format!("{name}={}", quoted(text)) } else { format!("{name}={text}") })
}

/// Quotes text as a word of a POSIX shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_plain_or_for_a_shell() {
        let value = OsStr::new("a 'b' $c");
        assert_eq!(line("X", value, false).unwrap(), "X=a 'b' $c");
        assert_eq!(line("X", value, true).unwrap(), r"X='a '\''b'\'' $c'");
        assert!(line("X", OsStr::new("two\nlines"), false).unwrap_err().contains("X cannot"));
    }
}
