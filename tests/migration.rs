//! What docs/migration.md shows of ours beside Rust, run as it stands: the console sessions, the scripts, the makefiles,
//! the JavaScript. The Rust is in the doc tests (src/lib.rs).

#[path = "support/mod.rs"]
mod support;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::skipped;
use tempfile::TempDir;

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/migration.md");

/// A fenced block: what stands behind its backticks, and its text.
struct Block {
    language: String,
    text: String,
}

fn blocks() -> Vec<Block> {
    let guide = fs::read_to_string(GUIDE).unwrap();
    let mut blocks = Vec::new();
    let mut lines = guide.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let inside = lines.by_ref().take_while(|line| *line != "```");
            blocks.push(Block {
                language: language.to_owned(),
                text: inside.map(|line| format!("{line}\n")).collect(),
            });
        }
    }
    blocks
}

fn blocks_in(language: &str) -> Vec<String> {
    let of_it = blocks()
        .into_iter()
        .filter(|block| block.language == language);
    of_it.map(|block| block.text).collect()
}

/// A directory for segments, one for programs that is first in the path, and one to work in.
struct Place {
    root: TempDir,
}

impl Place {
    fn new() -> Place {
        let root = tempfile::tempdir().unwrap();
        for name in ["segments", "bin", "work"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        Place { root }
    }

    fn of(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn path(&self) -> OsString {
        let program = Path::new(env!("CARGO_BIN_EXE_shmsched"));
        let mut path = self.of("bin").into_os_string();
        path.push(":");
        path.push(program.parent().unwrap());
        if let Some(rest) = std::env::var_os("PATH") {
            path.push(":");
            path.push(rest);
        }
        path
    }

    /// The scripts of the guide. The second line of each is its name.
    fn install_scripts(&self) {
        for script in blocks_in("bash") {
            let name = script.lines().nth(1).unwrap().strip_prefix("# ").unwrap();
            let file = self.of("bin").join(name);
            fs::write(&file, &script).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.of("work"))
            .env("PATH", self.path())
            .env("SHMSCHED_DIR", self.of("segments"))
            .env_remove("SHMSCHED_SEGMENT")
            .env_remove("SHMSCHED_PERMIT")
            // Cargo's own jobserver.
            .env_remove("MAKEFLAGS");
        command
    }

    #[track_caller]
    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program, arguments).output().unwrap();
        succeeded(&output)
    }

    /// How many slots of a segment were ever taken.
    #[track_caller]
    fn admitted(&self, segment: &str) -> u64 {
        let text = self.run("shmsched", &["inspect", segment, "--json"]);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        json["scheduler"]["admitted"].as_u64().unwrap()
    }
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{}\n{out}{err}", output.status);
    out.into_owned()
}

/// Passes over a test for want of a program.
macro_rules! need {
    ($program:literal) => {
        if Command::new($program).arg("--version").output().is_err() {
            skipped!("no {}", $program);
        }
    };
}

#[test]
fn no_block_is_left_out() {
    // What is theirs.
    let foreign = ["sh"];
    // Run here, or as doc tests.
    let ours = [
        "console",
        "bash",
        "make",
        "text",
        "js",
        "rust",
        "rust,no_run",
    ];
    for block in blocks() {
        let language = block.language.as_str();
        assert!(
            foreign.contains(&language) || ours.contains(&language),
            "who runs the block of '{language}'?\n{}",
            block.text
        );
    }
}

#[test]
fn the_console_sessions() {
    need!("bash");
    // Others it would pass over.
    let known = ["shmsched", "sh", "backup", "nightly"];
    for session in blocks_in("console") {
        for line in session.lines().filter_map(|line| line.strip_prefix("$ ")) {
            let program = line.split(' ').next().unwrap();
            assert!(known.contains(&program), "{line}");
        }
    }
    let place = Place::new();
    place.install_scripts();
    trycmd::TestCases::new()
        .register_bin("shmsched", Path::new(env!("CARGO_BIN_EXE_shmsched")))
        .register_bin("sh", Path::new("/bin/sh"))
        .register_bin("backup", place.of("bin").join("backup"))
        .register_bin("nightly", place.of("bin").join("nightly"))
        .env("PATH", place.path().to_str().unwrap())
        .env("SHMSCHED_DIR", place.of("segments").to_str().unwrap())
        .env("SHMSCHED_SEGMENT", "")
        .env("SHMSCHED_PERMIT", "")
        .env("NO_COLOR", "1")
        .case(GUIDE);
}

