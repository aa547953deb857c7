//! The members of a reading: who holds, who waits and where.

use super::reading::{Person, Reading};
use crate::Priority;
use crate::layout::Gate;
use crate::protocol::line::Doing;
use crate::protocol::roster;
use crate::segment::views::Views;
use crate::snapshot::{MemberInfo, MemberState, PlaceState, WaitingInfo};
use crate::sys::process::{self, Seen};

impl Reading {
    pub(super) fn members(&self, views: &Views) -> Vec<MemberInfo> {
        let here = process::me().namespace;
        self.people
            .iter()
            .map(|person| self.member(views, person, here))
            .collect()
    }

    fn member(&self, views: &Views, person: &Person, here: u64) -> MemberInfo {
        let member = &views.roster[person.index as usize];
        let same_namespace = member.namespace.get() == here;
        let pid = member.pid.get();
        let seen = if same_namespace && person.asked {
            process::look(pid, member.start.get())
        } else {
            Seen::Unknown
        };
        let state = match seen {
            _ if person.dead || person.gone => MemberState::Dead,
            Seen::Stopped => MemberState::Stopped,
            Seen::Exiting => MemberState::Exiting,
            Seen::Gone | Seen::Zombie => MemberState::Orphaned,
            _ => MemberState::Alive,
        };
        let waiting = Gate::ALL.into_iter().zip(&self.entries);
        let waiting = waiting.flat_map(|(gate, entries)| {
            let entries = (1u32..).zip(entries);
            let its = entries.filter(|(_, entry)| entry.member == person.index);
            its.map(move |(position, entry)| (gate, position, entry))
        });
        let held_since = member.held_since.get();
        MemberInfo {
            member: person.index,
            generation: person.generation,
            pid,
            same_namespace,
            command: roster::command(&member.command),
            state,
            age_ms: self.since_ms(member.attached.get()),
            held: person.held,
            held_ms: (person.held != 0 && held_since != 0).then(|| self.since_ms(held_since)),
            waiting: waiting
                .map(|(gate, position, entry)| WaitingInfo {
                    gate,
                    priority: match gate {
                        Gate::Pacer => None,
                        _ => Priority::from_index(entry.lane),
                    },
                    amount: entry.seat.amount,
                    since_ms: self.since_ms(entry.seat.since),
                    position,
                    state: match entry.state.doing() {
                        Doing::Asleep => PlaceState::Asleep,
                        Doing::Called => PlaceState::Called,
                        Doing::Lapsed => PlaceState::Lapsed,
                    },
                })
                .collect(),
        }
    }
}
