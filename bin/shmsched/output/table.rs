//! `inspect` and `list` for people.

mod facts;

use std::cmp::Reverse;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use shmsched::{Gate, MemberInfo, MemberState, PlaceState, Priority, Snapshot, WaitingInfo};

use super::json::{self, Listed};
use super::style::Style;
use super::{
    counted, escaped, fitted, limit, literal, percent, short, shortened, shortened_within,
};
use super::{span, time, width};

/// The longest command shown.
const COMMAND: usize = 60;
/// So many columns a name or a command has on a terminal at least.
const LEAST: usize = 16;

/// The whole picture of a segment.
pub fn inspect(snapshot: &Snapshot, style: Style) -> String {
    let mut text = facts::text(snapshot, style);
    if !snapshot.members.is_empty() {
        let members = in_turn(&snapshot.members);
        let mut rows = vec![
            [
                "MEMBER", "PID", "STATE", "AGE", "HELD", "FOR", "WAITING", "COMMAND",
            ]
            .map(str::to_owned),
        ];
        rows.extend(members.iter().map(|member| row(member)));
        if let Some(most) = room(&rows, 7, 8, style) {
            rows.iter_mut()
                .for_each(|row| row[7] = fitted(&row[7], most));
        }
        let table = table(rows, &[0, 1, 3, 4, 5]);
        text.push('\n');
        let well = |at: usize| members[at].state == MemberState::Alive;
        text.push_str(&lines(&table, style, well));
    }
    text
}

/// Who holds, the longest first; then who waits, as they stand in line; then the others. As `top` has them at first.
fn in_turn(members: &[MemberInfo]) -> Vec<&MemberInfo> {
    let mut members: Vec<&MemberInfo> = members.iter().collect();
    members.sort_by_key(|member| {
        let holds = member.held > 0;
        let held_ms = member.held_ms.unwrap_or(member.age_ms);
        let first = member.waiting.iter().map(|place| place.position).min();
        let first = first.unwrap_or(u32::MAX);
        let held = Reverse(if holds { held_ms } else { 0 });
        (!holds, held, first, member.member)
    });
    members
}

fn row(member: &MemberInfo) -> [String; 8] {
    let elsewhere = if member.same_namespace {
        ""
    } else {
        " (other pid namespace)"
    };
    [
        member.member.to_string(),
        member.pid.to_string(),
        format!("{}{elsewhere}", json::state(member.state)),
        time(member.age_ms),
        member.held.to_string(),
        held_for(member),
        match member.waiting.as_slice() {
            [] => "-".into(),
            places => places.iter().map(place).collect::<Vec<_>>().join(", "),
        },
        literal(&shortened(&member.command, COMMAND)),
    ]
}

/// For how long it has held: not longer than it has been there, if that is all that is known.
pub fn held_for(member: &MemberInfo) -> String {
    match (member.held, member.held_ms) {
        (0, _) => "-".into(),
        (_, Some(ms)) => time(ms),
        (_, None) => format!("<={}", time(member.age_ms)),
    }
}

/// A place in a line: `normal 2 slots for 1.5s, place 1`, `start for 200ms, place 3`, `high for 20ms, called`.
fn place(waiting: &WaitingInfo) -> String {
    let priority = waiting.priority.map_or("", Priority::name);
    let amount = u64::from(waiting.amount);
    let what = match (waiting.gate, amount) {
        (Gate::Pacer, _) => "start".to_owned(),
        (Gate::Limiter, _) => format!("{priority} {}", counted(amount, "token")),
        (_, 1) => priority.to_owned(),
        (_, _) => format!("{priority} {}", counted(amount, "slot")),
    };
    let turn = match waiting.state {
        PlaceState::Asleep => "",
        PlaceState::Called => " (called)",
        PlaceState::Lapsed => " (let its turn pass)",
    };
    format!(
        "{what} for {}, place {}{turn}",
        time(waiting.since_ms),
        waiting.position
    )
}

