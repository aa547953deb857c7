//! The console sessions of README.md, run as they stand.

use std::path::Path;

#[test]
fn the_sessions_of_the_readme() {
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
        .case("README.md");
}
