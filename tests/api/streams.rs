//! The adaptors: bytes and items at the Limiter's pace. What was taken is exactly what was moved, whoever is slow, fails or
//! leaves.

use crate::calm::{calm, scene, waits};
use crate::limiter_support::{Rated, into_debt, limiter as bucket};
use crate::streams_support::{
    Meter, Ragged, Stuck, Way, block_on, consumed, drain, drained, pattern,
};
use crate::support::{MEANT, NORMAL, Task, ends, until, watch_panics};
use futures_util::stream::{self, FusedStream, Stream, StreamExt};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use shmsched::{
    AcquireError, AsyncPacedReader, AsyncPacedWriter, PacedReader, PacedStream, PacedWriter,
    Priority, Segment,
};
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Whatever sizes meet, the bytes come through as they are, and each for one token. Most of them wait.
#[test]
fn l1_l2_all_bytes_in_order_for_a_token_each() {
    let rated = Rated::new(2_000_000);
    let limiter = rated.member();
    let sizes = || prop::collection::vec(1..900_usize, 1..6);
    let steps = prop::collection::vec(prop_oneof![Just(0), 1..700_usize], 0..6);
    let way = prop::sample::select(Way::ALL.to_vec());
    let case = (way, 0..4_000_usize, 0..600_usize, steps, sizes());
    let config = ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let mut runner = TestRunner::new(config);
    let checked = runner.run(&case, |(way, length, chunk, steps, sizes)| {
        drain(&limiter);
        let bytes = pattern(length);
        let before = consumed(&rated);
        let output = way.copy(&limiter, chunk, (&steps, &sizes), &bytes);
        prop_assert_eq!(output, bytes);
        prop_assert_eq!(consumed(&rated) - before, length as u64);
        Ok(())
    });
    checked.unwrap();
    let stats = limiter.stats();
    assert!(stats.total.deferred > 30, "{stats:?}");
    assert_eq!(stats.forced, 0);
    assert_eq!(stats.pending, 0);
}

/// What does not have to wait joins no queue, and the end of the input takes nothing.
#[test]
fn l2_the_balance_falls_by_what_was_moved() {
    let rated = Rated::new(1_000_000);
    let limiter = rated.member();
    let bytes = pattern(100_000);
    for way in Way::ALL {
        assert_eq!(way.copy(&limiter, 4_000, (&[], &[5_000]), &bytes), bytes);
    }
    let mut nothing = limiter.reader(io::empty(), NORMAL);
    assert_eq!(nothing.read(&mut [0; 100]).unwrap(), 0);
    assert_eq!(nothing.read(&mut []).unwrap(), 0);
    block_on(async {
        let mut nothing = limiter.async_reader(tokio::io::empty(), NORMAL);
        assert_eq!(nothing.read(&mut [0; 100]).await.unwrap(), 0);
    });
    let items = stream::iter([bytes.as_slice(), &bytes[..10]]);
    let paced = limiter.stream(items, NORMAL, |item| u32::try_from(item.len()).ok());
    assert_eq!(futures_executor::block_on_stream(paced).count(), 2);
    assert_eq!(consumed(&rated), 700_010);
    let stats = limiter.stats();
    assert!(stats.tokens >= 299_990, "{stats:?}");
    assert_eq!(stats.total.deferred, 0);
}

const QUIET: Duration = Duration::from_millis(1_300);

/// Ends after a while.
struct Quiet;

impl Read for Quiet {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        thread::sleep(QUIET);
        Ok(0)
    }
}

