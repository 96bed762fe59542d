//! `adverb top`: what the processes of the user do, continuously.
mod screen;

use crate::stat::ask::Rounds;
use crate::stat::table::{self, Line, Style};
use crate::stat::world::{History, World};
use crate::stat::{print, seconds};
use screen::{Key, Screen};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Shows what the processes of this user with an open device do, and which waits for which
///
/// Asks each process of this user in this network namespace. A process that does not answer, such
/// as a stopped one, is shown as that. If standard output is no terminal, one table is printed.
#[derive(clap::Args)]
#[command(after_help = "Keys: q ends, space asks at once.")]
pub struct Args {
    /// Time between two questions, in seconds
    #[arg(long, short, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
}

/// Shortest time between two questions.
const SHORTEST: Duration = Duration::from_millis(100);
/// The first interval, so that rates are shown soon.
const FIRST: Duration = Duration::from_millis(300);

pub fn main(args: &Args) -> Result<(), String> {
    let interval = args.interval.max(SHORTEST);
    if !std::io::stdout().is_terminal() {
        print(&crate::stat::look(interval)?);
        return Ok(());
    }
    let (mut rounds, mut history) = (Rounds::new()?, History::default());
    let mut screen = Screen::begin().map_err(|e| format!("the terminal cannot be set up: {e}"))?;
    let mut next = FIRST.min(interval);
    loop {
        let asked = Instant::now();
        let world = history.world(&rounds.ask());
        loop {
            screen.draw(&frame(&world, interval, screen.size()));
            match screen.wait(next.saturating_sub(asked.elapsed())) {
                Key::End => return Ok(()),
                Key::Resized => {}
                Key::None | Key::Ask => break,
            }
        }
        next = interval;
    }
}

/// What the screen shows: a title, and as much of the table as there is room for.
fn frame(world: &World, interval: Duration, (columns, rows): (usize, usize)) -> Vec<Line> {
    let keys = format!("every {} s, q quits", interval.as_secs_f64());
    let title = format!("adverb top: {}", table::summary(world));
    let width = columns.min(table::COLUMNS);
    let gap = width.saturating_sub(title.chars().count() + keys.len()).max(2);
    let mut lines = vec![Line::new(Style::Head, &format!("{title}{:gap$}{keys}", ""))];
    lines.extend(table::lines(world, rows.saturating_sub(1), columns));
    lines.truncate(rows.max(1));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TOP-6: the frame has room on the screen, and says first what it shows.
    #[test]
    fn top_6_a_frame_fits() {
        for rows in [1, 2, 24] {
            let lines = frame(&World::default(), Duration::from_secs(1), (80, rows));
            assert!(lines.len() <= rows && lines[0].text.starts_with("adverb top: 0 processes"));
            assert!(
                lines[0].text.ends_with("every 1 s, q quits")
                    && lines[0].text.chars().count() <= 80
            );
        }
    }
}
