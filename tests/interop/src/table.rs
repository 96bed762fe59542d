//! The closing table: the number of passed and tried cases, by test and direction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use adverb_bench::report::table;

/// Passed and tried, for each row and column.
type Cells = BTreeMap<(String, String), (u32, u32)>;

static CELLS: Mutex<Cells> = Mutex::new(Cells::new());

/// Adds a result to a cell.
pub fn record(row: &str, column: &str, passed: bool) {
    let mut cells = CELLS.lock().unwrap_or_else(|e| e.into_inner());
    let cell = cells.entry((row.to_string(), column.to_string())).or_default();
    cell.0 += u32::from(passed);
    cell.1 += 1;
}

/// Prints the table, unless empty.
pub fn print() {
    let cells = CELLS.lock().unwrap_or_else(|e| e.into_inner());
    if !cells.is_empty() {
        print!("{}", format(&cells));
    }
}

fn format(cells: &Cells) -> String {
    let columns: BTreeSet<&str> = cells.keys().map(|(_, column)| column.as_str()).collect();
    let rows: BTreeSet<&str> = cells.keys().map(|(row, _)| row.as_str()).collect();
    let head: Vec<&str> = ["passed of tried"].into_iter().chain(columns.iter().copied()).collect();
    let rows = rows.into_iter().map(|row| {
        let cell = |column: &&str| match cells.get(&(row.to_string(), column.to_string())) {
            Some((passed, tried)) if passed == tried => format!("{passed}/{tried}"),
            Some((passed, tried)) => format!("FAILED {passed}/{tried}"),
            None => "-".to_string(),
        };
        [row.to_string()].into_iter().chain(columns.iter().map(cell)).collect()
    });
    format!("\n{}\n", table(&head, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_count_and_failures_stand_out() {
        let mut cells = Cells::new();
        cells.insert(("rc send".into(), "a to b".into()), (3, 3));
        cells.insert(("rc read".into(), "b to a".into()), (1, 2));
        let text = format(&cells);
        let line = |row| text.lines().find(|l| l.contains(row)).unwrap();
        assert!(line("rc read").contains("| FAILED 1/2 |") && line("rc read").contains(" - |"));
        assert!(line("rc send").contains(" 3/3 |"));
    }
}