/// The segments of the directory.
pub fn list(segments: &[Listed], style: Style) -> String {
    let header = [
        "NAME", "RUNNING", "LIMIT", "TOKENS", "RATE", "INTERVAL", "WAITING", "PRESSURE", "MEMBERS",
        "",
    ];
    let mut rows = vec![header.map(str::to_owned)];
    for segment in segments {
        rows.push([
            segment.shown.clone(),
            or_dash(segment.running),
            or_dash(segment.running.map(|_| limit(segment.concurrency))),
            or_dash(segment.tokens.map(|tokens| short(tokens.into()))),
            or_dash(
                segment
                    .tokens_per_second
                    .map(|rate| format!("{}/s", short(rate.into()))),
            ),
            or_dash(segment.interval().map(span)),
            or_dash(segment.waiters),
            or_dash(segment.pressure().map(percent)),
            or_dash(segment.members),
            segment.error.as_deref().map(escaped).unwrap_or_default(),
        ]);
    }
    // What is wrong with a segment stands behind everything, as long as it is.
    if let Some(most) = room(&rows, 0, 9, style) {
        rows.iter_mut()
            .for_each(|row| row[0] = shortened_within(&row[0], most));
    }
    let table = table(rows, &[1, 2, 3, 4, 5, 6, 7, 8]);
    lines(&table, style, |at| segments[at].error.is_none())
}

/// How many columns are left for this one of the first `shown`, on a terminal.
fn room<const N: usize>(
    rows: &[[String; N]],
    column: usize,
    shown: usize,
    style: Style,
) -> Option<usize> {
    let widest = |at: usize| rows.iter().map(|row| width(&row[at])).max().unwrap_or(0);
    let others = (0..shown).filter(|at| *at != column);
    let used: usize = others.map(|at| widest(at) + GAP).sum();
    Some(style.columns?.saturating_sub(used).max(LEAST))
}

/// The average over ten seconds of the share of the time in which somebody waits, at the gate where that is most: hundredths
/// of a percent.
pub fn pressure(snapshot: &Snapshot) -> u16 {
    let gates = super::pressure::gates(snapshot);
    let some = gates.iter().map(|(_, pressure)| pressure.some.averages[0]);
    some.max().unwrap_or(0)
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or("-".into(), |value| value.to_string())
}

/// Columns between two columns.
const GAP: usize = 2;

