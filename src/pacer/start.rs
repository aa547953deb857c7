//! One caller's start, from its asking to its beginning.

use super::Pacer;
use crate::error::{QueueFull, StartError};
use crate::layout::{Gate, REJECTED};
use crate::park::Post;
use crate::park::waiter::{Kind, Waiter, Wish};
use crate::segment::attachment::Attachment;
use crate::sys::clock;
use crate::sys::mutex::Mutex;
use crate::trace::Teller;
use crate::waiting::Ask;
use crate::words::{U32, U64};
use std::sync::Arc;

impl Pacer {
    pub(super) fn asks(&self, spare: bool) -> Start<'_> {
        Start {
            pacer: self,
            spare: U32::new(spare.into()),
            again: U32::new(0),
            next: U64::new(0),
            waiter: Mutex::new(None),
        }
    }
}

/// What a caller of a Pacer asks for.
pub(super) struct Start<'a> {
    pacer: &'a Pacer,
    /// 1: it may stand in its member's own place.
    spare: U32,
    /// 1: it has lost a start.
    again: U32,
    /// Up to when the start that it took at once keeps others away.
    next: U64,
    /// Where it waited.
    waiter: Mutex<Option<Arc<Waiter>>>,
}

impl Start<'_> {
    /// It has its start, and its operation begins now: the next start is an interval after this. `false`: it was stopped for
    /// an interval in between, and somebody else has started, so it asks again, as one who finds a place.
    pub(super) fn begin(&self) -> bool {
        let next = match self.next.peek() {
            // It waited.
            0 => {
                let waiter = self.waiter.lock().take();
                waiter.map_or(0, |waiter| waiter.start.get())
            }
            taken_at_once => taken_at_once,
        };
        let begins = self.attachment().views.pacer().begin(next, clock::now);
        if !begins {
            self.spare.put(1);
            self.again.put(1);
        }
        begins
    }

    pub(super) fn attachment(&self) -> &Arc<Attachment> {
        self.pacer.attachment()
    }

    /// A place in line, one of those that callers share first.
    fn spot(&self) -> Option<u32> {
        let attachment = self.attachment();
        let geometry = attachment.views.geometry;
        let line = attachment.views.line(Gate::Pacer);
        let shared = geometry.members..geometry.members + geometry.max_waiting;
        let own = attachment.me..attachment.me + self.spare.peek();
        let owner = attachment.owner();
        line.take_spot(shared, owner)
            .or_else(|| line.take_spot(own, owner))
    }
}

impl Ask for &Start<'_> {
    type Error = StartError;

    fn attachment(&self) -> &Arc<Attachment> {
        self.pacer.attachment()
    }

    fn wish(&self) -> Wish {
        let (gate, lane) = (Gate::Pacer, 0);
        Wish {
            post: Post { gate, lane },
            amount: 1,
            bound: 0,
            ceiling: 0,
        }
    }

    fn teller(&self) -> Option<Teller> {
        self.pacer.trace.teller(self.attachment())
    }

    fn take_now(&self) -> Result<bool, StartError> {
        let attachment = self.attachment();
        if let Some(failure) = attachment.failure_at(Gate::Pacer) {
            let failure = failure.into();
            self.tell_refusal(&failure);
            return Err(failure);
        }
        let taken = attachment.start_now();
        self.next.put(taken.unwrap_or(0));
        Ok(taken.is_some())
    }

    fn join(&self, kind: Kind, deadline: Option<u64>) -> Result<Arc<Waiter>, StartError> {
        let attachment = self.attachment();
        // Not refused on the account of a dead one.
        let spot = self.spot().or_else(|| {
            attachment.look_if_stale();
            self.spot()
        });
        let Some(spot) = spot else {
            attachment.member().pacer[REJECTED].add(1);
            attachment.refusals.add(1);
            return Err(QueueFull.into());
        };
        let waiter = Waiter::at(spot, kind, self.wish(), clock::now(), deadline);
        // Only once: if it was the writer who took so long, it would for ever.
        let teller = self.teller().filter(|_| self.again.peek() == 0);
        let waiter = Arc::new(waiter.told_to(teller.map(Teller::shared)));
        match attachment.enqueue(&waiter) {
            Ok(()) => {
                *self.waiter.lock() = Some(waiter.clone());
                Ok(waiter)
            }
            Err(failure) => {
                let line = attachment.views.line(Gate::Pacer);
                line.free_spot(spot, attachment.owner());
                Err(failure.into())
            }
        }
    }
}
