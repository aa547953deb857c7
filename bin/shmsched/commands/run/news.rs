//! What a run that waits tells its user: for what, behind whom, and who has it.

use shmsched::{Gate, MemberInfo, MemberState, Snapshot};

use crate::output::{counted, json, limit, shortened, span, time};

/// How many holders it names.
const NAMED: usize = 3;

/// The longest command it quotes.
const COMMAND: usize = 40;

/// What a member that waits sees of its segment.
pub struct Sight {
    /// Its own member slot.
    pub own: u32,
    pub snapshot: Snapshot,
    /// The processes that keep an orphan's permit.
    pub keepers: Keepers,
}

type Keepers = Box<dyn Fn(u32) -> Vec<(u32, String)>>;

impl Sight {
    /// How many stand in line at a gate.
    fn waiting(&self, gate: Gate) -> usize {
        let places = self
            .snapshot
            .members
            .iter()
            .flat_map(|member| &member.waiting);
        places.filter(|place| place.gate == gate).count()
    }

    /// `, place 2 of 3`
    fn place(&self, gate: Gate) -> String {
        let own = self
            .snapshot
            .members
            .iter()
            .find(|member| member.member == self.own);
        let mut places = own.into_iter().flat_map(|member| &member.waiting);
        places
            .find(|place| place.gate == gate)
            .map_or(String::new(), |place| {
                format!(", place {} of {}", place.position, self.waiting(gate))
            })
    }
}

/// `2 slots, 3 of 4 taken; held by pid 7 'make' for 12s`
pub fn slots(sight: &Sight, wanted: u32) -> Option<String> {
    let scheduler = sight.snapshot.scheduler.as_ref()?;
    let others = match sight.waiting(Gate::Scheduler).saturating_sub(1) {
        0 => String::new(),
        1 => ", 1 other waits too".into(),
        others => format!(", {others} others wait too"),
    };
    let members = sight.snapshot.members.iter();
    let holders: Vec<&MemberInfo> = members
        .filter(|member| member.held > 0 && member.member != sight.own)
        .collect();
    Some(format!(
        "{}, {} of {} taken{others}{}",
        counted(wanted.into(), "slot"),
        scheduler.running,
        limit(scheduler.concurrency),
        held_by(&holders, &sight.keepers)
    ))
}

/// `its turn to start, one every 200ms, place 2 of 3`
pub fn start(sight: &Sight) -> Option<String> {
    let pacer = sight.snapshot.pacer.as_ref()?;
    Some(format!(
        "its turn to start, one every {}{}",
        span(pacer.interval),
        sight.place(Gate::Pacer)
    ))
}

/// `500 tokens, balance -20 at 100/s, place 1 of 1`
pub fn tokens(sight: &Sight, wanted: u32) -> Option<String> {
    let limiter = sight.snapshot.limiter.as_ref()?;
    Some(format!(
        "{}, balance {} at {}/s{}",
        counted(wanted.into(), "token"),
        limiter.tokens,
        limiter.tokens_per_second,
        sight.place(Gate::Limiter)
    ))
}

/// `; held by pid 7 'make' for 12s, ...`. `keepers` are the processes that keep an orphan's permit.
fn held_by(holders: &[&MemberInfo], keepers: &dyn Fn(u32) -> Vec<(u32, String)>) -> String {
    if holders.is_empty() {
        return String::new();
    }
    let mut named: Vec<String> = holders
        .iter()
        .take(NAMED)
        .map(|holder| describe(holder, keepers))
        .collect();
    if holders.len() > NAMED {
        named.push(format!("{} more", holders.len() - NAMED));
    }
    format!("; held by {}", named.join(", "))
}

