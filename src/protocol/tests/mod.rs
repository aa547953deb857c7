//! The protocol in plain memory: no mapping, no process, no clock.

mod bucket;
mod lent;
mod limiter;
mod pacer;
mod spare;

use super::ledger::{self, Books, Refused, Word};
use super::line::{Doing, Entry, Line, Mark, Promise, Seat, State};
use super::roster::{self, Owner, Status};
use super::scheduler::{Gate, Limits, Moment, PATIENCE_NS, View, drawn_lane, plan};
use crate::layout::{LANES, Member, Place, Record, SchedulerCold, SchedulerHot};
use crate::words::{U32, U64};
use proptest::prelude::*;

/// A segment of two members in plain memory.
struct World {
    hot: SchedulerHot,
    cold: SchedulerCold,
    high: U32,
    roster: Vec<Member>,
    records: Vec<Record>,
    bits: Vec<U64>,
    places: Vec<Place>,
}

/// The first generation of a member.
fn owner(member: u32) -> Owner {
    let generation = 1;
    Owner { member, generation }
}

fn member() -> Member {
    Member {
        status: U64::new(0),
        pid: U32::new(0),
        reserved0: U32::new(0),
        start: U64::new(0),
        namespace: U64::new(0),
        attached: U64::new(0),
        command: Default::default(),
        reserved1: Default::default(),
        bell: U32::new(0),
        reserved2: U32::new(0),
        held_since: U64::new(0),
        reserved3: Default::default(),
        scheduler: Default::default(),
        limiter: Default::default(),
        forced: Default::default(),
        pacer: Default::default(),
        histograms: std::array::from_fn(|_| U32::new(0)),
        longest: Default::default(),
        sums: Default::default(),
        reserved4: Default::default(),
    }
}

impl World {
    fn new(members: usize, limit: i32) -> World {
        let hot = SchedulerHot::default();
        hot.concurrency.put(limit);
        hot.targets.iter().for_each(|target| target.put(limit));
        let world = World {
            hot,
            cold: SchedulerCold::default(),
            high: U32::new(members as u32),
            roster: (0..members).map(|_| member()).collect(),
            records: (0..members).map(|_| Record::default()).collect(),
            bits: (0..LANES).map(|_| U64::new(0)).collect(),
            places: (0..members * LANES).map(|_| Place::default()).collect(),
        };
        for (index, member) in world.roster.iter().enumerate() {
            let generation = roster::claim(member).unwrap();
            let owner = Owner {
                member: index as u32,
                generation,
            };
            world.records[index].owner.put(owner.word());
        }
        world
    }

    fn line(&self) -> Line<'_> {
        Line {
            summary: &self.hot.summary,
            hurry: &self.hot.hurry,
            waiters: &self.hot.waiters,
            ticket: &self.cold.ticket,
            lanes: LANES,
            bits: &self.bits,
            words: 1,
            places: &self.places,
            by_member: true,
            roster: &self.roster,
        }
    }

    fn gate(&self) -> Gate<'_> {
        Gate {
            hot: &self.hot,
            cold: &self.cold,
            line: self.line(),
        }
    }

    fn books(&self) -> Books<'_> {
        Books {
            roster: &self.roster,
            records: &self.records,
            members_high: &self.high,
            records_high: &self.high,
            running: &self.hot.running,
            estate: &self.cold.estate,
        }
    }

    fn join(&self, member: u32, lane: usize, amount: u32) {
        let seat = Seat {
            amount,
            bound: u32::MAX,
            ceiling: u32::MAX,
            since: 0,
        };
        self.line().join(member, owner(member), lane, seat);
    }

    /// Who is rung by an advance at `ms` (and the same in ns).
    fn advance(&self, ms: u32, draw: Option<u32>) -> Vec<(u32, usize)> {
        let mut rung = Vec::new();
        let mut fixed = || draw.unwrap_or(0);
        let moment = Moment {
            now: u64::from(ms) * 1_000_000,
            ms,
            draw: if draw.is_some() {
                Some(&mut fixed)
            } else {
                None
            },
        };
        self.gate()
            .advance(None, moment, &mut |member, lane| rung.push((member, lane)));
        rung
    }

    fn bury(&self, member: u32) {
        let status = Status(self.roster[member as usize].status.get());
        let generation = status.live().unwrap();
        assert!(roster::retire(&self.roster[member as usize], generation));
    }
}

