//! The members of a segment as rows: text, order, filter.

use std::cmp::Reverse;

use shmsched::{Gate, MemberInfo, MemberState, PlaceState, Priority, Snapshot, WaitingInfo};

use crate::output::table::held_for;
use crate::output::{counted, json, literal, short, time};

/// What the rows are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Holders first, the longest first; then who waits, as they stand in line; then the others.
    #[default]
    Turn,
    Member,
    Pid,
    Age,
    Held,
    Waiting,
    Command,
}

impl Sort {
    const ALL: [Sort; 7] = [
        Sort::Turn,
        Sort::Member,
        Sort::Pid,
        Sort::Age,
        Sort::Held,
        Sort::Waiting,
        Sort::Command,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Sort::Turn => "turn",
            Sort::Member => "member",
            Sort::Pid => "pid",
            Sort::Age => "age",
            Sort::Held => "slots held",
            Sort::Waiting => "time waited",
            Sort::Command => "command",
        }
    }

    pub fn next(self) -> Sort {
        let at = Sort::ALL.iter().position(|sort| *sort == self);
        Sort::ALL[at.map_or(0, |at| (at + 1) % Sort::ALL.len())]
    }
}

/// A member, ready to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub member: u32,
    generation: u32,
    /// With a star if it is a number of another pid namespace.
    pub pid: String,
    pub state: &'static str,
    /// Neither alive nor well.
    pub is_odd: bool,
    pub age: String,
    pub held: String,
    pub held_for: String,
    pub waiting: String,
    /// It is its turn.
    pub is_called: bool,
    pub command: String,
}

impl Row {
    pub fn identity(&self) -> (u32, u32) {
        (self.member, self.generation)
    }

    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn matches(&self, filter: &str) -> bool {
        let texts = [&self.pid, &self.waiting, &self.command];
        let lower = texts.map(|text| text.to_lowercase());
        self.state.contains(filter) || lower.iter().any(|text| text.contains(filter))
    }
}

/// Those of the filter, in order.
pub fn of(snapshot: &Snapshot, sort: Sort, reverse: bool, filter: &str) -> Vec<Row> {
    let mut members: Vec<&MemberInfo> = snapshot.members.iter().collect();
    match sort {
        Sort::Turn => members.sort_by_key(|member| {
            let first = member.waiting.iter().map(|place| place.position).min();
            (
                member.held == 0,
                Reverse(if member.held == 0 { 0 } else { held_ms(member) }),
                first.unwrap_or(u32::MAX),
                member.member,
            )
        }),
        Sort::Member => members.sort_by_key(|member| member.member),
        Sort::Pid => members.sort_by_key(|member| (member.pid, member.member)),
        Sort::Age => members.sort_by_key(|member| (Reverse(member.age_ms), member.member)),
        Sort::Held => {
            members.sort_by_key(|member| (Reverse((member.held, held_ms(member))), member.member));
        }
        Sort::Waiting => members.sort_by_key(|member| {
            let longest = member.waiting.iter().map(|place| place.since_ms).max();
            (
                Reverse(longest.map(u128::from).map_or(0, |ms| ms + 1)),
                member.member,
            )
        }),
        Sort::Command => {
            members.sort_by(|a, b| (&a.command, a.member).cmp(&(&b.command, b.member)))
        }
    }
    if reverse {
        members.reverse();
    }
    let filter = filter.to_lowercase();
    let rows = members.into_iter().map(row);
    rows.filter(|row| row.matches(&filter)).collect()
}

/// For how long it has held at most, as far as is known: else since it came.
fn held_ms(member: &MemberInfo) -> u64 {
    member.held_ms.unwrap_or(member.age_ms)
}

fn row(member: &MemberInfo) -> Row {
    let places: Vec<String> = member.waiting.iter().map(place).collect();
    let elsewhere = if member.same_namespace { "" } else { "*" };
    let holds = member.held != 0;
    Row {
        member: member.member,
        generation: member.generation,
        pid: format!("{}{elsewhere}", member.pid),
        state: json::state(member.state),
        is_odd: member.state != MemberState::Alive,
        age: time(member.age_ms),
        held: if holds {
            member.held.to_string()
        } else {
            String::new()
        },
        held_for: if holds {
            held_for(member)
        } else {
            String::new()
        },
        waiting: places.join(", "),
        is_called: member
            .waiting
            .iter()
            .any(|place| place.state == PlaceState::Called),
        command: literal(&member.command),
    }
}

