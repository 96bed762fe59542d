//! Gives the shared object its name, its version nodes and its exports, from the tables in
//! `symbols`.

mod linker;
mod versioned;

use std::collections::BTreeSet;
use std::fmt::Write;
use versioned::Row;

/// Every exported name.
const TABLES: [&str; 2] = [include_str!("symbols/public.txt"), include_str!("symbols/private.txt")];

/// The numbers of the nodes with this name.
fn numbers(rows: &[Row<'_>], name: &str) -> BTreeSet<u32> {
    let nodes = rows.iter().flat_map(|row| row[1].split('-'));
    nodes.filter_map(|node| node.strip_prefix(name)?.parse().ok()).collect()
}

fn main() {
    let rows: Vec<Row<'_>> = TABLES.iter().flat_map(|table| versioned::rows(table)).collect();
    let private = numbers(&rows, "");
    let public = numbers(&rows, "IBVERBS_1.").into_iter().map(|minor| format!("IBVERBS_1.{minor}"));
    let mut nodes = versioned::chain(public);
    for number in &private {
        writeln!(nodes, "IBVERBS_PRIVATE_{number} {{ }};").expect("writing to a string");
    }
    // The library's own names beside rdma-core's (include/adverb.h), and what librdmacm.so.1 and
    // the preloaded object of the same build call.
    nodes += "ADVERB_1.0 { };\nADVERB_PRIVATE { };\n";
    let mut exports = versioned::Exports::default();
    for row @ [name, nodes, _, target] in rows {
        let (first, last) = nodes.split_once('-').unwrap_or((nodes, nodes));
        let nodes = match (first.parse::<u32>(), last.parse()) {
            (Ok(first), Ok(last)) => {
                private.range(first..=last).map(|n| format!("IBVERBS_PRIVATE_{n}")).collect()
            }
            _ => vec![nodes.to_owned()],
        };
        let function = match target.contains("::") {
            true => format!("{target}::{name}"),
            false => format!("exports::private::{target}"),
        };
        exports.add(row, &nodes, &function);
    }
    versioned::link("libibverbs.so.1", &nodes, &exports);
}