/// A table of these rows, the first of which is the header.
fn table<const N: usize>(rows: Vec<[String; N]>, right: &[usize]) -> Table {
    let mut table = Table::new();
    let mut rows = rows.into_iter();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(rows.next().expect("a header"));
    table.add_rows(rows);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, GAP as u16));
        if right.contains(&at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The table without blanks at the ends of its lines; the header stands out, and so do the rows that are not well.
fn lines(table: &Table, style: Style, well: impl Fn(usize) -> bool) -> String {
    let mut text = String::new();
    for (at, line) in table.lines().enumerate() {
        let line = line.trim_end();
        text.push_str(&match at.checked_sub(1) {
            None => style.bold(line),
            Some(row) if !well(row) => style.alarm(line),
            Some(_) => line.to_owned(),
        });
        text.push('\n');
    }
    text
}

#[cfg(test)]
pub mod samples;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::style::bare;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    /// The lines without what only aligns them.
    fn squeezed(text: &str) -> Vec<String> {
        text.lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect()
    }

    #[test]
    fn the_picture_of_a_busy_segment() {
        let expected = "\
segment   thumbs at /dev/shm/shmsched-0/thumbs
id        000102030405060708090a0b0c0d0e0f
file      1.0 MB on tmpfs, device 0:25, inode 77, mode 0600, format 1
members   2 of 1024, 3 of 4096 records

running   2 of 2
  waiting 1, the first for 1.5s, normal 1
  pressure some 12.34 %, full 0.50 % (avg10)
  waits   4, p50 ~724us, p99 ~4.0s, longest 4.0s
  holds   none yet
  targets lowest 1, all others 2
  so far  admitted 9007199254740993, released 40, reclaimed 3
  deferred 7 = completed 4 + cancelled 1 + lost 1 + queued 1

MEMBER  PID  STATE                          AGE  HELD    FOR  WAITING                   COMMAND
     0  101  alive                        1m01s     2  1m00s  -                         sleep 60
     1  102  stopped (other pid namespace)  2.0s     0      -  normal for 1.5s, place 1  a\\u{1b}[31m\\u{9b}\u{fffd} b
";
        let found = inspect(&samples::stalled(), Style::PLAIN);
        assert_eq!(squeezed(&found), squeezed(expected));
        assert!(!found.chars().any(|c| c.is_control() && c != '\n'));
    }

    #[test]
    fn the_picture_of_a_segment_without_slots() {
        let found = inspect(&samples::paced(), Style::PLAIN);
        let from = found.find("tokens").expect("a fact");
        let expected = "\
tokens    -20 at 1.5M/s
  waiting 1, the first for 250ms, high 1
  pressure some 0.00 %, full 0.00 % (avg10)
  waits   none yet
  so far  consumed 9007199254740993, forced 3
  deferred 9 = completed 5 + cancelled 2 + lost 1 + queued 1

starts    one every 500us, the next in 1ms
  waiting 1 of at most 8, the first for 3.0s
  pressure some 0.00 %, full 0.00 % (avg10)
  waits   none yet
  so far  started 12, rejected 2
  deferred 6 = completed 3 + cancelled 1 + lost 1 + queued 1

MEMBER  PID  STATE    AGE  HELD  FOR  WAITING                                     COMMAND
     0  101  alive  1m01s     0    -  high 500 tokens for 250ms, place 1 (called) sleep 60
     1  102  alive   2.0s     0    -  start for 3.0s, place 1 (let its turn pass) curl
";
        assert_eq!(squeezed(&found[from..]), squeezed(expected));
        assert!(!found.contains("running"), "{found}");
        let mut due = samples::paced();
        due.pacer.as_mut().unwrap().next_start_in = std::time::Duration::ZERO;
        assert!(inspect(&due, Style::PLAIN).contains("one every 500us, the next now\n"));
    }

    #[test]
    fn colours_paint_whole_lines_and_move_nothing() {
        let colour = Style {
            colour: true,
            ..Style::PLAIN
        };
        for snapshot in [samples::busy(), samples::paced()] {
            let painted = inspect(&snapshot, colour);
            // Who is stopped stands out.
            let stopped = painted.contains("\u{1b}[31m     1");
            assert_eq!(stopped, snapshot.scheduler.is_some(), "{painted}");
            assert_eq!(bare(&painted), inspect(&snapshot, Style::PLAIN));
        }
    }

    #[test]
    fn places_say_what_for() {
        let mut place = samples::busy().members[1].waiting[0].clone();
        place.amount = 2;
        assert_eq!(super::place(&place), "normal 2 slots for 1.5s, place 1");
        place.gate = Gate::Limiter;
        assert_eq!(super::place(&place), "normal 2 tokens for 1.5s, place 1");
    }

    #[test]
    fn a_list() {
        let listed = |name: &str, found| Listed::new(name.into(), Path::new("/d"), found);
        let (slots, paced) = (samples::stalled(), samples::paced());
        let segments = [
            listed("b\n", Err("not a segment".into())),
            listed("thumbs", Ok(&slots)),
            listed("uplink", Ok(&paced)),
        ];
        let text = list(&segments, Style::PLAIN);
        let expected = "\
NAME RUNNING LIMIT TOKENS RATE INTERVAL WAITING PRESSURE MEMBERS
b\\n - - - - - - - - not a segment
thumbs 2 2 - - - 1 12.34 % 2
uplink - - -20 1.5M/s 500us 2 0.00 % 2
";
        assert_eq!(squeezed(&text), squeezed(expected));
    }

    #[test]
    fn who_holds_comes_first_and_who_waits_as_in_line() {
        let mut snapshot = samples::busy();
        let [holder, waiter] = &snapshot.members[..] else {
            unreachable!("there are two")
        };
        let (mut quick, mut first, mut idle) = (holder.clone(), waiter.clone(), waiter.clone());
        (quick.member, quick.held_ms) = (2, None);
        first.member = 3;
        snapshot.members[1].waiting[0].position = 2;
        (idle.member, idle.waiting) = (4, Vec::new());
        snapshot.members.extend([quick, first, idle]);
        let text = inspect(&snapshot, Style::PLAIN);
        let rows = text
            .lines()
            .skip_while(|line| !line.starts_with("MEMBER"))
            .skip(1);
        let rows: Vec<Vec<&str>> = rows.map(|row| row.split_whitespace().collect()).collect();
        let members: Vec<&str> = rows.iter().map(|row| row[0]).collect();
        assert_eq!(members, ["2", "0", "3", "1", "4"]);
        // Who got its slot at once has held it no longer than it is there.
        assert_eq!((rows[0][5], rows[1][5]), ("<=1m01s", "1m00s"));
    }

    #[test]
    fn targets_that_are_alike_are_named_once() {
        let mut snapshot = samples::busy();
        let targets = |snapshot: &Snapshot| {
            let text = inspect(snapshot, Style::PLAIN);
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("  targets "));
            line.expect("a fact").trim_start().to_owned()
        };
        let scheduler = snapshot.scheduler.as_mut().unwrap();
        scheduler.targets = [None; 7];
        assert_eq!(targets(&snapshot), "all unlimited");
        let scheduler = snapshot.scheduler.as_mut().unwrap();
        scheduler.targets = [0, 1, 1, 2, 2, 2, 3].map(Some);
        assert_eq!(
            targets(&snapshot),
            "lowest 0, lower 1, low 1, highest 3, all others 2"
        );
    }

    #[test]
    fn long_names_give_way_on_a_terminal_only() {
        let snapshot = samples::stalled();
        let long = "a".repeat(100) + &"z".repeat(100);
        let segments = [
            Listed::new(long.clone(), Path::new("/d"), Ok(&snapshot)),
            Listed::new("b".into(), Path::new("/d"), Err("x".repeat(99))),
        ];
        assert!(list(&segments, Style::PLAIN).contains(&long));
        let widths = |columns| {
            let style = Style {
                columns: Some(columns),
                ..Style::PLAIN
            };
            let text = list(&segments, style);
            assert!(
                text.contains("aa...z") && text.contains(&"x".repeat(99)),
                "{text}"
            );
            text.lines().map(width).collect::<Vec<_>>()
        };
        assert_eq!(widths(100)[..2], [100, 100]);
        // No less than a name needs.
        assert_eq!(widths(10)[..2], widths(20)[..2]);

        let mut snapshot = samples::busy();
        snapshot.members[0].command = "word ".repeat(20);
        let style = |columns| Style {
            columns,
            ..Style::PLAIN
        };
        let widest = |columns| {
            let text = inspect(&snapshot, style(columns));
            let rows = text.lines().skip_while(|line| !line.starts_with("MEMBER"));
            rows.map(width).max().unwrap()
        };
        assert!(widest(Some(120)) <= 120 && widest(None) > 130);
    }

    #[test]
    fn names_that_differ_look_different() {
        let names = [
            &b"a\xff"[..],
            b"a\xef\xbf\xbd",
            b"a\\n",
            b"a\n",
            b"a\xe2\x80\x8b",
        ];
        let segments = names.map(|name| {
            let path = Path::new("/d").join(OsStr::from_bytes(name));
            let name = String::from_utf8_lossy(name).into_owned();
            Listed::new(name, &path, Err("no segment".into()))
        });
        let text = list(&segments, Style::PLAIN);
        let shown: Vec<&str> = text
            .lines()
            .skip(1)
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert_eq!(
            shown,
            ["a\\xff", "a\u{fffd}", "a\\\\n", "a\\n", "a\\u{200b}"]
        );
    }
}
