//! A segment without a mapping, and the drivers that the library has in `segment::look` and `scheduler::wait`, less
//! clocks, files and the process's own queue.

use loom::sync::{Condvar, Mutex};
use shmsched::model::layout::{LANES, Member, Place, Record, SchedulerCold, SchedulerHot};
use shmsched::model::protocol::ledger::spare::{self, Step};
use shmsched::model::protocol::ledger::{self, Books, Picture, Refused, Word};
use shmsched::model::protocol::line::{Doing, Line, Mark, Seat};
use shmsched::model::protocol::mutant;
use shmsched::model::protocol::roster::{self, Owner, Status};
use shmsched::model::protocol::scheduler::{Gate, Limits, Moment};
use shmsched::model::protocol::turn::Outlook;
use shmsched::model::words::{I32, U32, U64, with_membarrier};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::{self, Relaxed};
use std::sync::atomic::{AtomicI32, AtomicUsize};

/// The lane that everybody stands in.
pub const LANE: usize = 0;

/// Explores a model; how far is set by `LOOM_MAX_PREEMPTIONS`, two if it is not.
pub fn explore(name: &str, model: impl Fn() + Send + Sync + 'static) {
    explore_at_least(2, name, model);
}

/// Explores a model that is small enough for more preemptions, and needs them.
pub fn explore_at_least(preemptions: usize, name: &str, model: impl Fn() + Send + Sync + 'static) {
    let runs = Arc::new(AtomicUsize::new(0));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.max(Some(preemptions));
    builder.max_branches = 100_000;
    let counted = runs.clone();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!("{name}: {} interleavings", runs.load(Ordering::Relaxed));
}

/// Starts a thread of a model.
pub fn thread<T: 'static>(
    world: &Arc<World>,
    f: impl FnOnce(&World) -> T + 'static,
) -> loom::thread::JoinHandle<T> {
    let world = world.clone();
    loom::thread::spawn(move || f(&world))
}

/// The word a member's sleeper sleeps on. The mutex stands for the kernel's bucket lock, so that comparing and falling
/// asleep are one step.
#[derive(Default)]
pub struct Bell {
    word: U32,
    bucket: Mutex<()>,
    sleepers: Condvar,
}

impl Bell {
    pub fn heard(&self) -> u32 {
        self.word.get()
    }

    pub fn sleep(&self, heard: u32) {
        let bucket = self.bucket.lock().unwrap();
        if self.word.get() == heard {
            drop(self.sleepers.wait(bucket).unwrap());
        }
    }

    pub fn ring(&self) {
        self.word.add(1);
        let _bucket = self.bucket.lock().unwrap();
        self.sleepers.notify_all();
    }
}

/// A segment with a Scheduler. Member `i` writes record `i`; further records belong to member 0.
pub struct World {
    pub hot: SchedulerHot,
    pub cold: SchedulerCold,
    pub roster: Vec<Member>,
    pub records: Vec<Record>,
    bits: Vec<U64>,
    places: Vec<Place>,
    bells: Vec<Bell>,
    /// 1: the kernel let go of the member's lock.
    dead: Vec<U32>,
    /// Slots surely held; no word of the segment.
    held: AtomicI32,
    /// Whether spare slots have to do with it: others need not read their word.
    spares: Cell<bool>,
    /// 1 while somebody has the only slot, where spares have to do with it. Relaxed: that who takes it sees who gave it is for
    /// the slot to order. A word that loom sees, so that it tries who comes in between.
    inside: loom::sync::atomic::AtomicU32,
}

impl World {
    /// A segment of `members`, all attached, with `concurrency` slots.
    pub fn new(members: usize, concurrency: i32) -> World {
        World::with(members, members, concurrency, false)
    }

    /// The same with further records.
    pub fn with_records(members: usize, records: usize, concurrency: i32) -> World {
        World::with(members, records, concurrency, false)
    }

    /// The same with a line of one lane.
    pub fn with_line(members: usize, records: usize, concurrency: i32) -> World {
        World::with(members, records, concurrency, true)
    }

