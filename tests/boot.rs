//! docs/boot: the files are what systemd reads, and their command lines do what they say. Nothing of it needs a systemd that
//! runs.

#[path = "support/mod.rs"]
mod support;

use rustix::process::geteuid;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::skipped;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_shmsched");
/// Where the units look for it.
const INSTALLED: &str = "/usr/local/bin/shmsched";

fn text_of(name: &str) -> String {
    let boot = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/boot");
    fs::read_to_string(boot.join(name)).unwrap()
}

/// What a unit sets `key` to, in order.
fn values(unit: &str, key: &str) -> Vec<String> {
    let lines = text_of(unit);
    let lines = lines.lines().filter_map(|line| line.split_once('='));
    let of_it = lines.filter(|(found, _)| *found == key);
    of_it.map(|(_, value)| value.to_owned()).collect()
}

/// Whether a tool is there.
fn has(tool: &str) -> bool {
    let asked = Command::new(tool).arg("--version").output();
    asked.is_ok_and(|output| output.status.success())
}

fn shmsched(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(words)
        .env("SHMSCHED_DIR", directory)
        .env_remove("SHMSCHED_SEGMENT")
        .env_remove("SHMSCHED_PERMIT");
    command
}

/// A command line of a unit, with the program that is tested, on segments in `directory`.
fn run_line(directory: &Path, line: &str) -> Output {
    // systemd would make something else of these than we do.
    assert!(!line.contains(['"', '\'', '\\', '$', '%', ';']), "{line}");
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(words[0], INSTALLED);
    shmsched(directory, &words[1..]).output().unwrap()
}

#[track_caller]
fn run_lines(directory: &Path, key: &str) {
    let lines = values("shmsched.service", key);
    assert!(!lines.is_empty());
    for line in lines {
        succeeded(&run_line(directory, &line));
    }
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{}\n{out}{err}", output.status);
    out.into_owned()
}

#[track_caller]
fn inspect(directory: &Path, segment: &str) -> Value {
    let output = shmsched(directory, &["inspect", segment, "--json"]).output();
    serde_json::from_str(&succeeded(&output.unwrap())).unwrap()
}

#[track_caller]
fn has_the_numbers_of_the_unit(directory: &Path) {
    let thumbs = inspect(directory, "thumbs");
    assert_eq!(thumbs["scheduler"]["concurrency"], 4);
    assert_eq!(thumbs["scheduler"]["targets"]["low"], 2);
    assert_eq!(thumbs["scheduler"]["targets"]["normal"], 4);
    let uplink = inspect(directory, "uplink");
    assert_eq!(uplink["limiter"]["tokens_per_second"], 10_000_000);
    for segment in ["thumbs", "uplink"] {
        let mode = fs::metadata(directory.join(segment)).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o660);
    }
}

#[test]
fn the_unit_makes_its_segments_once_and_reload_sets_them() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    run_lines(directory, "ExecStart");
    has_the_numbers_of_the_unit(directory);

    // Somebody changes them; a restart leaves them so, a reload does not.
    for words in [
        ["set", "thumbs", "--concurrency", "3"],
        ["set", "uplink", "--rate", "5/s"],
    ] {
        succeeded(&shmsched(directory, &words).output().unwrap());
    }
    run_lines(directory, "ExecStart");
    assert_eq!(inspect(directory, "thumbs")["scheduler"]["concurrency"], 3);
    run_lines(directory, "ExecReload");
    has_the_numbers_of_the_unit(directory);
}

#[test]
fn reload_says_what_start_says() {
    let made = values("shmsched.service", "ExecStart");
    let set = values("shmsched.service", "ExecReload");
    let of_the_file = [" --if-missing", " --mode 660"];
    let as_set = made.iter().map(|line| {
        let line = line.replace(" create ", " set ");
        of_the_file.iter().fold(line, |line, option| {
            assert!(line.contains(option), "{line}");
            line.replace(option, "")
        })
    });
    assert_eq!(as_set.collect::<Vec<_>>(), set);
}

#[test]
fn the_service_that_uses_one_needs_it() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let lines = values("thumbnailer.service", "ExecStart");
    assert_eq!(run_line(directory, &lines[0]).status.code(), Some(66));
    run_lines(directory, "ExecStart");
    assert_eq!(succeeded(&run_line(directory, &lines[0])), "thumbnails\n");

    let places = |unit| values(unit, "Environment");
    assert_eq!(
        places("thumbnailer.service"),
        places("shmsched.service"),
        "one of them looks elsewhere"
    );
    for key in ["Wants", "After"] {
        assert_eq!(values("thumbnailer.service", key), ["shmsched.service"]);
    }
}

#[test]
fn systemd_reads_the_units() {
    if !has("systemd-analyze") {
        skipped!("no systemd-analyze");
    }
    let directory = tempfile::tempdir().unwrap();
    let units = ["shmsched.service", "thumbnailer.service"];
    // It wants the program to be there, at a path without blanks.
    let program = directory.path().join("shmsched");
    std::os::unix::fs::symlink(PROGRAM, &program).unwrap();
    let files = units.map(|unit| {
        let file = directory.path().join(unit);
        let text = text_of(unit).replace(INSTALLED, program.to_str().unwrap());
        fs::write(&file, text).unwrap();
        file
    });
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).args(files);
    // What it says is of the machine's other units, too.
    let said = String::from_utf8(verify.output().unwrap().stderr).unwrap();
    let mut of_ours = said
        .lines()
        .filter(|line| units.iter().any(|unit| line.contains(unit)));
    assert_eq!(of_ours.next(), None, "{said}");
}

