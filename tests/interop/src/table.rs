//! The closing table: the number of passed and tried cases, by test and direction.

use std::collections::BTreeMap;
use std::sync::Mutex;

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
    let mut columns: Vec<&str> = cells.keys().map(|(_, c)| c.as_str()).collect();
    columns.sort_unstable();
    columns.dedup();
    let mut rows: Vec<&str> = cells.keys().map(|(r, _)| r.as_str()).collect();
    rows.dedup();
    let first = rows.iter().map(|r| r.len()).max().unwrap_or(0);
    let mut text = format!("\n{:first$}", "passed of tried");
    for c in &columns {
        text += &format!("  {c}");
    }
    for r in rows {
        text += &format!("\n{r:first$}");
        for c in &columns {
            let cell = match cells.get(&(r.to_string(), c.to_string())) {
                Some((passed, tried)) if passed == tried => format!("{passed}/{tried}"),
                Some((passed, tried)) => format!("FAILED {passed}/{tried}"),
                None => "-".to_string(),
            };
            text += &format!("  {cell:>width$}", width = c.len());
        }
    }
    text + "\n\n"
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
        let lines: Vec<&str> = text.trim().lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(
            lines[1].starts_with("rc read")
                && lines[1].contains('-')
                && lines[1].ends_with("FAILED 1/2")
        );
        assert!(lines[2].starts_with("rc send") && lines[2].contains("3/3"));
    }
}
