//! One reading of the members and the lines, from which all that a snapshot shows is taken.

use super::sums::held_by;
use crate::protocol::ledger::spare;
use crate::protocol::line::Entry;
use crate::protocol::roster::{Owner, Status};
use crate::segment::views::Views;
use crate::sys::clock;

/// One member as read.
pub(super) struct Person {
    pub(super) index: u32,
    pub(super) generation: u32,
    pub(super) held: u32,
    pub(super) dead: bool,
    pub(super) gone: bool,
    /// The system is asked about it.
    pub(super) asked: bool,
}

/// The one with this slot; they are in order of it.
pub(super) fn person(people: &[Person], index: u32) -> Option<&Person> {
    let at = people.binary_search_by_key(&index, |person| person.index);
    people.get(at.ok()?)
}

/// Everything that is read once and shown in several places.
pub(super) struct Reading {
    pub(super) people: Vec<Person>,
    /// Of each gate.
    pub(super) entries: [Vec<Entry>; 3],
    pub(super) running: i32,
    pub(super) now: u64,
    /// Of this boot; of an earlier one everybody is dead.
    pub(super) current: bool,
}

impl Reading {
    /// `is_dead` is told a slot and its status word.
    pub(super) fn take(
        views: &Views,
        current: bool,
        about: &impl Fn(u32) -> bool,
        mut is_dead: impl FnMut(u32, u64) -> bool,
    ) -> Reading {
        let now = clock::now();
        if !current {
            return Reading {
                people: Vec::new(),
                entries: Default::default(),
                running: 0,
                now,
                current,
            };
        }
        // Whoever dies in between is dead in the picture or in the next snapshot. Whoever attaches in between was not
        // asked about, and is alive.
        let found_dead: Vec<Option<Status>> = (0u32..)
            .zip(views.members())
            .map(|(index, member)| {
                let status = Status(member.status.get());
                (status.live().is_some() && is_dead(index, status.0)).then_some(status)
            })
            .collect();
        let picture = (0..200).find_map(|_| views.books().look());
        let mut people = Vec::new();
        let mut spare = vec![0u32; views.members().len()];
        if spare::phase(views.hot.spares.get()) != spare::OFF {
            for record in views
                .leased()
                .iter()
                .filter(|record| spare::lies_at(record))
            {
                if let Some(owner) = Owner::read(record.owner.get())
                    && let Some(spare) = spare.get_mut(owner.member as usize)
                {
                    *spare += 1;
                }
            }
        }
        for (index, member) in (0u32..).zip(views.members()) {
            let status = Status(member.status.get());
            let (generation, gone) = match (status.live(), status.gone()) {
                (Some(generation), _) => (generation, false),
                (_, Some(generation)) => (generation, true),
                _ => continue,
            };
            let at = index as usize;
            let held = match &picture {
                Some(picture) if picture.status.get(at) == Some(&status.0) => picture.held[at],
                _ => held_by(views, index, generation),
            };
            let held = held.wrapping_sub(spare.get(at).copied().unwrap_or(0));
            // A net below zero is a reading torn by a hand-over between threads.
            let held = if gone { 0 } else { (held as i32).max(0) as u32 };
            people.push(Person {
                index,
                generation,
                held,
                dead: gone || found_dead.get(at).copied().flatten() == Some(status),
                gone,
                asked: about(index),
            });
        }
        let lives = |entry: &Entry| person(&people, entry.member).is_some_and(|it| !it.dead);
        let entries = views.lines().map(|line| {
            let mut entries = line.entries();
            entries.retain(lives);
            entries
        });
        Reading {
            people,
            entries,
            running: views.running(),
            now,
            current,
        }
    }

    pub(super) fn since_ms(&self, stamp: u64) -> u64 {
        self.now.saturating_sub(stamp) / 1_000_000
    }
}
