//! `inspect` and `list` for people.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use shmsched::{MemberInfo, Priority, Snapshot, WaitingInfo};

use super::json::{self, Listed};
use super::{bytes, counted, escaped, limit, shortened, time};

/// The longest command shown.
const COMMAND: usize = 60;

/// The whole picture of a segment.
pub fn inspect(snapshot: &Snapshot) -> String {
    let mut text = facts(snapshot);
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
        text.push_str(&lines(&table));
    }
    text
}

/// One line per fact.
fn facts(snapshot: &Snapshot) -> String {
    let segment = &snapshot.segment;
    let mut facts = vec![
        (
            "segment",
            format!("{} at {}", segment.name, segment.path.display()),
        ),
        ("id", json::id(&segment.id)),
        (
            "file",
            format!(
                "{} on {}, device {}:{}, inode {}, mode {:04o}, format {}",
                bytes(segment.bytes),
                segment.filesystem,
                rustix::fs::major(segment.device),
                rustix::fs::minor(segment.device),
                segment.inode,
                segment.mode & 0o7777,
                segment.format,
            ),
        ),
        (
            "members",
            format!(
                "{} of {}, {} of {} records",
                segment.members_used,
                segment.members_capacity,
                segment.records_used,
                segment.records_capacity
            ),
        ),
    ];
    if !segment.boot_is_current {
        facts.push((
            "note",
            "state from an earlier boot discarded; the first to attach resets it".into(),
        ));
    }
    if segment.retired {
        facts.push((
            "note",
            "retired by rm --force: nobody gets a slot any more".into(),
        ));
    }
    if segment.gone {
        facts.push((
            "note",
            "damaged: the file was cut short or overwritten".into(),
        ));
    }
    if let Some(scheduler) = &snapshot.scheduler {
        let head = scheduler
            .head_wait_ms
            .map_or(String::new(), |ms| format!(", the first for {}", time(ms)));
        let raw = match i64::from(scheduler.running_raw) == i64::from(scheduler.running) {
            true => String::new(),
            false => format!(" (counter {})", scheduler.running_raw),
        };
        facts.push((
            "running",
            format!(
                "{} of {}{raw}",
                scheduler.running,
                limit(scheduler.concurrency)
            ),
        ));
        facts.push((
            "waiting",
            format!(
                "{}{head}{}",
                scheduler.waiters,
                by_priority(", ", &scheduler.queued)
            ),
        ));
        let targets = Priority::ALL.iter().zip(scheduler.targets);
        let targets: Vec<String> = targets
            .map(|(priority, target)| format!("{priority} {}", limit(target)))
            .collect();
        facts.push(("targets", targets.join(", ")));
        facts.push((
            "so far",
            format!(
                "admitted {}, released {}, reclaimed {}; deferred {} = completed {} + cancelled {} + lost {} + queued {}",
                scheduler.admitted,
                scheduler.released,
                scheduler.reclaimed,
                scheduler.deferred,
                scheduler.completed,
                scheduler.cancelled,
                scheduler.lost,
                scheduler.queued.iter().fold(0_u64, |sum, queued| sum.saturating_add(*queued)),
            ),
        ));
    }
    facts
        .into_iter()
        .map(|(name, value)| format!("{name:<9} {}\n", escaped(&value)))
        .collect()
}

