//! Pressure as the kernel writes it in /proc/pressure.

use shmsched::{Pressure, Snapshot, Stalled};

/// Two lines for each gate of the segment; if it has several, each begins with the name of its gate.
pub fn text(snapshot: &Snapshot) -> String {
    let gates = gates(snapshot);
    let named = gates.len() > 1;
    let lines = gates.into_iter().flat_map(|(gate, pressure)| {
        let name = if named {
            format!("{gate} ")
        } else {
            String::new()
        };
        [("some", pressure.some), ("full", pressure.full)]
            .map(|(signal, stalled)| format!("{name}{signal} {}\n", line(stalled)))
    });
    lines.collect()
}

/// The gates that the segment has.
pub fn gates(snapshot: &Snapshot) -> Vec<(&'static str, Pressure)> {
    let scheduler = snapshot.scheduler.as_ref().map(|gate| gate.pressure);
    let limiter = snapshot.limiter.as_ref().map(|gate| gate.pressure);
    let pacer = snapshot.pacer.as_ref().map(|gate| gate.pressure);
    let all = [
        ("scheduler", scheduler),
        ("limiter", limiter),
        ("pacer", pacer),
    ];
    all.into_iter()
        .filter_map(|(name, pressure)| Some((name, pressure?)))
        .collect()
}

fn line(stalled: Stalled) -> String {
    let [avg10, avg60, avg300] = stalled
        .averages
        .map(|share| format!("{}.{:02}", share / 100, share % 100));
    let total = stalled.total_us;
    format!("avg10={avg10} avg60={avg60} avg300={avg300} total={total}")
}

#[cfg(test)]
pub mod samples {
    use super::*;

    /// Two gates; nobody waits at the second.
    pub fn stalled() -> Snapshot {
        let mut snapshot = crate::output::table::samples::paced();
        let limiter = snapshot.limiter.as_mut().expect("it has one");
        limiter.pressure = Pressure {
            some: Stalled {
                averages: [4_050, 7, 0],
                total_us: (1 << 53) + 1,
            },
            full: Stalled {
                averages: [10_000, 1_234, 100],
                total_us: 5,
            },
        };
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_as_the_kernels() {
        let mut snapshot = samples::stalled();
        let expected = "\
limiter some avg10=40.50 avg60=0.07 avg300=0.00 total=9007199254740993
limiter full avg10=100.00 avg60=12.34 avg300=1.00 total=5
pacer some avg10=0.00 avg60=0.00 avg300=0.00 total=0
pacer full avg10=0.00 avg60=0.00 avg300=0.00 total=0
";
        assert_eq!(text(&snapshot), expected);
        snapshot.pacer = None;
        let alone = expected
            .lines()
            .take(2)
            .map(|line| &line["limiter ".len()..]);
        let alone: Vec<&str> = alone.collect();
        assert_eq!(text(&snapshot).lines().collect::<Vec<_>>(), alone);
    }
}
