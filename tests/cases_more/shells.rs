//! The completions in the shells that they are for, with the tab key of a terminal: a SEGMENT completes with the names
//! that exist. A shell that is not installed is passed over.

use crate::stage::{PROGRAM, command, ended, shmsched};
use crate::support::{Scene, skipped};
use crate::terminal::Terminal;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// What is typed up to the tab key, and the line that comes of it. The shells end a whole word with a space.
const LINES: [(&str, &str); 11] = [
    ("shmsched run thu", "shmsched run thumbs "),
    ("shmsched run -p high thu", "shmsched run -p high thumbs "),
    ("shmsched run -p hi", "shmsched run -p high"),
    (
        "shmsched run --timeout=5s upl",
        "shmsched run --timeout=5s uplink ",
    ),
    ("shmsched top thumbs upl", "shmsched top thumbs uplink "),
    ("shmsched rm a", "shmsched rm a\\$\\(touch\\ x\\) "),
    // One is there already; the command's arguments are its own.
    ("shmsched run thumbs upl", "shmsched run thumbs upl"),
    ("shmsched run thumbs -- upl", "shmsched run thumbs -- upl"),
    // After -- stands a command, then its arguments.
    (
        "shmsched run thumbs -- shmsch",
        "shmsched run thumbs -- shmsched ",
    ),
    ("shmsched run -- shmsch", "shmsched run -- shmsched "),
    (
        "shmsched run -p low thumbs -- cat ",
        "shmsched run -p low thumbs -- cat report ",
    ),
];

/// Segments, and the completions of a shell.
fn scene(shell: &str) -> Scene {
    let scene = Scene::alone();
    let directory = scene.path("segments");
    for name in ["thumbs", "uplink", "a$(touch x)"] {
        let mut create = shmsched(&["create", name, "--concurrency", "1"]);
        ended(create.env("SHMSCHED_DIR", &directory)).is(0);
    }
    fs::write(directory.join("line\nbreak"), "").expect("written");
    let script = ended(&mut shmsched(&["completions", shell])).is(0).text();
    fs::write(scene.path("completions"), script).expect("written");
    fs::create_dir(scene.path("here")).expect("made");
    fs::write(scene.path("here/report"), "").expect("written");
    scene
}

fn is_here(shell: &str) -> bool {
    command(shell).arg("--version").output().is_ok()
}

/// With the program before all else.
fn path() -> String {
    let program = Path::new(PROGRAM).parent().expect("it has one");
    let mut path = OsString::from(program);
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path.into_string().expect("UTF-8")
}

/// Types each line in a shell, completes it, and has the shell print what has become of it. zsh takes back the space after
/// a word when the cursor moves.
fn completes(shell: &str, arguments: &str, ready: &str) {
    let scene = scene(shell);
    let directory = scene.path("segments");
    let script = format!(
        "cd '{}'; exec {shell} {arguments}",
        scene.path("here").display()
    );
    let path = path();
    let environment = [("PATH", path.as_str()), ("PS1", "> "), ("HISTFILE", "")];
    let terminal = Terminal::run(&script, &directory, &environment);
    terminal.press(&format!(
        "{ready}; . ../completions; echo ready=$((0 + 1))\n"
    ));
    terminal.says(0, "ready=1");
    for (typed, expected) in LINES {
        let mark = terminal.mark();
        // The tab key, the beginning of the line, its end.
        terminal.press(&format!("{typed}\t\x01printf '<%s>' '\x05'\n"));
        let expected = match shell {
            "zsh" => expected.trim_end(),
            _ => expected,
        };
        terminal.says(mark, &format!("<{expected}>"));
    }
}

#[test]
fn in_bash() {
    if !is_here("bash") {
        skipped!("no bash");
    }
    let ready = "bind 'set enable-bracketed-paste off'";
    completes("bash", "--norc --noprofile -i", ready);
}

/// On an empty word, where it would ask whether to show all: commands, none of our options. With bash-completion, which
/// knows the arguments of many commands, that is asked.
#[test]
fn in_bash_after_two_dashes() {
    if !is_here("bash") {
        skipped!("no bash");
    }
    let scene = scene("bash");
    let offers = |setup: &str, words: &str| {
        let script = format!(
            ". ../completions; {setup}; COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _shmsched_segments shmsched '' --; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let mut bash = command("bash");
        bash.args(["--norc", "--noprofile", "-c", &script]);
        bash.env("PATH", path()).current_dir(scene.path("here"));
        ended(&mut bash).is(0).text()
    };
    for words in ["shmsched run thumbs -- ''", "shmsched run -p low -- ''"] {
        let offered = offers(":", words);
        assert!(offered.lines().any(|line| line == "shmsched"), "{offered}");
        assert!(!offered.contains("--priority"), "{offered}");
    }
    for name in ["_command_offset", "_comp_command_offset"] {
        let setup = format!("{name}() {{ COMPREPLY=(\"from $1\"); }}");
        let offered = offers(&setup, "shmsched run thumbs -- cat ''");
        assert_eq!(offered, "from 4\n");
    }
}

#[test]
fn in_zsh() {
    if !is_here("zsh") {
        skipped!("no zsh");
    }
    let ready = "autoload -U compinit; compinit -D -u; unsetopt automenu";
    completes("zsh", "-f -i", ready);
}

/// fish says itself what it would offer.
#[test]
fn in_fish() {
    if !is_here("fish") {
        skipped!("no fish");
    }
    let scene = scene("fish");
    for (typed, expected) in LINES {
        let mut fish = command("fish");
        fish.args([
            "-N",
            "-c",
            "source ../completions; complete -C $argv[1]",
            typed,
        ]);
        fish.env("SHMSCHED_DIR", scene.path("segments"))
            .env("PATH", path());
        fish.env("HOME", scene.path("here"))
            .current_dir(scene.path("here"));
        let offered = ended(&mut fish).is(0).text();
        let before = typed.rsplit_once(' ').expect("words").0;
        let word = expected[before.len() + 1..].trim_end().replace('\\', "");
        let described = format!("{word}\t");
        match typed == expected {
            // Commands that have it in their middle are offered, too.
            true => assert!(!offered.contains("uplink"), "{typed}: {offered}"),
            false => assert!(
                offered
                    .lines()
                    .any(|line| line == word || line.starts_with(&described)),
                "{typed}: {offered}"
            ),
        }
    }
}

/// What the shells ask for: names as they are typed, without what no segment can be called.
#[test]
fn the_names() {
    let scene = scene("bash");
    let list = |words: &[&str]| {
        let mut list = shmsched(words);
        ended(list.env("SHMSCHED_DIR", scene.path("segments")))
    };
    let names = list(&["list", "--names"]);
    assert_eq!(names.is(0).text(), "a$(touch x)\nthumbs\nuplink\n");
    list(&["list", "--names", "--json"]).is(64).one_line();
    assert!(!scene.path("here/x").exists());
}
