//! What can be wrong with a segment, judged from one picture of it.

use serde::{Serialize, Serializer};
use shmsched::{Gate, MemberInfo, MemberState, Snapshot};

use super::processes::Processes;
use crate::output::{counted, json, shortened, time};

/// The longest command quoted.
const COMMAND: usize = 40;

/// The longest chain of parents followed.
const ANCESTORS: usize = 64;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something to act on: exit code 1.
    Problem,
    /// Something to know.
    Note,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Level::Problem => "problem",
            Level::Note => "note",
        }
    }
}

impl Serialize for Level {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// One thing found.
#[derive(Debug, Serialize)]
pub struct Finding {
    kind: &'static str,
    pub level: Level,
    member: Option<u32>,
    pid: Option<u32>,
    pub text: String,
}

impl Finding {
    pub fn of_segment(kind: &'static str, level: Level, text: impl Into<String>) -> Finding {
        Finding {
            kind,
            level,
            member: None,
            pid: None,
            text: text.into(),
        }
    }
}

/// Everything that the picture shows, the segment first.
pub fn examine(snapshot: &Snapshot, processes: &impl Processes) -> Vec<Finding> {
    let mut findings = segment(snapshot);
    findings.extend(
        snapshot
            .members
            .iter()
            .filter_map(|found| member(found, snapshot, processes)),
    );
    findings.extend(deadlock(snapshot, processes));
    findings
}

fn segment(snapshot: &Snapshot) -> Vec<Finding> {
    let segment = &snapshot.segment;
    let mut findings = Vec::new();
    let mut add = |kind, level, text: String| findings.push(Finding::of_segment(kind, level, text));
    if segment.gone {
        add(
            "gone",
            Level::Problem,
            "the file has lost its name, or another has it: its users find out by themselves"
                .into(),
        );
    }
    if segment.retired {
        add(
            "retired",
            Level::Problem,
            "retired by rm --force: nobody gets a slot any more; create it anew".into(),
        );
    }
    if !segment.boot_is_current {
        add(
            "earlier-boot",
            Level::Note,
            "state from an earlier boot discarded; the first to attach resets it".into(),
        );
    }
    if let Some(danger) = file_system(&segment.filesystem) {
        add(
            "file-system",
            Level::Problem,
            format!(
                "it lies on {}: {danger}; use a local file system, best tmpfs",
                segment.filesystem
            ),
        );
    }
    if segment.members_used >= segment.members_capacity {
        let text = format!(
            "all {} are taken: who comes now waits",
            counted(segment.members_capacity.into(), "member slot")
        );
        add("table-full", Level::Problem, text);
    }
    if snapshot
        .scheduler
        .as_ref()
        .is_some_and(|scheduler| scheduler.concurrency == Some(0))
    {
        add(
            "paused",
            Level::Note,
            "concurrency is 0: nothing starts until 'shmsched set' raises it".into(),
        );
    }
    // A limit of 0 lets no queue be, so that nothing is amiss.
    if let Some(pacer) = &snapshot.pacer
        && (1..=pacer.waiting).contains(&pacer.max_waiting)
    {
        let text = format!(
            "{} for their start, as many as may: who comes now ends with 71",
            match pacer.waiting {
                1 => "1 waits".to_owned(),
                waiting => format!("{waiting} wait"),
            }
        );
        add("queue-full", Level::Note, text);
    }
    findings
}

/// Why a file system is no place for a segment.
fn file_system(name: &str) -> Option<&'static str> {
    match name {
        "overlay" => Some("each container gets a copy of its own at the first write"),
        "nfs" | "9p" | "smb" => Some("memory is not shared between machines"),
        "fuse" => Some("shared memory and locks may not work"),
        _ => None,
    }
}

