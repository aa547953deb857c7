//! `inspect` and `list` for people.

mod facts;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use shmsched::{Gate, MemberInfo, MemberState, Priority, Snapshot, WaitingInfo};

use super::json::{self, Listed};
use super::style::Style;
use super::{counted, escaped, limit, percent, short, shortened, span, time};

/// The longest command shown.
const COMMAND: usize = 60;

/// The whole picture of a segment.
pub fn inspect(snapshot: &Snapshot, style: Style) -> String {
    let mut text = facts::text(snapshot, style);
    if !snapshot.members.is_empty() {
        let mut table = table([
            "MEMBER", "PID", "STATE", "AGE", "HELD", "FOR", "WAITING", "COMMAND",
        ]);
        for column in [0, 1, 3, 4, 5] {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for member in &snapshot.members {
            table.add_row(row(member));
        }
        text.push('\n');
        let well = |at: usize| snapshot.members[at].state == MemberState::Alive;
        text.push_str(&lines(&table, style, well));
    }
    text
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
        member.held_ms.map_or("-".into(), time),
        match member.waiting.as_slice() {
            [] => "-".into(),
            places => places.iter().map(place).collect::<Vec<_>>().join(", "),
        },
        escaped(&shortened(&member.command, COMMAND)),
    ]
}

/// A place in a line: `normal 2 slots for 1.5s, place 1`, `start for 200ms, place 3`.
fn place(waiting: &WaitingInfo) -> String {
    let priority = waiting.priority.map_or("", Priority::name);
    let amount = u64::from(waiting.amount);
    let what = match (waiting.gate, amount) {
        (Gate::Pacer, _) => "start".to_owned(),
        (Gate::Limiter, _) => format!("{priority} {}", counted(amount, "token")),
        (_, 1) => priority.to_owned(),
        (_, _) => format!("{priority} {}", counted(amount, "slot")),
    };
    format!(
        "{what} for {}, place {}",
        time(waiting.since_ms),
        waiting.position
    )
}

/// The segments of the directory.
pub fn list(segments: &[Listed], style: Style) -> String {
    let mut table = table([
        "NAME", "RUNNING", "LIMIT", "TOKENS", "RATE", "INTERVAL", "WAITING", "PRESSURE", "MEMBERS",
        "",
    ]);
    for column in 1..=8 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for segment in segments {
        table.add_row([
            escaped(&segment.name),
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
            or_dash(segment.pressure.map(percent)),
            or_dash(segment.members),
            segment.error.as_deref().map(escaped).unwrap_or_default(),
        ]);
    }
    lines(&table, style, |at| segments[at].error.is_none())
}

/// For how much of the last 10 seconds somebody waited, at the gate where that was most: hundredths of a percent.
pub fn pressure(snapshot: &Snapshot) -> u16 {
    let gates = super::pressure::gates(snapshot);
    let some = gates.iter().map(|(_, pressure)| pressure.some.averages[0]);
    some.max().unwrap_or(0)
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or("-".into(), |value| value.to_string())
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
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
  pressure some 12.34 %, full 0.50 % of the last 10s
  waits   p50 1.0ms, p99 4.0s, longest 4.0s
  holds   none yet
  targets lowest 1, lower 2, low 2, normal 2, high 2, higher 2, highest 2
  so far  admitted 9007199254740993, released 40, reclaimed 3; deferred 7 = completed 4 + cancelled 1 + lost 1 + queued 1

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
  pressure some 0.00 %, full 0.00 % of the last 10s
  waits   none yet
  so far  consumed 9007199254740993, forced 3; deferred 9 = completed 5 + cancelled 2 + lost 1 + queued 1

starts    one every 500us, the next in 1ms
  waiting 1 of at most 8, the first for 3.0s
  pressure some 0.00 %, full 0.00 % of the last 10s
  waits   none yet
  so far  started 12, rejected 2; deferred 6 = completed 3 + cancelled 1 + lost 1 + queued 1

MEMBER  PID  STATE    AGE  HELD  FOR  WAITING                            COMMAND
     0  101  alive  1m01s     0    -  high 500 tokens for 250ms, place 1 sleep 60
     1  102  alive   2.0s     0    -  start for 3.0s, place 1            curl
";
        assert_eq!(squeezed(&found[from..]), squeezed(expected));
        assert!(!found.contains("running"), "{found}");
        let mut due = samples::paced();
        due.pacer.as_mut().unwrap().next_start_in = std::time::Duration::ZERO;
        assert!(inspect(&due, Style::PLAIN).contains("one every 500us, the next now\n"));
    }

    #[test]
    fn colours_paint_whole_lines_and_move_nothing() {
        let colour = Style { colour: true };
        for snapshot in [samples::busy(), samples::paced()] {
            let mut painted = inspect(&snapshot, colour);
            // Who is stopped stands out.
            let stopped = painted.contains("\u{1b}[31m     1");
            assert_eq!(stopped, snapshot.scheduler.is_some(), "{painted}");
            for code in ["0", "1", "31", "33"] {
                painted = painted.replace(&format!("\u{1b}[{code}m"), "");
            }
            assert_eq!(painted, inspect(&snapshot, Style::PLAIN));
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
        let listed = |name: &str, found| Listed::new(name.into(), "/d".into(), found);
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
}
