//! One attachment of one process: its member slot, its records, its queue. Everything behind `Segment` and the gates.

mod end;
mod failure;
mod lease;

pub(crate) use failure::state;

use super::Handle;
use super::files::Files;
use super::views::Views;
use crate::layout::{Checked, LANES, Member, Place, SchedulerHot};
use crate::location::Location;
use crate::park::queue::Queue;
use crate::park::{self, Post};
use crate::protocol::ledger::spare;
use crate::protocol::roster::Owner;
use crate::sys::biased::Biased;
use crate::sys::mapping::Lent;
use crate::sys::mutex::Mutex;
use crate::words::{U32, U64};
use lease::Leases;
use std::sync::{Arc, OnceLock, Weak};

/// One member, from inside its process.
pub(crate) struct Attachment {
    pub views: Views,
    /// Its row of the roster.
    member: Lent<Member>,
    /// Its places in the Scheduler's line, by lane.
    pub places: Lent<[Place]>,
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
    pub queue: Biased<Queue>,
    /// [`Queue::askers`].
    pub askers: Arc<U32>,
    leases: Mutex<Leases>,
    common: Mutex<()>,
    pub files: Mutex<Option<Files>>,
    /// Held while a thread of this member looks.
    pub looking: Mutex<()>,
    /// When somebody of this member last looked for the dead, coarse ms + 1.
    pub looked: U64,
    /// When one who joined a line is to look, since somebody of this member had looked just before: coarse ms + 1; 0: no one.
    pub owed: U64,
    /// When the Limiter or the Pacer last asked whether the file has a name, coarse ms.
    pub asked_gone: U64,
    /// Tests fix the lottery's draw: draw + 1; 0 is chance.
    pub draw: U32,
    /// Slots taken by `acquire_with` and not yet released.
    pub raw_held: U32,
    pub helper: Mutex<crate::waiting::helper::Helper>,
    pub lookout: Mutex<crate::waiting::lookout::Lookout>,
    /// Counters of the member slot's earlier owners: deferred, completed, cancelled, lost.
    pub baseline: [[u64; 4]; Post::COUNT],
    /// The same of the Limiter's admissions into debt.
    pub forced_before: [u64; LANES],
    /// Starts of this member.
    pub starts: U64,
    /// Callers of this member that the Pacer's queue had no place for.
    pub refusals: U64,
    /// Of a child's Limiter: what it takes from beside its own bucket.
    pub parent: Option<Arc<Handle>>,
    /// Tells whether the file was cut short, where that was asked for.
    pub watch: Option<crate::sys::sigbus::Watch>,
    /// What keeps this attached, for callbacks that run, and not for those that wait.
    pub handle: OnceLock<Weak<Handle>>,
}

static SERIALS: U64 = U64::new(0);

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
        let member = parts.views.roster.one(parts.me as usize);
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
        let common = &parts.views.records[parts.me as usize];
        common.owner.put(owner.word());
        spare::unseal(common);
        let queue = Queue::default();
        let askers = queue.askers().clone();
        Arc::new(Attachment {
            places: parts.views.places_of(parts.me),
            member,
            views: parts.views,
            location: parts.location,
            checked: parts.checked,
            me: parts.me,
            generation: parts.generation,
            serial,
            state: U32::new(0),
            own_posts: U32::new(0),
            queue: Biased::new(queue),
            askers,
            leases: Mutex::new(Leases::default()),
            common: Mutex::new(()),
            files: Mutex::new(parts.files),
            looking: Mutex::new(()),
            looked: U64::new(0),
            owed: U64::new(0),
            asked_gone: U64::new(0),
            draw: U32::new(0),
            raw_held: U32::new(0),
            helper: Mutex::new(Default::default()),
            lookout: Mutex::new(Default::default()),
            baseline,
            forced_before,
            starts: U64::new(0),
            refusals: U64::new(0),
            parent: parts.parent,
            watch: parts.watch,
            handle: OnceLock::new(),
        })
    }

    pub fn hot(&self) -> &SchedulerHot {
        &self.views.hot
    }

    #[inline(always)]
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// The handle that keeps this attached.
    pub fn handle(&self) -> &Weak<Handle> {
        self.handle.get_or_init(Weak::new)
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
}
