//! How a flow ends: devices, readers that go, ends that do not fit.

use super::*;

#[test]
fn a_full_device_costs_nothing() {
    // case 49
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    for from in SOURCES {
        let tally = Tally::default();
        match free_flow(source(from, b"some bytes"), &full, &tally) {
            Err(Stop::Output(error)) => assert_eq!(error.kind(), ErrorKind::StorageFull),
            other => panic!("{from}: {other:?}"),
        }
        assert_eq!(tally.used(), 0, "{from}");
    }
}

#[test]
fn devices_without_end() {
    let (zero, null) = (
        File::open("/dev/zero").unwrap(),
        File::create("/dev/null").unwrap(),
    );
    let tally = Tally::default();
    flow(
        source("pipe", &data(500_000)),
        &null,
        FAST,
        u64::MAX,
        &tally,
    )
    .unwrap();
    assert_eq!(tally.used(), 500_000);
    let (reader, output) = ends_of("pipe");
    thread::scope(|scope| {
        let flowing = scope.spawn(|| free_flow(zero, output, &tally));
        let mut some = vec![1; 1_000_000];
        File::from(reader).read_exact(&mut some).unwrap();
        assert!(some.iter().all(|byte| *byte == 0));
        let outcome = flowing.join().unwrap();
        assert!(matches!(outcome, Err(Stop::ReaderGone)), "{outcome:?}");
    });
}

#[test]
fn a_reader_that_goes_ends_the_wait_for_tokens() {
    // case 49
    for (from, to) in [("pipe", "pipe"), ("file", "pipe"), ("pipe", "socket")] {
        let took = || {
            let ((reader, output), tally) = (ends_of(to), Tally::default());
            let took = thread::scope(|scope| {
                let input = source(from, &data(1_000));
                let flowing = scope.spawn(|| flow(input, output, 2_000, 250, &tally));
                // Chunks of 100.
                settles(|| (tally.used(), 200));
                let gone = Instant::now();
                drop(reader);
                let outcome = flowing.join().unwrap();
                assert!(matches!(outcome, Err(Stop::ReaderGone)), "{outcome:?}");
                gone.elapsed()
            });
            assert_eq!(tally.used(), 200, "{from} to {to}");
            took
        };
        // A busy machine may hold one up, or two.
        let soon = |took: Duration| took < Duration::from_millis(200);
        assert!((0..5).any(|_| soon(took())), "{from} to {to}: always late");
    }
}

#[test]
fn a_reader_may_leave_when_all_is_said() {
    for from in ["pipe", "socket"] {
        let ((input, source), (reader, output)) = (ends_of(from), ends_of("pipe"));
        let (mut source, tally) = (File::from(source), Tally::default());
        thread::scope(|scope| {
            let flowing = scope.spawn(|| free_flow(input, output, &tally));
            source.write_all(b"all").unwrap();
            File::from(reader).read_exact(&mut [0; 3]).unwrap();
            thread::sleep(Duration::from_millis(50));
            drop(source);
            flowing.join().unwrap().unwrap();
        });
    }
}

#[test]
fn the_end_is_seen_although_the_output_is_full() {
    let (_reader, output) = ends_of("pipe");
    let tally = Tally::default();
    let room = rustix::pipe::fcntl_getpipe_size(&output).unwrap();
    free_flow(source("pipe", &data(room)), &output, &tally).unwrap();
    // It may have been widened, so fill it up.
    let size = rustix::pipe::fcntl_getpipe_size(&output).unwrap();
    if let Some(more @ 1..) = size.checked_sub(room) {
        free_flow(source("pipe", &data(more)), &output, &tally).unwrap();
    }
    for from in SOURCES {
        free_flow(source(from, &[]), &output, &tally).unwrap();
    }
    assert_eq!(tally.used(), size as u64);
}

#[test]
fn a_file_is_not_copied_to_its_own_end() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "text").unwrap();
    let tally = Tally::default();
    let open = |append| {
        let mut options = OpenOptions::new();
        options
            .append(append)
            .write(true)
            .open(file.path())
            .unwrap()
    };
    let outcome = free_flow(file.reopen().unwrap(), open(true), &tally);
    assert!(matches!(outcome, Err(Stop::Input(_))), "{outcome:?}");
    let mut ahead = open(false);
    ahead.seek(io::SeekFrom::End(0)).unwrap();
    let outcome = free_flow(file.reopen().unwrap(), ahead, &tally);
    assert!(matches!(outcome, Err(Stop::Input(_))), "{outcome:?}");
    // In place, as cat(1) permits.
    free_flow(file.reopen().unwrap(), open(false), &tally).unwrap();
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "text");
}

#[test]
fn descriptors_for_the_other_direction_are_refused() {
    let (reader, writer) = ends_of("pipe");
    let (mine, tally) = (sink_file(), Tally::default());
    let bad = |error: &io::Error| error.raw_os_error() == Some(9);
    let outcome = free_flow(&writer, &mine, &tally);
    assert!(
        matches!(&outcome, Err(Stop::Input(e)) if bad(e)),
        "{outcome:?}"
    );
    let outcome = free_flow(&mine, &reader, &tally);
    assert!(
        matches!(&outcome, Err(Stop::Output(e)) if bad(e)),
        "{outcome:?}"
    );
    // A directory opens, and does not read.
    let outcome = free_flow(File::open("/").unwrap(), &mine, &tally);
    assert!(matches!(&outcome, Err(Stop::Input(_))), "{outcome:?}");
    // What the standard library makes of `<&-`.
    let null = OpenOptions::new().read(true).write(true).open("/dev/null");
    let outcome = free_flow(null.unwrap(), &mine, &tally);
    assert!(
        matches!(&outcome, Err(Stop::Input(e)) if bad(e)),
        "{outcome:?}"
    );
}

fn sink_file() -> File {
    tempfile::tempfile().unwrap()
}

#[test]
fn a_future_is_woken_by_its_thread() {
    let (_reader, output) = ends_of("pipe");
    let mut watch = watch();
    for _ in 0..3 {
        let (send, receive) = tokio::sync::oneshot::channel();
        let sending = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            send.send(7).unwrap();
        });
        let got = watch.complete(receive, output.as_fd(), || true).unwrap();
        assert_eq!(got, Some(Ok(7)));
        sending.join().unwrap();
    }
}
