//! Case 58: `top` on real pseudo-terminals. However it ends, the terminal is as it was.

use crate::stage::{Job, Stage, ended, shmsched};
use crate::support::{Chance, LONG, until};
use crate::terminal::{Terminal, holder};
use rustix::process::Signal;
use std::fs::OpenOptions;
use std::time::{Duration, Instant};

/// Asks for the modes of the terminal before and after, and for the exit code.
fn script(arguments: &str) -> String {
    format!("stty -a; echo modes; \"$B\" top {arguments}; echo \"code $?\"; stty -a; echo modes")
}

fn open(stage: &Stage, arguments: &str, environment: &[(&str, &str)]) -> Terminal {
    let directory = stage.segment().parent().expect("it has one");
    let arguments = format!("{arguments} '{}'", stage.segment().display());
    Terminal::run(&script(&arguments), directory, environment)
}

/// Checks that the main screen, the cursor and the modes are back after everything.
#[track_caller]
fn restored(written: &str) {
    let last = |code: &str| written.rfind(code).unwrap_or_else(|| panic!("no {code:?}"));
    assert!(last("\x1b[?1049h") < last("\x1b[?1049l"), "{written:?}");
    assert!(last("\x1b[?25l") < last("\x1b[?25h"), "{written:?}");
    let after = &written[last("\x1b[?1049l") + 8..];
    assert!(!after.contains('\x1b'), "{after:?}");
    let before = written.split("modes").next().expect("modes");
    let after = after.split("code ").nth(1).expect("a code");
    let after = after.split_once('\n').expect("a line").1;
    let after = after.split("modes").next().expect("modes");
    assert!(before.contains("icanon") && before.contains("speed"));
    // The size may have been changed by the test, and the lines are as long as it is wide.
    let rest = |text: &str| {
        let modes = text.split_once("line =").expect("a line").1;
        modes.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(rest(before), rest(after));
}

/// Runs `top` to its end by `end`.
#[track_caller]
fn ends_by(arguments: &str, code: i32, end: impl FnOnce(&Stage, &Terminal)) -> String {
    let stage = Stage::new(&["--concurrency", "2"]);
    let mut terminal = open(&stage, arguments, &[]);
    if arguments.is_empty() {
        terminal.says(0, "COMMAND");
    }
    end(&stage, &terminal);
    let written = terminal.ended();
    restored(&written);
    assert!(written.contains(&format!("code {code}\r\n")), "{written:?}");
    written
}

#[test]
fn case_58_ends_by_a_key() {
    for (keys, code) in [
        ("q", 0),
        ("?q", 0),
        ("/abc\x03", 130),
        ("\x03", 130),
        ("\x1c", 131),
    ] {
        ends_by("", code, |_, terminal| terminal.press(keys));
    }
}

#[test]
fn case_58_ends_by_a_signal() {
    for (signal, code) in [
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
        (Signal::INT, 130),
        (Signal::USR1, 138),
        (Signal::ALARM, 142),
        (Signal::ABORT, 134),
        (Signal::XCPU, 152),
    ] {
        ends_by("", code, |_, terminal| terminal.signal(signal));
    }
}

#[test]
fn case_58_ends_by_a_signal_while_the_terminal_takes_no_output() {
    for signal in [Signal::TERM, Signal::HUP] {
        let stage = Stage::new(&["--concurrency", "2"]);
        let mut terminal = open(&stage, "", &[]);
        terminal.says(0, "COMMAND");
        let process = terminal.front();
        terminal.look_away();
        // Each size is another whole frame: soon there is no room for one, and then for a while.
        let (mut width, mut full) = (100, 0);
        until(LONG, "the terminal is full", || {
            width = 300 - width;
            terminal.resize(width, 100);
            std::thread::sleep(Duration::from_millis(60));
            full = if terminal.is_full(process) {
                full + 1
            } else {
                0
            };
            full == 5
        });
        rustix::process::kill_process(process, signal).expect("it is there");
        until(LONG, "it ended", || {
            rustix::process::test_kill_process(process).is_err()
        });
        terminal.look_again();
        let written = terminal.ended();
        restored(&written);
        let code = 128 + signal.as_raw();
        assert!(written.contains(&format!("code {code}\r\n")), "{written:?}");
    }
}

/// As of a serial line: 80 by 24, which all of them have.
#[test]
fn case_58_a_terminal_that_does_not_know_its_size() {
    let stage = Stage::new(&["--concurrency", "2"]);
    let segment = stage.segment();
    let script = format!("read go; \"$B\" top '{}'", segment.display());
    for (width, height) in [(0, 0), (0, 24), (80, 0)] {
        let directory = segment.parent().expect("it has one");
        let mut terminal = Terminal::run(&script, directory, &[]);
        terminal.resize(width, height);
        terminal.press("go\n");
        terminal.says(0, "COMMAND");
        terminal.press("q");
        let all = terminal.ended();
        assert!(!all.contains("\x1b[25;"), "{all:?}");
    }
}

#[test]
fn case_58_ends_by_a_panic() {
    let written = ends_by("--panic", 70, |_, _| {});
    let back = written.rfind("\x1b[?1049l").expect("it leaves");
    // One line, on the main screen.
    assert!(
        written[back..].contains("shmsched: internal error"),
        "{written:?}"
    );
}

#[test]
fn case_58_ends_when_the_segment_is_removed() {
    let written = ends_by("", 66, |stage, _| {
        // Nobody is attached: it is not refused.
        stage.call("rm", &[] as &[&str]).is(0);
    });
    assert!(
        written.contains("the segment was removed or replaced"),
        "{written:?}"
    );
}

#[test]
fn case_58_ends_when_the_terminal_hangs_up() {
    let stage = Stage::new(&["--concurrency", "2"]);
    let mut terminal = open(&stage, "", &[]);
    terminal.says(0, "COMMAND");
    let stat = format!("/proc/{}/stat", terminal.front().as_raw_pid());
    terminal.hang_up();
    until(LONG, "it is gone", || {
        std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
    });
}

#[test]
fn case_58_stops_and_goes_on() {
    let stage = Stage::new(&["--concurrency", "2"]);
    let directory = stage.segment().parent().expect("it has one");
    let script = format!(
        "stty -a; echo modes; \"$B\" top '{0}'; echo \"stopped $?\"; stty -a; echo modes; \
         fg; echo \"again $?\"; fg; echo \"code $?\"; stty -a; echo modes",
        stage.segment().display()
    );
    let mut terminal = Terminal::run(&script, directory, &[]);
    terminal.says(0, "COMMAND");
    let mark = terminal.mark();
    terminal.press("\x1a");
    terminal.says_after(mark, "stopped 147", "COMMAND");
    let stopped = terminal.since(0);
    let stopped = stopped.split("stopped 147").next().expect("so far");
    assert!(stopped.rfind("\x1b[?1049l") > stopped.rfind("\x1b[?1049h"));
    // The shell brought it back at once: it drew everything anew.
    let mark = terminal.mark();
    terminal.signal(Signal::TSTP);
    terminal.says_after(mark, "again 147", "COMMAND");
    terminal.press("q");
    let written = terminal.ended();
    restored(&written);
    assert!(written.contains("code 0\r\n"), "{written:?}");
    // Also while it was stopped.
    let modes: Vec<&str> = written.split("modes").collect();
    let icanon = |text: &str| text.contains(" icanon") && text.contains(" echo ");
    assert!(icanon(modes[0]) && icanon(modes[1]), "{written:?}");
}

#[test]
fn case_58_continued_after_sigstop_it_draws_again() {
    let stage = Stage::new(&["--concurrency", "2"]);
    let directory = stage.segment().parent().expect("it has one");
    let script = format!(
        "stty -a; echo modes; \"$B\" top '{}'; stty sane; fg; echo \"code $?\"; stty -a; echo modes",
        stage.segment().display()
    );
    let mut terminal = Terminal::run(&script, directory, &[]);
    terminal.says(0, "COMMAND");
    let mark = terminal.mark();
    terminal.signal(Signal::STOP);
    terminal.says(mark, "COMMAND");
    terminal.press("q");
    let written = terminal.ended();
    assert!(written.contains("code 0\r\n"), "{written:?}");
    assert!(written.rfind("\x1b[?25l") < written.rfind("\x1b[?25h"));
}

/// Processor time of a process so far.
fn used(process: rustix::process::Pid) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_pid()));
    let stat = stat.expect("it runs");
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .expect("fields")
        .split(' ')
        .collect();
    let ticks: u64 = fields[12].parse::<u64>().unwrap() + fields[13].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second())
}

