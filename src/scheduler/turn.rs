//! A turn at the Scheduler: who is next, and taking slots, by a newcomer and by who waits.

use crate::error::AcquireError;
use crate::layout::Gate;
use crate::park::Post;
use crate::park::queue::Queue;
use crate::park::waiter::{Waiter, Wish};
use crate::protocol::ledger::{self, Refused, fits};
use crate::protocol::line::{Doing, Mark, Seat};
use crate::protocol::scheduler::{Limits, Moment, PATIENCE_NS};
use crate::protocol::turn::Outlook;
use crate::segment::Scope;
use crate::segment::attachment::Attachment;
use crate::sys::clock;
use crate::waiting::{Attempt, Later};
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    static CHANCE: Cell<u64> = const { Cell::new(0) };
}

/// A small generator is enough for the lottery (xorshift64*), seeded per thread.
fn chance() -> u32 {
    CHANCE.with(|chance| {
        let mut x = chance.get();
        if x == 0 {
            let here = std::ptr::from_ref(chance) as u64;
            x = (clock::now() ^ here.rotate_left(32) ^ u64::from(std::process::id())) | 1;
        }
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        chance.set(x);
        (x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as u32
    })
}

pub(super) fn slot_post(lane: usize) -> Post {
    let gate = Gate::Scheduler;
    Post { gate, lane }
}

impl Attachment {
    /// The lanes of the Scheduler at which this member's queue has somebody.
    #[inline]
    pub(super) fn own_lanes(&self) -> u32 {
        self.own_posts.get() & ((1 << crate::layout::LANES) - 1)
    }

    /// A draw of the lottery.
    pub(crate) fn draw(&self) -> u32 {
        match self.draw.peek() {
            0 => chance(),
            fixed => fixed - 1,
        }
    }

    /// Calls who is next. With a draw, room was freed: the lottery decides the first turn by it, further ones by others.
    pub(crate) fn advance_slots(&self, me: Option<(u32, usize)>, first: Option<u32>) -> Outlook {
        if self.hot().summary.get() == 0 {
            return Outlook::default();
        }
        let mut next = first;
        let mut draw = || next.take().unwrap_or_else(|| self.draw());
        let moment = Moment {
            now: clock::now(),
            ms: clock::coarse_ms() as u32,
            draw: if first.is_some() {
                Some(&mut draw)
            } else {
                None
            },
        };
        let gate = Gate::Scheduler;
        let mut ring = |member: u32, lane: usize| self.ring(member, Post { gate, lane });
        self.views.scheduler().advance(me, moment, &mut ring)
    }

    /// After slots were given back or a limit was raised: pair `line-free`.
    #[cold]
    #[inline(never)]
    pub(crate) fn advance_after_freeing(self: &Arc<Self>) {
        self.advance_drawn(self.draw());
    }

    pub(super) fn advance_drawn(self: &Arc<Self>, draw: u32) {
        if self
            .views
            .scheduler()
            .is_spoken_for(clock::coarse_ms() as u32)
        {
            return;
        }
        self.views.pressure(Gate::Scheduler).progress(clock::now());
        let outlook = self.advance_slots(None, Some(draw));
        // Who was called and keeps silent may be dead; asked once in 10 ms at most.
        if outlook.silent && clock::coarse_ms() >= self.looked.get() + 10 {
            self.look(Scope::Concerned);
        }
    }

    /// Takes slots now, or says that the caller must wait (`false`). What a newcomer may do.
    pub(crate) fn take_slots_now(self: &Arc<Self>, wish: Wish) -> Result<bool, AcquireError> {
        let Wish { post, amount, .. } = wish;
        let lane = post.lane;
        if let Some(failure) = self.failure_at(Gate::Scheduler) {
            return Err(failure);
        }
        let hot = self.hot();
        let limits = Limits::read(hot);
        if limits.concurrency == 0 {
            // So it looks too when somebody zeroed the file.
            self.notice_damage();
            return Err(self
                .failure_at(Gate::Scheduler)
                .unwrap_or(AcquireError::Zero));
        }
        if !limits.can_ever_fit(amount) {
            return Err(AcquireError::DoesNotFit {
                amount,
                concurrency: limits.concurrency,
            });
        }
        self.obey_hold_off();
        // A caller never passes its own process's waiters of its priority; a mark says nobody passes.
        if self.own_posts.get() & post.bit() != 0 || Mark(hot.hurry.get()).bars(lane) {
            return Ok(false);
        }
        let seat = Seat {
            amount,
            bound: wish.bound,
            ceiling: wish.ceiling,
            since: 0,
        };
        let bound = limits.bound(lane, &seat, false);
        let take = || {
            let record = self.own();
            ledger::take(&record, &hot.running, amount, bound, || {
                self.state.peek() != 0
            })
        };
        let mut taken = take();
        if taken == Err(Refused::Full) && self.recall_if_due(None).is_some() {
            taken = take();
            if hot.summary.get() != 0 {
                self.advance_after_freeing();
            }
        }
        match taken {
            Ok(()) => {
                let word = self.own().word.peek();
                self.now_and_then(word);
                Ok(true)
            }
            Err(Refused::Full) => Ok(false),
            Err(Refused::Inert) => Err(self
                .failure_at(Gate::Scheduler)
                .unwrap_or(AcquireError::Disposed)),
        }
    }

    /// Looks who is next after a recall: what it found is room that was freed.
    pub(crate) fn look_for_slots(&self, me: Option<(u32, usize)>, found: Option<u32>) -> Outlook {
        let draw = found.filter(|found| *found != 0).map(|_| self.draw());
        self.advance_slots(me, draw)
    }

    /// One try of the member's first waiter of a lane: sleep, look, take. Under the queue's lock.
    pub(crate) fn attempt_slots(
        self: &Arc<Self>,
        queue: &mut Queue,
        waiter: &Arc<Waiter>,
    ) -> Attempt {
        let lane = waiter.post.lane;
        let hot = self.hot();
        let line = self.views.line(Gate::Scheduler);
        // Each round loses a race to a newcomer who got in; after 500 us the mark keeps them out.
        for _ in 0..64 {
            if !line.is_announced(self.me, lane) {
                line.announce(self.me, lane);
            }
            // Its bit is set, so spare slots that are left from here on are seen to be wanted.
            let found = self.recall_if_due(waiter.deadline); // pair: spare-join
            let was = line.settle(self.me, lane); // pair: line-sleep
            let outlook = match was.doing() {
                Doing::Called => Outlook {
                    turn: Some(was.drawn()),
                    ..Outlook::default()
                },
                _ => self.look_for_slots(Some((self.me, lane)), found),
            };
            let Some(drawn) = outlook.turn else {
                return Attempt::Later(self.take_note(waiter, outlook));
            };
            let limits = Limits::read(hot);
            let mark = Mark(hot.hurry.get());
            let drawn = drawn || mark == Mark::new(self.me, self.generation, lane, true);
            let bound = limits.bound(lane, &waiter.seat(), drawn);
            let taken = {
                let record = self.own();
                ledger::take(&record, &hot.running, waiter.amount, bound, || {
                    self.state.peek() != 0
                })
            };
            match taken {
                Ok(()) => {
                    self.member().held_since.put(clock::now());
                    return Attempt::Got(vec![self.take_out(queue, waiter, true)]);
                }
                Err(Refused::Inert) => break,
                Err(Refused::Full) => {
                    let limit = limits.concurrency.min(i32::MAX as u32);
                    let lacks_room = !fits(hot.running.get(), waiter.amount, limit);
                    if lacks_room && clock::now().saturating_sub(waiter.since) >= PATIENCE_NS {
                        line.mark(Mark::new(self.me, self.generation, lane, drawn));
                    }
                }
            }
        }
        // Not left called: it would count as in, and nobody would ring it. Who freed room before that left it to this one.
        line.settle(self.me, lane);
        Attempt::Later(Later {
            due: clock::now(),
            ..Later::FIRST
        })
    }

    /// Who asks for more than one slot may never be called, since they never come free together: if it holds up those
    /// behind it for lack of room, it bars newcomers all the same.
    pub(crate) fn bar_if_held_up(&self, waiter: &Waiter, outlook: Outlook) {
        if outlook.turn.is_none()
            && outlook.short
            && waiter.amount > 1
            && clock::now().saturating_sub(waiter.since) >= PATIENCE_NS
        {
            let mark = Mark::new(self.me, self.generation, waiter.post.lane, false);
            self.views.line(Gate::Scheduler).mark(mark);
        }
    }

    /// When a head that asks for more than one slot looks whether it must bar newcomers.
    pub(crate) fn bars_at(&self, waiter: &Waiter, now: u64) -> Option<u64> {
        let at = waiter.since.saturating_add(PATIENCE_NS);
        let bars = waiter.post.gate == Gate::Scheduler && waiter.amount > 1;
        (bars && at > now).then_some(at)
    }

    /// Why so many slots can never be had.
    pub(crate) fn never_fits(&self, amount: u32) -> Option<AcquireError> {
        let limits = Limits::read(self.hot());
        let concurrency = limits.concurrency;
        (!limits.can_ever_fit(amount)).then_some(AcquireError::DoesNotFit {
            amount,
            concurrency,
        })
    }
}
