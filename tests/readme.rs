//! The console sessions of README.md and docs/shell.md, run as they stand.

use std::path::Path;

#[test]
fn the_sessions_of_the_readme() {
    run("README.md");
}

#[test]
fn the_sessions_of_the_shell() {
    run("docs/shell.md");
}

/// One after another, in a directory of segments of their own.
fn run(document: &str) {
    let directory = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_shmsched"));
    // A session names the program within a command, too.
    let mut path = std::ffi::OsString::from(program.parent().unwrap());
    if let Some(rest) = std::env::var_os("PATH") {
        path.push(":");
        path.push(rest);
    }
    trycmd::TestCases::new()
        .register_bin("shmsched", program)
        .env("PATH", path.to_str().unwrap())
        .env("SHMSCHED_DIR", directory.path().to_str().unwrap())
        .env("SHMSCHED_SEGMENT", "")
        .env("SHMSCHED_PERMIT", "")
        .env("NO_COLOR", "1")
        .case(document);
}
