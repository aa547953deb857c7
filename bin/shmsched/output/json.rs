//! The JSON documents of `inspect`, `list`, `doctor` and `pressure`: docs/json.md has their shapes. Stable keys, `"schema": 1`,
//! integers that JavaScript reads exactly.

mod gates;
mod numbers;
pub mod pressure;

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use shmsched::{
    Gate, MemberInfo, MemberState, PlaceState, Priority, SegmentInfo, Snapshot, WaitingInfo,
};

use self::gates::{Limiter, Pacer, Scheduler};
use self::numbers::{Int, LARGEST, Milliseconds, Percent};
use super::{literal_name, table};

/// The number of the schema; it grows when a key goes or changes its meaning, not when one is added.
const SCHEMA: u32 = 1;

/// How a document is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Over many lines.
    Pretty,
    /// In one line.
    Line,
}

/// A document as text, with a line feed at its end.
pub fn text(document: &impl Serialize, form: Form) -> String {
    let text = match form {
        Form::Pretty => serde_json::to_string_pretty(document),
        Form::Line => serde_json::to_string(document),
    };
    let mut text = text.expect("strings, numbers and lists of them always serialize");
    text.push('\n');
    // serde_json escapes what JSON demands; these can still move a cursor, or text. They only occur inside strings.
    match text.contains(is_late) {
        false => text,
        true => text.chars().map(written_out).collect(),
    }
}

fn is_late(c: char) -> bool {
    !c.is_ascii_control() && shmsched::hides(c) || c == '\u{7f}'
}

fn written_out(c: char) -> String {
    let units = |c: char| {
        let mut pair = [0; 2];
        let units = c.encode_utf16(&mut pair).iter();
        units.map(|unit| format!("\\u{unit:04x}")).collect()
    };
    match is_late(c) {
        true => units(c),
        false => c.to_string(),
    }
}

/// The document of `inspect`.
#[derive(Serialize)]
pub struct Inspect<'a> {
    schema: u32,
    segment: Segment<'a>,
    scheduler: Option<Scheduler>,
    limiter: Option<Limiter>,
    pacer: Option<Pacer>,
    members: Vec<Member<'a>>,
}

#[derive(Serialize)]
struct Segment<'a> {
    name: &'a str,
    path: String,
    id: String,
    format: u32,
    bytes: Int,
    boot: &'static str,
    members: Usage,
    records: Usage,
    filesystem: &'a str,
    device: String,
    inode: Option<u64>,
    mode: String,
    retired: bool,
    gone: bool,
}

#[derive(Serialize)]
struct Usage {
    used: u32,
    capacity: u32,
}

#[derive(Serialize)]
struct Member<'a> {
    member: u32,
    pid: u32,
    pid_namespace: &'static str,
    command: &'a str,
    state: &'static str,
    age_ms: Int,
    held: u32,
    held_ms: Option<Int>,
    waiting: Vec<Waiting>,
}

#[derive(Serialize)]
struct Waiting {
    gate: &'static str,
    priority: Option<&'static str>,
    amount: u32,
    since_ms: Int,
    position: u32,
    state: &'static str,
}

