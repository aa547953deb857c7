//! A token for each byte that moved, and for no other.

use super::*;

#[test]
fn chunks() {
    let sizes = [
        (0, 1),
        (10, 1),
        (39, 1),
        (1_000_000, 50_000),
        (FAST, 1 << 20),
    ];
    for (rate, size) in sizes {
        assert_eq!(chunk(rate), size, "{rate}");
    }
}

#[test]
fn every_byte_arrives_and_costs_one_token() {
    let bytes = data(3_000_001);
    for from in SOURCES {
        for to in ["pipe", "socket", "file", "append"] {
            let tally = Tally::default();
            let got = arrived(to, |output| {
                let flags = fcntl_getfl(&output).unwrap();
                free_flow(source(from, &bytes), &output, &tally).unwrap();
                assert_eq!(fcntl_getfl(&output).unwrap(), flags, "others share it");
            });
            assert!(got == bytes, "{from} to {to}: {} bytes", got.len());
            assert_eq!(tally.used(), 3_000_001, "{from} to {to}");
        }
    }
}

#[test]
fn nothing_costs_nothing() {
    // case 49
    let null = File::open("/dev/null").unwrap();
    let sources = SOURCES.map(|kind| source(kind, &[]));
    for input in sources.into_iter().chain([null.into()]) {
        for to in ["pipe", "file"] {
            let tally = Tally::default();
            arrived(to, |output| free_flow(&input, output, &tally).unwrap());
            assert_eq!(tally.taken.load(SeqCst), 0);
        }
    }
}

#[test]
fn a_quiet_source_costs_nothing() {
    // case 49
    for kind in ["pipe", "socket"] {
        let ((input, source), (_reader, output)) = (ends_of(kind), ends_of("pipe"));
        let (tally, mut source) = (Tally::default(), File::from(source));
        thread::scope(|scope| {
            let flowing = scope.spawn(|| free_flow(input, output, &tally));
            for sent in 1..=3 {
                source.write_all(b"x").unwrap();
                settles(|| (tally.taken.load(SeqCst), sent));
            }
            drop(source);
            flowing.join().unwrap().unwrap();
        });
    }
}

#[test]
fn a_slow_reader_costs_no_tokens() {
    // case 49
    let bytes = data(3_000_000);
    for from in SOURCES {
        for to in ["pipe", "socket"] {
            let (reader, output) = ends_of(to);
            let (tally, mut reader) = (Tally::default(), File::from(reader));
            thread::scope(|scope| {
                let input = source(from, &bytes);
                let flowing = scope.spawn(|| flow(input, output, 1_000_000, u64::MAX, &tally));
                // Nothing, a byte at a time, a large piece.
                let mut read = 0;
                for (pieces, size) in [(0, 0), (9_000, 1), (1, 700_000)] {
                    for _ in 0..pieces {
                        let mut piece = vec![0; size];
                        reader.read_exact(&mut piece).unwrap();
                        assert!(piece == bytes[read..read + size], "{from} to {to}");
                        read += size;
                    }
                    settles(|| {
                        // Nothing has come yet if nothing is held.
                        let held = ioctl_fionread(&reader).unwrap().max(1);
                        (tally.used(), read as u64 + held)
                    });
                }
                drop(reader);
                let outcome = flowing.join().unwrap();
                assert!(matches!(outcome, Err(Stop::ReaderGone)), "{outcome:?}");
            });
            assert!(tally.largest.load(SeqCst) <= 50_000);
        }
    }
}

#[test]
fn slow_rates_go_byte_by_byte() {
    let tally = Tally::default();
    let got = arrived("pipe", |output| {
        flow(source("file", b"letters"), output, 10, u64::MAX, &tally).unwrap()
    });
    assert_eq!(got, b"letters");
    assert_eq!((tally.used(), tally.largest.load(SeqCst)), (7, 1));
}

/// A budget whose rate sinks while somebody waits for a chunk of the old one.
struct Sinking<'a>(Counted<'a>);

impl Budget for Sinking<'_> {
    fn rate(&self) -> u32 {
        self.0.rate
    }

    fn take(
        &mut self,
        tokens: u32,
        watch: &mut Watch,
        output: BorrowedFd<'_>,
    ) -> Result<bool, Stop> {
        if tokens > 1 {
            let answer = watch.complete(future::pending::<()>(), output, || false)?;
            assert!(answer.is_none());
            self.0.rate = 10;
            return Ok(false);
        }
        self.0.take(tokens, watch, output)
    }

    fn give_back(&mut self, tokens: u32) {
        self.0.give_back(tokens);
    }
}

#[test]
fn a_lower_rate_makes_smaller_chunks() {
    for from in SOURCES {
        let tally = Tally::default();
        let got = arrived("pipe", |output| {
            let input = source(from, b"letters");
            let mut ends = Ends::new(input.as_fd(), output.as_fd()).unwrap();
            let (rate, left) = (1_000_000, u64::MAX);
            let mut budget = Sinking(Counted {
                tally: &tally,
                rate,
                left,
            });
            flow::run(&mut ends, &mut budget, &mut watch()).unwrap();
        });
        assert_eq!(got, b"letters");
        assert_eq!((tally.used(), tally.largest.load(SeqCst)), (7, 1));
    }
}
