//! What `scripts/compare` says without measuring; what it measures is checked by `cargo bench --bench compare -- --test`.

use std::process::{Command, Output};

fn compare(arguments: &[&str]) -> Output {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/compare");
    let mut command = Command::new(script);
    command.args(arguments).output().expect("bash")
}

#[test]
fn help_names_every_option_and_the_exit_codes() {
    let help = compare(&["--help"]);
    assert!(help.status.success());
    let text = String::from_utf8(help.stdout).unwrap();
    for word in [
        "--quick", "--json", "--only", "--strict", "--help", "141", "skipped",
    ] {
        assert!(text.contains(word), "no {word} in: {text}");
    }
}

#[test]
fn what_it_does_not_know_is_one_line_and_64() {
    for arguments in [&["--fast"][..], &["--only"], &["--quick", "extra"]] {
        let output = compare(arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        assert!(output.stdout.is_empty());
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.starts_with("compare: "), "{text}");
    }
}
