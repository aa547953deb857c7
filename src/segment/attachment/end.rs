//! How a member ends: it gives all back, detaches, or is a copy in a forked child.

use super::lease::HOT;
use super::{Attachment, state};
use crate::layout::Record;
use crate::protocol::ledger::{self, spare};
use crate::protocol::roster;
use crate::sys::clock;
use crate::sys::fork::ForkAware;
use crate::words::heavy_fence;
use std::sync::Arc;

impl Attachment {
    /// Gives back at once all slots of this member; later releases are inert. Pair `dispose`.
    ///
    /// A bracket that is open now was begun before the flag could be seen; after the heavy fence no other begins, so
    /// each word gets even by itself (a stopped thread of this process is stopped with us).
    pub fn give_all_back(self: &Arc<Self>) {
        if self.state.set_bits(state::DISPOSED) & state::INERT != 0 {
            return;
        }
        if heavy_fence().is_err() {
            // Forbidden since the attach, by a filter; without it the sum could be wrong, so nothing is given back before the
            // process ends.
            return;
        }
        let records = self.records();
        let _common = self.common.lock();
        // No spare is claimed from here on: what the records hold changes by their own brackets only.
        let owner = self.owner().word();
        if !records.iter().all(|record| spare::seal(record, owner)) {
            return;
        }
        // A scribbled word may stay odd: then nothing is given back now, but by the look that finds this member gone.
        let until = clock::now() + 1_000_000_000;
        let sum = loop {
            match ledger::settled_sum(records.iter().copied()) {
                Some(sum) => break sum,
                None if clock::now() >= until => return,
                None => std::thread::yield_now(),
            }
        };
        if sum != 0 {
            let common = &self.views.records[self.me as usize];
            let spare = records.iter().filter(|record| spare::lay_at(record));
            let counted = ((sum as i32).max(0) as u32).saturating_sub(spare.count() as u32);
            ledger::give_sum(common, &self.hot().running, sum, counted);
        }
    }

    /// Leaves the roster: everything given back, every place absent, the member slot free, the byte unlocked.
    pub fn detach(self: &Arc<Self>) {
        if self.state.get() & state::FORKED != 0 {
            return;
        }
        self.give_all_back();
        self.state.set_bits(state::DETACHED);
        // A look of the helper that began before is over then; later ones see that we are detached.
        drop(self.looking.lock());
        let views = &self.views;
        let all: Vec<&Record> = self.records();
        if roster::retire(self.member(), self.generation) {
            // Our own byte is still locked, so nobody else cleans.
            roster::clean(
                self.me,
                self.member(),
                self.generation,
                all.iter().copied(),
                &views.lines(),
            );
            self.member().held_since.put(0);
        }
        if let Some(files) = self.files.lock().take() {
            files.unlock(self.me);
        }
    }
}

impl ForkAware for Attachment {
    fn prepare(&self) {
        self.looking.hold();
        self.queue.hold();
        self.helper.hold();
        self.leases.hold();
        self.common.hold();
        self.files.hold();
        self.lookout.hold();
    }

    fn parent(&self) {
        self.lookout.let_go();
        self.files.let_go();
        self.common.let_go();
        self.leases.let_go();
        self.helper.let_go();
        self.queue.let_go();
        self.looking.let_go();
    }

    fn child(&self) {
        self.state.set_bits(state::FORKED);
        self.parent();
        // The forking thread is the only one here: its lease must not lead it to the mapping.
        let _ = HOT.try_with(|hot| hot.set((0, 0)));
        // Closed, never unlocked: the lock is the parent's.
        drop(self.files.lock().take());
        self.lookout.lock().forked();
    }
}