fn never() -> bool {
    false
}

/// The words of all lanes lie in one row: a lane that is not there is not the next member's.
#[test]
fn no_place_in_a_lane_that_is_not_there() {
    let world = World::new(2, 1);
    for lane in [LANES, LANES + 1, 32, usize::MAX / 2] {
        assert!(world.line().place(0, lane).is_none(), "{lane}");
    }
    assert!(world.line().place(1, LANES - 1).is_some());
    assert!(world.line().place(2, 0).is_none());
}

#[test]
fn a_bracket_ends_even_and_counts() {
    let world = World::new(1, 3);
    let record = &world.records[0];
    assert_eq!(
        ledger::take(record, &world.hot.running, 2, 3, never),
        Ok(())
    );
    assert_eq!(
        ledger::take(record, &world.hot.running, 2, 3, never),
        Err(Refused::Full)
    );
    assert_eq!(
        ledger::take(record, &world.hot.running, 1, 3, || true),
        Err(Refused::Inert)
    );
    let word = Word(record.word.get());
    assert!(!word.is_odd());
    assert_eq!((word.net(), world.hot.running.get()), (2, 2));
    assert!(!ledger::give(record, &world.hot.running, 2, || true));
    assert_eq!(world.hot.running.get(), 2);
    assert!(ledger::give(record, &world.hot.running, 2, never));
    assert_eq!(
        (Word(record.word.get()).net(), world.hot.running.get()),
        (0, 0)
    );
    assert_eq!((record.admitted.get(), record.released.get()), (2, 2));
}

#[test]
fn nets_may_go_below_zero_since_only_sums_count() {
    let world = World::new(2, 9);
    world.records[1].owner.put(world.records[0].owner.get()); // two threads of one member
    assert!(ledger::take(&world.records[0], &world.hot.running, 3, 9, never).is_ok());
    assert!(ledger::give(
        &world.records[1],
        &world.hot.running,
        3,
        never
    ));
    let picture = world.books().look().unwrap();
    assert_eq!((picture.held[0], picture.left_behind()), (0, 0));
}

#[test]
fn what_the_dead_left_is_adopted_once_and_given_back_once() {
    let world = World::new(2, 4);
    assert!(ledger::take(&world.records[0], &world.hot.running, 3, 4, never).is_ok());
    assert!(ledger::take(&world.records[1], &world.hot.running, 1, 4, never).is_ok());
    assert_eq!(world.books().look().unwrap().left_behind(), 0);
    world.bury(0);
    let (first, second) = (world.books().look().unwrap(), world.books().look().unwrap());
    assert_eq!(first.left_behind(), 3);
    assert_eq!(world.books().adopt(&first), 3);
    assert_eq!(
        world.books().adopt(&second),
        0,
        "the picture is of before the adoption"
    );
    assert_eq!(world.books().look().unwrap().left_behind(), 0);
    assert_eq!(
        ledger::inherit(&world.records[1], &world.cold.estate, never),
        3
    );
    assert_eq!(
        ledger::inherit(&world.records[1], &world.cold.estate, never),
        0
    );
    assert!(ledger::give_inherited(
        &world.records[1],
        &world.hot.running,
        3,
        never
    ));
    assert_eq!(
        (world.hot.running.get(), world.records[1].reclaimed.get()),
        (1, 3)
    );
    assert_eq!(world.books().look().unwrap().left_behind(), 0);
}

