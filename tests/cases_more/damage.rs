//! Case 40: somebody shortens or overwrites the file of a segment in use.

use crate::codes::EVERY;
use crate::stage::{Ended, Job, SOON, Stage, ended, shmsched};
use crate::support::{Args, Chance, LONG, figure, hear, say, until, within};
use rustix::process::Signal;
use shmsched::{Priority, Segment};
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

type Damage = (&'static str, fn(&Path));

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).expect("opens");
    file.write_all_at(bytes, at).expect("writes");
}

fn cut(path: &Path, length: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("opens");
    file.set_len(length).expect("cut");
}

fn random(length: usize) -> Vec<u8> {
    let mut chance = Chance::new();
    (0..length).map(|_| chance.below(256) as u8).collect()
}

const DAMAGES: [Damage; 7] = [
    ("cut to nothing", |path| cut(path, 0)),
    ("cut to 100 bytes", |path| cut(path, 100)),
    ("cut to a page", |path| cut(path, 4_096)),
    ("emptied and grown", |path| {
        fs::write(path, "").expect("emptied");
        cut(path, 3_022_848);
    }),
    ("4 kB of noise", |path| overwrite(path, 0, &random(4_096))),
    ("zeros", |path| {
        let length = fs::metadata(path).expect("there").len();
        overwrite(path, 0, &vec![0; length as usize]);
    }),
    ("noise behind the header, then cut", |path| {
        let length = fs::metadata(path).expect("there").len();
        overwrite(path, 0x100, &random(length as usize - 0x100));
        std::thread::sleep(Duration::from_millis(150));
        cut(path, 0x100);
    }),
];

#[test]
fn case_40_users_of_a_damaged_segment_end_or_go_on() {
    for (name, damage) in DAMAGES {
        let stage = Stage::new(&["--concurrency", "1"]);
        let mut holder = stage.hold();
        let mut waiters = [
            stage.job("run", &["--", "echo", "got"]),
            stage.job("run", &["-p", "high", "--", "echo", "got"]),
        ];
        stage.in_line(2);
        let mut watching = stage.job("inspect", &["--watch", "50ms", "--json"]);
        let mut idle = stage.job::<&str>("wait", &[]);
        watching.runs();
        until(LONG, "four members", || {
            stage.inspect()["segment"]["members"]["used"] == 4
        });
        damage(stage.segment());
        let damaged = Instant::now();
        // Noise behind a whole header is what it happens to read as: idle, a free slot, retired. Hazards says so.
        let said = |what: &str, ended: &Ended| {
            let noise = name.starts_with("noise") && matches!(ended.code(), 0 | 69);
            assert!(ended.code() == 65 || noise, "{name}, {what}: {ended:?}");
            let line = ended.err.lines().next().unwrap_or_default();
            let fine = ended.err.lines().count() <= 1 && (line.contains("damaged") || noise);
            assert!(fine, "{name}, {what}: {}", ended.err);
        };
        said("watch", &watching.wait(SOON));
        said("wait", &idle.wait(SOON));
        for waiter in &mut waiters {
            said("run", &waiter.wait(SOON));
        }
        figure!("{name}: all had ended after {:?}", damaged.elapsed());
        // Its command was not killed, and passes on its own end.
        assert_eq!(holder.poll(), None, "{name}: {}", holder.err());
        holder.let_go();
        let ended = holder.wait(SOON);
        assert_eq!(
            (ended.code(), ended.text().as_str()),
            (0, "in\n"),
            "{name}: {}",
            ended.err
        );

        // Who comes now is told.
        for (verb, rest) in EVERY.iter().filter(|(verb, _)| *verb != "rm") {
            let came = Instant::now();
            let ended = stage.call(verb, rest);
            let code = ended.code();
            assert!(code == 65 || code == 76, "{name}, {verb}: {ended:?}");
            ended.one_line();
            assert!(came.elapsed() < SOON, "{name}, {verb}");
        }
    }
}