    fn with(members: usize, records: usize, concurrency: i32, line: bool) -> World {
        let some = |n: usize| if line { n } else { 0 };
        let world = World {
            hot: SchedulerHot {
                concurrency: I32::new(concurrency),
                targets: std::array::from_fn(|_| I32::new(-1)),
                ..SchedulerHot::default()
            },
            cold: SchedulerCold::default(),
            roster: (0..members).map(|_| Member::default()).collect(),
            records: (0..records).map(|_| Record::default()).collect(),
            bits: (0..some(1)).map(|_| U64::new(0)).collect(),
            places: (0..some((members - 1) * LANES + 1))
                .map(|_| Place::default())
                .collect(),
            bells: (0..some(members)).map(|_| Bell::default()).collect(),
            dead: (0..members).map(|_| U32::new(0)).collect(),
            held: AtomicI32::new(0),
            spares: Cell::new(false),
            inside: loom::sync::atomic::AtomicU32::new(0),
        };
        for member in &world.roster {
            assert_eq!(roster::claim(member), Some(1));
        }
        world.cold.members_high.put(members as u32);
        world.cold.records_high.put(world.records.len() as u32);
        for (at, record) in world.records.iter().enumerate() {
            let member = if at < members { at as u32 } else { 0 };
            record.owner.put(owner(member, 1));
        }
        world
    }