#[test]
fn a_picture_is_dropped_if_a_mark_rose_meanwhile() {
    let world = World::new(2, 4);
    world.high.put(1);
    assert!(ledger::take(&world.records[1], &world.hot.running, 1, 4, never).is_ok());
    // Nobody raised the mark: that is what a slot beyond it would look like.
    assert_eq!(world.books().look().unwrap().left_behind(), 1);
    world.high.put(2);
    assert_eq!(world.books().look().unwrap().left_behind(), 0);
}

#[test]
fn an_open_bracket_claims_the_larger_net() {
    let world = World::new(2, 4);
    let record = &world.records[0];
    let before = Word(record.word.get());
    record.word.put(before.next(2).0); // acquiring two, RUNNING not yet touched
    assert_eq!(world.books().look().unwrap().left_behind(), 0);
    world.hot.running.put(2); // touched
    assert_eq!(world.books().look().unwrap().left_behind(), 0);
    world.bury(0); // and dead there: both are found
    assert_eq!(world.books().look().unwrap().left_behind(), 2);
}

#[test]
fn cleaning_frees_the_slot_and_its_records_and_may_be_done_again() {
    let world = World::new(2, 4);
    assert!(ledger::take(&world.records[0], &world.hot.running, 1, 4, never).is_ok());
    world.join(0, 3, 1);
    world.line().mark(Mark::new(0, 1, 3, false));
    world.roster[0].scheduler.deferred[3].put(5);
    world.roster[0].scheduler.completed[3].put(2);
    world.bury(0);
    assert!(
        world.line().entries().is_empty(),
        "a GONE member's place is absent at once"
    );
    for _ in 0..2 {
        roster::clean(
            0,
            &world.roster[0],
            1,
            world.records.iter(),
            &[world.line()],
        );
    }
    assert!(Status(world.roster[0].status.get()).is_free());
    assert_eq!(
        (
            world.records[0].owner.get(),
            Word(world.records[0].word.get()).net()
        ),
        (0, 0)
    );
    assert_eq!((world.hot.summary.get(), world.hot.hurry.get()), (0, 0));
    assert_eq!(world.roster[0].scheduler.lost[3].get(), 3);
    assert_eq!(
        roster::claim(&world.roster[0]),
        Some(2),
        "the next attachment is another generation"
    );
}

#[test]
fn the_most_urgent_is_called_and_within_a_lane_the_first_to_come() {
    let world = World::new(3, 1);
    world.join(0, 2, 1);
    world.join(1, 3, 1);
    world.join(2, 3, 1);
    assert_eq!(world.hot.summary.get(), 0b1100);
    // The draw names the highest lane, where nobody is: the most urgent with backlog.
    assert_eq!(world.advance(1, Some(0)), [(1, 3)]);
    // Called counts as in.
    assert_eq!(world.advance(1, Some(0)), []);
    world.line().leave(1, 1, 3);
    assert_eq!(world.advance(1, Some(0)), [(2, 3)]);
}

#[test]
fn who_was_called_and_keeps_silent_is_passed_over_and_keeps_its_place() {
    let world = World::new(3, 1);
    world.join(0, 3, 1);
    world.join(1, 3, 1);
    world.join(2, 3, 1);
    assert_eq!(world.advance(1_000, Some(0)), [(0, 3)]);
    assert_eq!(world.advance(1_249, Some(0)), []);
    let rung = world.advance(1_250, Some(0));
    assert!(rung.contains(&(1, 3)), "{rung:?}");
    assert_eq!(
        world.line().read(0, 3).unwrap().state.doing(),
        Doing::Lapsed
    );
    // A silent one right behind it costs 10 ms.
    assert!(world.advance(1_260, Some(0)).contains(&(2, 3)));
    // Awake again, it is the first again.
    assert_eq!(world.line().settle(0, 3).doing(), Doing::Lapsed);
    assert_eq!(world.line().entries()[0].member, 0);
}

