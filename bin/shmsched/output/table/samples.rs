//! Pictures of segments, for tests.

use std::time::Duration;

use shmsched::{
    Concurrency, Gate, LimiterInfo, MemberInfo, MemberState, PacerInfo, PlaceState, Priority,
    SchedulerInfo, SegmentInfo, Snapshot, WaitingInfo,
};

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
            pressure: Default::default(),
            waits: Default::default(),
            holds: Default::default(),
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

/// The same, where somebody waited: three for about a millisecond, and one long.
pub fn stalled() -> Snapshot {
    let mut snapshot = busy();
    let scheduler = snapshot.scheduler.as_mut().expect("it has one");
    scheduler.pressure.some.averages = [1_234, 100, 20];
    scheduler.pressure.full.averages = [50, 10, 2];
    (scheduler.waits.buckets[10], scheduler.waits.buckets[22]) = (3, 1);
    scheduler.waits.longest_us = 4_000_000;
    snapshot
}

/// A segment without slots: one waits for tokens, one for its start.
pub fn paced() -> Snapshot {
    let mut snapshot = busy();
    snapshot.segment.name = "uplink".into();
    snapshot.segment.path = "/dev/shm/shmsched-0/uplink".into();
    snapshot.scheduler = None;
    snapshot.limiter = Some(LimiterInfo {
        tokens_per_second: 1_500_000,
        tokens: -20,
        tokens_raw: -920,
        waiters: 1,
        head_wait_ms: Some(250),
        queued: [0, 0, 0, 0, 1, 0, 0],
        consumed: (1 << 53) + 1,
        deferred: 9,
        completed: 5,
        cancelled: 2,
        lost: 1,
        forced: 3,
        pressure: Default::default(),
        waits: Default::default(),
    });
    snapshot.pacer = Some(PacerInfo {
        interval: Duration::from_micros(500),
        max_waiting: 8,
        waiting: 1,
        head_wait_ms: Some(3_000),
        next_start_in: Duration::from_nanos(123_456),
        started: 12,
        rejected: 2,
        deferred: 6,
        completed: 3,
        cancelled: 1,
        lost: 1,
        pressure: Default::default(),
        waits: Default::default(),
    });
    let place = |gate, priority, amount, since_ms, state| WaitingInfo {
        gate,
        priority,
        amount,
        since_ms,
        position: 1,
        state,
    };
    let [one, two] = &mut snapshot.members[..] else {
        unreachable!("there are two")
    };
    (one.held, one.held_ms) = (0, None);
    one.waiting = vec![place(
        Gate::Limiter,
        Some(Priority::High),
        500,
        250,
        PlaceState::Called,
    )];
    (two.same_namespace, two.state, two.command) = (true, MemberState::Alive, "curl".into());
    two.waiting = vec![place(Gate::Pacer, None, 1, 3_000, PlaceState::Lapsed)];
    snapshot
}
