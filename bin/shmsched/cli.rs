//! The command line as clap sees it: definitions and help, nothing done.

mod reading;
mod settings;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use shmsched::{Location, Priority, parse_priority};

pub use self::reading::parse;
use self::settings::{GateArgs, SettingsArgs};
use crate::exit::{self, Failure};
use crate::units;

/// Share a budget between the processes of one machine.
///
/// A segment is a small file in shared memory that says how many may run at once, how much a second they may use, how far
/// apart they start. Every process that names it obeys it, the most urgent first, and what a killed process held comes
/// back by itself.
#[derive(Debug, Parser)]
#[command(name = "shmsched", version, after_help = overview())]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Make a segment
    Create(Create),
    /// Show all segments of the directory
    List(List),
    /// Show a segment: its settings, counters, who holds and who waits
    Inspect(Inspect),
    /// Watch segments: gates, rates, pressure, who holds and who waits
    Top(Top),
    /// Change the settings of a segment in use
    Set(Set),
    /// Run a command when the segment lets it: a slot, a start, tokens
    Run(Run),
    /// Wait until nothing is held and nobody waits
    Wait(Wait),
    /// Copy standard input to standard output, one token a byte
    Pipe(Pipe),
    /// Show for how long anybody has waited, as the kernel's pressure files do
    Pressure(Pressure),
    /// Print metrics for Prometheus, or serve them
    Metrics(Metrics),
    /// Look for what is wrong with a segment
    Doctor(Doctor),
    /// Free the slots of an orphan: its run was killed, its command still runs
    Evict(Evict),
    /// Remove a segment
    Rm(Rm),
    /// Watch six processes share two slots for a few seconds, while one is killed
    #[command(after_help = "Examples:\n  shmsched demo")]
    Demo,
    /// Print the completions of a shell
    Completions(Completions),
    /// Print the manual page, or write one for each command
    Man(Manual),
    /// One worker of the demo
    #[command(hide = true)]
    DemoWorker(SegmentArg),
}

/// Which segment.
#[derive(Debug, Args)]
pub struct SegmentArg {
    /// A name, a path (with a slash), or shm:NAME [default: $SHMSCHED_SEGMENT, else "default"]
    #[arg(value_name = "SEGMENT")]
    segment: Option<OsString>,
}

impl SegmentArg {
    pub fn locate(&self) -> Result<Location, Failure> {
        Location::resolve(self.segment.as_deref()).map_err(|error| exit::locating(&error))
    }
}

/// Which segment, and whether to trust its owner.
#[derive(Debug, Args)]
pub struct Existing {
    #[command(flatten)]
    segment: SegmentArg,
    /// Use a segment of another user in a directory that anybody can write to
    #[arg(long)]
    pub trust_foreign: bool,
}

