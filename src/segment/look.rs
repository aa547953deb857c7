//! A look: finding the dead and giving back what they left. Any process, any time, no lock that anybody waits for.

use super::attachment::{Attachment, state};
use super::files::Probe;
use super::views::Views;
use crate::layout::Gate;
use crate::protocol::ledger::{self, Picture};
use crate::protocol::line::{Doing, Mark};
use crate::protocol::roster::{self, Status};
use crate::protocol::scheduler::Limits;
use crate::protocol::turn::Why;
use crate::sys::clock;
use std::sync::Arc;
use std::time::Duration;

/// What a look found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// Members found dead.
    pub dead: u32,
    /// Slots given back.
    pub reclaimed: u32,
}

/// Whom to ask about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Those that hold something, the first two in line, the mark's owner, and who left the line half-way: what a
    /// watcher asks ten times a second.
    Front,
    /// Those, and everybody in line.
    Concerned,
    /// Every member: before "table full".
    Everybody,
}

/// A refusal is preceded by a look not older than this.
const FRESH_MS: u64 = 100;
/// How long a look tries to see an unchanged picture.
const PATIENCE: Duration = Duration::from_millis(40);

/// Marks the dead GONE, so that they are out of every sum, and cleans what can be cleaned now. Returns how many.
pub(crate) fn bury(views: &Views, probe: &mut Probe, me: Option<u32>, scope: Scope) -> u32 {
    // Read once: it grows under us.
    let members = views.members();
    let mut asked = vec![scope == Scope::Everybody; members.len()];
    if scope != Scope::Everybody {
        concerned(views, scope, |member| {
            if let Some(asked) = asked.get_mut(member as usize) {
                *asked = true;
            }
        });
    }
    // The generation is read before the question, so a member slot that is reused meanwhile is not meant.
    let suspects = (0u32..)
        .zip(members)
        .filter(|(index, _)| asked[*index as usize] && Some(*index) != me)
        .filter_map(|(index, member)| Some((index, Status(member.status.get()).live()?)));
    let mut dead = 0;
    for (index, generation) in probe.dead_among(suspects) {
        dead += u32::from(roster::retire(&members[index as usize], generation));
    }
    clean(views, probe);
    dead
}

/// Calls `ask` with each member that a look of this scope is about.
pub(crate) fn concerned(views: &Views, scope: Scope, mut ask: impl FnMut(u32)) {
    let holders = views.records[..views.members().len()]
        .iter()
        .chain(views.leased());
    for record in holders {
        let word = record.word.get();
        let net = ledger::spare::net_of(word, record.claimed.get());
        if let Some(owner) = roster::Owner::read(record.owner.get())
            && (net != 0 || ledger::Word(word).is_odd())
        {
            ask(owner.member);
        }
    }
    let mark = Mark(views.hot.hurry.get());
    if mark.0 != 0 {
        ask(mark.member());
    }
    let most = if scope == Scope::Front { 2 } else { usize::MAX };
    for line in views.lines() {
        line.half_left().into_iter().for_each(&mut ask);
        let entries = line.entries();
        let awake = entries
            .iter()
            .filter(|entry| scope == Scope::Concerned || entry.state.doing() != Doing::Lapsed);
        awake.take(most).for_each(|entry| ask(entry.member));
    }
    // A place that was taken by one who died before it stood in it: before the queue is said to be full.
    if scope == Scope::Concerned && views.has(Gate::Pacer) {
        let line = views.line(Gate::Pacer);
        line.evict_strangers();
        line.owners().into_iter().for_each(&mut ask);
    }
}

/// Cleans GONE members whose byte is free. One that is being cleaned, or an evicted one whose command still runs,
/// keeps its member slot until later.
fn clean(views: &Views, probe: &mut Probe) {
    let mut cleaned = false;
    for (index, member) in (0u32..).zip(views.members()) {
        if let Some(generation) = Status(member.status.get()).gone() {
            probe.holding(index, || {
                let records = views.records[..views.members().len()]
                    .iter()
                    .chain(views.leased());
                roster::clean(index, member, generation, records, &views.lines());
                cleaned = true;
            });
        }
    }
    for gate in Gate::ALL {
        let line = views.line(gate);
        line.tidy_summary();
        if line.waiters.get() != 0 {
            line.recount();
        }
        // Only the dead stood there at the end, and since when only they did nobody knows.
        if cleaned && line.summary.get() == 0 {
            views.pressure(gate).drop_running();
        }
    }
}