/// A place in a line: `#3 normal 1.5s`, `#1 high 2 slots 20ms`, `#2 start 1.0s`.
fn place(waiting: &WaitingInfo) -> String {
    let priority = waiting.priority.map_or("", Priority::name);
    let what = match (waiting.gate, waiting.amount) {
        (Gate::Pacer, _) => "start".to_owned(),
        (Gate::Limiter, 1) => format!("{priority} 1 token"),
        (Gate::Limiter, amount) => format!("{priority} {} tokens", short(amount.into())),
        (_, 1) => priority.to_owned(),
        (_, amount) => format!("{priority} {}", counted(amount.into(), "slot")),
    };
    format!("#{} {what} {}", waiting.position, time(waiting.since_ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::table::samples;

    fn members(rows: &[Row]) -> Vec<u32> {
        rows.iter().map(|row| row.member).collect()
    }

    /// Four members: two wait, two hold.
    fn four() -> Snapshot {
        let mut snapshot = samples::busy();
        let [holder, waiter] = &snapshot.members[..] else {
            unreachable!("there are two")
        };
        let (mut third, mut fourth) = (waiter.clone(), holder.clone());
        (third.member, third.pid, third.command) = (2, 50, "B".into());
        (third.waiting[0].position, third.waiting[0].since_ms) = (2, 9_000);
        (fourth.member, fourth.held, fourth.held_ms) = (3, 1, Some(70_000));
        snapshot.members.extend([third, fourth]);
        snapshot
    }

    #[test]
    fn orders() {
        let of = |sort, reverse| members(&of(&four(), sort, reverse, ""));
        assert_eq!(of(Sort::Turn, false), [3, 0, 1, 2]);
        assert_eq!(of(Sort::Turn, true), [2, 1, 0, 3]);
        assert_eq!(of(Sort::Member, false), [0, 1, 2, 3]);
        assert_eq!(of(Sort::Pid, false), [2, 0, 3, 1]);
        assert_eq!(of(Sort::Age, false), [0, 3, 1, 2]);
        assert_eq!(of(Sort::Held, false), [0, 3, 1, 2]);
        assert_eq!(of(Sort::Waiting, false), [2, 1, 0, 3]);
        assert_eq!(of(Sort::Command, false), [2, 1, 0, 3]);
        let mut sort = Sort::Turn;
        for _ in 0..7 {
            sort = sort.next();
        }
        assert_eq!(sort, Sort::Turn);
    }

    #[test]
    fn filters() {
        let of = |filter| members(&of(&four(), Sort::Member, false, filter));
        assert_eq!(of("SLEEP"), [0, 3]);
        assert_eq!(of("b"), [1, 2], "a command, whatever the case");
        assert_eq!(of("normal"), [1, 2]);
        assert_eq!(of("stopped"), [1, 2]);
        assert_eq!(of("50"), [2]);
        assert!(of("nobody").is_empty());
    }

    #[test]
    fn texts() {
        let rows = of(&samples::busy(), Sort::Member, false, "");
        assert_eq!(
            (rows[0].held.as_str(), rows[0].held_for.as_str()),
            ("2", "1m00s")
        );
        assert_eq!((rows[1].pid.as_str(), rows[1].held.as_str()), ("102*", ""));
        assert_eq!(rows[1].waiting, "#1 normal 1.5s");
        // case 57
        assert_eq!(rows[1].command, "a\\u{1b}[31m\\u{9b}\u{fffd} b");
        let rows = of(&samples::paced(), Sort::Member, false, "");
        assert_eq!(rows[0].waiting, "#1 high 500 tokens 250ms");
        assert!(rows[0].is_called && !rows[1].is_called);
        assert_eq!(rows[1].waiting, "#1 start 3.0s");
    }
}