#[test]
fn case_40_doctor_tells_damage_from_emptiness() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let whole = stage.bytes();
    let mut said: Vec<String> = Vec::new();
    let mut half = whole.clone();
    half[80..84].fill(0);
    let mut wrong = whole.clone();
    wrong[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
    let zeros = vec![0; whole.len()];
    for (bytes, code) in [
        (&[][..], 65),
        (&whole[..100], 65),
        (&whole[..4_096], 65),
        (&zeros, 65),
        (&half, 65),
        (&wrong, 76),
    ] {
        fs::write(stage.segment(), bytes).expect("written");
        let ended = stage.call("doctor", &["--json"]);
        let line = ended.is(code).one_line().to_owned();
        assert!(!said.contains(&line), "twice the same: {line}");
        said.push(line);
        stage.call::<&str>("rm", &[]);
    }
    figure!("{said:#?}");
    // "Remove it and make it anew" works.
    let _ = fs::remove_file(stage.segment());
    stage.call("create", &["--concurrency", "1"]).is(0);
    stage.quiet(1);
}

/// Changes single bytes of a busy segment's copy, one at a time; no command may crash, hang or answer nonsense.
fn single_bytes(changes: usize) {
    let stage = Stage::new(&["--concurrency", "2", "--members", "8"]);
    let mut holders = [stage.hold(), stage.hold_with(&["-p", "high"])];
    let _waiter = stage.job("run", &["-p", "low", "--", "true"]);
    stage.in_line(1);
    let busy = stage.bytes();
    holders.iter_mut().for_each(Job::let_go);
    let path = stage.scene.path("copy");
    let mut chance = Chance::new();
    let records = 0x1200 + 8 * 1_408;
    let mut slowest = Duration::ZERO;
    let mut codes = std::collections::BTreeMap::<i32, u32>::new();
    for change in 0..changes {
        let mut bytes = busy.clone();
        // Most of them where something is: header, lines, bit sets, roster, ledger, places.
        let at = match chance.below(6) {
            0 => chance.below(0x100),
            1 => 0x100 + chance.below(0x100),
            2 => 0x1000 + chance.below(0x200),
            3 => 0x1200 + chance.below(8 * 1_408),
            4 => records + chance.below(16 * 128),
            _ => chance.below(bytes.len() as u64),
        } as usize;
        let old = bytes[at];
        bytes[at] = match chance.below(4) {
            0 => 0,
            1 => 0xff,
            2 => old ^ (1 << chance.below(8)),
            _ => chance.below(256) as u8,
        };
        fs::write(&path, &bytes).expect("a copy");
        let (verb, rest): (&str, &[&str]) = [
            ("inspect", &["--json"][..]),
            ("doctor", &["--json"]),
            ("run", &["--no-wait", "--", "true"]),
            ("run", &["--timeout", "30ms", "--slots", "2", "--", "true"]),
            ("doctor", &["--repair"]),
            ("wait", &["--timeout", "20ms"]),
            ("evict", &["1"]),
            ("set", &["--concurrency", "3"]),
            ("rm", &[]),
        ][change % 9];
        let mut command = shmsched(&[OsStr::new(verb), path.as_os_str()]);
        let ended = ended(command.args(rest));
        slowest = slowest.max(ended.took);
        let what = format!(
            "byte {at:#x} from {old:#x} to {:#x}, {verb} {rest:?}: {ended:?}",
            bytes[at]
        );
        assert!(ended.status.code().is_some(), "{what}");
        assert!(ended.took < SOON, "{what}");
        let code = ended.code();
        *codes.entry(code).or_default() += 1;
        match code {
            0 | 1 if rest.contains(&"--json") => drop(ended.json()),
            0 | 1 => assert_eq!(ended.err, "", "{what}"),
            64 | 65 | 69 | 74..=77 | 124 => drop(ended.one_line()),
            _ => panic!("{what}"),
        }
    }
    figure!("{changes} changes: codes {codes:?}, the slowest took {slowest:?}");
}