/// A directory that `systemd-sysusers` and `systemd-tmpfiles` take for the root of a system.
fn system() -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().to_owned();
    for name in ["etc/sysusers.d", "etc/tmpfiles.d", "run"] {
        fs::create_dir_all(path.join(name)).unwrap();
    }
    (root, path)
}

/// The number of a group, as `/etc/group` has it.
fn group(root: &Path, name: &str) -> u32 {
    let groups = fs::read_to_string(root.join("etc/group")).unwrap();
    let mut lines = groups.lines().map(|line| line.split(':'));
    let mut found = lines.find_map(|mut fields| (fields.next() == Some(name)).then_some(fields));
    found.as_mut().unwrap().nth(1).unwrap().parse().unwrap()
}

#[test]
fn the_directories_are_made_as_they_are_described() {
    for tool in ["systemd-sysusers", "systemd-tmpfiles"] {
        if !has(tool) {
            skipped!("no {tool}");
        }
    }
    if !geteuid().is_root() {
        skipped!("only root gives directories to groups");
    }
    let (_keep, root) = system();
    // Beside the files those that the text has for several groups.
    let readme = text_of("README.md");
    let (_, several) = readme.split_once("```text\n").unwrap();
    let (several, _) = several.split_once("```").unwrap();
    let sysusers = text_of("shmsched.sysusers.conf") + "g web -\ng batch -\n";
    let tmpfiles = text_of("shmsched.tmpfiles.conf") + several;
    fs::write(root.join("etc/sysusers.d/shmsched.conf"), sysusers).unwrap();
    fs::write(root.join("etc/tmpfiles.d/shmsched.conf"), tmpfiles).unwrap();

    let at = format!("--root={}", root.display());
    let users = Command::new("systemd-sysusers").arg(&at).output().unwrap();
    if !users.status.success() {
        skipped!(
            "systemd-sysusers does not work here: {}",
            String::from_utf8_lossy(&users.stderr)
        );
    }
    let mut files = Command::new("systemd-tmpfiles");
    files.args(["--create", &at, "shmsched.conf"]);
    let files = files.output().unwrap();
    succeeded(&files);
    assert_eq!(String::from_utf8_lossy(&files.stderr), "");
    for (name, of) in [
        ("shmsched", "shmsched"),
        ("shmsched-web", "web"),
        ("shmsched-batch", "batch"),
    ] {
        let found = fs::metadata(root.join("run").join(name)).unwrap();
        assert_eq!(found.mode() & 0o7777, 0o2750, "{name}");
        assert_eq!((found.uid(), found.gid()), (0, group(&root, of)), "{name}");
    }
}

/// A user that no machine has.
const SOMEBODY: &str = "61234";
const ANOTHER: &str = "61235";
const MEMBERS: &str = "61300";
const OTHERS: &str = "61301";

#[test]
fn who_may_do_what() {
    let mut asked = Command::new("setpriv");
    asked.args(["--reuid", SOMEBODY, "--clear-groups", "true"]);
    let works = asked.output().is_ok_and(|output| output.status.success());
    if !geteuid().is_root() || !works {
        skipped!("setpriv --reuid {SOMEBODY} does not work");
    }
    let place = tempfile::tempdir().unwrap();
    let open = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    open(place.path(), 0o755);
    let program = place.path().join("shmsched");
    fs::copy(PROGRAM, &program).unwrap();
    let directory = place.path().join("segments");
    fs::create_dir(&directory).unwrap();
    let gid = MEMBERS.parse().unwrap();
    std::os::unix::fs::chown(&directory, Some(0), Some(gid)).unwrap();

    let as_user = |user: &str, group: &str, words: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", user, "--regid", user, "--groups", group])
            .arg(&program)
            .args(words)
            .env("SHMSCHED_DIR", &directory)
            .current_dir("/");
        command.output().unwrap().status.code().unwrap()
    };
    let member = |words: &[&str]| as_user(SOMEBODY, MEMBERS, words);
    let other = |words: &[&str]| as_user(ANOTHER, OTHERS, words);
    let run = |segment| ["run", segment, "--", "true"];
    let make = ["create", "own", "--mode", "660", "--concurrency", "1"];

    open(&directory, 0o2750);
    run_lines(&directory, "ExecStart");
    assert_eq!(fs::metadata(directory.join("thumbs")).unwrap().gid(), gid);
    assert_eq!(member(&run("thumbs")), 0);
    assert_eq!(member(&["set", "thumbs", "--concurrency", "5"]), 0);
    assert_eq!(member(&["rm", "thumbs"]), 77);
    assert_eq!(member(&make), 77);
    assert_eq!(other(&run("thumbs")), 77);
    assert_eq!(other(&["inspect", "thumbs"]), 77);

    open(&directory, 0o2770);
    assert_eq!(member(&make), 0);
    assert_eq!(as_user(ANOTHER, MEMBERS, &run("own")), 0);
    assert_eq!(other(&run("own")), 77);

    open(&directory, 0o2755);
    let seen = ["create", "seen", "--mode", "664", "--concurrency", "1"];
    succeeded(&shmsched(&directory, &seen).output().unwrap());
    assert_eq!(other(&["inspect", "seen"]), 0);
    assert_eq!(other(&["list"]), 0);
    assert_eq!(other(&run("seen")), 77);
    assert_eq!(other(&["inspect", "thumbs"]), 77);
    assert_eq!(member(&run("seen")), 0);
}