/// The priorities that somebody waits in, if any.
fn by_priority(before: &str, queued: &[u64; 7]) -> String {
    let some = Priority::ALL
        .iter()
        .zip(queued)
        .rev()
        .filter(|(_, queued)| **queued > 0);
    some.map(|(priority, queued)| format!("{before}{priority} {queued}"))
        .collect()
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

/// A place in the line: `normal for 1.5s, first`.
fn place(waiting: &WaitingInfo) -> String {
    let priority = waiting.priority.map_or("", Priority::name);
    let amount = if waiting.amount == 1 {
        String::new()
    } else {
        format!(" {}", counted(waiting.amount.into(), "slot"))
    };
    format!(
        "{priority}{amount} for {}, place {}",
        time(waiting.since_ms),
        waiting.position
    )
}

/// The segments of the directory.
pub fn list(segments: &[Listed]) -> String {
    let mut table = table(["NAME", "RUNNING", "LIMIT", "WAITING", "MEMBERS", ""]);
    for column in [1, 2, 3, 4] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let number = |value: Option<u32>| value.map_or("-".into(), |value| value.to_string());
    for segment in segments {
        let cap = if segment.running.is_some() {
            limit(segment.concurrency)
        } else {
            "-".into()
        };
        let error = segment.error.as_deref().map(escaped).unwrap_or_default();
        let name = escaped(&segment.name);
        table.add_row([
            name,
            number(segment.running),
            cap,
            number(segment.waiters),
            number(segment.members),
            error,
        ]);
    }
    lines(&table)
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

/// The table without blanks at the ends of its lines.
fn lines(table: &Table) -> String {
    table
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect()
}

#[cfg(test)]
pub mod samples {
    use super::*;
    use shmsched::{Concurrency, Gate, MemberState, PlaceState, SchedulerInfo, SegmentInfo};

    /// A segment with one holder and one waiter.
    pub fn busy() -> Snapshot {
        let configured = Concurrency::max(2)
            .target(Priority::Lowest, 1)
            .target(Priority::Lower, 2);
        let mut id = [0; 16];
        id.iter_mut()
            .zip(0..)
            .for_each(|(byte, value)| *byte = value);
        Snapshot {
            segment: SegmentInfo {
                name: "thumbs".into(),
                path: "/dev/shm/shmsched-0/thumbs".into(),
                id,
                format: 1,
                bytes: 1_048_576,
                boot_is_current: true,
                members_used: 2,
                members_capacity: 1_024,
                records_used: 3,
                records_capacity: 4_096,
                device: rustix::fs::makedev(0, 25),
                inode: 77,
                mode: 0o600,
                retired: false,
                gone: false,
                filesystem: "tmpfs".into(),
            },
            scheduler: Some(SchedulerInfo {
                concurrency: Some(2),
                running: 2,
                running_raw: 2,
                waiters: 1,
                head_wait_ms: Some(1_500),
                targets: configured.resolve(),
                configured,
                queued: [0, 0, 0, 1, 0, 0, 0],
                admitted: (1 << 53) + 1,
                released: 40,
                deferred: 7,
                completed: 4,
                cancelled: 1,
                lost: 1,
                reclaimed: 3,
            }),
            limiter: None,
            pacer: None,
            members: vec![
                MemberInfo {
                    member: 0,
                    generation: 5,
                    pid: 101,
                    same_namespace: true,
                    command: "sleep 60".into(),
                    state: MemberState::Alive,
                    age_ms: 61_000,
                    held: 2,
                    held_ms: Some(60_000),
                    waiting: vec![],
                },
                MemberInfo {
                    member: 1,
                    generation: 2,
                    pid: 102,
                    same_namespace: false,
                    command: "a\u{1b}[31m\u{9b}\u{fffd} b".into(),
                    state: MemberState::Stopped,
                    age_ms: 2_000,
                    held: 0,
                    held_ms: None,
                    waiting: vec![WaitingInfo {
                        gate: Gate::Scheduler,
                        priority: Some(Priority::Normal),
                        amount: 1,
                        since_ms: 1_500,
                        position: 1,
                        state: PlaceState::Asleep,
                    }],
                },
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_of_a_busy_segment() {
        let expected = "\
segment   thumbs at /dev/shm/shmsched-0/thumbs
id        000102030405060708090a0b0c0d0e0f
file      1.0 MB on tmpfs, device 0:25, inode 77, mode 0600, format 1
members   2 of 1024, 3 of 4096 records
running   2 of 2
waiting   1, the first for 1.5s, normal 1
targets   lowest 1, lower 2, low 2, normal 2, high 2, higher 2, highest 2
so far    admitted 9007199254740993, released 40, reclaimed 3; deferred 7 = completed 4 + cancelled 1 + lost 1 + queued 1

MEMBER  PID  STATE                          AGE  HELD    FOR  WAITING                   COMMAND
     0  101  alive                        1m01s     2  1m00s  -                         sleep 60
     1  102  stopped (other pid namespace)  2.0s     0      -  normal for 1.5s, place 1  a\\u{1b}[31m\\u{9b}\u{fffd} b
";
        let squeezed = |text: &str| {
            text.lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        let found = inspect(&samples::busy());
        assert_eq!(squeezed(&found), squeezed(expected));
        assert!(!found.chars().any(|c| c.is_control() && c != '\n'));
    }

    #[test]
    fn a_list() {
        let broken = Listed {
            name: "b\n".into(),
            path: "/d/b".into(),
            concurrency: None,
            running: None,
            waiters: None,
            members: None,
            error: Some("not a segment".into()),
        };
        let text = list(&[broken]);
        assert!(text.lines().nth(1).unwrap().starts_with("b\\n"), "{text}");
        assert_eq!(text.lines().count(), 2);
    }
}
