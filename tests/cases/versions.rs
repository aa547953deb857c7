//! Segments that another version wrote.

use crate::shell::{Ended, Play, create, shmsched};
use crate::support::Scene;
use std::fs;

/// Offsets in the header, as docs/segment-format.md has them.
mod at {
    pub const FORMAT: usize = 8;
    pub const BYTE_ORDER: usize = 12;
    pub const LAYOUT: usize = 16;
    pub const BYTES: usize = 24;
    pub const MEMBERS: usize = 32;
    pub const RECORDS: usize = 36;
    pub const MAX_WAITING: usize = 40;
}

/// What every command says of the file.
fn everybody(segment: &std::path::Path) -> Vec<(&'static str, Ended)> {
    let s = || segment;
    let commands = [
        ("run", shmsched!["run", s(), "--", "true"]),
        (
            "run --no-wait",
            shmsched!["run", "--no-wait", s(), "--", "true"],
        ),
        ("inspect", shmsched!["inspect", s()]),
        ("inspect --json", shmsched!["inspect", s(), "--json"]),
        ("set", shmsched!["set", s(), "--concurrency", "2"]),
        ("wait", shmsched!["wait", s(), "--timeout", "1s"]),
        ("doctor", shmsched!["doctor", s()]),
        ("doctor --repair", shmsched!["doctor", s(), "--repair"]),
        ("evict", shmsched!["evict", s(), "0"]),
        ("rm", shmsched!["rm", s()]),
        (
            "create --if-missing",
            shmsched!["create", s(), "--if-missing", "--concurrency", "1"],
        ),
    ];
    commands
        .map(|(verb, command)| (verb, command.ended()))
        .into()
}

#[test]
fn case_23_another_version_is_left_alone() {
    let scene = Scene::new();
    let segment = create(&scene, &["--concurrency", "3", "--members", "64"]);
    let whole = fs::read(&segment).unwrap();
    let word = |at: usize| u32::from_le_bytes(whole[at..at + 4].try_into().unwrap());
    let changed = |at: usize, bytes: &[u8]| {
        let mut changed = whole.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    let number = |at: usize, value: u32| changed(at, &value.to_le_bytes());
    let format = word(at::FORMAT);
    let flipped = word(at::BYTE_ORDER).swap_bytes();
    let cases: Vec<(String, Vec<u8>, i32, &[&str])> = vec![
        // Found and supported.
        (
            "version + 1".into(),
            number(at::FORMAT, format + 1),
            76,
            &["0x2", "0x1"],
        ),
        (
            "version - 1".into(),
            number(at::FORMAT, format - 1),
            76,
            &["0x0", "0x1"],
        ),
        (
            "version 0xffff".into(),
            number(at::FORMAT, 0xffff),
            76,
            &["0xffff", "0x1"],
        ),
        (
            "byte order mark".into(),
            number(at::BYTE_ORDER, flipped),
            76,
            &[],
        ),
        (
            "byte order".into(),
            changed(
                at::FORMAT,
                &[format.to_be_bytes(), flipped.to_le_bytes()].concat(),
            ),
            76,
            &["0x1000000", "0x1"],
        ),
        (
            "size of a record".into(),
            changed(at::LAYOUT, &[whole[at::LAYOUT] ^ 1]),
            76,
            &["layout"],
        ),
        // Geometry that cannot be.
        ("no members".into(), number(at::MEMBERS, 0), 76, &["layout"]),
        (
            "2^31 members".into(),
            number(at::MEMBERS, 1 << 31),
            76,
            &["layout"],
        ),
        (
            "one member more".into(),
            number(at::MEMBERS, 65),
            76,
            &["layout"],
        ),
        ("no records".into(), number(at::RECORDS, 0), 76, &["layout"]),
        (
            "2^31 records".into(),
            number(at::RECORDS, 1 << 31),
            76,
            &["layout"],
        ),
        (
            "2^31 waiting".into(),
            number(at::MAX_WAITING, 1 << 31),
            76,
            &["layout"],
        ),
        (
            "length".into(),
            changed(at::BYTES, &(whole.len() as u64 + 4096).to_le_bytes()),
            76,
            &["layout"],
        ),
    ];
    for (what, bytes, code, told) in cases {
        fs::write(&segment, &bytes).unwrap();
        for (verb, ended) in everybody(&segment) {
            assert_eq!(ended.code, Some(code), "{verb} of {what}: {ended:#?}");
            let ended = ended.says(code, "");
            for part in told {
                assert!(ended.err.contains(part), "{verb} of {what}: {ended:#?}");
            }
            assert!(
                fs::read(&segment).unwrap() == bytes,
                "{verb} of {what} changed it"
            );
        }
    }
    // It was the bytes.
    fs::write(&segment, &whole).unwrap();
    shmsched!["run", "--no-wait", &segment, "--", "true"]
        .ended()
        .is(0);
}