#[test]
fn case_40_single_bytes_of_a_busy_segment() {
    single_bytes(360);
}

#[test]
#[ignore = "for scripts/stress: 10,000 changes"]
fn stress_case_40_single_bytes_of_a_busy_segment() {
    single_bytes(10_000);
}

/// Bytes of a living segment change under commands that hold, wait and come; in the end the file goes away.
fn under_fire(rounds: usize) {
    for round in 0..rounds {
        let stage = Stage::new(&["--concurrency", "2", "--members", "16"]);
        let mut holders = [stage.hold(), stage.hold_with(&["-p", "low"])];
        let mut waiters = [
            stage.job("run", &["--", "echo", "got"]),
            stage.job("run", &["-p", "high", "--", "echo", "got"]),
            stage.job(
                "run",
                &["-p", "lowest", "--slots", "2", "--", "echo", "got"],
            ),
        ];
        stage.in_line(3);
        let file = OpenOptions::new()
            .write(true)
            .open(stage.segment())
            .expect("opens");
        let length = stage.bytes().len() as u64;
        let mut chance = Chance::new();
        for change in 0..300 {
            // The header stays: whoever compares it leaves at once.
            let at = match chance.below(4) {
                0 => 0x100 + chance.below(0x100),
                1 => 0x1000 + chance.below(0x400),
                2 => 0x1200 + 16 * 1_408 + chance.below(4_096),
                _ => 0x100 + chance.below(length - 0x100),
            };
            file.write_all_at(&[chance.below(256) as u8], at)
                .expect("writes");
            if change % 100 == 50 {
                let ended = stage.call("run", &["--timeout", "20ms", "--", "true"]);
                assert!(
                    matches!(ended.code(), 0 | 65 | 69 | 124),
                    "{round}: {ended:?}"
                );
            }
            if change % 20 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        holders[0].let_go();
        assert_eq!(holders[0].wait(SOON).code(), 0);
        fs::remove_file(stage.segment()).expect("removed");
        for waiter in &mut waiters {
            let ended = waiter.wait(SOON);
            let code = ended.code();
            assert!(matches!(code, 0 | 65 | 69), "{round}: {ended:?}");
            assert_eq!(ended.text(), if code == 0 { "got\n" } else { "" });
        }
        holders[1].let_go();
        assert_eq!(holders[1].wait(SOON).code(), 0);
    }
}

#[test]
fn case_40_bytes_change_under_those_who_wait() {
    under_fire(3);
}

#[test]
#[ignore = "for scripts/stress: 60 rounds of 300 changes"]
fn stress_case_40_bytes_change_under_those_who_wait() {
    under_fire(60);
}

/// Role: PATH. A library user that acquires until that fails.
pub fn loops(args: &Args) {
    let segment = Segment::open(&args.location()).expect("opens");
    let scheduler = segment.scheduler().expect("a Scheduler");
    drop(scheduler.try_acquire(Priority::Normal).expect("a slot"));
    say("attached");
    hear();
    for turn in 1..=100_000 {
        if let Err(error) = scheduler.try_acquire(Priority::Normal).map(drop) {
            say(format!("failed {turn} {error}"));
            hear();
            return;
        }
    }
    say("failed 0 never");
    hear();
}

/// SIGTERM still ends a wait on a segment that cannot be trusted any more.
#[test]
fn case_40_noise_does_not_outlast_a_signal() {
    let stage = Stage::new(&["--concurrency", "1"]);
    let _holder = stage.hold();
    let mut waiter = stage.job("run", &["--", "echo", "got"]);
    stage.in_line(1);
    overwrite(stage.segment(), 0x100, &random(0x300));
    waiter.signal(Signal::TERM);
    let ended = waiter.wait(SOON);
    // Noise may also have let it in, or made it fail, first.
    assert!(matches!(ended.code(), 143 | 0 | 65 | 69), "{ended:?}");
    within(LONG, || match stage.call("inspect", &["--json"]).code() {
        0 | 65 => Ok(()),
        code => Err(code.to_string()),
    });
}