/// A source that is quiet first saves up a bucket full, a second's worth, and no more; the rest comes at the rate, all of
/// it, and steadily.
#[test]
fn l1_case_49_a_rate_over_two_seconds() {
    const RATE: u32 = 1_000_000;
    thread::scope(|scope| {
        for way in [Way::Reader, Way::AsyncWriter] {
            scope.spawn(move || {
                let limiter = bucket(RATE);
                let begun = Instant::now();
                drain(&limiter);
                let mut meter = Meter::default();
                match way {
                    Way::Reader => {
                        let source = Quiet.chain(io::repeat(1).take(3_000_000));
                        let mut paced = limiter.reader(source, NORMAL);
                        io::copy(&mut paced, &mut meter).unwrap();
                    }
                    _ => block_on(async {
                        let source = AsyncReadExt::take(tokio::io::repeat(1), 3_000_000);
                        let mut source = tokio::io::BufReader::new(source);
                        let mut paced = limiter.async_writer(meter.clone(), NORMAL);
                        paced.write_all(&[]).await.unwrap();
                        tokio::time::sleep(QUIET).await;
                        tokio::io::copy_buf(&mut source, &mut paced).await.unwrap();
                    }),
                }
                let took = begun.elapsed().as_secs_f64();
                assert_eq!(meter.total(), 3_000_000);
                let took = took - QUIET.as_secs_f64();
                assert!((1.9..4.0).contains(&took), "{way:?}: {took} s");
                let peak = meter.peak(Duration::from_secs(1));
                assert!(peak <= 2_200_000, "{way:?}: {peak} in a second");
                assert!(meter.largest() <= 50_000, "{way:?}: {}", meter.largest());
            });
        }
    });
}

/// Far below the buffer it still comes in small steps, far above it without a wait.
#[test]
fn l6_rates_far_below_and_above_the_buffer() {
    let slow = bucket(400);
    let begun = Instant::now();
    drain(&slow);
    let meter = Meter::default();
    block_on(async {
        let mut source = AsyncReadExt::take(tokio::io::repeat(1), 400);
        let mut paced = slow.async_writer(meter.clone(), NORMAL);
        tokio::io::copy(&mut source, &mut paced).await.unwrap();
        assert!(begun.elapsed() > Duration::from_millis(900));
    });
    assert_eq!(
        (meter.total(), meter.largest(), meter.count()),
        (400, 20, 20)
    );
    let fast = bucket(i32::MAX as u32);
    let source = io::repeat(1).take(64 << 20);
    let mut paced = fast.reader(source, NORMAL);
    assert_eq!(io::copy(&mut paced, &mut io::sink()).unwrap(), 64 << 20);
    assert_eq!(fast.stats().total.deferred, 0);
}

/// The chunk that was asked for reaches the inner side; without one it is a twentieth of a second's worth.
#[test]
fn l6_the_chunk_can_be_set() {
    let limiter = bucket(100_000);
    for (chunk, most) in [(None, 5_000), (Some(123), 123), (Some(8_192), 8_192)] {
        let meter = Meter::default();
        let mut buffer = vec![0; 20_000];
        let (mut reader, mut writer) = (
            limiter.reader(meter.clone(), NORMAL),
            limiter.writer(meter.clone(), NORMAL),
        );
        if let Some(chunk) = chunk {
            (reader, writer) = (reader.chunk(chunk), writer.chunk(chunk));
        }
        assert_eq!(reader.read(&mut buffer).unwrap(), most);
        assert_eq!(writer.write(&buffer).unwrap(), most);
        block_on(async {
            let mut reader = limiter.async_reader(meter.clone(), NORMAL);
            let mut writer = limiter.async_writer(meter.clone(), NORMAL);
            if let Some(chunk) = chunk {
                (reader, writer) = (reader.chunk(chunk), writer.chunk(chunk));
            }
            assert_eq!(reader.read(&mut buffer).await.unwrap(), most);
            assert_eq!(writer.write(&buffer).await.unwrap(), most);
        });
        assert_eq!((meter.largest(), meter.count()), (most, 4));
    }
}

/// Two that always want more: the urgent one gets the larger share, the other one chunk a second at least.
#[test]
fn l3_the_urgent_stream_gets_the_larger_share() {
    scene(|| {
        let rated = Rated::new(20_000);
        let _drained = drained(&rated);
        let end = Instant::now() + Duration::from_millis(2_600);
        let move_on = |priority| {
            let limiter = rated.member();
            let mut paced = limiter.writer(Meter::default(), priority);
            while Instant::now() < end {
                paced.write_all(&[0; 1_000]).unwrap();
            }
            paced.get_ref().total()
        };
        let (high, low) = thread::scope(|scope| {
            let high = scope.spawn(|| move_on(Priority::High));
            let low = scope.spawn(|| move_on(Priority::Low));
            (high.join().unwrap(), low.join().unwrap())
        });
        assert!(low >= 1_000, "{low} of {high}");
        println!("{high} to {low}");
        calm(high > 3 * low);
        calm((40_000..70_000).contains(&(high + low)));
    });
}

