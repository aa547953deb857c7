//! Reading the command line, and what a mistake in it becomes.

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use super::{Cli, Run, Verb};
use crate::exit::{Code, Failure};
use crate::output;

// `run` alone: a quarter of the definitions to set up, on the way of every command.
#[derive(Debug, Parser)]
#[command(
    name = "run",
    bin_name = "shmsched run",
    about = "Run a command when the segment lets it: a slot, a start, tokens"
)]
struct RunOnly {
    #[command(flatten)]
    run: Run,
}

/// Reads the arguments. Help and version go to stdout, at once; a mistake becomes one line and code 64.
pub fn parse() -> Result<Cli, Failure> {
    let parsed = match std::env::args_os().nth(1) {
        Some(verb) if verb == "run" => {
            RunOnly::try_parse_from(std::env::args_os().skip(1)).map(|only| Cli {
                verb: Verb::Run(only.run),
            })
        }
        _ => Cli::try_parse(),
    };
    parsed.map_err(|error| match error.kind() {
        // clap colours it only on a terminal and without NO_COLOR.
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            match output::written(error.print()) {
                Ok(_) => Failure::done(),
                Err(failure) => failure,
            }
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Failure::new(Code::Usage, "no command; see 'shmsched --help'")
        }
        kind => {
            let verb = std::env::args_os()
                .nth(1)
                .and_then(|verb| verb.into_string().ok());
            let verb = verb.filter(|verb| Cli::command().find_subcommand(verb).is_some());
            Failure::new(
                Code::Usage,
                one_line(kind, &error.render().to_string(), verb.as_deref()),
            )
        }
    })
}

/// clap's message without its usage block, in one line, and what to do.
fn one_line(kind: ErrorKind, message: &str, verb: Option<&str>) -> String {
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let end = ["\n\nUsage:", "\n\nFor more information"]
        .iter()
        .filter_map(|block| message.find(block))
        .min();
    let message = message[..end.unwrap_or(message.len())].replace("\n\n  tip:", ";");
    let words: Vec<&str> = message.split_whitespace().collect();
    let hint = match (verb, kind) {
        (Some("run"), ErrorKind::UnknownArgument) if !message.contains(';') => {
            "; write -- before the command"
        }
        _ => "",
    };
    let verb = verb.map_or(String::new(), |verb| format!("{verb} "));
    format!("{}{hint}; see 'shmsched {verb}--help'", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::super::tests::run;
    use super::*;
    use shmsched::Priority;

    #[test]
    fn run_is_the_same_alone() {
        let whole = Cli::command();
        let names = |command: &clap::Command| {
            command
                .get_arguments()
                .map(|argument| argument.get_id().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names(whole.find_subcommand("run").unwrap()),
            names(&RunOnly::command())
        );
        assert_eq!(
            RunOnly::command().get_after_help().unwrap().to_string(),
            whole
                .find_subcommand("run")
                .unwrap()
                .get_after_help()
                .unwrap()
                .to_string()
        );
        let about = |command: &clap::Command| command.get_about().unwrap().to_string();
        assert_eq!(
            about(&RunOnly::command()),
            about(whole.find_subcommand("run").unwrap())
        );
        let alone = RunOnly::try_parse_from(["run", "S", "-p", "-3", "--", "-x"])
            .unwrap()
            .run;
        assert_eq!(
            (alone.priority, alone.command),
            (Priority::Lowest, vec!["-x".into()])
        );
    }

    #[test]
    fn mistakes_are_one_line() {
        for wrong in [
            &["S", "--timeout", "5", "--", "x"][..],
            &["S", "--no-wait", "--timeout", "1s", "--", "x"],
            &["S", "--tokens", "-1", "--", "x"],
            &["S", "--tokens", "2147483648", "--", "x"],
            &["S", "--rate", "0", "--", "x"],
            &["S", "--interval", "-1ms", "--", "x"],
            &["S", "x"],
            &["--frob"],
        ] {
            let error = run(wrong).unwrap_err();
            let message = one_line(error.kind(), &error.render().to_string(), Some("run"));
            assert!(
                !message.contains('\n') && !message.starts_with("error"),
                "{message}"
            );
        }
    }
}
