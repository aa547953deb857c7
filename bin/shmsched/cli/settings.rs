//! What a segment is made with, and what can be set later.

use std::time::Duration;

use clap::Args;
use shmsched::{Changes, Concurrency, Settings};

use crate::exit::{Code, Failure};
use crate::units::{self, Limit, Target};

/// The gates: what `create`, `run` and `set` have in common.
#[derive(Debug, Args)]
pub struct GateArgs {
    /// How many at once: a number, a share of the CPUs such as 50%, or unlimited
    #[arg(long, value_name = "N|N%|unlimited", value_parser = units::parse_limit, allow_hyphen_values = true)]
    concurrency: Option<Limit>,
    /// A priority waits once so many slots are taken in all; may be repeated
    #[arg(long, value_name = "PRIORITY=N", value_parser = units::parse_target, allow_hyphen_values = true)]
    target: Vec<Target>,
    /// Tokens per second: a whole number such as 500/s, or a size such as 1.5MB/s or 64KiB/s
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate, allow_hyphen_values = true)]
    rate: Option<u32>,
    /// The least time between two starts, such as 100ms, 0.5ms or 2s
    #[arg(long, value_name = "DURATION", value_parser = units::parse_interval, allow_hyphen_values = true)]
    interval: Option<Duration>,
}

impl GateArgs {
    /// What `set` is to change.
    pub fn changes(&self) -> Changes {
        let mut changes = Changes::new();
        if let Some(limit) = self.concurrency {
            changes = changes.concurrency(limit.0);
        }
        for target in &self.target {
            changes = changes.target(target.priority, target.slots);
        }
        if let Some(rate) = self.rate {
            changes = changes.rate(rate);
        }
        if let Some(interval) = self.interval {
            changes = changes.interval(interval);
        }
        changes
    }

    fn is_empty(&self) -> bool {
        self.changes().is_empty()
    }
}

/// What a segment is made with.
#[derive(Debug, Args)]
pub struct SettingsArgs {
    #[command(flatten)]
    gates: GateArgs,
    /// How many may wait for their start; who comes then ends with 71 [default: 1024]
    #[arg(long, value_name = "N", value_parser = units::parse_waiting, allow_hyphen_values = true)]
    max_waiting: Option<u32>,
    /// How many processes may use the segment at the same time [default: 1024]
    #[arg(long, value_name = "N", value_parser = units::parse_amount, allow_hyphen_values = true)]
    members: Option<u32>,
    /// Permission bits of the file, in octal [default: 600]
    #[arg(long, value_name = "OCTAL", value_parser = units::parse_mode, allow_hyphen_values = true)]
    mode: Option<u32>,
}

impl SettingsArgs {
    /// The settings, checked; `None` if none are given.
    pub fn settings(&self) -> Result<Option<Settings>, Failure> {
        if let Some(what) = self.missing() {
            return Err(Failure::new(Code::Usage, what));
        }
        let gates = &self.gates;
        if gates.is_empty() {
            return Ok(None);
        }
        let mut settings = Settings::new();
        if let Some(limit) = gates.concurrency {
            let concurrency = Concurrency {
                max: limit.0,
                ..Concurrency::unlimited()
            };
            let concurrency = gates.target.iter().fold(concurrency, |sum, target| {
                sum.target(target.priority, target.slots)
            });
            settings = settings.concurrency(concurrency);
        }
        settings.rate = gates.rate;
        settings.interval = gates.interval;
        if let Some(callers) = self.max_waiting {
            settings = settings.max_waiting(callers);
        }
        if let Some(members) = self.members {
            settings = settings.members(members);
        }
        if let Some(mode) = self.mode {
            settings = settings.mode(mode);
        }
        settings
            .validate()
            .map_err(|error| Failure::new(Code::Usage, error))?;
        Ok(Some(settings))
    }