#[test]
fn case_58_any_size() {
    let stage = Stage::alone(&["--concurrency", "2", "--rate", "1000", "--interval", "50ms"]);
    let _holder = holder(&stage);
    let mut terminal = open(&stage, "", &[]);
    terminal.says(0, "COMMAND");
    let process = terminal.front();
    let (before, begun) = (used(process), Instant::now());
    let mut chance = Chance::new();
    // The last is more than memory would do: it draws a part.
    for (width, height) in [(0, 0), (1, 1), (80, 1), (500, 200), (65_535, 65_535)] {
        terminal.resize(width, height);
        std::thread::sleep(Duration::from_millis(150));
    }
    for _ in 0..1_000 {
        let below = |chance: &mut Chance, most: u64| chance.below(most) as u16;
        terminal.resize(below(&mut chance, 300), below(&mut chance, 100));
        std::thread::sleep(Duration::from_millis(5));
    }
    let (used, passed) = (used(process) - before, begun.elapsed());
    assert!(
        used.as_secs_f64() < 0.3 * passed.as_secs_f64(),
        "{used:?} of {passed:?}"
    );
    let mark = terminal.mark();
    terminal.resize(90, 20);
    terminal.says(mark, "COMMAND");
    terminal.press("q");
    restored(&terminal.ended());
}