#[test]
fn a_call_is_for_the_ticket_it_was_meant_for() {
    let world = World::new(1, 1);
    world.join(0, 3, 1);
    let entry = world.line().read(0, 3).unwrap();
    world.join(0, 3, 1); // the next of the same process
    assert!(!world.line().call(&entry, false, 1));
    assert_eq!(
        world.line().read(0, 3).unwrap().state.doing(),
        Doing::Asleep
    );
}

#[test]
fn marks_bar_their_urgency_and_less_and_the_wider_one_stays() {
    let narrow = Mark::new(5, 9, 2, false);
    let wide = Mark::new(6, 9, 4, false);
    let drawn = Mark::new(7, 9, 0, true);
    assert!(narrow.bars(2) && narrow.bars(0) && !narrow.bars(3));
    assert!(drawn.bars(6) && !Mark(0).bars(0));
    let world = World::new(1, 1);
    world.line().mark(wide);
    world.line().mark(narrow);
    assert_eq!(world.hot.hurry.get(), wide.0);
    world.line().mark(drawn);
    assert_eq!(world.hot.hurry.get(), drawn.0);
    world.line().unmark(6, 9, 4);
    world.line().unmark(7, 9, 1);
    assert_eq!(
        world.hot.hurry.get(),
        drawn.0,
        "not the owner, not the lane"
    );
    world.line().tidy_mark(|_| true);
    assert_eq!(world.hot.hurry.get(), 0, "nobody stands there");
}

#[test]
fn waiters_counts_members() {
    let world = World::new(3, 0);
    world.join(0, 1, 1);
    world.join(0, 5, 1);
    world.join(2, 5, 1);
    world.line().recount();
    assert_eq!(world.hot.waiters.get(), 2);
    world.line().leave(2, 1, 5);
    world.line().recount();
    assert_eq!(
        (world.hot.waiters.get(), world.hot.summary.get()),
        (1, 0b10_0010)
    );
}

#[test]
fn the_lottery_has_the_weights_it_says() {
    let mut counts = [0; LANES];
    (0..127).for_each(|draw| counts[drawn_lane(draw)] += 1);
    assert_eq!(counts, [1, 2, 4, 8, 16, 32, 64]);
}

fn entry(member: u32, lane: usize, ticket: u64, amount: u32, bound: u32) -> Entry {
    let seat = Seat {
        amount,
        bound,
        ceiling: u32::MAX,
        since: 0,
    };
    Entry {
        spot: member,
        member,
        generation: 1,
        lane,
        ticket,
        seat,
        state: State(0),
        promise: Promise(0),
    }
}

fn view<'a>(entries: &'a [Entry], running: i32, limits: &'a Limits) -> View<'a> {
    View {
        entries,
        running,
        limits,
        mark: Mark(0),
        now: 0,
        ms: 0,
    }
}

#[test]
fn a_drawn_turn_passes_its_target_but_not_the_limit() {
    let mut limits = Limits {
        concurrency: 4,
        targets: [4; LANES],
    };
    limits.targets[2] = 1;
    let entries = [entry(0, 2, 1, 1, u32::MAX)];
    assert!(plan(view(&entries, 2, &limits), None).calls.is_empty());
    let mut low = || 120; // names lane 2
    assert_eq!(
        plan(view(&entries, 2, &limits), Some(&mut low)).calls,
        [(0, true)]
    );
    assert!(
        plan(view(&entries, 4, &limits), Some(&mut low))
            .calls
            .is_empty()
    );
}

#[test]
fn a_drawn_turn_respects_its_handles_own_limit_and_holds_up_nobody() {
    let limits = Limits {
        concurrency: 4,
        targets: [4; LANES],
    };
    let mut own = entry(0, 2, 1, 1, 1);
    own.seat.ceiling = 1;
    let entries = [own, entry(1, 1, 2, 1, u32::MAX)];
    let mut low = || 120; // names lane 2
    assert_eq!(
        plan(view(&entries, 3, &limits), Some(&mut low)).calls,
        [(1, false)]
    );
    let mut late = view(&entries, 3, &limits);
    late.mark = Mark::new(0, 1, 2, true);
    assert_eq!(plan(late, None).calls, [(1, false)]);
}