    /// What is given without what it is for.
    fn missing(&self) -> Option<&'static str> {
        let gates = &self.gates;
        if !gates.target.is_empty() && gates.concurrency.is_none() {
            Some("--target needs --concurrency")
        } else if self.max_waiting.is_some() && gates.interval.is_none() {
            Some("--max-waiting needs --interval")
        } else if gates.is_empty() && (self.members.is_some() || self.mode.is_some()) {
            Some("--members and --mode need one of --concurrency, --rate, --interval")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use shmsched::Priority;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        settings: SettingsArgs,
    }

    fn settings(line: &str) -> Result<Option<Settings>, Failure> {
        let words = std::iter::once("x").chain(line.split_whitespace());
        Only::try_parse_from(words)
            .unwrap_or_else(|error| panic!("{line}: {error}"))
            .settings
            .settings()
    }

    #[test]
    fn none_are_none() {
        assert_eq!(settings("").unwrap(), None);
    }

    #[test]
    fn any_gates_together() {
        let slots = Concurrency::max(3).target(Priority::Low, 2);
        let ms = Duration::from_millis;
        let good = [
            (
                "--concurrency 3 --target -1=2 --mode 660",
                Settings::new().concurrency(slots).mode(0o660),
            ),
            ("--rate 1.5MB/s", Settings::new().rate(1_500_000)),
            (
                "--interval 200ms --max-waiting 0 --members 7",
                Settings::new().interval(ms(200)).max_waiting(0).members(7),
            ),
            (
                "--max-waiting 65536 --interval 1ms --rate 2147483647 --concurrency 0",
                Settings::new()
                    .concurrency(0)
                    .rate(2_147_483_647)
                    .interval(ms(1))
                    .max_waiting(65_536),
            ),
        ];
        for (line, expected) in good {
            assert_eq!(settings(line).unwrap(), Some(expected), "{line}");
        }
    }

    #[test]
    fn what_belongs_to_a_gate_needs_it() {
        for (line, needs) in [
            ("--target low=1", "--concurrency"),
            ("--target low=1 --rate 5", "--concurrency"),
            ("--max-waiting 5", "--interval"),
            ("--max-waiting 5 --concurrency 1 --rate 5", "--interval"),
            ("--members 3", "--concurrency, --rate, --interval"),
            ("--mode 600", "--concurrency, --rate, --interval"),
            ("--concurrency 1 --members 16385", "16384"),
        ] {
            let failure = settings(line).unwrap_err();
            assert_eq!(failure.code, 64, "{line}");
            assert!(format!("{failure:?}").contains(needs), "{failure:?}");
        }
    }

    #[test]
    fn absurd_values_are_refused() {
        // case 17
        let all = [
            (
                "--rate",
                &[
                    "0",
                    "-5",
                    "1.5",
                    "nan",
                    "inf",
                    "2147483648",
                    "",
                    "0MB/s",
                    "5x",
                ][..],
            ),
            ("--interval", &["0", "0s", "-1ms", "nan", "inf", "5", ""]),
            ("--max-waiting", &["-1", "1.5", "nan", "65537", ""]),
        ];
        for (flag, values) in all {
            for value in values {
                let words = ["x", "--interval", "1s", flag, value];
                assert!(Only::try_parse_from(words).is_err(), "{flag} {value:?}");
                assert!(
                    Only::try_parse_from(["x", flag, value]).is_err(),
                    "{flag} {value:?}"
                );
            }
        }
    }

    #[test]
    fn changes_are_what_was_given() {
        let words = "x --target high=4 --rate 500/s --interval 0.5ms".split(' ');
        let gates = Only::try_parse_from(words).unwrap().settings.gates;
        let expected = Changes::new()
            .target(Priority::High, 4)
            .rate(500)
            .interval(Duration::from_micros(500));
        assert_eq!(gates.changes(), expected);
        let nothing = Only::try_parse_from(["x"]).unwrap().settings.gates;
        assert!(nothing.changes().is_empty());
    }
}
