//! The header: what a segment says of itself, and the check that turns it into something usable.

#[cfg(not(shmsched_loom))]
use crate::sys::mapping::shared_record;
#[cfg(shmsched_loom)]
use crate::words::shared_record;
use crate::words::{U32, U64};

/// First eight bytes of a segment: `shmsched`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"shmsched");
/// Version of the format this library reads and writes.
pub const FORMAT: u32 = 1;
/// Written as an integer; reads otherwise on a machine of another byte order.
pub const BYTE_ORDER: u32 = 0x0102_0304;

/// A gate of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gate {
    /// How many at once.
    Scheduler,
    /// Tokens per second.
    Limiter,
    /// How far apart.
    Pacer,
}

impl Gate {
    /// All there are.
    pub(crate) const ALL: [Gate; 3] = [Gate::Scheduler, Gate::Limiter, Gate::Pacer];

    /// Its bit of `Header::gates`.
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u32
    }
}

shared_record! {
    /// Written before the segment appears under its name; afterwards only `boot` and `gates` change.
    #[derive(Debug, Default)]
    #[repr(C, align(128))]
    pub struct Header {
        /// [`MAGIC`].
        pub magic: U64,
        /// [`FORMAT`].
        pub format: U32,
        /// [`BYTE_ORDER`].
        pub byte_order: U32,
        /// Fingerprint of the sizes of all records and of the geometry.
        pub layout: U64,
        /// Length of the segment.
        pub bytes: U64,
        /// Member slots.
        pub members: U32,
        /// Records.
        pub records: U32,
        /// Waiting places of the Pacer.
        pub max_waiting: U32,
        /// Which gates exist, see [`Gate`].
        pub gates: U32,
        /// Random, so that a copy or a new life under the same name can be told apart.
        pub id: [U64; 2],
        /// The boot it was made or last reset in; written last in a reset.
        pub boot: [U64; 2],
        /// 1 once all of it is written.
        pub ready: U32,
        /// Mode bits asked for at creation.
        pub mode: U32,
        /// When it was made, `sys::clock::now` units.
        pub created: U64,
        /// To 256 bytes.
        pub reserved: [U64; 18],
    }
}

/// The sizes that were read once, checked, and are trusted from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Member slots, 1..=16384.
    pub members: u32,
    /// Records, at least one per member.
    pub records: u32,
    /// Waiting places of the Pacer, at most 65536.
    pub max_waiting: u32,
}

impl Geometry {
    /// Largest number of members.
    pub const MAX_MEMBERS: u32 = 16_384;
    /// Largest number of records.
    pub const MAX_RECORDS: u32 = 131_072;
    /// Largest number of waiting places.
    pub const MAX_WAITING: u32 = 65_536;

    /// The geometry for so many members: three leased records each beside the common one, 4,096 at 1,024.
    pub fn of(members: u32, max_waiting: u32) -> Self {
        Geometry {
            members,
            records: members.saturating_mul(4).max(members + 64),
            max_waiting,
        }
    }

    fn is_sane(&self) -> bool {
        (1..=Self::MAX_MEMBERS).contains(&self.members)
            && (self.members..=Self::MAX_RECORDS).contains(&self.records)
            && self.max_waiting <= Self::MAX_WAITING
    }
}

/// A header that passed every check.
#[derive(Clone, Copy, Debug)]
pub struct Checked {
    /// Sizes of the tables.
    pub geometry: Geometry,
    /// Length of the segment.
    pub bytes: u64,
    /// Identity of this life of the segment.
    pub id: [u8; 16],
    /// The boot its counters belong to.
    pub boot: [u8; 16],
    /// Which gates exist.
    pub gates: u32,
    /// Mode bits asked for at creation.
    pub mode: u32,
}

/// Why a header is no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// Not a segment at all.
    NotASegment(&'static str),
    /// A segment of another version or byte order: found, supported.
    Format {
        /// What the file says.
        found: u32,
        /// What this library reads.
        supported: u32,
    },
    /// The right version, but its records have other sizes.
    Layout,
    /// The sizes it states cannot be.
    Damaged(&'static str),
}

/// Two words as sixteen bytes.
pub fn bytes_of(words: &[U64; 2]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&words[0].get().to_le_bytes());
    bytes[8..].copy_from_slice(&words[1].get().to_le_bytes());
    bytes
}

/// Sixteen bytes into two words.
pub fn put_bytes(words: &[U64; 2], bytes: [u8; 16]) {
    let half = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    words[0].put(half(0));
    words[1].put(half(8));
}

#[cfg(not(shmsched_loom))]
impl Header {
    /// Reads every field once. `available` is the length of the file: what is stated must fit, or a later access
    /// would be a SIGBUS.
    pub fn check(&self, available: u64) -> Result<Checked, Unusable> {
        if self.magic.get() != MAGIC {
            return Err(Unusable::NotASegment(
                "it does not begin with the word shmsched",
            ));
        }
        // On a machine of another byte order the version reads as nonsense too: one found to be ours says that only
        // this field is wrong.
        if self.format.get() != FORMAT {
            return Err(Unusable::Format {
                found: self.format.get(),
                supported: FORMAT,
            });
        }
        if self.byte_order.get() != BYTE_ORDER {
            return Err(Unusable::Layout);
        }
        let geometry = Geometry {
            members: self.members.get(),
            records: self.records.get(),
            max_waiting: self.max_waiting.get(),
        };
        if self.layout.get() != super::Map::fingerprint(geometry) {
            return Err(Unusable::Layout);
        }
        if self.ready.get() != 1 {
            return Err(Unusable::NotASegment("it was never completed"));
        }
        if !geometry.is_sane() {
            return Err(Unusable::Layout);
        }
        let map = super::Map::of(geometry);
        let bytes = self.bytes.get();
        if bytes != map.bytes {
            return Err(Unusable::Layout);
        }
        if available < bytes {
            return Err(Unusable::Damaged(
                "the file is shorter than its header says",
            ));
        }
        Ok(Checked {
            geometry,
            bytes,
            id: bytes_of(&self.id),
            boot: bytes_of(&self.boot),
            gates: self.gates.get(),
            mode: self.mode.get(),
        })
    }

    /// Fills a fresh header; `ready` is left for the caller to publish.
    pub fn fill(
        &self,
        geometry: Geometry,
        id: [u8; 16],
        boot: [u8; 16],
        gates: u32,
        mode: u32,
        now: u64,
    ) {
        self.magic.put(MAGIC);
        self.format.put(FORMAT);
        self.byte_order.put(BYTE_ORDER);
        self.layout.put(super::Map::fingerprint(geometry));
        self.bytes.put(super::Map::of(geometry).bytes);
        self.members.put(geometry.members);
        self.records.put(geometry.records);
        self.max_waiting.put(geometry.max_waiting);
        self.gates.put(gates);
        put_bytes(&self.id, id);
        put_bytes(&self.boot, boot);
        self.mode.put(mode);
        self.created.put(now);
    }
}