    pub fn books(&self) -> Books<'_> {
        Books {
            roster: &self.roster,
            records: &self.records,
            members_high: &self.cold.members_high,
            records_high: &self.cold.records_high,
            running: &self.hot.running,
            estate: &self.cold.estate,
        }
    }

    pub fn line(&self) -> Line<'_> {
        Line {
            summary: &self.hot.summary,
            hurry: &self.hot.hurry,
            waiters: &self.hot.waiters,
            ticket: &self.cold.ticket,
            lanes: LANES,
            bits: &self.bits,
            by_member: true,
            words: 1,
            places: &self.places,
            roster: &self.roster,
        }
    }

    // Taking and giving.

    /// One try to take `k` slots under the limit, as a newcomer does.
    pub fn take(&self, record: usize, k: u32) -> bool {
        let bound = self.hot.concurrency.peek() as u32;
        let taken =
            ledger::take(&self.records[record], &self.hot.running, k, bound, || false).is_ok();
        if taken {
            self.has_taken(k);
        }
        taken
    }

    /// Counts slots that are surely held now.
    pub fn has_taken(&self, k: u32) {
        let held = self.held.fetch_add(k as i32, Ordering::Relaxed) + k as i32;
        assert!(held <= self.hot.concurrency.peek(), "over the limit");
    }

    /// Slots that are surely held no more.
    pub fn lets_go(&self, k: u32) {
        self.held.fetch_sub(k as i32, Ordering::Relaxed);
    }

    /// Gives `k` slots back and calls who is next.
    pub fn give(&self, record: usize, k: u32) {
        self.lets_go(k);
        ledger::give(&self.records[record], &self.hot.running, k, || false);
        let gate = Gate {
            hot: &self.hot,
            cold: &self.cold,
            line: self.line(),
        };
        if self.bells.is_empty() || !gate.is_spoken_for(0) {
            self.advance(None, 0);
        }
    }

    // Spare slots, as `scheduler::turn` has them.

    /// From here on spares may be left, and who waits recalls them.
    pub fn allow_spares(&self) {
        with_membarrier(true);
        self.spares.set(true);
        spare::allow(&self.hot.spares);
    }

    /// Lends spares though somebody waits, and has the first in line know.
    pub fn lend(&self) {
        if spare::lend(&self.hot.spares) && !mutant("lend-untold") {
            self.advance(None, 0);
        }
    }

    fn is_usual(&self, phase: u32) -> bool {
        let waiting = match phase {
            spare::LENT => 0,
            _ => self.hot.summary.peek(),
        };
        mutant("spare-join") || self.hot.hurry.peek() | waiting == 0
    }

    fn give_contested(&self, record: usize) {
        let record = &self.records[record];
        if spare::settle(record, || false)
            && ledger::put_back(record, &self.hot.running, 1, || false)
        {
            self.advance(None, 0);
        }
    }

    /// One slot: the spare, or as a newcomer, or after a recall.
    pub fn take_kept(&self, record: usize) -> bool {
        let taken = self.take_somehow(record);
        if taken {
            assert_eq!(self.inside.load(Relaxed), 0, "two have it");
            self.inside.store(1, Relaxed);
        }
        taken
    }

    fn take_somehow(&self, record: usize) -> bool {
        match spare::take(&self.records[record], &self.hot.spares, |phase| {
            self.is_usual(phase)
        }) {
            Step::Done => {
                self.has_taken(1);
                return true;
            }
            Step::Contested => self.give_contested(record),
            Step::Not => (),
        }
        self.take(record, 1) || self.recall(record) && self.take(record, 1)
    }

    /// One slot given back: kept as the spare if that is allowed.
    pub fn give_kept(&self, record: usize) {
        // Another may have it before this thread does anything else.
        self.gone();
        self.lets_go(1);
        match spare::leave(&self.records[record], &self.hot.spares, |phase| {
            self.is_usual(phase)
        }) {
            Step::Done => return,
            Step::Contested => return self.give_contested(record),
            Step::Not => self.has_taken(1),
        }
        self.give(record, 1);
    }

    /// Who had the only slot is about to give it back, or has died with it.
    pub fn gone(&self) {
        self.inside.store(0, Relaxed);
    }

    /// Recalls all spares. Whether there were any.
    pub fn recall(&self, record: usize) -> bool {
        let (hot, own) = (&self.hot, &self.records[record]);
        let records = || &self.records[..];
        let found = spare::recall(&hot.spares, &hot.running, own, records, || false);
        found.is_some_and(|found| found != 0)
    }

    // Looking for the dead, as `segment::look` does.

    /// The member's process ends; what its threads wrote is written.
    pub fn die(&self, member: u32) {
        self.dead[member as usize].put(1);
    }

    /// Somebody locks the byte of the member's slot.
    pub fn revive(&self, member: u32) {
        self.dead[member as usize].put(0);
    }

    /// Marks the dead GONE.
    pub fn bury(&self) {
        for (member, dead) in self.roster.iter().zip(&self.dead) {
            if let Some(generation) = Status(member.status.get()).live()
                && dead.get() != 0
            {
                roster::retire(member, generation);
            }
        }
    }

    /// One look: the dead, the picture, and what they left into the estate. `check` sees the picture before.
    pub fn look(&self, check: impl FnOnce(&Picture)) -> bool {
        self.bury();
        let picture = self.books().look_to_adopt();
        if let Some(picture) = &picture {
            check(picture);
            self.books().adopt(picture);
        }
        picture.is_some()
    }

    /// Gives the estate back through a record. Returns how much.
    pub fn give_estate_back(&self, record: usize) -> u32 {
        let record = &self.records[record];
        let found = ledger::inherit(record, &self.cold.estate, || false);
        if found != 0 {
            ledger::give_inherited(record, &self.hot.running, found, || false);
        }
        found
    }

    /// So much is in the estate already.
    pub fn leave_behind(&self, slots: u32) {
        self.hot.running.add(slots as i32);
        self.cold.estate.add(u64::from(slots));
    }

    /// Nobody runs any more: a last look finds whatever is left, and then everything is free.
    pub fn settle_up(&self, record: usize) {
        assert!(self.look(|_| ()), "nobody changes anything");
        self.give_estate_back(record);
        self.assert_all_free();
    }

    pub fn assert_all_free(&self) {
        assert_eq!(self.hot.running.get(), 0, "RUNNING");
        assert_eq!(estate(self), 0, "estate");
        let picture = self.books().look().expect("nobody changes anything");
        assert_eq!(picture.living(), 0, "held by the living");
        for member in 0..self.roster.len() {
            if Status(picture.status[member]).live().is_some() {
                assert_eq!(picture.held[member], 0, "net of member {member}");
                assert!(!picture.busy[member]);
            }
        }
    }

    // The line, as `scheduler::wait` uses it.

    /// Calls who is next.
    pub fn advance(&self, me: Option<u32>, ms: u32) -> Outlook {
        if self.bells.is_empty() || self.hot.summary.get() == 0 {
            return Outlook::default();
        }
        let gate = Gate {
            hot: &self.hot,
            cold: &self.cold,
            line: self.line(),
        };
        let moment = Moment {
            now: 0,
            ms,
            draw: None,
        };
        gate.advance(me.map(|me| (me, LANE)), moment, &mut |member, _| {
            self.ring(member);
        })
    }

    pub fn ring(&self, member: u32) {
        self.bells[member as usize].ring();
    }

    pub fn bell(&self, member: u32) -> &Bell {
        &self.bells[member as usize]
    }

    pub fn join(&self, member: u32, amount: u32) {
        let generation = 1;
        let owner = Owner { member, generation };
        self.line().join(member, owner, LANE, seat(amount));
    }

    /// Leaves the line, served or not; room left to this place is somebody's.
    pub fn leave(&self, member: u32) {
        self.give_up_place(member);
        self.settled();
    }

    /// The first half of leaving, under the lock of the member's queue.
    pub fn give_up_place(&self, member: u32) {
        self.line().leave(member, 1, LANE);
    }

    /// The second half, outside it.
    pub fn settled(&self) {
        if !mutant("leave-without-advance") {
            self.advance(None, 0);
        }
    }

    /// One try of a member's waiter: sleep, look, take. Whoever took leaves the line next.
    pub fn attempt(&self, member: u32, amount: u32, ms: u32) -> bool {
        self.attempt_when(member, amount, ms, false)
    }

    /// The same, and whether the time of lent spares is up.
    fn attempt_when(&self, member: u32, amount: u32, ms: u32, is_up: bool) -> bool {
        let line = self.line();
        for _ in 0..64 {
            if !line.is_announced(member, LANE) {
                line.announce(member, LANE);
            }
            if self.spares.get() && (is_up || spare::phase(self.hot.spares.get()) != spare::LENT) {
                self.recall(member as usize);
            }
            let was = line.settle(member, LANE);
            let outlook = match was.doing() {
                Doing::Called => Outlook {
                    turn: Some(was.drawn()),
                    ..Outlook::default()
                },
                _ => self.advance(Some(member), ms),
            };
            let Some(drawn) = outlook.turn else {
                return false;
            };
            let limits = Limits::read(&self.hot);
            let drawn = drawn || Mark(self.hot.hurry.get()) == Mark::new(member, 1, LANE, true);
            let bound = limits.bound(LANE, &seat(amount), drawn);
            let record = &self.records[member as usize];
            match ledger::take(record, &self.hot.running, amount, bound, || false) {
                Ok(()) => {
                    self.has_taken(amount);
                    return true;
                }
                Err(Refused::Full) if mutant("settle") => return false,
                Err(Refused::Full) => {}
                Err(Refused::Inert) => unreachable!(),
            }
        }
        panic!("64 rounds lost");
    }

    /// Waits until the member's place has been served, and leaves the line.
    pub fn wait_and_leave(&self, member: u32, amount: u32, ms: u32) {
        self.wait(member, amount, ms);
        self.leave(member);
    }

    /// Waits until the member's place has been served. Who promised to look at a time does: it may come at any moment.
    pub fn wait(&self, member: u32, amount: u32, ms: u32) {
        let mut is_up = false;
        loop {
            let heard = self.bell(member).heard();
            if self.attempt_when(member, amount, ms, is_up) {
                return;
            }
            is_up = self.spares.get() && !is_up && self.promises_a_time(member);
            if !is_up {
                self.bell(member).sleep(heard);
            }
        }
    }

    fn promises_a_time(&self, member: u32) -> bool {
        let place = self.line().place(member, LANE).unwrap();
        place.watching.peek() > 1
    }
}

/// A record's owner word.
pub fn owner(member: u32, generation: u32) -> u64 {
    Owner { member, generation }.word()
}

/// Slots in the estate.
pub fn estate(world: &World) -> u32 {
    Word(world.cold.estate.get()).net()
}

fn seat(amount: u32) -> Seat {
    Seat {
        amount,
        bound: u32::MAX,
        ceiling: u32::MAX,
        since: 0,
    }
}
