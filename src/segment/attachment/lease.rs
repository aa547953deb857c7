//! The records that this member's threads write to: one leased to each, and a common one.

use super::Attachment;
use crate::layout::Record;
use crate::protocol::{ledger::spare, roster};
use crate::sys::clock;
use crate::sys::mutex::Guard;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

thread_local! {
    /// The lease used last: (serial, record).
    pub(super) static HOT: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
    /// The last hold-off this thread obeyed.
    static OBEYED: Cell<u32> = const { Cell::new(0) };
    static LEASED: RefCell<Vec<Lease>> = const { RefCell::new(Vec::new()) };
}

/// Records leased by this member's threads.
#[derive(Default)]
pub(super) struct Leases {
    /// All, by record index: for dispose and detach.
    all: Vec<u32>,
    /// Of threads that ended.
    free: Vec<u32>,
}

struct Lease {
    serial: u64,
    record: u32,
    owner: Weak<Attachment>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Later destructors of this thread find no lease and use the common record.
        let _ = HOT.try_with(|hot| hot.set((0, 0)));
        if let Some(owner) = self.owner.upgrade() {
            owner.leases.lock().free.push(self.record);
        }
    }
}

/// The record to write to, and the right to.
pub(crate) enum Own<'a> {
    /// Leased to this thread.
    Leased(&'a Record),
    /// The member's common one, under its mutex.
    Common(&'a Record, #[allow(dead_code)] Guard<'a, ()>),
}

impl std::ops::Deref for Own<'_> {
    type Target = Record;
    fn deref(&self) -> &Record {
        match self {
            Own::Leased(record) | Own::Common(record, _) => record,
        }
    }
}

impl Attachment {
    /// Index of this thread's record, if it used this attachment last.
    #[inline(always)]
    pub fn hot_index(&self) -> Option<u32> {
        let (serial, record) = HOT.get();
        (serial == self.serial).then_some(record)
    }

    /// This thread's record, leased now if need be; the common one if none is free or the thread is ending.
    pub fn own(self: &Arc<Self>) -> Own<'_> {
        if let Some(record) = self.hot_index() {
            return Own::Leased(&self.views.records[record as usize]);
        }
        let leased = LEASED.try_with(|leased| {
            let mut leased = leased.try_borrow_mut().ok()?;
            if let Some(lease) = leased.iter().find(|lease| lease.serial == self.serial) {
                return Some(lease.record);
            }
            let record = self.lease()?;
            leased.retain(|lease| lease.owner.strong_count() > 0);
            leased.push(Lease {
                serial: self.serial,
                record,
                owner: Arc::downgrade(self),
            });
            Some(record)
        });
        match leased {
            Ok(Some(record)) => {
                HOT.set((self.serial, record));
                Own::Leased(&self.views.records[record as usize])
            }
            _ => Own::Common(&self.views.records[self.me as usize], self.common.lock()),
        }
    }

    fn lease(&self) -> Option<u32> {
        let mut leases = self.leases.lock();
        if let Some(record) = leases.free.pop() {
            return Some(record);
        }
        let from = self.views.geometry.members as usize;
        let owner = self.owner();
        // Marked before it is used, so that no look stops short of it.
        let high = &self.views.cold.records_high;
        let table = &self.views.records[from..];
        let at = loop {
            let used = (high.get() as usize).clamp(from, self.views.records.len()) - from;
            if let Some(at) = roster::lease(&table[..used], owner) {
                break at;
            }
            if used == table.len() {
                return None;
            }
            roster::raise(high, (from + used + 1) as u32);
        };
        // Dispose seals what it finds in the list, under its lock: what comes later has no spare that others could claim.
        match self.is_inert() {
            true => drop(spare::seal(&table[at], owner.word())),
            false => spare::unseal(&table[at]),
        }
        let record = (from + at) as u32;
        leases.all.push(record);
        Some(record)
    }

    /// All records of this member.
    pub(super) fn records(&self) -> Vec<&Record> {
        let leases = self.leases.lock();
        let all = leases.all.iter().copied().chain([self.me]);
        all.filter_map(|record| self.views.records.get(record as usize))
            .collect()
    }

    /// Slots held by this member, as far as a plain reading says.
    pub fn held(&self) -> u32 {
        let held = self.records().iter().fold(0u32, |sum, record| {
            let net = spare::net_of(record.word.get(), record.claimed.get());
            sum.wrapping_add(net)
                .wrapping_sub(spare::lies_at(record).into())
        });
        // A sum below zero is one that was torn by a spare being taken.
        (held as i32).max(0) as u32
    }

    /// Waits some microseconds if a look asks for it, once per request.
    #[cold]
    pub fn obey_hold_off(&self) {
        let asked = self.hot().hold_off.peek();
        if asked != 0 && OBEYED.replace(asked) != asked {
            let until = clock::now() + 30_000;
            while self.hot().hold_off.peek() == asked && clock::now() < until {
                std::hint::spin_loop();
            }
        }
    }
}