/// Two of the same priority in different members share the rate.
#[test]
fn case_49_two_share_a_rate() {
    scene(|| {
        let rated = Rated::new(100_000);
        let _drained = drained(&rated);
        let end = Instant::now() + Duration::from_secs(2);
        let both: Vec<usize> = thread::scope(|scope| {
            let threads = [(); 2].map(|()| {
                scope.spawn(|| {
                    let mut paced = rated.member().reader(Meter::default(), NORMAL);
                    let mut buffer = [0; 5_000];
                    let mut total = 0;
                    while Instant::now() < end {
                        total += paced.read(&mut buffer).unwrap();
                    }
                    total
                })
            });
            threads.map(|thread| thread.join().unwrap()).into()
        });
        let sum = both[0] + both[1];
        println!("{both:?}");
        calm((150_000..300_000).contains(&sum));
        calm(both.iter().all(|bytes| bytes * 100 >= sum * 35));
    });
}

/// No weight, no tokens: a debt does not hold it up while nobody queues.
#[test]
fn l4_what_has_no_weight_passes_in_debt() {
    let rated = Rated::new(10);
    let limiter = rated.member();
    limiter.blocking_acquire(50, NORMAL).unwrap();
    assert!(limiter.stats().tokens < 0);
    let paced = limiter.stream(stream::iter(0..1_000), NORMAL, |_| None);
    let passed: Vec<u32> = futures_executor::block_on_stream(paced)
        .map(Result::unwrap)
        .collect();
    assert!(passed.into_iter().eq(0..1_000));
    assert_eq!(consumed(&rated), 50);
}

/// Nor does it pass one of its priority that waits for tokens; at another priority it does.
#[test]
fn l5_what_has_no_weight_keeps_the_order() {
    scene(|| {
        let limiter = bucket(10);
        drain(&limiter);
        let starved = waits(limiter.acquire(10, NORMAL));
        let next = |priority| {
            let mut paced = limiter.stream(stream::iter([7]), priority, |_| None);
            async move { paced.next().await.unwrap() }
        };
        let mut behind = waits(next(NORMAL));
        for priority in [Priority::Low, Priority::High] {
            let mut other = Task::new(next(priority));
            assert_eq!(other.poll().unwrap_or_else(|| other.finish()), Ok(7));
        }
        calm(behind.poll().is_none());
        drop(starved);
        assert_eq!(behind.finish(), Ok(7));
    });
}

/// An adaptor that waits is dropped: nothing is pushed or paid, and who stands behind it gets on at once.
#[test]
fn l7_x35_dropped_while_it_waits() {
    let rated = Rated::new(100);
    let meter = Meter::default();
    for round in 0..3 {
        scene(|| {
            let limiter = drained(&rated);
            let begun = Instant::now();
            let before = consumed(&rated);
            let moved = meter.total();
            let source = &[0; 100][..];
            let (mut reader, mut writer, mut items) = (
                limiter.async_reader(source, NORMAL).chunk(100),
                limiter.async_writer(meter.clone(), NORMAL).chunk(100),
                limiter.stream(stream::iter([100]), NORMAL, |item| Some(*item)),
            );
            // It must wait for a second.
            let dropped = match round {
                0 => waits(async move {
                    let _ = reader.read(&mut [0; 100]).await;
                }),
                1 => waits(async move {
                    let _ = writer.write(&[0; 100]).await;
                }),
                _ => waits(async move {
                    let _ = items.next().await;
                }),
            };
            let behind = waits(limiter.acquire(1, NORMAL));
            assert_eq!(limiter.stats().pending, 2);
            drop(dropped);
            behind.finish().unwrap();
            calm(begun.elapsed() < Duration::from_millis(700));
            assert_eq!(consumed(&rated) - before, 1);
            assert_eq!(meter.total(), moved);
            let stats = limiter.stats();
            assert_eq!((stats.pending, stats.total.cancelled), (0, 1));
        });
    }
}