#[test]
fn case_58_it_only_reads() {
    let stage = Stage::new(&["--concurrency", "2"]);
    let _holder = holder(&stage);
    let before = stage.bytes();
    let mut terminal = open(&stage, "", &[]);
    terminal.says(0, "cat");
    std::thread::sleep(Duration::from_millis(300));
    assert!(stage.bytes() == before, "it changed the segment");
    let document = stage.inspect();
    assert_eq!(document["segment"]["members"]["used"], 1);
    assert_eq!(document["scheduler"]["waiters"], 0);
    terminal.press("jkssr/cat\rp\x1b[Ac\tq");
    restored(&terminal.ended());
    assert!(stage.bytes() == before, "it changed the segment");
}

#[test]
fn case_58_no_terminal_no_codes() {
    let stage = Stage::new(&["--concurrency", "2"]);
    let plain = stage.call("top", &[] as &[&str]);
    plain.is(0);
    assert!(plain.text().contains("running") && !plain.text().contains('\x1b'));
    let inspected = stage.call("inspect", &[] as &[&str]);
    assert_eq!(plain.text(), inspected.text());
    for environment in [&[("TERM", "dumb")][..], &[("TERM", "")]] {
        let mut terminal = open(&stage, "", environment);
        let written = terminal.ended();
        assert!(
            written.contains("running") && written.contains("code 0"),
            "{written:?}"
        );
        assert!(!written.contains('\x1b'), "{written:?}");
    }
    ended(&mut shmsched(&["top", "/nowhere/S"]))
        .is(66)
        .one_line();
}

/// Whether a code asks for a colour. Only the eight that every terminal with colours has are asked for.
#[track_caller]
fn coloured(text: &str) -> bool {
    let codes = text.split("\x1b[").skip(1);
    let codes = codes.filter_map(|code| {
        let end = code.find(|c: char| c.is_ascii_alphabetic())?;
        code[end..].starts_with('m').then(|| &code[..end])
    });
    let numbers: Vec<&str> = codes.flat_map(|code| code.split(';')).collect();
    let known = ["", "0", "1", "2", "7", "31", "32", "33", "34", "36"];
    assert!(
        numbers.iter().all(|code| known.contains(code)),
        "{numbers:?}"
    );
    numbers.iter().any(|code| code.len() == 2)
}

#[test]
fn case_58_as_the_terminal_can() {
    let stage = Stage::new(&["--concurrency", "2"]);
    let _holder = holder(&stage);
    for (term, colours) in [
        ("vt100", false),
        ("vt220", false),
        ("xterm-mono", false),
        ("ansi-m", false),
        ("ansi", true),
        ("xterm", true),
    ] {
        let terminal = open(&stage, "", &[("TERM", term)]);
        terminal.says(0, "cat");
        match colours {
            true => until(LONG, "colours", || coloured(&terminal.since(0))),
            false => {
                std::thread::sleep(Duration::from_millis(200));
                assert!(!coloured(&terminal.since(0)), "{term}");
            }
        }
    }
    // What is set first of the three decides.
    for (environment, utf8) in [
        (&[("LC_ALL", "C")][..], false),
        (&[("LC_ALL", ""), ("LC_CTYPE", ""), ("LANG", "")], false),
        (&[("LC_ALL", "C.UTF-8"), ("LANG", "C")], true),
        (
            &[("LC_ALL", ""), ("LC_CTYPE", "en_GB.utf8"), ("LANG", "C")],
            true,
        ),
        (
            &[("LC_ALL", ""), ("LC_CTYPE", "C"), ("LANG", "C.UTF-8")],
            false,
        ),
    ] {
        let terminal = open(&stage, "", environment);
        terminal.says(0, "cat");
        let written = terminal.since(0);
        assert_eq!(!written.is_ascii(), utf8, "{environment:?} {written:?}");
        assert_eq!(written.contains("####"), !utf8, "{environment:?}");
    }
}

