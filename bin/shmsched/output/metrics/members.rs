//! The members: how many are how, and gauges of each that lives.

use shmsched::{MemberInfo, MemberState, Snapshot};

use super::samples::Samples;
use crate::output::{json, shortened};

/// Of so many members of a segment each has gauges of its own, first those that hold or wait. Each is several series that
/// live as long as their process, and a series costs a Prometheus some kilobytes.
const MOST: usize = 256;
/// The longest command in a label.
const COMMAND: usize = 60;

/// How many are alive, stopped and so on.
pub fn states(snapshot: &Snapshot, samples: &mut Samples) {
    for state in [
        MemberState::Alive,
        MemberState::Stopped,
        MemberState::Exiting,
        MemberState::Orphaned,
        MemberState::Dead,
    ] {
        let members = snapshot.members.iter();
        let count = members.filter(|member| member.state == state).count();
        samples.gauge(&[("state", json::state(state))], count as i64);
    }
}

/// Calls for each that lives, with its labels.
pub fn each(
    snapshot: Option<&Snapshot>,
    samples: &mut Samples,
    add: fn(&MemberInfo, &[(&'static str, &str)], &mut Samples),
) {
    for member in snapshot.map(living).unwrap_or_default() {
        let (slot, pid) = (member.member.to_string(), member.pid.to_string());
        let command = shortened(&member.command, COMMAND);
        let labels = [
            ("member", slot.as_str()),
            ("pid", &pid),
            ("command", &command),
        ];
        add(member, &labels, samples);
    }
}

/// Those whose lock is held: an orphan's command too.
fn living(snapshot: &Snapshot) -> Vec<&MemberInfo> {
    let members = snapshot.members.iter();
    let mut living: Vec<&MemberInfo> = members
        .filter(|member| member.state != MemberState::Dead)
        .collect();
    living.sort_by_key(|member| member.held == 0 && member.waiting.is_empty());
    living.truncate(MOST);
    living.sort_by_key(|member| member.member);
    living
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::table::samples::busy;

    #[test]
    fn the_dead_are_left_out_and_the_busy_come_first() {
        let mut snapshot = busy();
        let idle = snapshot.members[0].clone();
        snapshot.members.clear();
        for slot in 0..1_000 {
            let mut member = idle.clone();
            (member.member, member.held) = (slot, u32::from(slot % 5 == 4));
            if slot % 10 == 9 {
                member.state = MemberState::Dead;
            }
            snapshot.members.push(member);
        }
        let shown: Vec<u32> = living(&snapshot)
            .iter()
            .map(|member| member.member)
            .collect();
        assert_eq!(shown.len(), MOST);
        assert!(shown.is_sorted() && shown.iter().all(|slot| slot % 10 != 9));
        let busy = (0..1_000).filter(|slot| slot % 10 == 4);
        assert!(busy.into_iter().all(|slot| shown.contains(&slot)));
    }
}