#[test]
fn a_head_that_lacks_room_holds_up_all_one_held_by_its_target_nobody() {
    let mut limits = Limits {
        concurrency: 4,
        targets: [4; LANES],
    };
    let entries = [entry(0, 5, 1, 3, u32::MAX), entry(1, 3, 2, 1, u32::MAX)];
    assert!(plan(view(&entries, 2, &limits), None).calls.is_empty());
    limits.targets[5] = 2;
    let small = [entry(0, 5, 1, 1, u32::MAX), entry(1, 3, 2, 1, u32::MAX)];
    assert_eq!(plan(view(&small, 2, &limits), None).calls, [(1, false)]);
}

#[test]
fn a_winner_that_does_not_fit_bars_everybody_once_it_has_waited() {
    let limits = Limits {
        concurrency: 4,
        targets: [4; LANES],
    };
    let entries = [entry(0, 6, 1, 1, u32::MAX), entry(1, 0, 2, 4, u32::MAX)];
    let mut lowest = || 126;
    let mut view = view(&entries, 1, &limits);
    assert_eq!(
        plan(view, Some(&mut lowest)).calls[0],
        (0, false),
        "young: the order decides"
    );
    view.now = PATIENCE_NS;
    let late = plan(view, Some(&mut lowest));
    assert_eq!((late.calls.len(), late.bar), (0, Some(1)));
    view.mark = Mark::new(1, 1, 0, true);
    assert!(
        plan(view, None).calls.is_empty(),
        "nobody passes the winner"
    );
    view.running = 0;
    assert_eq!(plan(view, None).calls[0], (1, true));
}

#[test]
fn one_that_can_never_fit_holds_nobody_up_and_its_mark_falls() {
    let limits = Limits {
        concurrency: 2,
        targets: [2; LANES],
    };
    let entries = [entry(0, 5, 1, 3, u32::MAX), entry(1, 3, 2, 1, u32::MAX)];
    assert_eq!(plan(view(&entries, 0, &limits), None).calls, [(1, false)]);
    let world = World::new(1, 2);
    world.join(0, 5, 3);
    world.line().mark(Mark::new(0, 1, 5, false));
    world.line().tidy_mark(|amount| amount <= 3);
    assert_ne!(world.hot.hurry.get(), 0);
    world.line().tidy_mark(|amount| amount <= 2);
    assert_eq!(world.hot.hurry.get(), 0);
}

#[test]
fn only_lack_of_room_makes_an_entry_short() {
    let mut limits = Limits {
        concurrency: 10,
        targets: [10; LANES],
    };
    limits.targets[2] = 3;
    // Held back by its target alone, and behind it one that lacks room.
    let entries = [entry(0, 2, 1, 2, u32::MAX), entry(1, 1, 2, 9, u32::MAX)];
    let plan = plan(view(&entries, 2, &limits), None);
    assert_eq!((plan.calls.len(), plan.short), (0, Some(1)));
}

fn some_entry() -> impl Strategy<Value = Entry> {
    (
        0u32..64,
        0usize..LANES,
        1u64..1000,
        1u32..6,
        prop_oneof![Just(u32::MAX), 0u32..12],
        0u64..3,
    )
        .prop_map(|(member, lane, ticket, amount, bound, doing)| {
            let mut entry = entry(member, lane, ticket, amount, bound);
            entry.state = State(doing);
            entry
        })
}