impl Existing {
    pub fn locate(&self) -> Result<Location, Failure> {
        self.segment.locate()
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shmsched create --concurrency 8                      make \"default\" with 8 slots
  shmsched create thumbs --concurrency 50% --target low=1
  shmsched create uplink --rate 10MB/s                  so many bytes a second
  shmsched create api --interval 200ms --max-waiting 8  starts so far apart; 8 may wait
  shmsched create /srv/app/db.seg --concurrency 20 --rate 500/s --mode 660
  shmsched create thumbs --concurrency 4 --if-missing   no error if it is there")]
pub struct Create {
    #[command(flatten)]
    pub segment: SegmentArg,
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Succeed if the segment exists, and leave it as it is
    #[arg(long)]
    pub if_missing: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Segments elsewhere, by path or shm:NAME, are not listed. PRESSURE is `some` avg10 of the gate where \
that is highest; see 'shmsched pressure --help'. On a terminal, long names are shortened in their middle.

Examples:
  shmsched list
  shmsched list --json | jq -r '.segments[].name'"
)]
pub struct List {
    /// Print one JSON document
    #[arg(long, conflicts_with = "names")]
    pub json: bool,
    /// Print the names alone, one a line, of all files that may be segments; none is opened
    #[arg(long)]
    pub names: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Opens the segment read-only and changes nothing in it.

Members: first who holds, the longest first, then who waits, as they stand in line, then the others. FOR is how long \
a slot has been held at most; <= stands before the age of a member that got its slot at once, as no clock is read then. \
p50 and p99 are estimates from a histogram, the longest is exact. avg10: see 'shmsched pressure --help'.
Backslashes in names and commands are doubled, and what would not show is written out: \\n, \\u{202e}, \\xff.

Examples:
  shmsched inspect thumbs
  shmsched inspect thumbs --watch           again every second
  shmsched inspect thumbs --watch 200ms --json
  shmsched inspect thumbs --json | jq .scheduler.running")]
pub struct Inspect {
    #[command(flatten)]
    pub existing: Existing,
    /// Print JSON; with --watch one document per line
    #[arg(long)]
    pub json: bool,
    /// Show it again and again, every second or as often as told
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "1s", value_parser = units::parse_pause)]
    pub watch: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "It opens the segments read-only, takes no member slot and changes nothing. It redraws ten times a second at most.
Without a terminal, or with TERM=dumb, it prints what inspect prints, once. NO_COLOR begins without colours.

Keys: q quit, arrows or j k move, tab the next segment, s sort, r reverse, / filter, p or space pause, c colours, ? help

Examples:
  shmsched top                  all segments of the directory, also those that come later
  shmsched top thumbs uplink    these two, until both are removed
  shmsched top thumbs | cat     one picture, as of inspect"
)]
pub struct Top {
    /// Names, paths (with a slash), or shm:NAME [default: all segments of the directory]
    #[arg(value_name = "SEGMENT")]
    pub segments: Vec<OsString>,
    /// Use segments of other users in directories that anybody can write to
    #[arg(long)]
    pub trust_foreign: bool,
    /// Test only: panic while the terminal is ours
    #[arg(long, hide = true)]
    pub panic: bool,
    /// Watch for so long without a terminal, then print the screen as SVG (scripts/picture)
    #[arg(long, hide = true, value_name = "DURATION", value_parser = units::parse_duration)]
    pub picture: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Takes effect at once, also for those who wait. Lowering the limit takes no slot from anybody. What the segment has no limit for yet gets one.

Examples:
  shmsched set thumbs --concurrency 2
  shmsched set thumbs --concurrency 0       pause: nothing new starts
  shmsched set thumbs --target lowest=1 --target low=2
  shmsched set uplink --rate 2MB/s
  shmsched set api --interval 0.5s"
)]
pub struct Set {
    #[command(flatten)]
    pub existing: Existing,
    #[command(flatten)]
    pub gates: GateArgs,
}

/// What `run` does inside a permit of the same segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Nested {
    /// End at once with 78
    Fail,
    /// Run under the outer permit
    Share,
    /// Take another slot: a deadlock if all holders do
    Wait,
}

#[derive(Debug, Args)]
#[command(
    after_help = "It waits for what the segment has of these, in this order: a slot, kept until the command ends; its turn to start; tokens.
If it gives up, it gives the slot back; a start that it had is spent.
The exit code is that of the command, or 128+n if signal n ended it. Signals that reach run are passed on to the command.
If run is killed with SIGKILL, the slot stays taken until the command ends.

Examples:
  shmsched run thumbs -- convert a.png b.jpg
  shmsched run thumbs -p high -- make
  shmsched run uplink --tokens 5000000 -- scp five-megabytes host:
  shmsched run api --timeout 10s -- curl https://example.org/
  shmsched run --concurrency 2 -- make      makes \"default\" if it is missing
  shmsched run thumbs --no-wait -E 0 -- rsync -a a/ b/
  shmsched run thumbs --timeout 30s -- ./nightly"
)]
pub struct Run {
    #[command(flatten)]
    pub existing: Existing,
    /// A name from lowest to highest, or -3 to 3
    #[arg(short, long, value_name = "PRIORITY", default_value = "normal", value_parser = PriorityNames, hide_possible_values = true, allow_hyphen_values = true)]
    pub priority: Priority,
    /// How many slots to take
    #[arg(long, value_name = "K", default_value = "1", value_parser = units::parse_amount, allow_hyphen_values = true)]
    pub slots: u32,
    /// How many tokens to take [default: 1 if the segment has nothing but a rate, else 0]
    #[arg(long, value_name = "N", value_parser = units::parse_count, allow_hyphen_values = true)]
    pub tokens: Option<u32>,
    /// End with 75 instead of waiting for anything
    #[arg(long, conflicts_with = "timeout")]
    pub no_wait: bool,
    /// Wait so long at most in all, then end with 124
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration, allow_hyphen_values = true)]
    pub timeout: Option<Duration>,
    /// The exit code in place of 75 and 124
    #[arg(short = 'E', long = "conflict-exit-code", value_name = "CODE")]
    pub conflict: Option<u8>,
    /// Inside a permit of the same segment
    #[arg(long, value_enum, default_value = "fail")]
    pub nested: Nested,
    /// Say after a second of waiting what it waits for; without it only on a terminal
    #[arg(short, long)]
    pub verbose: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
    #[command(flatten, next_help_heading = "Used only if the segment is missing")]
    pub settings: SettingsArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shmsched wait thumbs && shmsched rm thumbs
  shmsched wait thumbs --timeout 1m")]
