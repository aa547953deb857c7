//! What `inspect` and `list` look like on a terminal, and what odd names do there.

use crate::stage::{Stage, ended, shmsched};
use crate::support::Scene;
use crate::terminal::{Terminal, holder};
use serde_json::Value;
use std::ffi::OsStr;

/// Runs a script in a terminal of so many rows, once that many are set.
fn sized(stage: &Stage, script: &str, columns: u16, rows: u16) -> Terminal {
    let directory = stage.segment().parent().expect("it has one");
    let segment = stage.segment().display().to_string();
    let environment = [("SHMSCHED_SEGMENT", segment.as_str()), ("NO_COLOR", "1")];
    let script = format!("read go; {script}; echo \"code $?\"");
    let terminal = Terminal::run(&script, directory, &environment);
    terminal.resize(columns, rows);
    terminal.press("go\n");
    terminal
}

#[test]
fn case_58_watching_leaves_what_has_scrolled_away() {
    let stage = Stage::new(&["--concurrency", "2"]);
    let holder = holder(&stage);
    let mut terminal = sized(&stage, "\"$B\" inspect --watch 20ms", 100, 8);
    terminal.says(0, "more lines: the window is too low");
    let low = terminal.since(0);
    // The table of members is below.
    assert!(
        low.contains("segment") && !low.contains("COMMAND"),
        "{low:?}"
    );
    let mark = terminal.mark();
    terminal.resize(100, 40);
    terminal.says(mark, "COMMAND");
    terminal.press("\x03");
    let all = terminal.ended();
    assert!(
        !all.contains("\x1b[3J") && !all.contains("\x1b[2J"),
        "{all:?}"
    );
    drop(holder);
    // What is no terminal gets everything, and no codes.
    let mut whole = sized(
        &stage,
        "\"$B\" inspect | cat; TERM=dumb \"$B\" inspect",
        100,
        8,
    );
    let all = whole.ended();
    assert!(!all.contains('\x1b') && !all.contains("too low"), "{all:?}");
}

#[test]
fn case_57_long_names_are_short_on_a_terminal_only() {
    let stage = Stage::new(&["--concurrency", "2"]);
    let long = "n".repeat(90) + &"m".repeat(90);
    let script =
        format!("\"$B\" create {long} --concurrency 1; \"$B\" list; echo then; \"$B\" list | cat");
    let all = sized(&stage, &script, 100, 30).ended();
    let (shown, piped) = all.split_once("then\r\n").expect("both");
    let row = shown.lines().find(|line| line.starts_with("nnn"));
    let row = row.expect("a row").trim_end();
    assert!(
        row.contains("n...m") && row.chars().count() <= 100,
        "{row:?}"
    );
    assert!(piped.contains(&format!("{long}  ")), "{piped:?}");
}

#[test]
fn case_57_what_turns_or_hides_text_is_written_out() {
    let scene = Scene::new();
    let directory = scene.path("d");
    let odd = ['\u{200b}', '\u{202e}', '\u{2066}', '\u{feff}', '\u{e0041}'];
    let safe = |text: String| {
        assert!(!text.contains(&odd[..]), "{text:?}");
        text
    };
    let call = |arguments: &[&str]| {
        let ended = ended(shmsched(arguments).env("SHMSCHED_DIR", &directory));
        safe(ended.err.clone());
        safe(ended.text())
    };
    let name: String = odd.iter().flat_map(|c| [*c, 'x']).collect();
    call(&["create", &name, "--concurrency", "1"]);
    assert!(call(&["list"]).contains("\\u{200b}x\\u{202e}x\\u{2066}x\\u{feff}x\\u{e0041}x"));
    assert!(call(&["list", "--json"]).contains("\\u200bx\\u202ex"));
    for command in ["inspect", "doctor", "pressure", "top"] {
        call(&[command, &name]);
    }
    call(&["inspect", "\u{202e}missing"]);
    // A command's words, and a line feed in them is not the two characters that stand for it.
    let script = ": '\u{202e}\n\\n'; \"$0\" inspect \"$1\"";
    let program = crate::stage::PROGRAM;
    let inside = call(&["run", &name, "--", "sh", "-c", script, program, &name]);
    assert!(inside.contains(": '\\u{202e}\\n\\\\n'; "), "{inside}");
    // Two names that only differ in what is not UTF-8.
    for name in [&b"t\xff"[..], b"t\xef\xbf\xbd"] {
        let name = std::os::unix::ffi::OsStrExt::from_bytes(name);
        std::fs::write(directory.join::<&OsStr>(name), "a letter").expect("a file");
    }
    let list = call(&["list"]);
    assert!(
        list.contains("t\\xff") && list.contains("t\u{fffd}"),
        "{list}"
    );
}

/// A mistyped SHMSCHED_DIR is not to look like one without segments.
#[test]
fn list_says_that_there_is_no_such_directory() {
    let scene = Scene::new();
    let directory = scene.path("d");
    let list = |words: &[&str]| {
        let mut list = shmsched(&[&["list"], words].concat());
        ended(list.env("SHMSCHED_DIR", &directory))
    };
    let missing = list(&[]);
    let line = missing.is(0).one_line();
    assert!(
        line.contains(&*directory.to_string_lossy()) && line.contains("SHMSCHED_DIR"),
        "{line}"
    );
    // What is for machines is as it was.
    assert_eq!(list(&["--json"]).is(0).json()["segments"][0], Value::Null);
    let names = list(&["--names"]);
    assert_eq!((names.is(0).text(), names.err.as_str()), ("".into(), ""));

    std::fs::create_dir(&directory).expect("a directory");
    let empty = list(&[]);
    assert_eq!(empty.is(0).err, "");
    assert!(empty.text().starts_with("no segments in "), "{empty:?}");
    // Nobody has chosen the usual one, so it need not be there.
    assert_eq!(ended(&mut shmsched(&["list"])).is(0).err, "");
}
