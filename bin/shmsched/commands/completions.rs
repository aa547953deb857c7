//! `completions`: print the completions of a shell. What clap generates knows the command line; which segments exist,
//! bash, zsh and fish ask `list --names` at each completion.

use clap::{Arg, ArgAction, CommandFactory};
use clap_complete::Shell;

use crate::cli::{Cli, Completions};
use crate::exit::Outcome;
use crate::output;

/// Words in capitals stand for the lists of [`filled`].
const BASH: &str = include_str!("completions/segments.bash");
const FISH: &str = include_str!("completions/segments.fish");
const ZSH: &str = include_str!("completions/segments.zsh");

pub fn completions(arguments: &Completions) -> Outcome {
    output::print(&script(arguments.shell))?;
    Ok(0)
}

fn script(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "shmsched", &mut text);
    let text = String::from_utf8_lossy(&text);
    match shell {
        Shell::Bash => format!("{text}\n{}", filled(BASH)),
        Shell::Fish => format!("{text}\n{}", filled(FISH)),
        Shell::Zsh => with_segments_of_zsh(&text),
        _ => text.into_owned(),
    }
}

/// With the commands that take one segment, those that take several, and the options whose value is a word of its own.
fn filled(script: &str) -> String {
    let mut cli = Cli::command();
    cli.build();
    let [mut one, mut many, mut valued] = [const { Vec::new() }; 3];
    for verb in cli.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        if let Some(segment) = verb.get_positionals().find(|arg| is_segment(arg)) {
            let list = match segment.get_action() {
                ArgAction::Append => &mut many,
                _ => &mut one,
            };
            list.push(verb.get_name().to_owned());
        }
        valued.extend(verb.get_opts().flat_map(forms));
    }
    valued.sort();
    valued.dedup();
    script
        .replace("ONE_SEGMENT", &one.join(" "))
        .replace("MANY_SEGMENTS", &many.join(" "))
        .replace("WITH_VALUE", &valued.join(" "))
}

fn is_segment(argument: &Arg) -> bool {
    argument
        .get_value_names()
        .is_some_and(|names| names.iter().any(|name| name == "SEGMENT"))
}

fn forms(option: &Arg) -> impl Iterator<Item = String> {
    let short = option.get_short().map(|letter| format!("-{letter}"));
    let long = option.get_long().map(|name| format!("--{name}"));
    short.into_iter().chain(long)
}

/// Where the completion of zsh begins.
const BEGIN_OF_ZSH: &str = "_shmsched() {";

/// There the generated text says for each argument what completes it. `#compdef` must stay the first line.
fn with_segments_of_zsh(text: &str) -> String {
    let (first, rest) = text.split_once('\n').expect("it has lines");
    let lines = rest.lines().map(|line| {
        match line
            .trim_start_matches(['\'', '*', ':'])
            .starts_with("segment")
        {
            true => line.replace(":_default'", ":_shmsched_segments'"),
            false if line == BEGIN_OF_ZSH => {
                format!("{line}\n    _shmsched_at_command && {{ _shmsched_command; return }}\n")
            }
            false => line.to_owned(),
        }
    });
    format!("{first}\n\n{ZSH}{}\n", lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;

    /// The shells judge by an option's name, whatever the command.
    #[test]
    fn no_option_has_a_value_in_one_command_only() {
        let mut cli = Cli::command();
        cli.build();
        let of_all = |valued: bool| -> Vec<String> {
            let arguments = cli.get_subcommands().flat_map(Command::get_arguments);
            let named = arguments.filter(|arg| !arg.is_positional());
            let those = named.filter(|arg| arg.get_action().takes_values() == valued);
            those.flat_map(forms).collect()
        };
        let flags = of_all(false);
        let both: Vec<_> = of_all(true)
            .into_iter()
            .filter(|name| flags.contains(name))
            .collect();
        assert!(both.is_empty(), "{both:?}");
    }

    #[test]
    fn every_segment_is_completed_in_zsh() {
        let segments = Cli::command()
            .get_subcommands()
            .filter(|verb| verb.get_positionals().any(is_segment))
            .count();
        let text = script(Shell::Zsh);
        assert_eq!(text.matches(":_shmsched_segments'").count(), segments);
        assert_eq!(text.matches("_shmsched_at_command &&").count(), 1);
    }
}