pub struct Wait {
    #[command(flatten)]
    pub existing: Existing,
    /// Wait so long at most, then end with 124
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration, allow_hyphen_values = true)]
    pub timeout: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "All pipes of a segment share its rate. After a pause a pipe may send up to a second's worth at once. Bytes that were \
not sent cost no tokens. On a terminal it shows how much it has sent, how fast, and how long it waited for tokens.

Examples:
  shmsched create uplink --rate 10MB/s
  tar c dir | shmsched pipe uplink | ssh host tar x
  shmsched pipe uplink -p low < backup.img > /mnt/nas/backup.img"
)]
pub struct Pipe {
    #[command(flatten)]
    pub existing: Existing,
    /// A name from lowest to highest, or -3 to 3
    #[arg(short, long, value_name = "PRIORITY", default_value = "normal", value_parser = PriorityNames, hide_possible_values = true, allow_hyphen_values = true)]
    pub priority: Priority,
}

#[derive(Debug, Args)]
#[command(
    after_help = "some: somebody waited. full: the part of that in which nothing had been released or spent for 200 ms, \
so that the first 200 ms of a stall never count.
avg10, avg60 and avg300 are percent of the time: averages over 10, 60 and 300 seconds that decay exponentially, as the \
kernel's in /proc/pressure. After 10 s of waiting avg10 is 63, and 10 s later it is still 23. What is running is in them.
total is microseconds since the segment was made. While a stall runs, it lags behind by up to about a second.
If the segment has several gates, each line begins with the gate's name.

Examples:
  shmsched pressure thumbs
  shmsched pressure thumbs --above 40 || echo somebody waits most of the time
  shmsched pressure thumbs --json | jq .scheduler.some.avg10"
)]
pub struct Pressure {
    #[command(flatten)]
    pub existing: Existing,
    /// End with 1 if `some` avg10 of any gate is above so many percent
    #[arg(long, value_name = "PERCENT", value_parser = units::parse_percent, allow_hyphen_values = true)]
    pub above: Option<u16>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// The form of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TextFormat {
    /// OpenMetrics 1.0
    Openmetrics,
    /// Prometheus' older text, as node_exporter reads it
    Text,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Prints them once, or answers GET /metrics until a signal ends it, in the form that the client asks for. A segment \
that cannot be read has shmsched_up 0; without --listen its error also goes to stderr, and its exit code is that of the command.

Examples:
  shmsched metrics thumbs
  shmsched metrics thumbs uplink --listen 9300              on 127.0.0.1 only
  shmsched metrics thumbs --listen 0.0.0.0:9300             for everybody who reaches this machine

For the textfile collector of node_exporter, which must never see half a file:
  cd /var/lib/node_exporter &&
    shmsched metrics thumbs --format text > shmsched.new && mv shmsched.new shmsched.prom"
)]
pub struct Metrics {
    /// Names, paths (with a slash), or shm:NAME [default: $SHMSCHED_SEGMENT, else "default"]
    #[arg(value_name = "SEGMENT")]
    pub segments: Vec<OsString>,
    /// Serve them over HTTP: ADDRESS:PORT, or a port of the loopback address; port 0 is any free one
    #[arg(long, value_name = "ADDRESS", value_parser = units::parse_address)]
    pub listen: Option<String>,
    /// The form of what is printed
    #[arg(
        long,
        value_enum,
        default_value = "openmetrics",
        conflicts_with = "listen"
    )]
    pub format: TextFormat,
    /// Use segments of other users in directories that anybody can write to
    #[arg(long)]
    pub trust_foreign: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Without --repair it changes nothing. With it, slots of the dead are given back now; no process is ever signalled.

