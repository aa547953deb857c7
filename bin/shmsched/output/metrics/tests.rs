//! The texts as they are promised, in golden.txt so that a change is seen.

use super::*;
use crate::output::table::samples::{busy, paced};

fn scrapes() -> Vec<Scrape> {
    let mut slots = busy();
    let scheduler = slots.scheduler.as_mut().expect("it has one");
    scheduler.targets[6] = None;
    scheduler.pressure.some.averages = [4_050, 7, 0];
    scheduler.pressure.some.total_us = 1_250_001;
    (scheduler.waits.buckets[0], scheduler.waits.buckets[20]) = (1, 2);
    (scheduler.waits.buckets[31], scheduler.waits.longest_us) = (1, 2_000_000_000);
    scheduler.waits.sum_us = 2_002_000_001;
    slots.members[0].command = "a \"quoted\" back\\slash".into();
    let tokens = paced();
    [
        ("thumbs", Some(slots)),
        ("up\nlink", Some(tokens)),
        ("gone", None),
    ]
    .map(|(segment, snapshot)| Scrape {
        segment: segment.into(),
        snapshot,
    })
    .into()
}

#[test]
fn the_text_is_the_golden_one() {
    let found = Page::new(scrapes()).text(Form::OpenMetrics);
    let golden = include_str!("golden.txt");
    assert!(found == golden, "the text is another:\n{found}");
}

/// What OpenMetrics demands, line by line.
#[test]
fn the_text_is_well_formed() {
    let text = Page::new(scrapes()).text(Form::OpenMetrics);
    assert!(text.ends_with("# EOF\n") && !text.contains("\n\n"));
    let (mut family, mut kind, mut unit) = ("", "", "");
    let (mut families, mut series) = (Vec::new(), Vec::new());
    for line in text.lines().take_while(|line| *line != "# EOF") {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", name, help] => {
                assert!(!help.is_empty() && name.starts_with("shmsched_"), "{line}");
                (family, unit) = (name, "");
                families.push(name);
            }
            ["#", "TYPE", name, is] => {
                assert_eq!(name, family);
                kind = is;
            }
            ["#", "UNIT", name, is] => {
                assert_eq!(name, family);
                assert!(name.ends_with(&format!("_{is}")));
                unit = is;
            }
            _ => {
                let (labelled, value) = line.rsplit_once(' ').expect("a value");
                let (name, labels) = labelled.split_once('{').expect("labels");
                assert!(labels.contains("segment=\""), "{line}");
                let ends: &[&str] = match kind {
                    "counter" => &["_total"],
                    "histogram" => &["_sum", "_count", "_bucket"],
                    "gauge" => &[""],
                    _ => panic!("{line}"),
                };
                let rest = name.strip_prefix(family).expect("of its family");
                assert!(ends.contains(&rest), "{line}");
                assert!(
                    value.parse::<f64>().is_ok_and(|value| !value.is_nan()),
                    "{line}"
                );
                series.push(labelled);
                assert_eq!(name.contains("_seconds"), unit == "seconds", "{line}");
            }
        }
    }
    let count = (families.len(), series.len());
    families.sort_unstable();
    families.dedup();
    series.sort_unstable();
    series.dedup();
    assert_eq!(count, (families.len(), series.len()), "one is there twice");
    assert!(families.len() > 60, "{}", families.len());
}

#[test]
fn all_families_have_their_text() {
    for family in FAMILIES {
        assert!(
            !family.help.ends_with('.') && !family.help.contains(['\n', '\\']),
            "{}",
            family.name
        );
        let named = |end| family.name.ends_with(end);
        assert!(
            !named("_total") && !named("_seconds") && !named("_ratio"),
            "{}",
            family.name
        );
    }
}

/// The bounds of buckets are written in another way, so they are left out.
#[test]
fn the_older_text_has_the_same_values() {
    let [new, old] = [Form::OpenMetrics, Form::Prometheus].map(|form| {
        let text = Page::new(scrapes()).text(form);
        let series = text.lines().filter(|line| !line.starts_with('#'));
        let mut values: Vec<(String, u64)> = series
            .map(|line| {
                let (labelled, value) = line.rsplit_once(' ').expect("a value");
                let name = labelled.split('{').next().expect("a name");
                let value: f64 = value.parse().expect("a number");
                (name.to_owned(), value.to_bits())
            })
            .collect();
        values.sort_unstable();
        values
    });
    assert!(new == old);
}