impl<'a> Inspect<'a> {
    pub fn new(snapshot: &'a Snapshot) -> Inspect<'a> {
        Inspect {
            schema: SCHEMA,
            segment: Segment::new(&snapshot.segment),
            scheduler: snapshot.scheduler.as_ref().map(Scheduler::new),
            limiter: snapshot.limiter.as_ref().map(Limiter::new),
            pacer: snapshot.pacer.as_ref().map(Pacer::new),
            members: snapshot.members.iter().map(Member::new).collect(),
        }
    }
}

impl<'a> Segment<'a> {
    fn new(info: &'a SegmentInfo) -> Segment<'a> {
        Segment {
            name: &info.name,
            path: info.path.to_string_lossy().into_owned(),
            id: id(&info.id),
            format: info.format,
            bytes: Int(info.bytes),
            boot: if info.boot_is_current {
                "current"
            } else {
                "earlier"
            },
            members: Usage {
                used: info.members_used,
                capacity: info.members_capacity,
            },
            records: Usage {
                used: info.records_used,
                capacity: info.records_capacity,
            },
            filesystem: &info.filesystem,
            device: device(info.device),
            // A number of another file would be worse than none.
            inode: Some(info.inode).filter(|inode| *inode <= LARGEST),
            mode: mode(info.mode),
            retired: info.retired,
            gone: info.gone,
        }
    }
}

impl<'a> Member<'a> {
    fn new(info: &'a MemberInfo) -> Member<'a> {
        Member {
            member: info.member,
            pid: info.pid,
            pid_namespace: if info.same_namespace { "same" } else { "other" },
            command: &info.command,
            state: state(info.state),
            age_ms: Int(info.age_ms),
            held: info.held,
            held_ms: info.held_ms.map(Int),
            waiting: info.waiting.iter().map(Waiting::new).collect(),
        }
    }
}

impl Waiting {
    fn new(info: &WaitingInfo) -> Waiting {
        Waiting {
            gate: match info.gate {
                Gate::Scheduler => "scheduler",
                Gate::Limiter => "limiter",
                Gate::Pacer => "pacer",
                _ => "other",
            },
            priority: info.priority.map(Priority::name),
            amount: info.amount,
            since_ms: Int(info.since_ms),
            position: info.position,
            state: match info.state {
                PlaceState::Asleep => "asleep",
                PlaceState::Called => "called",
                PlaceState::Lapsed => "lapsed",
            },
        }
    }
}

/// The word for a member's state, in tables too.
pub fn state(state: MemberState) -> &'static str {
    match state {
        MemberState::Alive => "alive",
        MemberState::Stopped => "stopped",
        MemberState::Exiting => "exiting",
        MemberState::Orphaned => "orphaned",
        MemberState::Dead => "dead",
        _ => "other",
    }
}

/// A segment id as text, in tables too.
pub fn id(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A device as text, in tables too.
pub fn device(device: u64) -> String {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    format!("{major}:{minor}")
}

/// Mode bits as text, in tables too.
pub fn mode(mode: u32) -> String {
    format!("{:04o}", mode & 0o7777)
}

/// The document of `list`.
#[derive(Serialize)]
pub struct List {
    schema: u32,
    directory: String,
    segments: Vec<Listed>,
}

/// One segment of the list.
#[derive(Serialize)]
pub struct Listed {
    name: String,
    path: String,
    pub concurrency: Option<u32>,
    pub running: Option<u32>,
    pub tokens_per_second: Option<u32>,
    pub tokens: Option<i32>,
    #[serde(rename = "interval_ms")]
    interval: Option<Milliseconds>,
    pub waiters: Option<u32>,
    pub members: Option<u32>,
    pub error: Option<String>,
    pressure: Option<Percent>,
    /// The name for people.
    #[serde(skip)]
    pub shown: String,
}

impl Listed {
    /// A segment by its settings and what is in use, or why that cannot be told.
    pub fn new(name: String, path: &Path, found: Result<&Snapshot, String>) -> Listed {
        let (snapshot, error) = match found {
            Ok(snapshot) => (Some(snapshot), None),
            Err(error) => (None, Some(error)),
        };
        let scheduler = snapshot.and_then(|snapshot| snapshot.scheduler.as_ref());
        let limiter = snapshot.and_then(|snapshot| snapshot.limiter.as_ref());
        let pacer = snapshot.and_then(|snapshot| snapshot.pacer.as_ref());
        let waiters = [
            scheduler.map(|scheduler| scheduler.waiters),
            limiter.map(|limiter| limiter.waiters),
            pacer.map(|pacer| pacer.waiting),
        ];
        Listed {
            shown: literal_name(&name, path),
            name,
            path: path.to_string_lossy().into_owned(),
            concurrency: scheduler.and_then(|scheduler| scheduler.concurrency),
            running: scheduler.map(|scheduler| scheduler.running),
            tokens_per_second: limiter.map(|limiter| limiter.tokens_per_second),
            tokens: limiter.map(|limiter| limiter.tokens),
            interval: pacer.map(|pacer| Milliseconds(pacer.interval)),
            waiters: snapshot.map(|_| waiters.into_iter().flatten().fold(0, u32::saturating_add)),
            members: snapshot.map(attached),
            error,
            pressure: snapshot.map(|snapshot| Percent(table::pressure(snapshot))),
        }
    }

    /// The least time between two starts.
    pub fn interval(&self) -> Option<Duration> {
        self.interval.map(|interval| interval.0)
    }

    /// Hundredths of a percent.
    pub fn pressure(&self) -> Option<u16> {
        self.pressure.map(|pressure| pressure.0)
    }
}

/// How many are attached. The dead keep their member slots until somebody looks, an evicted one until its command ends.
fn attached(snapshot: &Snapshot) -> u32 {
    let members = snapshot.members.iter();
    members
        .filter(|member| member.state != MemberState::Dead)
        .count() as u32
}

impl List {
    pub fn new(directory: String, segments: Vec<Listed>) -> List {
        List {
            schema: SCHEMA,
            directory,
            segments,
        }
    }
}

/// The document of `doctor`.
#[derive(Serialize)]
pub struct Doctor<'a, F> {
    schema: u32,
    segment: Patient<'a>,
    ok: bool,
    repaired: Option<Repaired>,
    findings: &'a [F],
}

/// Which segment a document is about.
#[derive(Serialize)]
struct Patient<'a> {
    name: &'a str,
    path: String,
    id: String,
}

impl<'a> Patient<'a> {
    fn new(info: &'a SegmentInfo) -> Patient<'a> {
        Patient {
            name: &info.name,
            path: info.path.to_string_lossy().into_owned(),
            id: id(&info.id),
        }
    }
}

#[derive(Clone, Copy, Serialize)]
pub struct Repaired {
    pub dead: u32,
    pub reclaimed: u32,
}

impl<'a, F: Serialize> Doctor<'a, F> {
    pub fn new(
        info: &'a SegmentInfo,
        ok: bool,
        repaired: Option<Repaired>,
        findings: &'a [F],
    ) -> Doctor<'a, F> {
        Doctor {
            schema: SCHEMA,
            segment: Patient::new(info),
            ok,
            repaired,
            findings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::table::samples;

    /// Key by key, in order: the promise to scripts.
    #[test]
    fn the_document_of_inspect() {
        let snapshot = samples::stalled();
        let expected = r#"{"schema":1,"segment":{"name":"thumbs","path":"/dev/shm/shmsched-0/thumbs","id":"000102030405060708090a0b0c0d0e0f","format":1,"bytes":1048576,"boot":"current","members":{"used":2,"capacity":1024},"records":{"used":3,"capacity":4096},"filesystem":"tmpfs","device":"0:25","inode":77,"mode":"0600","retired":false,"gone":false},"scheduler":{"concurrency":2,"running":2,"running_raw":2,"waiters":1,"head_wait_ms":1500,"targets":{"lowest":1,"lower":2,"low":2,"normal":2,"high":2,"higher":2,"highest":2},"queued":{"lowest":0,"lower":0,"low":0,"normal":1,"high":0,"higher":0,"highest":0},"admitted":9007199254740991,"released":40,"deferred":7,"completed":4,"cancelled":1,"lost":1,"reclaimed":3,"pressure":{"some":{"avg10":12.34,"avg60":1,"avg300":0.2,"total_us":0},"full":{"avg10":0.5,"avg60":0.1,"avg300":0.02,"total_us":0}},"waits":{"count":4,"sum_us":0,"p50_us":724,"p99_us":4000000,"longest_us":4000000,"buckets":[{"below_us":1024,"count":3},{"below_us":4194304,"count":1}]},"holds":{"count":0,"sum_us":0,"p50_us":null,"p99_us":null,"longest_us":null,"buckets":[]}},"limiter":null,"pacer":null,"members":[{"member":0,"pid":101,"pid_namespace":"same","command":"sleep 60","state":"alive","age_ms":61000,"held":2,"held_ms":60000,"waiting":[]},{"member":1,"pid":102,"pid_namespace":"other","command":"a\u001b[31m\u009b\ufffd b","state":"stopped","age_ms":2000,"held":0,"held_ms":null,"waiting":[{"gate":"scheduler","priority":"normal","amount":1,"since_ms":1500,"position":1,"state":"asleep"}]}]}"#;
        let expected = expected.replace("\\ufffd", "\u{fffd}") + "\n";
        assert_eq!(text(&Inspect::new(&snapshot), Form::Line), expected);

        let pretty = text(&Inspect::new(&snapshot), Form::Pretty);
        let (line, pretty): (serde_json::Value, serde_json::Value) = (
            serde_json::from_str(&expected).unwrap(),
            serde_json::from_str(&pretty).unwrap(),
        );
        assert_eq!(line, pretty);
        assert_eq!(line["members"][1]["command"], "a\u{1b}[31m\u{9b}\u{fffd} b");
    }

    /// The gates that are not a Scheduler, key by key too.
    #[test]
    fn the_document_of_inspect_without_slots() {
        let expected = r#"{"schema":1,"segment":{"name":"uplink","path":"/dev/shm/shmsched-0/uplink","id":"000102030405060708090a0b0c0d0e0f","format":1,"bytes":1048576,"boot":"current","members":{"used":2,"capacity":1024},"records":{"used":3,"capacity":4096},"filesystem":"tmpfs","device":"0:25","inode":77,"mode":"0600","retired":false,"gone":false},"scheduler":null,"limiter":{"tokens_per_second":1500000,"tokens":-20,"head_wait_ms":250,"queued":{"lowest":0,"lower":0,"low":0,"normal":0,"high":1,"higher":0,"highest":0},"consumed":9007199254740991,"deferred":9,"completed":5,"cancelled":2,"lost":1,"forced":3,"waiters":1,"pressure":{"some":{"avg10":0,"avg60":0,"avg300":0,"total_us":0},"full":{"avg10":0,"avg60":0,"avg300":0,"total_us":0}},"waits":{"count":0,"sum_us":0,"p50_us":null,"p99_us":null,"longest_us":null,"buckets":[]}},"pacer":{"interval_ms":0.5,"max_waiting":8,"waiting":1,"next_start_in_ms":0.123456,"started":12,"rejected":2,"deferred":6,"completed":3,"cancelled":1,"lost":1,"head_wait_ms":3000,"pressure":{"some":{"avg10":0,"avg60":0,"avg300":0,"total_us":0},"full":{"avg10":0,"avg60":0,"avg300":0,"total_us":0}},"waits":{"count":0,"sum_us":0,"p50_us":null,"p99_us":null,"longest_us":null,"buckets":[]}},"members":[{"member":0,"pid":101,"pid_namespace":"same","command":"sleep 60","state":"alive","age_ms":61000,"held":0,"held_ms":null,"waiting":[{"gate":"limiter","priority":"high","amount":500,"since_ms":250,"position":1,"state":"called"}]},{"member":1,"pid":102,"pid_namespace":"same","command":"curl","state":"alive","age_ms":2000,"held":0,"held_ms":null,"waiting":[{"gate":"pacer","priority":null,"amount":1,"since_ms":3000,"position":1,"state":"lapsed"}]}]}"#;
        let found = text(&Inspect::new(&samples::paced()), Form::Line);
        assert_eq!(found, format!("{expected}\n"));
    }

    #[test]
    fn unlimited_and_absent_are_null() {
        let mut snapshot = samples::busy();
        let scheduler = snapshot.scheduler.as_mut().unwrap();
        (
            scheduler.concurrency,
            scheduler.targets,
            scheduler.head_wait_ms,
        ) = (None, [None; 7], None);
        let document: serde_json::Value =
            serde_json::from_str(&text(&Inspect::new(&snapshot), Form::Line)).unwrap();
        for path in [
            "/scheduler/concurrency",
            "/scheduler/targets/highest",
            "/scheduler/head_wait_ms",
            "/limiter",
            "/pacer",
        ] {
            assert_eq!(
                document.pointer(path),
                Some(&serde_json::Value::Null),
                "{path}"
            );
        }
        snapshot.scheduler = None;
        assert!(text(&Inspect::new(&snapshot), Form::Line).contains(r#""scheduler":null"#));
    }

    #[test]
    fn the_document_of_list() {
        let (slots, paced) = (samples::stalled(), samples::paced());
        let mut quiet = samples::paced();
        (quiet.limiter.as_mut().unwrap().waiters, quiet.pacer) = (0, None);
        let listed =
            |name: &str, found| Listed::new(name.into(), &Path::new("/d").join(name), found);
        let list = List::new(
            "/d".into(),
            vec![
                listed("a", Ok(&slots)),
                listed("b", Err("not a segment".into())),
                listed("c", Ok(&paced)),
                listed("d", Ok(&quiet)),
            ],
        );
        let expected = r#"{"schema":1,"directory":"/d","segments":[{"name":"a","path":"/d/a","concurrency":2,"running":2,"tokens_per_second":null,"tokens":null,"interval_ms":null,"waiters":1,"members":2,"error":null,"pressure":12.34},{"name":"b","path":"/d/b","concurrency":null,"running":null,"tokens_per_second":null,"tokens":null,"interval_ms":null,"waiters":null,"members":null,"error":"not a segment","pressure":null},{"name":"c","path":"/d/c","concurrency":null,"running":null,"tokens_per_second":1500000,"tokens":-20,"interval_ms":0.5,"waiters":2,"members":2,"error":null,"pressure":0},{"name":"d","path":"/d/d","concurrency":null,"running":null,"tokens_per_second":1500000,"tokens":-20,"interval_ms":null,"waiters":0,"members":2,"error":null,"pressure":0}]}"#;
        assert_eq!(text(&list, Form::Line), format!("{expected}\n"));
    }

    #[test]
    fn nothing_hides_in_a_document() {
        let odd = "a\u{202e}\u{7f}\u{9b}\u{e0041}\u{e9}";
        let found = text(&odd, Form::Line);
        assert_eq!(found, "\"a\\u202e\\u007f\\u009b\\udb40\\udc41\u{e9}\"\n");
        assert_eq!(serde_json::from_str::<String>(&found).unwrap(), odd);
    }
}
