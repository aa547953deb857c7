//! One module per verb.

mod completions;
mod create;
mod demo;
mod doctor;
mod evict;
mod inspect;
mod list;
mod man;
mod metrics;
mod pipe;
mod pressure;
mod rm;
mod run;
mod set;
mod several;
mod top;
mod wait;

use shmsched::{Deadline, Location, Observer, OpenError, OpenOptions, Segment, Snapshot};

use crate::cli::{Cli, Verb};
use crate::exit::{self, Failure, Outcome};

/// Does what the arguments say.
pub fn dispatch(cli: Cli) -> Outcome {
    match cli.verb {
        Verb::Create(arguments) => create::create(&arguments),
        Verb::List(arguments) => list::list(&arguments),
        Verb::Inspect(arguments) => inspect::inspect(&arguments),
        Verb::Top(arguments) => top::top(&arguments),
        Verb::Set(arguments) => set::set(&arguments),
        Verb::Run(arguments) => run::run(&arguments),
        Verb::Wait(arguments) => wait::wait(&arguments),
        Verb::Pipe(arguments) => pipe::pipe(&arguments),
        Verb::Pressure(arguments) => pressure::pressure(&arguments),
        Verb::Metrics(arguments) => metrics::metrics(&arguments),
        Verb::Doctor(arguments) => doctor::doctor(&arguments),
        Verb::Evict(arguments) => evict::evict(&arguments),
        Verb::Rm(arguments) => rm::rm(&arguments),
        Verb::Demo => demo::demo(),
        Verb::Completions(arguments) => completions::completions(&arguments),
        Verb::Man(arguments) => man::man(&arguments),
        Verb::DemoWorker(segment) => demo::worker(&segment),
    }
}

/// How every verb opens a segment: a file that somebody cuts short is an error, never a death by SIGBUS.
fn options(trust_foreign: bool, command: impl Into<String>) -> OpenOptions {
    OpenOptions::new()
        .command(command)
        .trust_foreign(trust_foreign)
        .survive_truncation(true)
}

/// Attaches to a segment under the name of a verb; with every member slot taken by a living one, waits for a free one.
fn attach(
    location: &Location,
    trust_foreign: bool,
    verb: &str,
    deadline: Deadline,
) -> Result<Segment, Failure> {
    let options = options(trust_foreign, format!("shmsched {verb}")).wait_for_room(deadline);
    Segment::open_with(location, &options).map_err(|error| exit::opening(error, location))
}

/// Opens a segment read-only.
fn observe(location: &Location, trust_foreign: bool) -> Result<Observer, Failure> {
    observer(location, trust_foreign).map_err(|error| exit::opening(error, location))
}

fn observer(location: &Location, trust_foreign: bool) -> Result<Observer, OpenError> {
    Observer::open_with(location, &options(trust_foreign, ""))
}

/// A look at it.
fn snapshot(observer: &mut Observer, location: &Location) -> Result<Snapshot, Failure> {
    observer
        .snapshot()
        .map_err(|error| exit::opening(error, location))
}