/// One holder: who, how many, since when, and what is odd about it.
fn describe(holder: &MemberInfo, keepers: &dyn Fn(u32) -> Vec<(u32, String)>) -> String {
    let (mut pid, mut command) = (holder.pid, holder.command.clone());
    let slots = if holder.held == 1 {
        String::new()
    } else {
        format!(" {} slots", holder.held)
    };
    // Who got its slot at once has read no clock.
    let age = match holder.held_ms {
        Some(ms) => time(ms),
        None => format!("at most {}", time(holder.age_ms)),
    };
    let mut odd = Vec::new();
    match holder.state {
        MemberState::Alive => {}
        MemberState::Orphaned => {
            if let Some(keeper) = keepers(holder.member).into_iter().next() {
                (pid, command) = keeper;
            }
            odd.push("its run was killed, the command lives");
        }
        MemberState::Exiting => odd.push("exiting or dumping core"),
        state => odd.push(json::state(state)),
    }
    if !holder.same_namespace {
        odd.push("other pid namespace");
    }
    let odd = if odd.is_empty() {
        String::new()
    } else {
        format!(" ({})", odd.join(", "))
    };
    format!(
        "pid {pid} '{}'{slots} for {age}{odd}",
        shortened(&command, COMMAND)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::table::samples;

    #[test]
    fn holders_are_named() {
        // case 51
        let mut members = samples::busy().members;
        members[1].held = 1;
        members[1].command = "x".repeat(50);
        let holders: Vec<&MemberInfo> = members.iter().collect();
        let expected = format!(
            "; held by pid 101 'sleep 60' 2 slots for 1m00s, pid 102 '{}...' for at most 2.0s (stopped, other pid namespace)",
            "x".repeat(37)
        );
        let none = |_| Vec::new();
        assert_eq!(held_by(&holders, &none), expected);
        let many = [holders[0]; 5];
        assert!(held_by(&many, &none).ends_with(", 2 more"));
        assert_eq!(held_by(&[], &none), "");

        members[0].state = MemberState::Orphaned;
        let text = held_by(&[&members[0]], &|member| vec![(member + 7, "sh".into())]);
        assert_eq!(
            text,
            "; held by pid 7 'sh' 2 slots for 1m00s (its run was killed, the command lives)"
        );
    }

    fn sight(snapshot: Snapshot) -> Sight {
        Sight {
            own: 1,
            snapshot,
            keepers: Box::new(|_| Vec::new()),
        }
    }

    #[test]
    fn what_it_waits_for() {
        let busy = sight(samples::busy());
        let holder = "; held by pid 101 'sleep 60' 2 slots for 1m00s";
        assert_eq!(
            slots(&busy, 1).unwrap(),
            format!("1 slot, 2 of 2 taken{holder}")
        );
        assert_eq!(
            (start(&busy), tokens(&busy, 1)),
            (None, None),
            "no such gates"
        );

        let paced = sight(samples::paced());
        assert_eq!(slots(&paced, 1), None);
        assert_eq!(
            start(&paced).unwrap(),
            "its turn to start, one every 500us, place 1 of 1"
        );
        let tokens_of_another = tokens(&paced, 500).unwrap();
        assert_eq!(
            tokens_of_another, "500 tokens, balance -20 at 1500000/s",
            "it does not stand there"
        );
        let paced = Sight { own: 0, ..paced };
        assert_eq!(
            tokens(&paced, 1).unwrap(),
            "1 token, balance -20 at 1500000/s, place 1 of 1"
        );
    }

    #[test]
    fn others_in_the_same_line_are_counted() {
        let mut snapshot = samples::busy();
        let mut third = snapshot.members[1].clone();
        third.member = 2;
        snapshot.members.push(third.clone());
        let news = |snapshot: &Snapshot| slots(&sight(snapshot.clone()), 1).unwrap();
        assert!(news(&snapshot).contains(", 1 other waits too;"));
        snapshot.members.push(third.clone());
        assert!(news(&snapshot).contains(", 2 others wait too;"));
        third.waiting[0].gate = Gate::Limiter;
        snapshot.members[2..].fill(third);
        assert!(!news(&snapshot).contains("other"));
    }
}
