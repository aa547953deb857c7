//! Waiting at a gate: a member's own queue, its places in the lines, and its turns.
//!
//! What is the same for all gates is here: joining and leaving ([`places`]), giving up and failing ([`ending`]), threads
//! ([`sleep`]), tasks ([`future`]), callbacks ([`jobs`]), the thread that wakes the latter two ([`helper`]), and the one that
//! notices the end of those who are waited for ([`lookout`]). What a turn is and what it takes is the gate's:
//! `scheduler/turn`, `limiter/turn`, `pacer/turn`.
//!
//! Everything that changes the member's queue or its places happens under the queue's lock, so a place has one writer
//! at a time; sleeping happens outside it.

mod ending;
pub(crate) mod future;
pub(crate) mod helper;
pub(crate) mod jobs;
pub(crate) mod link;
pub(crate) mod lookout;
pub(crate) mod places;
mod sleep;
mod tend;

use crate::error::AcquireError;
use crate::layout::Gate;
use crate::park::queue::Queue;
use crate::park::waiter::{Kind, Nudge, Waiter, Wish};
use crate::park::{self, HELPER_BIT, Post};
use crate::protocol::turn::{NEVER, Outlook, Why};
use crate::segment::attachment::Attachment;
use crate::sys::clock;
use crate::trace::Teller;
use std::error::Error;
use std::sync::Arc;

/// What an attempt of a member's first waiter came to.
pub(crate) enum Attempt {
    /// It has what it wanted and left the queue; deliver, then call [`Attachment::settled`].
    Got(Vec<Nudge>),
    /// Not yet.
    Later(Later),
}

/// How a waiter stands that has no turn yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Later {
    /// How many stand before it in the line that have not lapsed; below 2 it watches.
    pub rank: u32,
    /// The same, whoever was called: whether it is for it to have the holders watched.
    pub stands: u32,
    /// When it must look again at the latest, if it knows.
    pub due: u64,
    /// Somebody before it was called and is not in: he may be dead.
    pub behind: bool,
}

impl Later {
    /// It stands first and knows no time.
    pub const FIRST: Later = Later {
        rank: 0,
        stands: 0,
        due: NEVER,
        behind: false,
    };
}

/// One wait, as the gate's caller asks for it.
pub(crate) trait Ask {
    /// What can go wrong.
    type Error: From<AcquireError> + Error + 'static;
    /// The member that waits.
    fn attachment(&self) -> &Arc<Attachment>;
    /// What for.
    fn wish(&self) -> Wish;
    /// Who is told how it goes, if anybody listens.
    fn teller(&self) -> Option<Teller>;
    /// Takes it now; `false`: the caller must wait. Tells of what fails.
    fn take_now(&self) -> Result<bool, Self::Error>;
    /// Gives back what a releaser handed to a wait that nobody polls any more.
    fn give_back(&self) {}
    /// Joins the queue.
    fn join(&self, kind: Kind, deadline: Option<u64>) -> Result<Arc<Waiter>, Self::Error> {
        let waiter = Waiter::new(kind, self.wish(), clock::now(), deadline);
        let waiter = Arc::new(waiter.told_to(self.teller().map(Teller::shared)));
        self.attachment().enqueue(&waiter)?;
        Ok(waiter)
    }
    /// Tells that it failed before it waited.
    #[cold]
    fn tell_refusal(&self, error: &Self::Error) {
        if let Some(teller) = self.teller() {
            teller.refused(self.wish(), error);
        }
    }
    /// One more try before a refusal: not on the account of a dead one, nor of a stopped one whose turn it is.
    fn take_at_last(&self) -> Result<bool, Self::Error> {
        let attachment = self.attachment();
        attachment.look_if_stale();
        match self.wish().post.gate {
            Gate::Scheduler => attachment.look_for_slots(None, attachment.recall_spares()),
            gate => attachment.advance(gate, None, Why::Moved),
        };
        self.take_now()
    }
}

impl Attachment {
    /// Looks who is next at a gate and calls him.
    pub(crate) fn advance(&self, gate: Gate, me: Option<&Waiter>, why: Why) -> Outlook {
        let place = me.map(|waiter| (self.spot(waiter), waiter.post.lane));
        let mut ring = |member: u32, lane: usize| self.ring(member, Post { gate, lane });
        let line = self.views.line(gate);
        if line.summary.get() == 0 {
            return Outlook::default();
        }
        let now = || (clock::now(), clock::coarse_ms() as u32);
        match gate {
            // It reads the clocks itself.
            Gate::Scheduler => self.advance_slots(place, None),
            Gate::Limiter => {
                let limiter = self.views.limiter();
                limiter.advance_by(&clock::now, place, why, now(), &mut ring)
            }
            Gate::Pacer => self.views.pacer().advance(place, why, now(), &mut ring),
        }
    }

    /// One try of the member's first waiter of a post: sleep, look, take. Under the queue's lock.
    pub(crate) fn attempt(self: &Arc<Self>, queue: &mut Queue, waiter: &Arc<Waiter>) -> Attempt {
        match waiter.post.gate {
            Gate::Scheduler => self.attempt_slots(queue, waiter),
            Gate::Limiter => self.attempt_tokens(queue, waiter),
            Gate::Pacer => self.attempt_start(queue, waiter),
        }
    }

    /// How it stands after a look that brought no turn. Those behind a called one count as next: they watch too.
    pub(crate) fn take_note(&self, waiter: &Waiter, outlook: Outlook) -> Later {
        if waiter.post.gate == Gate::Scheduler {
            self.bar_if_held_up(waiter, outlook);
        }
        Later {
            rank: match outlook.behind_called {
                true => 1,
                false => outlook.rank,
            },
            stands: outlook.rank,
            due: outlook.watches.unwrap_or(NEVER),
            behind: outlook.behind_called,
        }
    }

    /// Whether a newcomer must wait at a gate where nobody passes the line: somebody stands there who has not lapsed, or
    /// of this member.
    pub(crate) fn must_queue(&self, gate: Gate) -> bool {
        let line = self.views.line(gate);
        if line.summary.get() == 0 {
            return false;
        }
        let own = Post::of(gate).fold(0, |bits, post| bits | post.bit());
        self.own_posts.get() & own != 0 || line.is_anybody_awake()
    }

    /// Has the helper look after a task or callback that joined and tried once, unless it will anyway by the time that
    /// matters to this one.
    pub(crate) fn have_tended(&self, waiter: &Waiter, later: Later) {
        let now = clock::now();
        let timer = self
            .timer(waiter.post.gate, now, 0, waiter.since)
            .min(later.due);
        let needed = self.bars_at(waiter, now).map_or(timer, |at| at.min(timer));
        let covered = {
            let queue = self.queue.lock();
            // From here on the helper sleeps for it.
            waiter.awake.put(0);
            queue.covers(waiter, needed)
        };
        if !covered {
            self.ring_helper();
        }
    }

    /// Has the helper look at the queue again.
    pub(crate) fn ring_helper(&self) {
        park::ring(&self.member().bell, HELPER_BIT);
    }
}
