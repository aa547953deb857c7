//! What explains itself: help, completions, manual pages.

use crate::stage::{ended, shmsched};
use crate::support::{Scene, skipped};
use std::ffi::OsString;
use std::fs;
use std::process::Command;

const VERBS: [&str; 16] = [
    "create",
    "list",
    "inspect",
    "top",
    "set",
    "run",
    "wait",
    "pipe",
    "pressure",
    "metrics",
    "doctor",
    "evict",
    "rm",
    "demo",
    "completions",
    "man",
];

#[test]
fn every_verb_has_help_with_examples() {
    let overview = ended(&mut shmsched(&["--help"]));
    let overview = overview.is(0).text();
    for verb in VERBS {
        assert!(
            overview.contains(&format!("\n  {verb} ")),
            "{verb} is not in the overview"
        );
        for form in ["--help", "-h"] {
            let help = ended(&mut shmsched(&[verb, form]));
            assert_eq!(help.is(0).err, "");
            let text = help.text();
            assert!(
                text.contains("Examples:") && text.contains(&format!("shmsched {verb}")),
                "{text}"
            );
            assert!(
                text.lines().all(|line| !line.contains('\x1b')),
                "no colours in a pipe"
            );
        }
    }
    for (code, _) in [
        (64, ""),
        (65, ""),
        (66, ""),
        (69, ""),
        (73, ""),
        (75, ""),
        (76, ""),
        (77, ""),
        (78, ""),
        (124, ""),
    ] {
        assert!(
            overview.contains(&format!("\n  {code:>3}  ")),
            "{code} is not in the table"
        );
    }
    let version = ended(&mut shmsched(&["--version"]));
    assert_eq!(
        version.is(0).text(),
        format!("shmsched {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn completions_of_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = ended(&mut shmsched(&["completions", shell])).is(0).text();
        assert!(VERBS.iter().all(|verb| text.contains(verb)), "{shell}");
    }
}

#[test]
fn man_writes_a_page_for_each_command() {
    let scene = Scene::alone();
    // With what is missing on the way there.
    let directory = scene.path("share/man1");
    ended(&mut shmsched(&["man", directory.to_str().expect("UTF-8")])).is(0);
    let mut written: Vec<_> = fs::read_dir(&directory)
        .expect("made")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    let mut expected: Vec<_> = VERBS
        .iter()
        .map(|verb| OsString::from(format!("shmsched-{verb}.1")))
        .chain(["shmsched.1".into()])
        .collect();
    written.sort();
    expected.sort();
    assert_eq!(written, expected);

    let printed = ended(&mut shmsched(&["man"])).is(0).text();
    let main = fs::read_to_string(directory.join("shmsched.1")).expect("written");
    assert_eq!(printed, main);

    let file = scene.path("file");
    fs::write(&file, "").expect("written");
    let refused = ended(&mut shmsched(&["man", file.to_str().expect("UTF-8")]));
    assert_eq!(refused.code(), 74);
    refused.one_line();
}

/// groff finds no fault in a page, and a reader finds the sections.
#[test]
fn the_manual_pages_render() {
    if Command::new("groff").arg("--version").output().is_err() {
        skipped!("needs groff");
    }
    let scene = Scene::alone();
    let directory = scene.path("man1");
    ended(&mut shmsched(&["man", directory.to_str().expect("UTF-8")])).is(0);
    for entry in fs::read_dir(&directory).expect("made") {
        let page = entry.expect("an entry").path();
        let rendered = Command::new("groff")
            .args(["-man", "-Tascii", "-ww", "-P-c", "-P-b", "-P-u"])
            .arg(&page)
            .output()
            .expect("groff runs");
        let text = String::from_utf8_lossy(&rendered.stdout);
        let faults = String::from_utf8_lossy(&rendered.stderr);
        assert!(
            rendered.status.success() && faults.is_empty(),
            "{page:?}: {faults}"
        );
        for section in ["NAME", "SYNOPSIS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"] {
            assert!(
                text.lines().any(|line| line == section),
                "{page:?}: {section}\n{text}"
            );
        }
        assert!(text.contains("  shmsched"), "{page:?}: {text}");
    }
}
