//! Buffers of the view at several sizes, against the pictures in `shots`. With `SNAPSHOTS=overwrite` they are made anew.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Color;
use shmsched::{Snapshot, Stalled};

use super::super::keys::Key;
use super::super::model::Model;
use super::super::sources::Seen;
use super::draw;
use crate::output::escaped;
use crate::output::table::samples;

/// Sizes of terminals, and some that are none.
const SIZES: [(u16, u16); 9] = [
    (0, 0),
    (1, 1),
    (1, 50),
    (80, 1),
    (40, 10),
    (80, 24),
    (200, 60),
    (500, 200),
    (7, 3),
];

/// All three gates.
fn full() -> Snapshot {
    let (mut snapshot, paced) = (samples::stalled(), samples::paced());
    (snapshot.limiter, snapshot.pacer) = (paced.limiter, paced.pacer);
    for (mut member, n) in paced.members.into_iter().zip(2..) {
        member.member = n;
        snapshot.members.push(member);
    }
    snapshot.members[0].held = 2;
    snapshot.scheduler.as_mut().unwrap().pressure.some = Stalled {
        averages: [4_567, 300, 20],
        total_us: 1,
    };
    snapshot
}

fn seen(snapshot: Snapshot) -> Seen {
    Seen {
        name: snapshot.segment.name.clone(),
        found: Ok(snapshot),
    }
}

/// Looked at for half a minute, in which something went on.
fn model(colour: bool, others: &[Seen]) -> Model {
    let mut model = Model::new(colour);
    for second in 0..30 {
        let mut snapshot = full();
        let done = second * second;
        snapshot.scheduler.as_mut().unwrap().admitted = done;
        snapshot.scheduler.as_mut().unwrap().pressure.some.averages[0] = (second * 300) as u16;
        snapshot.limiter.as_mut().unwrap().consumed = second * 1_234_567;
        snapshot.pacer.as_mut().unwrap().started = second * 2;
        let all = [vec![seen(snapshot)], others.to_vec()].concat();
        model.take(Duration::from_secs(second), all);
    }
    model
}

fn drawn(model: &mut Model, (width, height): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| draw(model, frame.buffer_mut()))
        .unwrap();
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let lines = buffer.content.chunks(width);
    lines
        .map(|line| {
            let line: String = line.iter().map(|cell| cell.symbol()).collect();
            format!("{}\n", line.trim_end())
        })
        .collect()
}