proptest! {
    /// Whatever the line looks like: what was called and what is called now fit under the limit together; each is
    /// called once; undrawn ones respect their target; nobody asleep in front of a called one fits unless held back
    /// by its own target or passed by the draw.
    #[test]
    fn plans_keep_the_limit(
        mut entries in prop::collection::vec(some_entry(), 0..40),
        running in 0i32..12,
        concurrency in 0u32..14,
        targets in prop::array::uniform7(0u32..14),
        draws in prop::collection::vec(0u32..127, 64),
        with_draw: bool,
    ) {
        entries.sort_by_key(|entry| (std::cmp::Reverse(entry.lane), entry.ticket));
        let limits = Limits { concurrency, targets };
        let mut at = 0;
        let mut draw = || { at += 1; draws[at % draws.len()] };
        let draw: Option<&mut dyn FnMut() -> u32> = if with_draw { Some(&mut draw) } else { None };
        let plan = plan(view(&entries, running, &limits), draw);
        let called: i64 = entries.iter()
            .filter(|entry| entry.state.doing() == Doing::Called)
            .map(|entry| i64::from(entry.seat.amount)).sum();
        let mut taken = i64::from(running) + called;
        let mut seen = vec![false; entries.len()];
        for (at, drawn) in &plan.calls {
            prop_assert!(!seen[*at] && entries[*at].state.doing() == Doing::Asleep);
            seen[*at] = true;
            taken += i64::from(entries[*at].seat.amount);
            prop_assert!(taken <= i64::from(concurrency));
            let e = &entries[*at];
            let bound = limits.bound(e.lane, &e.seat, *drawn);
            prop_assert!(taken <= i64::from(bound));
            prop_assert!(with_draw || !drawn);
        }
        if !with_draw {
            for (at, entry) in entries.iter().enumerate().filter(|(at, e)| !seen[*at] && e.state.doing() == Doing::Asleep) {
                let bound = limits.bound(entry.lane, &entry.seat, false);
                let fits = taken + i64::from(entry.seat.amount) <= i64::from(bound);
                let blocked = entries[..at].iter().enumerate().any(|(before, e)| {
                    !seen[before] && e.state.doing() == Doing::Asleep
                        && limits.can_ever_fit(e.seat.amount) && taken + i64::from(e.seat.amount) > i64::from(concurrency)
                });
                prop_assert!(!fits || blocked || taken >= i64::from(concurrency), "{entry:?} fits and was left");
            }
        }
        let watching = entries.iter().filter(|entry| entry.state.doing() != Doing::Lapsed).count();
        prop_assert_eq!(plan.watchers.len(), watching.min(2));
    }

    /// Random takes, gives, deaths and looks over many members: RUNNING is always what the living hold, the estate and
    /// what the dead left; at the end everything comes back.
    #[test]
    fn the_books_always_balance(steps in prop::collection::vec((0usize..4, 0u8..6, 1u32..4), 0..120)) {
        let world = World::new(5, 7);
        let mut held = [0u32; 5];
        let mut dead = [false; 5];
        let running = &world.hot.running;
        for (who, what, k) in steps {
            let record = &world.records[who];
            match what {
                _ if dead[who] => {}
                0 | 1 => if ledger::take(record, running, k, 7, never).is_ok() { held[who] += k },
                2 => if held[who] >= k { prop_assert!(ledger::give(record, running, k, never)); held[who] -= k },
                3 => {
                    let before = Word(record.word.get());
                    record.word.put(before.next(before.net().wrapping_add(k)).0); // dies with a bracket open
                    world.bury(who as u32);
                    dead[who] = true;
                }
                4 => { world.bury(who as u32); dead[who] = true }
                _ => {
                    let picture = world.books().look().expect("nobody else");
                    world.books().adopt(&picture);
                    let found = ledger::inherit(&world.records[4], &world.cold.estate, never);
                    if found != 0 { prop_assert!(ledger::give_inherited(&world.records[4], running, found, never)) }
                    let living: u32 = (0..5).filter(|who| !dead[*who]).map(|who| held[who]).sum();
                    prop_assert_eq!(running.get() as u32, living);
                }
            }
            prop_assert!(running.get() <= 7);
        }
    }
}