fn member(member: &MemberInfo, snapshot: &Snapshot, processes: &impl Processes) -> Option<Finding> {
    let pid = member.pid;
    let who = format!(
        "member {} (pid {pid}, '{}')",
        member.member,
        shortened(&member.command, COMMAND)
    );
    let keeps = match (member.held, member.waiting.len()) {
        (0, 0) => String::new(),
        (0, _) => "; its place in the line is passed over".into(),
        (held, _) => format!("; it keeps {}", counted(held.into(), "slot")),
    };
    let mut level = Level::Problem;
    let (kind, text) = match member.state {
        MemberState::Stopped => (
            "stopped",
            format!("{who} is stopped (T) and counts as alive{keeps}"),
        ),
        MemberState::Exiting => (
            "exiting",
            format!("{who} is exiting or dumping core{keeps} until that is done"),
        ),
        MemberState::Orphaned => {
            let keepers: Vec<String> = processes
                .keepers(member.member)
                .into_iter()
                .map(|(pid, command)| format!("pid {pid} '{}'", shortened(&command, COMMAND)))
                .collect();
            let lives = match keepers.as_slice() {
                [] => "its command lives".to_owned(),
                keepers => format!("what it started lives: {}", keepers.join(", ")),
            };
            let name = &snapshot.segment.name;
            let free = format!("'shmsched evict {name} {}' frees them", member.member);
            (
                "orphaned",
                format!("{who} was killed, {lives}{keeps} until that ends; {free}"),
            )
        }
        MemberState::Dead => {
            let zombie = match member.same_namespace && processes.state(pid) == Some('Z') {
                true => "a zombie",
                false => "gone",
            };
            if member.held == 0 {
                level = Level::Note;
                (
                    "dead",
                    format!("{who} is {zombie}, reclaimed at a later look; it holds nothing"),
                )
            } else {
                let held = counted(member.held.into(), "slot");
                (
                    "dead",
                    format!(
                        "{who} is {zombie}, reclaimed at the next look; it held {held}; --repair looks now"
                    ),
                )
            }
        }
        _ => return None,
    };
    Some(Finding {
        kind,
        level,
        member: Some(member.member),
        pid: Some(pid),
        text,
    })
}

/// Whether nothing can ever be released, because everybody who holds a slot waits for more of them. Tokens and starts come
/// by themselves: who waits for those will release.
fn deadlock(snapshot: &Snapshot, processes: &impl Processes) -> Option<Finding> {
    let alive = |member: &&MemberInfo| member.state != MemberState::Dead;
    let holders: Vec<&MemberInfo> = snapshot
        .members
        .iter()
        .filter(alive)
        .filter(|member| member.held > 0)
        .collect();
    let for_slots = |member: &&MemberInfo| {
        let mut places = member.waiting.iter();
        places.any(|place| place.gate == Gate::Scheduler)
    };
    let waiters: Vec<&MemberInfo> = snapshot
        .members
        .iter()
        .filter(alive)
        .filter(for_slots)
        .collect();
    if holders.is_empty() || waiters.is_empty() {
        return None;
    }
    let id = json::id(&snapshot.segment.id);
    let below = |waiter: &MemberInfo, holder: &MemberInfo| {
        waiter.member == holder.member
            || waiter.same_namespace
                && holder.same_namespace
                && (processes
                    .marks(waiter.pid)
                    .has(&id, holder.member, holder.generation)
                    || descends(waiter.pid, holder.pid, processes))
    };
    let waits = |holder: &&MemberInfo| waiters.iter().any(|waiter| below(waiter, holder));
    if !holders.iter().all(waits) {
        return None;
    }
    let longest = waiters
        .iter()
        .flat_map(|waiter| &waiter.waiting)
        .map(|place| place.since_ms)
        .max()
        .unwrap_or(0);
    let text = format!(
        "all holders are waiting on this segment ({}, for up to {}): end one of them, or raise the concurrency",
        counted(holders.len() as u64, "process"),
        time(longest)
    );
    Some(Finding::of_segment("deadlock", Level::Problem, text))
}