/// Streams that go away amid traffic lose and invent nothing.
#[test]
fn l7_dropped_at_any_time() {
    let rated = Rated::new(200_000);
    let limiter = drained(&rated);
    let before = consumed(&rated);
    let moved = AtomicUsize::new(0);
    let bytes = pattern(20_000);
    thread::scope(|scope| {
        for n in 0..6_u64 {
            let (limiter, moved, bytes) = (limiter.clone(), &moved, &bytes);
            scope.spawn(move || {
                block_on(async {
                    for round in 0..12 {
                        let meter = Meter::default();
                        let patience = Duration::from_micros(3_000 * n * round % 20_000);
                        let priority = Priority::ALL[(n as usize + round as usize) % 7];
                        let mut paced = limiter.async_writer(meter.clone(), priority).chunk(300);
                        let writes = paced.write_all(bytes);
                        let _ = tokio::time::timeout(patience, writes).await;
                        drop(paced);
                        moved.fetch_add(meter.total(), Ordering::Relaxed);
                    }
                });
            });
        }
    });
    assert_eq!(
        consumed(&rated) - before,
        moved.load(Ordering::Relaxed) as u64
    );
    assert_eq!(limiter.stats().pending, 0);
    // It goes on.
    limiter.blocking_acquire(1_000, NORMAL).unwrap();
}

/// One that nobody polls any more, and nobody drops, does not hold up those behind it for long.
#[test]
fn l7_given_up_and_kept() {
    ends("the one behind", || {
        scene(|| {
            let rated = Rated::new(1_000);
            let limiter = drained(&rated);
            let before = consumed(&rated);
            let meter = Meter::default();
            let mut kept = limiter.async_writer(meter.clone(), NORMAL).chunk(50);
            drop(waits(kept.write_all(&[0; 50])));
            assert_eq!(limiter.stats().pending, 1);
            let begun = Instant::now();
            limiter.blocking_acquire(1, NORMAL).unwrap();
            calm(begun.elapsed() < Duration::from_secs(2));
            assert_eq!(meter.total(), 0);
            // It goes on where it was; a shutdown would have left the queue.
            block_on(kept.write_all(&[0; 70])).unwrap();
            assert_eq!(meter.total(), 70);
            assert_eq!(consumed(&rated) - before, 71);
            drain(&limiter);
            drop(waits(kept.write_all(&[0; 50])));
            block_on(kept.shutdown()).unwrap();
            assert_eq!(limiter.stats().pending, 0);
        })
    });
}