Examples:
  shmsched doctor thumbs || echo something is wrong
  shmsched doctor thumbs --repair
  shmsched doctor thumbs --json"
)]
pub struct Doctor {
    #[command(flatten)]
    pub existing: Existing,
    /// Give back what dead members left
    #[arg(long)]
    pub repair: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "An orphan's command goes on, so that more than the limit run until it ends. A living member is refused with 75.

Examples:
  shmsched doctor thumbs                     names the orphans
  shmsched evict thumbs 3"
)]
pub struct Evict {
    /// A name, a path (with a slash), or shm:NAME
    #[arg(value_name = "SEGMENT")]
    pub segment: OsString,
    /// The member's number, as inspect and doctor show it
    #[arg(value_name = "MEMBER", value_parser = units::parse_count, allow_hyphen_values = true)]
    pub member: u32,
    /// Use a segment of another user in a directory that anybody can write to
    #[arg(long)]
    pub trust_foreign: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Refused with 75 while anybody is attached. With --force those who are go on with what they hold, and fail at their next acquire.

Examples:
  shmsched rm thumbs
  shmsched rm --force thumbs"
)]
pub struct Rm {
    #[command(flatten)]
    pub segment: SegmentArg,
    /// Remove it although it is in use
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "In bash, zsh and fish a SEGMENT completes with the names of the directory.

Examples:
  shmsched completions bash > ~/.local/share/bash-completion/completions/shmsched
  shmsched completions zsh > ~/.local/share/zsh/site-functions/_shmsched     a directory of $fpath
  shmsched completions fish > ~/.config/fish/completions/shmsched.fish"
)]
pub struct Completions {
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shmsched man | man -l -
  shmsched man ~/.local/share/man/man1      shmsched.1, shmsched-run.1 and so on")]
pub struct Manual {
    /// Where to write the pages of all commands; without it that of shmsched is printed
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

fn overview() -> String {
    format!(
        "Examples:
  shmsched create thumbs --concurrency 4
  shmsched run thumbs -- convert a.png b.jpg
  shmsched create api --interval 200ms
  shmsched run api -- curl https://example.org/
  shmsched inspect thumbs
  shmsched demo

{}
Environment:
  SHMSCHED_SEGMENT  the segment if none is named
  SHMSCHED_DIR      where names are files [default: /dev/shm/shmsched-UID]
  NO_COLOR          no colours",
        exit::table_text()
    )
}

/// [`parse_priority`], with the names for who completes a command line.
#[derive(Clone)]
struct PriorityNames;

impl TypedValueParser for PriorityNames {
    type Value = Priority;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<Priority, clap::Error> {
        parse_priority.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = Priority::ALL.into_iter().rev().map(Priority::name);
        Some(Box::new(names.map(PossibleValue::new)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    pub fn run(arguments: &[&str]) -> Result<Run, clap::Error> {
        let cli = Cli::try_parse_from(["shmsched", "run"].iter().chain(arguments))?;
        match cli.verb {
            Verb::Run(run) => Ok(run),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definitions_are_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_has_examples() {
        for verb in Cli::command()
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set())
        {
            let after = verb
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(after.contains("Examples:"), "{}", verb.get_name());
        }
    }

    #[test]
    fn negative_priorities() {
        // case 57
        for form in [
            &["-p", "-3"][..],
            &["-p=-3"],
            &["-p-3"],
            &["--priority", "-3"],
            &["--priority=-3"],
            &["-p", "lowest"],
        ] {
            let arguments = [&["S"], form, &["--", "true"]].concat();
            assert_eq!(
                run(&arguments).unwrap().priority,
                Priority::Lowest,
                "{form:?}"
            );
        }
        for form in ["4", "urgent", "-4"] {
            assert!(run(&["S", "-p", form, "--", "true"]).is_err());
        }
    }

    #[test]
    fn the_command_is_left_alone() {
        // case 36
        for command in [
            &["-x"][..],
            &["cmd", "--help"],
            &["cmd", "--", "y"],
            &["--"],
            &["-p", "9"],
        ] {
            let arguments = [&["S", "--"], command].concat();
            assert_eq!(run(&arguments).unwrap().command, command);
        }
        let without = run(&["--", "true"]).unwrap();
        assert_eq!(without.command, ["true"]);
        for wrong in [&["S"][..], &["S", "--"], &["S", "true"], &["--"], &[]] {
            assert!(run(wrong).is_err(), "{wrong:?}");
        }
    }
}