/// Whether `ancestor` is the process itself or one above it.
fn descends(pid: u32, ancestor: u32, processes: &impl Processes) -> bool {
    std::iter::successors(Some(pid), |pid| processes.parent(*pid))
        .take(ANCESTORS)
        .any(|pid| pid == ancestor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::run::Marks;
    use crate::output::json::{Form, Repaired, text};
    use crate::output::table::samples;

    /// Pid 102 is a child of 101; 7 is a zombie.
    struct Few;

    impl Processes for Few {
        fn state(&self, pid: u32) -> Option<char> {
            (pid == 7).then_some('Z')
        }

        fn parent(&self, pid: u32) -> Option<u32> {
            (pid == 102).then_some(101)
        }

        fn keepers(&self, _: u32) -> Vec<(u32, String)> {
            vec![(8, "sh".into())]
        }

        fn marks(&self, _: u32) -> Marks {
            Marks::default()
        }
    }

    fn kinds(snapshot: &Snapshot) -> Vec<&'static str> {
        examine(snapshot, &Few)
            .iter()
            .map(|finding| finding.kind)
            .collect()
    }

    /// All alive and in one namespace.
    fn healthy() -> Snapshot {
        let mut snapshot = samples::busy();
        (
            snapshot.members[1].state,
            snapshot.members[1].same_namespace,
        ) = (MemberState::Alive, true);
        snapshot.members[1].pid = 103;
        snapshot
    }

    #[test]
    fn nothing_is_wrong_with_the_healthy() {
        assert_eq!(kinds(&healthy()), [""; 0]);
    }

    #[test]
    fn the_states_of_members() {
        let states = [
            (MemberState::Stopped, "stopped", "stopped (T)"),
            (MemberState::Exiting, "exiting", "dumping core"),
            (
                MemberState::Orphaned,
                "orphaned",
                "'shmsched evict thumbs 0' frees",
            ),
            (MemberState::Dead, "dead", "is a zombie, reclaimed"),
        ];
        for (state, kind, words) in states {
            let mut snapshot = healthy();
            (snapshot.members[0].state, snapshot.members[0].pid) = (state, 7);
            let findings = examine(&snapshot, &Few);
            assert_eq!(findings.len(), 1);
            assert_eq!(
                (findings[0].kind, findings[0].level, findings[0].pid),
                (kind, Level::Problem, Some(7))
            );
            assert!(findings[0].text.contains(words), "{}", findings[0].text);
        }
    }

    #[test]
    fn the_states_of_the_segment() {
        let mut snapshot = healthy();
        snapshot.segment.boot_is_current = false;
        snapshot.scheduler.as_mut().unwrap().concurrency = Some(0);
        assert_eq!(kinds(&snapshot), ["earlier-boot", "paused"]);
        assert!(
            examine(&snapshot, &Few)
                .iter()
                .all(|finding| finding.level == Level::Note)
        );
        snapshot.segment.retired = true;
        snapshot.segment.filesystem = "overlay".into();
        snapshot.segment.members_capacity = 2;
        assert_eq!(
            kinds(&snapshot),
            [
                "retired",
                "earlier-boot",
                "file-system",
                "table-full",
                "paused"
            ]
        );
    }

    #[test]
    fn file_systems() {
        for bad in ["overlay", "nfs", "smb", "9p", "fuse"] {
            assert!(file_system(bad).is_some(), "{bad}");
        }
        for good in ["tmpfs", "ext4", "xfs", "btrfs", "other"] {
            assert!(file_system(good).is_none(), "{good}");
        }
    }

    #[test]
    fn holders_that_wait_for_each_other() {
        // case 43: the waiter is a child of the only holder
        let mut snapshot = healthy();
        snapshot.members[1].pid = 102;
        assert_eq!(kinds(&snapshot), ["deadlock"]);
        // another holder that does not wait will release
        snapshot.members[1].held = 0;
        let mut third = snapshot.members[0].clone();
        (third.member, third.pid) = (2, 300);
        snapshot.members.push(third);
        assert_eq!(kinds(&snapshot), [""; 0]);
    }

    #[test]
    fn nothing_is_wrong_without_slots() {
        // Nor with debt: it is paid off by itself.
        let mut snapshot = samples::paced();
        assert_eq!(kinds(&snapshot), [""; 0]);
        snapshot.pacer.as_mut().unwrap().waiting = 8;
        assert_eq!(kinds(&snapshot), ["queue-full"]);
        assert_eq!(examine(&snapshot, &Few)[0].level, Level::Note);
        let pacer = snapshot.pacer.as_mut().unwrap();
        (pacer.waiting, pacer.max_waiting) = (0, 0);
        assert_eq!(kinds(&snapshot), [""; 0]);
    }

    #[test]
    fn a_holder_that_waits_for_tokens_is_no_deadlock() {
        for gate in [Gate::Limiter, Gate::Pacer] {
            let mut snapshot = healthy();
            let mut place = snapshot.members[1].waiting.remove(0);
            place.gate = gate;
            snapshot.members[0].waiting.push(place);
            assert_eq!(kinds(&snapshot), [""; 0], "{gate:?}");
        }
    }

    /// Key by key, in order: the promise to scripts.
    #[test]
    fn the_document_of_doctor() {
        let mut snapshot = healthy();
        snapshot.members[1].state = MemberState::Stopped;
        snapshot.segment.boot_is_current = false;
        let findings = examine(&snapshot, &Few);
        let document = json::Doctor::new(
            &snapshot.segment,
            false,
            Some(Repaired {
                dead: 1,
                reclaimed: 2,
            }),
            &findings,
        );
        let expected = r#"{"schema":1,"segment":{"name":"thumbs","path":"/dev/shm/shmsched-0/thumbs","id":"000102030405060708090a0b0c0d0e0f"},"ok":false,"repaired":{"dead":1,"reclaimed":2},"findings":[{"kind":"earlier-boot","level":"note","member":null,"pid":null,"text":"state from an earlier boot discarded; the first to attach resets it"},{"kind":"stopped","level":"problem","member":1,"pid":103,"text":"member 1 (pid 103, 'a\u001b[31m\u009b~ b') is stopped (T) and counts as alive; its place in the line is passed over"}]}"#;
        assert_eq!(
            text(&document, Form::Line),
            format!("{}\n", expected.replace('~', "\u{fffd}"))
        );
    }
}