/// Without tokens nothing moves on either side, and one chunk at most is kept.
#[test]
fn l8_back_pressure_reaches_the_source() {
    let limiter = bucket(100);
    // No time that passes here brings a token.
    into_debt(&limiter, 10_000);
    let (source, target) = (Meter::default(), Meter::default());
    let mut writer = limiter.async_writer(target.clone(), NORMAL);
    let mut reader = limiter.async_reader(source.clone(), NORMAL).chunk(90);
    let mut buffer = [0; 1_000];
    drop(Task::waiting(writer.write(&[0; 1_000])));
    for _ in 0..3 {
        drop(Task::waiting(reader.read(&mut buffer)));
    }
    assert_eq!(target.total(), 0);
    assert_eq!((source.count(), source.total()), (1, 90));
    assert_eq!(reader.buffer().len(), 90);
    let queued = Arc::new(AtomicUsize::new(0));
    let items = stream::iter(0..100).inspect({
        let queued = queued.clone();
        move |_| {
            queued.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut items = limiter.stream(items, NORMAL, |_| Some(1));
    for _ in 0..3 {
        drop(Task::waiting(items.next()));
    }
    assert_eq!(queued.load(Ordering::Relaxed), 1);
    assert_eq!(items.size_hint(), (100, Some(100)));
    assert_eq!(items.into_inner().1, Some(0));
}

/// A read that is given up loses nothing, and whatever the next buffer's size is, what it gets is paid.
#[test]
fn a_read_given_up_is_gone_on_with() {
    let rated = Rated::new(2_000);
    let limiter = drained(&rated);
    let mut before = consumed(&rated);
    let bytes = pattern(150);
    block_on(async {
        let mut paced = limiter.async_reader(bytes.as_slice(), NORMAL);
        let mut output = Vec::new();
        let mut buffer = [0; 100];
        let tries = [(100, 2), (5, 1_000), (3, 0), (100, 1_000)];
        for (size, patience) in tries.into_iter().cycle() {
            let patience = Duration::from_millis(patience);
            if size == 3 {
                // What the one before gave back is gone.
                before += drain(&limiter);
            }
            let read = paced.read(&mut buffer[..size]);
            if let Ok(count) = tokio::time::timeout(patience, read).await {
                output.extend_from_slice(&buffer[..count.unwrap()]);
            }
            assert_eq!(consumed(&rated) - before, output.len() as u64);
            if output.len() == bytes.len() {
                break;
            }
        }
        assert_eq!(output, bytes);
    });
}

/// Not ready, not ready for all, failed, panicked: what was not written was not paid.
#[test]
fn a_slow_writer_holds_no_tokens() {
    let rated = Rated::new(1_000);
    let limiter = rated.member();
    let stuck = Stuck { room: 64, polls: 0 };
    let mut paced = limiter.async_writer(stuck, NORMAL).chunk(1_000);
    block_on(async {
        assert_eq!(paced.write(&[0; 500]).await.unwrap(), 64);
    });
    for _ in 0..10 {
        drop(Task::waiting(paced.write(&[0; 500])));
        assert_eq!(consumed(&rated), 64);
        assert!(limiter.stats().tokens >= 936);
    }
    assert_eq!(paced.get_ref().polls, 11);
    // Who waits gets them, however often it is polled.
    limiter.blocking_acquire(900, NORMAL).unwrap();
    assert_eq!(consumed(&rated), 964);
}

#[test]
fn a_failing_writer_pays_nothing() {
    struct Broken(bool);
    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            match self.0 {
                true => panic!("{MEANT}a writer"),
                false => Err(ErrorKind::BrokenPipe.into()),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(ErrorKind::BrokenPipe.into())
        }
    }
    watch_panics();
    let rated = Rated::new(1_000);
    let limiter = rated.member();
    for panics in [false, true] {
        let mut paced = limiter.writer(Broken(panics), NORMAL);
        let broken = catch_unwind(AssertUnwindSafe(|| {
            paced.write(&[0; 50]).map_err(|error| error.kind())
        }));
        match panics {
            true => assert!(broken.is_err()),
            false => assert_eq!(broken.unwrap(), Err(ErrorKind::BrokenPipe)),
        }
        let target = Ragged::new(Broken(panics), &[]);
        let mut paced = limiter.async_writer(target, NORMAL);
        let broken = catch_unwind(AssertUnwindSafe(|| block_on(paced.write(&[0; 50]))));
        assert!(broken.is_err() || broken.is_ok_and(|failed| failed.is_err()));
        assert_eq!(consumed(&rated), 0);
    }
    // Part of it.
    let mut few = [0; 30];
    let mut paced = limiter.writer(&mut few[..], NORMAL);
    assert_eq!(
        paced.write_all(&[1; 50]).unwrap_err().kind(),
        ErrorKind::WriteZero
    );
    assert_eq!(consumed(&rated), 30);
}

/// From file to file, and through something in between.
#[test]
fn l9_read_transform_write() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let bytes = pattern(150_000);
    std::fs::write(&from, &bytes).unwrap();
    let limiter = bucket(400_000);
    let begun = Instant::now();
    drain(&limiter);
    let source = std::fs::File::open(&from).unwrap();
    let mut target = std::fs::File::create(&to).unwrap();
    io::copy(&mut limiter.reader(source, NORMAL), &mut target).unwrap();
    assert!(begun.elapsed() > Duration::from_millis(300));
    assert!(std::fs::read(&to).unwrap() == bytes);

    block_on(async {
        let (mut near, far) = tokio::io::duplex(1_000);
        let (mut upper, lower) = tokio::io::duplex(5_000);
        let mut far = limiter.async_reader(far, NORMAL);
        let mut lower = limiter.async_writer(lower, Priority::High);
        let transform = async {
            let mut buffer = [0; 700];
            loop {
                let count = far.read(&mut buffer).await.unwrap();
                if count == 0 {
                    break lower.shutdown().await.unwrap();
                }
                buffer[..count].iter_mut().for_each(|byte| *byte ^= 0x55);
                lower.write_all(&buffer[..count]).await.unwrap();
            }
        };
        let feed = async {
            near.write_all(&bytes[..60_000]).await.unwrap();
            near.shutdown().await.unwrap();
        };
        let mut output = Vec::new();
        let (_, _, read) = tokio::join!(feed, transform, upper.read_to_end(&mut output));
        assert_eq!(read.unwrap(), 60_000);
        assert!(
            output
                .iter()
                .zip(&bytes)
                .all(|(out, byte)| *out == byte ^ 0x55)
        );
    });
}

/// A child's streams obey the whole chain: its own rate, and the one above.
#[test]
fn l10_streams_of_a_child() {
    let rated = Rated::new(40_000);
    let upper = drained(&rated);
    let before = consumed(&rated);
    for rate in [1_000_000, 40_000] {
        let child = upper.child(rate).unwrap();
        let begun = Instant::now();
        drain(&upper);
        let before = consumed(&rated);
        let bytes = pattern(20_000);
        for way in [Way::Reader, Way::AsyncReader, Way::AsyncVectored] {
            let output = way.copy(&child, usize::MAX, (&[], &[900]), &bytes);
            assert!(output == bytes, "{way:?}");
        }
        let took = begun.elapsed();
        assert!(took > Duration::from_millis(1_450), "{took:?}");
        assert_eq!(consumed(&rated) - before, 60_000);
    }
    // Dropped while it stands in the line above.
    scene(|| {
        drain(&upper);
        let child = upper.child(40_000).unwrap();
        let paced = child.stream(stream::iter([40_000]), NORMAL, |item| Some(*item));
        let mut paced = Box::pin(paced);
        let dropped = waits(async move { paced.next().await });
        let behind = waits(upper.acquire(400, NORMAL));
        let begun = Instant::now();
        drop(dropped);
        behind.finish().unwrap();
        calm(begun.elapsed() < Duration::from_millis(700));
        until("nobody waits", || upper.stats().pending == 0);
        assert!(child.stats().tokens == 40_000);
    });
    assert!(consumed(&rated) > before);
}

/// Heavier than a full bucket: let through when it is full, into debt. Heavier than any request: refused.
#[test]
fn items_of_any_weight() {
    let limiter = bucket(1_000);
    let items = stream::iter([2_500, 1, u32::MAX, 1]);
    let mut paced = limiter.stream(items, NORMAL, |item| Some(*item));
    block_on(async {
        assert_eq!(paced.next().await, Some(Ok(2_500)));
        assert!(limiter.stats().tokens < 0);
        assert_eq!(limiter.stats().forced, 1);
        limiter.refund(2_500);
        assert_eq!(paced.next().await, Some(Ok(1)));
        let refused = Some(Err(AcquireError::TooManyTokens { amount: u32::MAX }));
        assert_eq!(paced.next().await, refused);
        assert!(paced.is_terminated());
        assert_eq!(paced.next().await, None);
    });
    let (mut rest, item) = paced.into_inner();
    assert_eq!(item, Some(u32::MAX));
    assert_eq!(block_on(rest.next()), Some(1));
}

/// The wait fails, the bytes are kept; the error says why.
#[test]
fn a_retired_segment_fails_the_streams() {
    let rated = Rated::new(100);
    let limiter = rated.member();
    // Nobody is served before the guard would.
    into_debt(&limiter, 100_000);
    let before = consumed(&rated);
    let bytes = pattern(80);
    let meter = Meter::default();
    let why = |error: io::Error| {
        assert_eq!(error.kind(), ErrorKind::Other);
        let inner = error.into_inner().unwrap();
        *inner.downcast::<AcquireError>().unwrap()
    };
    let mut reader = limiter.async_reader(bytes.as_slice(), NORMAL).chunk(80);
    let mut writer = limiter.async_writer(meter.clone(), NORMAL).chunk(80);
    let mut items = limiter.stream(stream::iter([100]), NORMAL, |item| Some(*item));
    let mut buffer = [0; 80];
    let reads = Task::waiting(reader.read(&mut buffer));
    let writes = Task::waiting(writer.write(&bytes));
    let next = Task::waiting(items.next());
    thread::scope(|scope| {
        let blocked = scope.spawn(|| {
            let mut reader = limiter.reader(bytes.as_slice(), NORMAL).chunk(80);
            let error = reader.read(&mut [0; 80]).unwrap_err();
            assert_eq!(reader.buffer(), bytes);
            let again = reader.read(&mut [0; 80]).unwrap_err();
            assert_eq!(reader.buffer(), bytes);
            [error, again]
        });
        until("all wait", || limiter.stats().pending == 4);
        // Observed before the name is gone.
        assert_eq!(consumed(&rated), before);
        Segment::remove(&rated.location, true).unwrap();
        for error in blocked.join().unwrap() {
            assert_eq!(why(error), AcquireError::Retired);
        }
    });
    assert_eq!(why(reads.finish().unwrap_err()), AcquireError::Retired);
    assert_eq!(why(writes.finish().unwrap_err()), AcquireError::Retired);
    assert_eq!(next.finish(), Some(Err(AcquireError::Retired)));
    assert_eq!(reader.buffer(), bytes);
    assert_eq!(reader.into_inner(), &[0; 0]);
    assert_eq!(meter.total(), 0);
    assert_eq!(items.into_inner().1, Some(100));
}

/// What is inside may be one that must not move, and all of it may cross threads.
#[test]
fn the_types() {
    fn crosses<T: Send + Sync + Unpin + std::fmt::Debug>(_: &T) {}
    let limiter = bucket(1_000);
    let (reader, writer) = (
        limiter.reader(io::empty(), NORMAL),
        limiter.writer(io::sink(), NORMAL),
    );
    let async_reader = limiter.async_reader(tokio::io::empty(), NORMAL);
    let async_writer = limiter.async_writer(tokio::io::sink(), NORMAL);
    let items = limiter.stream(stream::iter([1]), NORMAL, |item| Some(*item));
    let _: &PacedReader<io::Empty> = &reader;
    let _: &PacedWriter<io::Sink> = &writer;
    let _: &AsyncPacedReader<tokio::io::Empty> = &async_reader;
    let _: &AsyncPacedWriter<tokio::io::Sink> = &async_writer;
    crosses(&reader);
    crosses(&writer);
    crosses(&async_reader);
    crosses(&async_writer);
    fn is_stream<S: Stream, F>(_: &PacedStream<S, F>) {}
    is_stream(&items);
    crosses(&items);
    let shown = format!("{reader:?} {writer:?} {async_reader:?} {async_writer:?} {items:?}");
    assert!(
        shown.contains("priority: Normal") && shown.contains("chunk: 50"),
        "{shown}"
    );
    // A generator that borrows from itself.
    let pinned = stream::unfold(0_u32, |n| async move { (n < 3).then_some((n, n + 1)) });
    let paced = std::pin::pin!(limiter.stream(pinned, NORMAL, |n| Some(*n)));
    let passed: Vec<u32> = futures_executor::block_on_stream(paced)
        .map(Result::unwrap)
        .collect();
    assert_eq!(passed, [0, 1, 2]);
}

/// Several buffers reach an inner writer that takes them, as far as they fit into a chunk.
#[test]
fn several_buffers_at_once() {
    let rated = Rated::new(1_000);
    let limiter = rated.member();
    let meter = Meter::default();
    let buffers = [&[0; 10][..], &[0; 20], &[0; 100]].map(IoSlice::new);
    let mut paced = limiter.async_writer(meter.clone(), NORMAL);
    assert!(paced.is_write_vectored());
    let wrote = block_on(poll_fn(|context| {
        Pin::new(&mut paced).poll_write_vectored(context, &buffers)
    }));
    assert_eq!((wrote.unwrap(), meter.count()), (30, 1));
    assert_eq!(consumed(&rated), 30);
    let mut all = limiter.writer(Vec::new(), NORMAL);
    assert_eq!(all.write_vectored(&buffers).unwrap(), 30);
    assert_eq!(all.write_vectored(&buffers[2..]).unwrap(), 50);
    assert_eq!(all.write_vectored(&[]).unwrap(), 0);
    assert_eq!(all.write(&[]).unwrap(), 0);
    assert_eq!(all.into_inner().len(), 80);
    assert_eq!(consumed(&rated), 110);
    assert!(
        !limiter
            .async_writer(Stuck { room: 0, polls: 0 }, NORMAL)
            .is_write_vectored()
    );
}
