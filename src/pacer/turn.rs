//! A turn at the Pacer: the head serves itself.

use crate::layout::Gate;
use crate::park::queue::Queue;
use crate::park::waiter::Waiter;
use crate::protocol::line::Doing;
use crate::protocol::turn::{Outlook, Why};
use crate::segment::attachment::Attachment;
use crate::sys::clock;
use crate::waiting::{Attempt, Later};
use std::sync::Arc;

impl Attachment {
    /// What a newcomer may do: nobody passes the line. Up to when its start keeps others away.
    pub(crate) fn start_now(self: &Arc<Self>) -> Option<u64> {
        let gate = self.views.pacer();
        self.notice_gone_at_times();
        let passes = gate.nobody_waits() || !self.must_queue(Gate::Pacer);
        let taken = match passes {
            true => gate.take(clock::now),
            false => None,
        };
        if taken.is_some() {
            self.count_start();
        }
        taken
    }

    fn count_start(self: &Arc<Self>) {
        let record = self.own();
        record.started.put(record.started.peek().wrapping_add(1));
        self.starts.add(1);
    }

    /// One try of the member's first waiter: sleep, look, start. Under the queue's lock.
    pub(crate) fn attempt_start(
        self: &Arc<Self>,
        queue: &mut Queue,
        waiter: &Arc<Waiter>,
    ) -> Attempt {
        let gate = self.views.pacer();
        let line = gate.line;
        // Each round loses a race to somebody who started.
        for _ in 0..64 {
            if !line.is_announced(waiter.spot, 0) {
                line.announce(waiter.spot, 0);
            }
            let was = line.settle(waiter.spot, 0); // pair: line-sleep
            let outlook = match was.doing() {
                Doing::Called => Outlook {
                    turn: Some(false),
                    ..Outlook::default()
                },
                _ => self.advance(Gate::Pacer, Some(waiter), Why::Moved),
            };
            if outlook.turn.is_none() {
                return Attempt::Later(self.take_note(waiter, outlook));
            }
            if let Some(next) = gate.take(clock::now) {
                waiter.start.put(next);
                self.count_start();
                return Attempt::Got(vec![self.take_out(queue, waiter, true)]);
            }
        }
        // Not left called: nobody would ring it.
        line.settle(waiter.spot, 0);
        Attempt::Later(Later::FIRST)
    }
}