/// A consistent picture of the ledger; under load the living are asked to hold off for some microseconds. `None` if
/// even that did not help in time.
fn picture(views: &Views) -> Option<Picture> {
    let until = clock::now() + PATIENCE.as_nanos() as u64;
    let hold_off = &views.hot.hold_off;
    let mut asked = 0;
    let found = loop {
        if let Some(picture) = views.books().look_to_adopt() {
            break Some(picture);
        }
        if clock::now() >= until {
            break None;
        }
        let now = clock::coarse_ms() as u32 | 1;
        if now != asked {
            asked = now;
            hold_off.swap(now);
        }
        std::hint::spin_loop();
    };
    let seen = hold_off.get();
    // Ours, or one left by a look that died: a newer one is somebody's who is looking now.
    if seen != 0 && (seen == asked || (clock::coarse_ms() as u32).wrapping_sub(seen) > 100) {
        let _ = hold_off.replace(seen, 0);
    }
    found
}

impl Attachment {
    /// Finds the dead and gives their slots back. With nobody dead and nothing left behind it changes nothing.
    ///
    /// One thread of a member at a time; a member that detaches waits for it, so that a look never touches records
    /// that are somebody else's by then.
    pub fn look(self: &Arc<Self>, scope: Scope) -> Looked {
        let _looking = self.looking.lock();
        self.look_locked(scope)
    }

    /// A look, unless somebody of this member looked within 100 ms.
    pub fn look_if_stale(self: &Arc<Self>) -> Looked {
        self.look_unless(|_| ())
    }

    /// The same for who comes to wait, maybe behind some who died since: the look that is left out is
    /// [owed](Self::look_owed_in).
    pub fn look_to_wait(self: &Arc<Self>) -> Looked {
        self.look_unless(|due| self.owed.put(due))
    }

    fn look_unless(self: &Arc<Self>, put_off: impl FnOnce(u64)) -> Looked {
        let _looking = self.looking.lock();
        let last = self.looked.get();
        if last != 0 && clock::coarse_ms() + 1 < last + FRESH_MS {
            put_off(last + FRESH_MS);
            return Looked::default();
        }
        self.look_locked(Scope::Concerned)
    }

    /// How long until a look that was put off is due, in milliseconds: unless somebody looked after `since`.
    pub fn look_owed_in(&self, since: u64) -> Option<u64> {
        let at = self.owed.get();
        // Coarse ms + 1, like `looked`.
        let latest = since / 1_000_000 + 1 + FRESH_MS;
        (1..=latest)
            .contains(&at)
            .then(|| at.saturating_sub(clock::coarse_ms() + 1))
    }

    fn look_locked(self: &Arc<Self>, scope: Scope) -> Looked {
        let mut looked = Looked::default();
        if scope != Scope::Front {
            self.owed.put(0);
        }
        let state = self.state.get();
        if state & (state::FORKED | state::LOST | state::DETACHED) != 0 {
            return looked;
        }
        if let Some(files) = self.files.lock().as_mut() {
            looked.dead = bury(&self.views, &mut files.probe, Some(self.me), scope);
        }
        let limits = Limits::read(self.hot());
        self.views
            .line(Gate::Scheduler)
            .tidy_mark(|amount| limits.can_ever_fit(amount));
        // A disposed Scheduler's records are closed: others give the slots back.
        if state & state::DISPOSED == 0 {
            if let Some(picture) = picture(&self.views) {
                self.views.books().adopt(&picture);
            }
            looked.reclaimed = self.give_estate_back();
        }
        if looked != Looked::default() {
            // A dead one may have been called, or was the one who would have called the next.
            self.advance_slots(None, Some(self.draw()));
            for gate in [Gate::Limiter, Gate::Pacer] {
                self.advance(gate, None, Why::Sooner);
            }
        }
        self.looked.put(clock::coarse_ms() + 1);
        self.views.cold.looked.put(clock::coarse_ms() as u32);
        looked
    }

    fn give_estate_back(self: &Arc<Self>) -> u32 {
        let inert = || self.is_inert();
        let record = self.own();
        let inherited = ledger::inherit(&record, &self.views.cold.estate, inert);
        if inherited != 0 {
            ledger::give_inherited(&record, &self.hot().running, inherited, inert);
        }
        inherited
    }
}
