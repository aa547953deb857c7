//! docs/conformance.md names every id and only tests that are there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const TABLE: &str = include_str!("../../docs/conformance.md");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Rows of all tables, as their cells.
fn rows() -> impl Iterator<Item = Vec<&'static str>> {
    let cells = |line: &'static str| -> Vec<&str> { line.split('|').map(str::trim).collect() };
    TABLE
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(cells)
}

#[test]
fn every_id_has_its_row() {
    let rows: Vec<&str> = rows().map(|cells| cells[1]).collect();
    let numbered = |group: char, last: u32| (1..=last).map(move |n| format!("{group}{n}"));
    let expected: BTreeSet<String> = numbered('A', 18)
        .chain(numbered('B', 22))
        .chain(numbered('C', 21))
        .chain(numbered('D', 8))
        .chain(numbered('E', 20))
        .chain(numbered('F', 16))
        .chain(numbered('G', 17))
        .chain(numbered('H', 17))
        .chain(numbered('I', 31))
        .chain(numbered('J', 12))
        .chain(numbered('K', 13))
        .chain(numbered('L', 10))
        .chain(numbered('M', 12))
        .chain(numbered('O', 14))
        .chain(numbered('P', 48))
        .chain(numbered('Q', 9))
        .chain(numbered('R', 17))
        .chain(numbered('N', 44))
        .collect();
    for id in &expected {
        let count = rows.iter().filter(|row| *row == id).count();
        assert_eq!(count, 1, "{id}");
    }
}

#[test]
fn every_named_test_is_there() {
    let mut checked = 0;
    for cells in rows() {
        // The test is the third column where there is an id, else the second.
        let tests = if cells.len() > 5 { cells[3] } else { cells[2] };
        for name in tests.split('`').skip(1).step_by(2) {
            let there = match name.split_once("::") {
                None => root().join(name).exists(),
                Some((module, test)) => {
                    let file = match module {
                        _ if module.ends_with(".rs") => format!("tests/{module}"),
                        _ if module.contains('/') => format!("tests/{module}.rs"),
                        _ => format!("tests/api/{module}.rs"),
                    };
                    let text = fs::read_to_string(root().join(file)).unwrap_or_default();
                    text.contains(&format!("fn {test}("))
                }
            };
            assert!(there, "{}: no test {name}", cells[1]);
            checked += 1;
        }
    }
    assert!(checked > 150, "only {checked} names were found");
}

#[test]
fn q7_benches_are_not_shipped() {
    let manifest = include_str!("../../Cargo.toml");
    let exclude = manifest
        .lines()
        .find(|line| line.starts_with("exclude"))
        .unwrap();
    assert!(exclude.contains("\"/benches\""), "{exclude}");
}