#[test]
fn case_58_without_colour() {
    let stage = Stage::new(&["--concurrency", "2"]);
    let _holder = holder(&stage);
    let mut terminal = open(&stage, "", &[("NO_COLOR", "1")]);
    terminal.says(0, "cat");
    std::thread::sleep(Duration::from_millis(300));
    assert!(!coloured(&terminal.since(0)), "{:?}", terminal.since(0));
    // A key may still ask for them, and take them away.
    terminal.press("c");
    until(LONG, "colours", || coloured(&terminal.since(0)));
    terminal.press("q");
    restored(&terminal.ended());

    let terminal = open(&stage, "", &[]);
    terminal.says(0, "cat");
    until(LONG, "colours", || coloured(&terminal.since(0)));
}

#[test]
fn segments_appear_vanish_and_break() {
    let stage = Stage::new(&["--concurrency", "2"]);
    let directory = stage.scene.path("all");
    std::fs::create_dir(&directory).unwrap();
    let call = |arguments: &[&str]| {
        let mut command = shmsched(arguments);
        command.env("SHMSCHED_DIR", &directory);
        ended(&mut command).is(0);
    };
    let mut terminal = Terminal::run(&script(""), &directory, &[]);
    terminal.says(0, "segments");
    call(&["create", "firstone", "--concurrency", "1"]);
    terminal.says(0, "firstone");
    call(&["create", "secondone", "--rate", "5"]);
    terminal.says(0, "secondone");
    let file = OpenOptions::new()
        .write(true)
        .open(directory.join("firstone"));
    file.unwrap().set_len(4_096).unwrap();
    terminal.says(0, "cut");
    call(&["rm", "secondone"]);
    terminal.says(0, "removed");
    terminal.press("\t\tjq");
    let written = terminal.ended();
    restored(&written);
    assert!(written.contains("code 0"), "{written:?}");
}

#[test]
fn more_segments_than_files_on_a_terminal() {
    let stage = Stage::new(&["--concurrency", "2"]);
    let directory = stage.scene.path("all");
    std::fs::create_dir(&directory).unwrap();
    for n in 0..40 {
        let name = format!("n{n:02}");
        let mut command = shmsched(&["create", &name, "--rate", "5", "--members", "16"]);
        ended(command.env("SHMSCHED_DIR", &directory)).is(0);
    }
    let script = format!("ulimit -n 24; {}", script(""));
    let mut terminal = Terminal::run(&script, &directory, &[]);
    terminal.says(0, " of 40 ");
    // The last one, beyond what may be open, has its numbers.
    terminal.press("\x1b[Z");
    terminal.says(0, "[n39]");
    std::thread::sleep(Duration::from_millis(500));
    terminal.press("q");
    let written = terminal.ended();
    restored(&written);
    assert!(written.contains("code 0"), "{written:?}");
    assert!(!written.contains("open files"), "{written:?}");
}

#[test]
fn one_segment_however_it_is_spelled() {
    let stage = Stage::new(&["--concurrency", "2"]);
    let directory = stage.segment().parent().expect("it has one");
    let mut command = shmsched(&["top", "./S", "S"]);
    command
        .arg(stage.segment())
        .current_dir(directory)
        .env("SHMSCHED_DIR", directory);
    let text = ended(&mut command).is(0).text();
    assert_eq!(text.matches("running ").count(), 1, "{text}");
}

#[test]
fn a_job_that_waits_is_seen() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let _holder = holder(&stage);
    let _waiter = Job::start(&mut stage.command("run", &["-p", "high", "--", "true"]));
    let mut terminal = open(&stage, "", &[]);
    terminal.says(0, "high");
    terminal.says(0, "#1");
    terminal.press("q");
    restored(&terminal.ended());
}
