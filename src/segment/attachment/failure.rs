//! Why nothing can be had through an attachment any more, and who is told.

use super::Attachment;
use crate::error::AcquireError;
use crate::layout::{Gate, SchedulerHot};
use crate::park::{self, Post};
use crate::sys::clock;

/// Process-local state bits: any of them sends an acquire to the slow path.
pub(crate) mod state {
    /// Acquires at the Scheduler fail, slots stay.
    pub const CLOSED: u32 = 1;
    /// All slots were given back; releases are inert.
    pub const DISPOSED: u32 = 2;
    /// This is a forked child: the mapping is not there.
    pub const FORKED: u32 = 4;
    /// The mapping lost its file.
    pub const LOST: u32 = 8;
    /// Nothing of the segment is this member's any more.
    pub const DETACHED: u32 = 16;
    /// States in which a release must not touch the segment.
    pub const INERT: u32 = DISPOSED | FORKED;
    /// States in which nothing may be taken at any gate.
    pub const LOST_OR_FORKED: u32 = FORKED | LOST;
}

impl Attachment {
    /// Why nothing can be taken at any gate through this attachment any more.
    pub fn failure(&self) -> Option<AcquireError> {
        self.failure_but(0)
    }

    /// Why nothing can be taken at this gate any more.
    pub fn failure_at(&self, gate: Gate) -> Option<AcquireError> {
        match gate {
            Gate::Scheduler => self.failure_but(state::DISPOSED | state::CLOSED),
            _ => {
                let parent = || self.parent.as_ref()?.attachment.failure_at(gate);
                self.failure().or_else(parent)
            }
        }
    }

    /// `own`: which states of its own the gate has.
    fn failure_but(&self, own: u32) -> Option<AcquireError> {
        let bits = self.state.get();
        if bits & state::FORKED != 0 {
            return Some(AcquireError::Forked);
        }
        if bits & state::LOST != 0 || self.watch.as_ref().is_some_and(|watch| watch.is_lost()) {
            return Some(AcquireError::Lost);
        }
        if bits & own & state::DISPOSED != 0 {
            return Some(AcquireError::Disposed);
        }
        if bits & own & state::CLOSED != 0 {
            return Some(AcquireError::Closed);
        }
        let flags = self.hot().flags.get();
        if flags != 0 {
            // Scribbled, or really so?
            self.notice_damage();
            if self.state.get() & state::LOST != 0 {
                return Some(AcquireError::Lost);
            }
        }
        if flags & SchedulerHot::FLAG_RETIRED != 0 {
            return Some(AcquireError::Retired);
        }
        (flags & SchedulerHot::FLAG_GONE != 0).then_some(AcquireError::Gone)
    }

    /// Whether nothing keeps this member from the Scheduler, as [`Self::failure_at`] says it, for who asks often.
    #[inline(always)]
    pub fn is_well(&self) -> bool {
        let lost = self.watch.as_ref().is_some_and(|watch| watch.is_lost());
        !lost && self.state.get() == 0 && self.hot().flags.get() == 0
    }

    /// Whether nothing may be taken at this gate, as far as this process knows by itself.
    pub fn is_barred(&self, gate: Gate) -> bool {
        let bits = match gate {
            Gate::Scheduler => u32::MAX,
            _ => state::LOST_OR_FORKED,
        };
        self.state.get() & bits != 0
    }

    /// Whether a release must leave the segment alone.
    #[inline(always)]
    pub fn is_inert(&self) -> bool {
        self.state.peek() & state::INERT != 0
    }

    /// Looks whether the file was cut short or overwritten; from then on this attachment is lost. Costs a system call.
    pub fn notice_damage(&self) {
        let Some(cut) = self
            .files
            .lock()
            .as_ref()
            .map(|files| files.is_cut(self.checked.bytes))
        else {
            return;
        };
        let header = &self.views.header;
        let same = !cut
            && header.check(self.checked.bytes).is_ok_and(|now| {
                now.geometry == self.checked.geometry && now.id == self.checked.id
            });
        if !same && self.state.set_bits(state::LOST) & state::LOST == 0 {
            for member in self.views.members() {
                park::ring_everybody(&member.bell);
            }
        }
    }

    /// Asks whether the file still has a name; if not, tells everybody in line. Twice a second at most.
    pub(crate) fn notice_gone_at_times(&self) {
        if let Some(parent) = &self.parent {
            return parent.attachment.notice_gone_at_times();
        }
        let now = clock::coarse_ms();
        if now >= self.asked_gone.get().saturating_add(500) {
            self.asked_gone.put(now);
            self.notice_gone();
        }
    }

    /// Asks whether the file still has a name; if not, tells everybody in line.
    pub(crate) fn notice_gone(&self) {
        let gone = match self.files.lock().as_ref() {
            Some(files) => files.is_gone(),
            None => false,
        };
        if gone && !self.views.raise_flag(SchedulerHot::FLAG_GONE) {
            for gate in Gate::ALL {
                self.ring_all(gate);
            }
        }
    }

    /// Wakes everybody who stands in the line of a gate.
    pub(crate) fn ring_all(&self, gate: Gate) {
        for entry in self.views.line(gate).entries() {
            let lane = entry.lane;
            self.ring(entry.member, Post { gate, lane });
        }
    }
}
