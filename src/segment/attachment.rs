//! One attachment of one process: its member slot, its records, its queue. Everything behind `Segment` and the gates.

use super::Handle;
use super::files::Files;
use super::views::Views;
use crate::error::AcquireError;
use crate::layout::{Checked, Gate, LANES, Member, Record, SchedulerHot};
use crate::location::Location;
use crate::park::queue::Queue;
use crate::park::{self, Post};
use crate::protocol::ledger;
use crate::protocol::roster::{self, Owner};
use crate::sys::clock;
use crate::sys::fork::ForkAware;
use crate::sys::mutex::{Guard, Mutex};
use crate::words::{U32, U64, heavy_fence};
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

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

/// Records leased by this member's threads.
#[derive(Default)]
struct Leases {
    /// All, by record index: for dispose and detach.
    all: Vec<u32>,
    /// Of threads that ended.
    free: Vec<u32>,
}

/// One member, from inside its process.
pub(crate) struct Attachment {
    pub views: Views,
    pub location: Option<Location>,
    pub checked: Checked,
    pub me: u32,
    pub generation: u32,
    /// Unique in this process; what a thread's lease is found by.
    serial: u64,
    /// [`state`] bits.
    pub state: U32,
    /// Bits of the posts at which this member's queue has somebody. Written under the queue's lock.
    pub own_posts: U32,
    pub queue: Mutex<Queue>,
    leases: Mutex<Leases>,
    common: Mutex<()>,
    pub files: Mutex<Option<Files>>,
    /// Held while a thread of this member looks.
    pub looking: Mutex<()>,
    /// When somebody of this member last looked for the dead, coarse ms + 1.
    pub looked: U64,
    /// When the Limiter or the Pacer last asked whether the file has a name, coarse ms.
    pub asked_gone: U64,
    /// Tests fix the lottery's draw: draw + 1; 0 is chance.
    pub draw: U32,
    /// Slots taken by `acquire_with` and not yet released.
    pub raw_held: U32,
    pub helper: Mutex<crate::waiting::helper::Helper>,
    /// Counters of the slot's earlier owners: deferred, completed, cancelled, lost.
    pub baseline: [[u64; 4]; Post::COUNT],
    /// The same of the Limiter's admissions into debt.
    pub forced_before: [u64; LANES],
    /// Starts of this member.
    pub starts: U64,
    /// Callers of this member that the Pacer's queue had no place for.
    pub refusals: U64,
    /// Of a child's Limiter: what it takes from beside its own bucket.
    pub parent: Option<Arc<Handle>>,
    /// Guards against truncation, where it was asked for.
    pub watch: Option<crate::sys::sigbus::Watch>,
}

static SERIALS: U64 = U64::new(0);

thread_local! {
    /// The lease used last: (serial, record).
    static HOT: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
    /// The last hold-off this thread obeyed.
    static OBEYED: Cell<u32> = const { Cell::new(0) };
    static LEASED: RefCell<Vec<Lease>> = const { RefCell::new(Vec::new()) };
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

/// What [`Attachment::new`] is made from.
pub(crate) struct Parts {
    pub views: Views,
    pub location: Option<Location>,
    pub checked: Checked,
    pub me: u32,
    pub generation: u32,
    pub files: Option<Files>,
    pub watch: Option<crate::sys::sigbus::Watch>,
    pub parent: Option<Arc<Handle>>,
}

impl Attachment {
    /// The member slot is claimed already. The caller registers it with `sys::fork`.
    pub fn new(parts: Parts) -> Arc<Attachment> {
        let serial = SERIALS.add(1) + 1;
        let member = &parts.views.roster[parts.me as usize];
        let mut baseline = [[0; 4]; Post::COUNT];
        for post in Post::all() {
            if let Some(counts) = member.queue(post.gate, post.lane) {
                baseline[post.index()] = counts.map(|count| count.get());
            }
        }
        let forced_before = std::array::from_fn(|lane| member.forced[lane].get());
        let owner = Owner {
            member: parts.me,
            generation: parts.generation,
        };
        parts.views.records[parts.me as usize]
            .owner
            .put(owner.word());
        Arc::new(Attachment {
            views: parts.views,
            location: parts.location,
            checked: parts.checked,
            me: parts.me,
            generation: parts.generation,
            serial,
            state: U32::new(0),
            own_posts: U32::new(0),
            queue: Mutex::new(Queue::default()),
            leases: Mutex::new(Leases::default()),
            common: Mutex::new(()),
            files: Mutex::new(parts.files),
            looking: Mutex::new(()),
            looked: U64::new(0),
            asked_gone: U64::new(0),
            draw: U32::new(0),
            raw_held: U32::new(0),
            helper: Mutex::new(Default::default()),
            baseline,
            forced_before,
            starts: U64::new(0),
            refusals: U64::new(0),
            parent: parts.parent,
            watch: parts.watch,
        })
    }

    pub fn hot(&self) -> &SchedulerHot {
        &self.views.hot
    }

    pub fn member(&self) -> &Member {
        &self.views.roster[self.me as usize]
    }

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
        let record = (from + at) as u32;
        leases.all.push(record);
        Some(record)
    }

    /// All records of this member.
    fn records(&self) -> Vec<&Record> {
        let leases = self.leases.lock();
        let all = leases.all.iter().copied().chain([self.me]);
        all.filter_map(|record| self.views.records.get(record as usize))
            .collect()
    }

    /// Slots held by this member.
    pub fn held(&self) -> u32 {
        self.records().iter().fold(0u32, |sum, record| {
            sum.wrapping_add(ledger::Word(record.word.get()).net())
        })
    }

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

    /// Whether nothing may be taken at this gate, as far as this process knows by itself.
    pub fn is_barred(&self, gate: Gate) -> bool {
        let bits = match gate {
            Gate::Scheduler => u32::MAX,
            _ => state::LOST_OR_FORKED,
        };
        self.state.get() & bits != 0
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

    /// Whether a release must leave the segment alone.
    #[inline(always)]
    pub fn is_inert(&self) -> bool {
        self.state.peek() & state::INERT != 0
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

    /// Rings the bell of a member's post.
    pub fn ring(&self, member: u32, post: Post) {
        if let Some(member) = self.views.roster.get(member as usize) {
            park::ring(&member.bell, post.bit());
        }
    }

    /// Who this member is.
    pub fn owner(&self) -> Owner {
        Owner {
            member: self.me,
            generation: self.generation,
        }
    }

    /// Gives back at once all slots of this member; later releases are inert. Pair `dispose`.
    ///
    /// A bracket that is open now was begun before the flag could be seen; after the heavy fence no other begins, so
    /// each word gets even by itself (a stopped thread of this process is stopped with us).
    pub fn give_all_back(self: &Arc<Self>) {
        if self.state.set_bits(state::DISPOSED) & state::INERT != 0 {
            return;
        }
        if heavy_fence().is_err() {
            // Registered at attach, so this cannot fail; without it the sum could be wrong, so nothing is given back
            // before the process ends.
            return;
        }
        let records = self.records();
        let _common = self.common.lock();
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
            ledger::give_sum(
                &self.views.records[self.me as usize],
                &self.hot().running,
                sum,
            );
        }
    }

    /// Leaves the roster: everything given back, every place absent, the slot free, the byte unlocked.
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
    }

    fn parent(&self) {
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
    }
}