#[test]
fn a_script_that_is_killed_frees_its_slot() {
    need!("bash");
    let place = Place::new();
    place.run("shmsched", &["create", "db", "--concurrency", "1"]);
    let scripts = blocks_in("bash");
    let backup = scripts.iter().find(|text| text.contains("# backup"));
    // In the middle of the block, with something of its own in the background.
    let instead = "sleep 600 > /dev/null 2>&1 & echo $!; kill -9 $$";
    let killed = backup
        .unwrap()
        .replace("echo \"nobody else is in here\"", instead);
    let output = place.command("bash", &["-c", &killed]).output().unwrap();
    assert!(!output.status.success());
    place.run("shmsched", &["wait", "db", "--timeout", "20s"]);
    assert_eq!(place.admitted("db"), 1);
    // It lived all the while.
    let left = String::from_utf8(output.stdout).unwrap();
    place.run("kill", &[left.trim()]);
}

#[test]
fn a_script_that_finds_no_slot_does_not_go_on() {
    need!("bash");
    let place = Place::new();
    place.install_scripts();
    place.run("shmsched", &["create", "db", "--concurrency", "0"]);
    let output = place.command("backup", &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(69));
    assert!(output.stdout.is_empty());
}

#[test]
fn a_script_that_locks_itself_runs_once() {
    let place = Place::new();
    place.install_scripts();
    let second = ["run", "--concurrency", "1", "nightly", "--", "sh", "-c"];
    let again = [&second[..], &["nightly; echo $?"]].concat();
    // Under a permit it is refused as nested; a stranger finds no slot.
    assert_eq!(place.run("shmsched", &again), "78\n");
    let stranger = [&second[..], &["env -u SHMSCHED_PERMIT nightly; echo $?"]].concat();
    assert_eq!(place.run("shmsched", &stranger), "75\n");
}

#[test]
fn the_makefiles() {
    need!("make");
    let made = [
        ("built one\nbuilt three\nbuilt two\n", 3),
        ("compiled other.o\ncompiled thing.o\n", 2),
    ];
    let makefiles = blocks_in("make");
    assert_eq!(makefiles.len(), made.len());
    // What is typed; the only block that needs both programs.
    let typed = blocks_in("text").concat().replace("$ ", "");
    assert_eq!(typed.lines().count(), 2);
    for (makefile, (printed, slots)) in makefiles.iter().zip(made) {
        let place = Place::new();
        fs::write(place.of("work").join("Makefile"), makefile).unwrap();
        let printout = place.run("sh", &["-ec", &typed]);
        // Of the inner make: which directory it is in.
        let mut lines: Vec<&str> = printout
            .lines()
            .filter(|line| !line.starts_with("make"))
            .collect();
        lines.sort_unstable();
        assert_eq!(lines.join("\n") + "\n", printed);
        assert_eq!(place.admitted("build"), slots, "{makefile}");
    }
}

#[test]
fn a_make_within_a_recipe_is_refused_where_the_shell_takes_a_slot() {
    need!("make");
    let place = Place::new();
    let makefile = blocks_in("make")[0].replace("echo built $@", "$(MAKE) two");
    fs::write(place.of("work").join("Makefile"), makefile).unwrap();
    place.run("shmsched", &["create", "build", "--concurrency", "8"]);
    let output = place.command("make", &["one"]).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("already inside a permit"), "{said}");
}

#[test]
fn the_javascript() {
    need!("node");
    let place = Place::new();
    place.run("shmsched", &["create", "pages", "--concurrency", "8"]);
    let scripts = blocks_in("js");
    let mut ours = scripts.iter().filter(|text| text.starts_with("// ours\n"));
    let script = ours.next().unwrap();
    assert!(ours.next().is_none());
    let file = place.of("work").join("ours.mjs");
    fs::write(&file, script).unwrap();
    assert_eq!(place.run("node", &["ours.mjs"]), "rendered\n");
    place.run("shmsched", &["wait", "pages", "--timeout", "20s"]);
    assert_eq!(place.admitted("pages"), 1);

    // Killed within its slot.
    let killed = script.replace("=> 'rendered'", "=> process.kill(process.pid, 'SIGKILL')");
    fs::write(&file, killed).unwrap();
    let output = place.command("node", &["ours.mjs"]).output().unwrap();
    assert!(!output.status.success());
    place.run("shmsched", &["wait", "pages", "--timeout", "20s"]);
    assert_eq!(place.admitted("pages"), 2);

    // No slot: an error, and the work is not begun.
    place.run("shmsched", &["set", "pages", "--concurrency", "0"]);
    fs::write(&file, script).unwrap();
    let output = place.command("node", &["ours.mjs"]).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("shmsched: 69"));
}
