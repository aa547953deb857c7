//! `run` inside `run`: the mark that a command inherits in `SHMSCHED_PERMIT`.
//!
//! The variable is a list of `SEGMENT:MEMBER:GENERATION:SLOTS`, outermost first, separated by semicolons; SEGMENT is the id of
//! the segment in hexadecimal. A mark is no proof: it counts only while that member is alive and holds something.

use std::env;

use shmsched::{Location, MemberState, Segment};

use crate::commands::observer;
use crate::exit::{Code, Failure};
use crate::output::{json, shortened};

/// The environment variable.
pub const VARIABLE: &str = "SHMSCHED_PERMIT";

/// The longest command that a refusal quotes.
const COMMAND: usize = 40;

/// A permit that this process runs under, if it still exists.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    segment: String,
    member: u32,
    generation: u32,
    slots: u32,
}

impl Mark {
    fn parse(text: &str) -> Option<Mark> {
        let mut fields = text.split(':');
        let segment = fields
            .next()
            .filter(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        let mut number = || fields.next()?.parse::<u32>().ok();
        let mark = Mark {
            segment: segment.to_owned(),
            member: number()?,
            generation: number()?,
            slots: number()?,
        };
        fields.next().is_none().then_some(mark)
    }
}

/// All marks that were inherited, and those to pass on.
#[derive(Debug, Default)]
pub struct Marks(Vec<Mark>);

impl Marks {
    /// What the environment says; what cannot be read is dropped.
    pub fn inherited() -> Marks {
        Marks::parse(&env::var(VARIABLE).unwrap_or_default())
    }

    /// What the environment of a process says, as `/proc/PID/environ` has it.
    pub fn of_environment(environment: &[u8]) -> Marks {
        let name = format!("{VARIABLE}=");
        let value = environment
            .split(|byte| *byte == 0)
            .find_map(|entry| entry.strip_prefix(name.as_bytes()));
        Marks::parse(&String::from_utf8_lossy(value.unwrap_or_default()))
    }

    fn parse(text: &str) -> Marks {
        Marks(text.split(';').filter_map(Mark::parse).collect())
    }

    /// Whether a member's permit is among them.
    pub fn has(&self, segment: &str, member: u32, generation: u32) -> bool {
        self.0.iter().any(|mark| {
            mark.segment == segment && mark.member == member && mark.generation == generation
        })
    }

    /// The innermost permit of this very segment that still exists.
    pub fn living(&self, location: &Location, trust_foreign: bool) -> Option<Outer> {
        if self.0.is_empty() {
            return None;
        }
        let snapshot = observer(location, trust_foreign).ok()?.snapshot().ok()?;
        let id = json::id(&snapshot.segment.id);
        let own = self.0.iter().rev().filter(|mark| mark.segment == id);
        own.into_iter().find_map(|mark| {
            let member = snapshot
                .members
                .iter()
                .find(|member| member.member == mark.member)?;
            let alive = member.generation == mark.generation
                && member.state != MemberState::Dead
                && member.held > 0;
            alive.then(|| Outer {
                member: member.member,
                pid: member.pid,
                command: member.command.clone(),
            })
        })
    }

    /// Adds the permit of this process.
    pub fn add(&mut self, segment: &Segment, slots: u32) {
        let member = segment.member();
        self.0.push(Mark {
            segment: json::id(&segment.id()),
            member: member.index,
            generation: member.generation,
            slots,
        });
    }

    /// The variable's value for the command.
    pub fn text(&self) -> String {
        let marks = self.0.iter().map(|mark| {
            format!(
                "{}:{}:{}:{}",
                mark.segment, mark.member, mark.generation, mark.slots
            )
        });
        marks.collect::<Vec<_>>().join(";")
    }
}

/// The permit that this process runs under already.
pub struct Outer {
    member: u32,
    pid: u32,
    command: String,
}

impl Outer {
    /// Why another one is refused.
    pub fn refusal(&self, location: &Location) -> Failure {
        let what = format!(
            "already inside a permit of this segment (member {}, pid {}, '{}')",
            self.member,
            self.pid,
            shortened(&self.command, COMMAND)
        );
        Failure::at(
            location,
            Code::Nested,
            what,
            "add --nested share to run under it, or --nested wait to take another",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_and_written() {
        let id = "000102030405060708090a0b0c0d0e0f";
        let text = format!("{id}:1:2:3;{id}:4294967295:0:1");
        let marks = Marks::parse(&text);
        assert_eq!(marks.text(), text);
        assert!(marks.has(id, 1, 2) && !marks.has(id, 1, 3));
        assert_eq!(
            Marks::of_environment(format!("A=b\0{VARIABLE}={text}\0C=").as_bytes()).0,
            marks.0
        );
        assert!(Marks::of_environment(b"A=b\0\xff\0").0.is_empty());
        assert_eq!(
            marks.0[0],
            Mark {
                segment: id.into(),
                member: 1,
                generation: 2,
                slots: 3
            }
        );
    }

    #[test]
    fn what_is_no_mark_is_dropped() {
        let id = "000102030405060708090a0b0c0d0e0f";
        for text in [
            "",
            ":",
            "x:1:2:3",
            &format!("{id}:1:2"),
            &format!("{id}:1:2:3:4"),
            &format!("{id}:-1:2:3"),
            &format!("{id}:1:2:4294967296"),
        ] {
            assert_eq!(Mark::parse(text), None, "{text}");
        }
    }
}