#[track_caller]
fn is(name: &str, buffer: &Buffer) {
    let path = format!(
        "{}/bin/shmsched/commands/top/view/shots/{name}.txt",
        env!("CARGO_MANIFEST_DIR")
    );
    let found = text(buffer);
    if std::env::var_os("SNAPSHOTS").is_some_and(|value| value == "overwrite") {
        std::fs::write(&path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "{path} has:\n{expected}\nfound:\n{found}"
    );
}

fn others() -> Vec<Seen> {
    let mut uplink = samples::paced();
    uplink.segment.name = "uplink".into();
    let broken = Seen {
        name: "broken\u{1b}".into(),
        found: Err("not a segment: its magic is wrong".into()),
    };
    vec![broken, seen(uplink)]
}

#[test]
fn pictures() {
    for (width, height) in [(1, 1), (80, 1), (40, 10), (60, 16), (80, 24), (200, 60)] {
        let name = format!("{width}x{height}");
        is(&name, &drawn(&mut model(true, &[]), (width, height)));
        // Colours change no letter.
        is(&name, &drawn(&mut model(false, &[]), (width, height)));
    }
}

#[test]
fn pictures_of_several_segments() {
    let mut model = model(true, &others());
    is("several", &drawn(&mut model, (100, 30)));
    model.press(Key::Tab);
    is("broken", &drawn(&mut model, (80, 24)));
    model.press(Key::Char('?'));
    is("help", &drawn(&mut model, (80, 24)));
    is("none", &drawn(&mut Model::new(true), (80, 24)));
}

/// So many, and which of them is selected.
fn many(count: usize, selected: usize) -> Model {
    let others = (1..count).map(|n| {
        let mut next = samples::busy();
        next.segment.name = format!("segment-{n:02}");
        seen(next)
    });
    let mut model = model(true, &others.collect::<Vec<_>>());
    for _ in 0..selected {
        model.press(Key::Tab);
    }
    model
}

#[test]
fn many_segments_use_the_room_there_is() {
    is("many", &drawn(&mut many(22, 0), (100, 30)));
    is("many60", &drawn(&mut many(22, 17), (60, 30)));
    for (count, (width, height)) in [
        (22, (100, 30)),
        (22, (60, 30)),
        (12, (80, 24)),
        (300, (100, 60)),
    ] {
        for selected in [0, 1, count / 2, count - 1] {
            let mut model = many(count, selected);
            let name = escaped(&model.selected().unwrap().name);
            let all = text(&drawn(&mut model, (width, height)));
            let lines: Vec<&str> = all.lines().collect();
            // In the title and in the list.
            assert!(lines[0].contains(&format!("[{name}]")), "{all}");
            assert!(
                lines[0].contains(&format!("{} of {count}", selected + 1)),
                "{all}"
            );
            assert!(
                lines[1..].iter().any(|line| line.starts_with(&name)),
                "{all}"
            );
            // No line is empty that could show one more, but for two or three that the gates do not use.
            let shown = lines
                .iter()
                .filter(|line| line.starts_with("segment-") || line.starts_with("thumbs"))
                .count();
            if shown < count {
                assert!(
                    lines[1].starts_with(&format!("SEGMENT {shown} of {count} ")),
                    "{all}"
                );
                let empty = lines.iter().filter(|line| line.is_empty()).count();
                assert!(empty <= 5, "{empty} {all}");
            }
        }
    }
}

#[test]
fn a_long_name_is_cut_with_a_mark() {
    let mut long = full();
    long.segment.name = "/srv/app/with/a/long/way/to/its/segment".into();
    let mut model = Model::new(true);
    model.take(Duration::ZERO, [vec![seen(long)], others()].concat());
    let all = text(&drawn(&mut model, (60, 24)));
    let lines: Vec<&str> = all.lines().collect();
    assert!(
        lines[0].ends_with('\u{2026}') && lines[2].starts_with("/srv/app/with/a/long/wa\u{2026}"),
        "{all}"
    );
    model.press(Key::Tab);
    model.press(Key::Tab);
    let all = text(&drawn(&mut model, (60, 24)));
    assert!(
        all.lines()
            .next()
            .unwrap()
            .ends_with("\u{2026} broken\\u{1b} [uplink]"),
        "{all}"
    );
}

/// What matters most is there at every width: what is used, who waits, and the pressure.
#[test]
fn pressure_is_seen_at_any_width() {
    for height in [10, 24] {
        for width in 30..200 {
            let all = text(&drawn(&mut model(true, &[]), (width, height)));
            assert!(
                all.contains("2 of 2") && all.contains("87.0 "),
                "{width} {all}"
            );
            let waits = if height == 10 {
                "1 waiting"
            } else {
                "waiting 1"
            };
            assert!(
                all.contains(waits) || all.contains("1 wa\u{2026}") || width < 40,
                "{width} {all}"
            );
            assert!(height == 10 || all.contains("56.0/s"), "{width} {all}");
        }
    }
}

#[test]
fn ascii_where_nothing_else_is_shown() {
    let mut model = model(true, &others()).only_ascii(true);
    let all = text(&drawn(&mut model, (100, 30)));
    assert!(all.is_ascii() && all.contains("######## 2 of 2"), "{all}");
    model.press(Key::Char('?'));
    is("ascii", &drawn(&mut model, (80, 24)));
}

#[test]
fn what_was_typed_is_seen() {
    let mut model = model(true, &[]);
    for c in "jps/slee".chars() {
        model.press(Key::Char(c));
    }
    is("typing", &drawn(&mut model, (80, 24)));
    model.press(Key::Enter);
    let line = text(&drawn(&mut model, (80, 24)));
    assert!(line.contains("filter: slee, esc for all"), "{line}");
}

#[test]
fn any_size_in_any_state() {
    let mut states = vec![
        Model::new(true),
        model(true, &[]),
        model(true, &others()),
        model(false, &others()),
    ];
    for keys in ["?", "/a", "jjj", "\t"] {
        let mut other = model(true, &others());
        for c in keys.chars() {
            other.press(if c == '\t' { Key::Tab } else { Key::Char(c) });
        }
        states.push(other);
    }
    for state in &mut states {
        for size in SIZES {
            drawn(state, size);
        }
        for size in 0..40 {
            let mut buffer = Buffer::empty(Rect::new(0, 0, size * 5, size));
            draw(state, &mut buffer);
        }
    }
}

#[test]
fn colours_are_there_or_not() {
    let colours = |colour| {
        let buffer = drawn(&mut model(colour, &others()), (100, 30));
        let plain =
            |cell: &&ratatui::buffer::Cell| cell.fg != Color::Reset || cell.bg != Color::Reset;
        buffer.content.iter().filter(plain).count()
    };
    assert!(colours(true) > 20);
    assert_eq!(colours(false), 0);
}

#[test]
fn nothing_reaches_the_terminal_as_a_code() {
    // case 57
    let all = text(&drawn(&mut model(true, &others()), (200, 60)));
    assert!(all.contains("a\\u{1b}[31m\\u{9b}\u{fffd} b"), "{all}");
    assert!(!all.chars().any(|c| c.is_control() && c != '\n'));
}

#[test]
fn many_members_are_no_burden() {
    let mut snapshot = full();
    let waiter = snapshot.members[1].clone();
    for n in 10..4_000 {
        let mut next = waiter.clone();
        (next.member, next.pid) = (n, n);
        snapshot.members.push(next);
    }
    let mut model = Model::new(true);
    model.take(Duration::ZERO, vec![seen(snapshot)]);
    model.press(Key::End);
    let all = text(&drawn(&mut model, (80, 24)));
    assert!(all.contains("3999") && all.contains("of 3994"), "{all}");
}
