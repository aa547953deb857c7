//! `man`: the manual pages, one for the program and one for each command.
//!
//! They are made from the definitions of the command line, so that they cannot tell another story than `--help`. What
//! `--help` prints below the options becomes sections of their own here, as readers of manuals look for them.

use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::cli::{Cli, Manual};
use crate::exit::{Code, Failure, Outcome, TABLE, own_codes};
use crate::output;

pub fn man(arguments: &Manual) -> Outcome {
    let pages = pages();
    let Some(directory) = &arguments.directory else {
        output::print(&pages[0].1)?;
        return Ok(0);
    };
    fs::create_dir_all(directory).map_err(|error| refused(directory, &error))?;
    for (name, text) in &pages {
        let path = directory.join(name);
        fs::write(&path, text).map_err(|error| refused(&path, &error))?;
    }
    Ok(0)
}

fn refused(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        Code::Io,
        format_args!("{}: {error}; name another directory", path.display()),
    )
}

/// File name and text of every page, that of the program first.
fn pages() -> Vec<(String, String)> {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let commands: Vec<Command> = shown(&program).cloned().collect();
    let names: Vec<String> = std::iter::once(&program)
        .chain(&commands)
        .map(title)
        .collect();
    std::iter::once(program)
        .chain(commands)
        .map(|command| {
            let title = title(&command);
            let others = names.iter().filter(|name| **name != title);
            let text = page(command, others.map(String::as_str));
            (format!("{title}.1"), text)
        })
        .collect()
}

fn shown(program: &Command) -> impl Iterator<Item = &Command> {
    program
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
}

/// As a page of its own is named: `shmsched-run`.
fn title(command: &Command) -> String {
    let name = command.get_display_name();
    name.unwrap_or_else(|| command.get_name()).to_owned()
}

/// What stands below the options in `--help`, taken apart.
struct Below<'a> {
    notes: &'a str,
    examples: &'a str,
    environment: &'a str,
}

impl<'a> Below<'a> {
    fn new(help: &'a str) -> Below<'a> {
        let (help, environment) = help.split_once("Environment:\n").unwrap_or((help, ""));
        let (help, _codes) = help.split_once("\nExit codes").unwrap_or((help, ""));
        let (notes, examples) = help.split_once("Examples:\n").unwrap_or((help, ""));
        Below {
            notes: notes.trim_end(),
            examples: examples.trim_end(),
            environment: environment.trim_end(),
        }
    }
}

fn page<'a>(mut command: Command, others: impl Iterator<Item = &'a str>) -> String {
    let help = command.get_after_help().map(ToString::to_string);
    let help = help.unwrap_or_default();
    let below = Below::new(&help);
    // clap's line has the `--` before a command, which the one of clap_mangen lacks.
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    let command = command.override_usage(usage);
    let described = description(&command, below.notes);
    let commands = command.has_subcommands();
    let name = command.get_name().to_owned();
    let man = Man::new(command).source(concat!("shmsched ", env!("CARGO_PKG_VERSION")));

    let mut text = Vec::new();
    let made = man
        .render_title(&mut text)
        .and_then(|()| man.render_name_section(&mut text))
        .and_then(|()| man.render_synopsis_section(&mut text))
        .and_then(|()| described.to_writer(&mut text))
        .and_then(|()| man.render_options_section(&mut text))
        .and_then(|()| match commands {
            true => man.render_subcommands_section(&mut text),
            false => Ok(()),
        });
    made.expect("a vector takes every byte");

    let mut more = exit_status(&name, commands);
    as_is(&mut more, "ENVIRONMENT", below.environment);
    as_is(&mut more, "EXAMPLES", below.examples);
    more.control("SH", ["SEE ALSO"]);
    let others: Vec<String> = others.map(|name| format!("{name}(1)")).collect();
    more.text([roman(others.join(", "))]);
    text.extend_from_slice(more.to_roff().as_bytes());
    String::from_utf8(text).expect("help is text")
}

/// What the command is, and the notes below its options: here they come first.
fn description(command: &Command, notes: &str) -> Roff {
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let mut section = Roff::new();
    section.control("SH", ["DESCRIPTION"]);
    for paragraph in format!("{}.\n\n{notes}", about.trim_end_matches('.')).split("\n\n") {
        section.control("PP", []);
        for line in paragraph.lines() {
            section.text([roman(line)]);
        }
    }
    section
}

/// All exit codes in the page of the program; in that of a command those of its own.
fn exit_status(name: &str, all: bool) -> Roff {
    let mut section = Roff::new();
    section.control("SH", ["EXIT STATUS"]);
    let success = match name {
        "run" => "the command was run, and ended with 0",
        _ => "success",
    };
    let shown = |code: &Code| all || own_codes(name).contains(code);
    let codes = TABLE.into_iter().filter(|(code, _)| shown(code));
    let codes = codes.map(|(code, meaning)| (code as u8, meaning));
    for (code, meaning) in std::iter::once((0, success)).chain(codes) {
        section.control("TP", []);
        section.text([bold(code.to_string())]);
        section.text([roman(meaning)]);
    }
    section.control("PP", []);
    if all || name == "run" {
        section.text([roman(
            "run passes on the code of its command, or 128+n if signal n ended it.",
        )]);
    }
    if !all {
        section.text([roman("shmsched(1) has the codes of all errors.")]);
    }
    section
}

/// A section whose lines stay as they are.
fn as_is(page: &mut Roff, heading: &str, lines: &str) {
    if lines.is_empty() {
        return;
    }
    page.control("SH", [heading]);
    page.control("nf", []);
    for line in lines.lines() {
        page.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
    }
    page.control("fi", []);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_its_sections() {
        let pages = pages();
        let program = Cli::command();
        assert_eq!(pages.len(), 1 + shown(&program).count());
        assert_eq!(pages[0].0, "shmsched.1");
        for command in shown(&program) {
            let name = format!("shmsched-{}.1", command.get_name());
            assert!(pages.iter().any(|page| page.0 == name), "{name}");
        }
        for (name, text) in &pages {
            for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES"] {
                assert!(
                    text.contains(&format!("\n.SH {section}\n")),
                    "{name}: {section}"
                );
            }
            assert!(text.contains("\n.SH \"EXIT STATUS\"\n"), "{name}");
            assert!(!text.contains(".SH EXTRA"), "{name}");
        }
    }

    #[test]
    fn a_command_has_its_own_exit_codes_only() {
        let pages = pages();
        let codes = |name: &str| {
            let (_, text) = pages.iter().find(|page| page.0 == name).unwrap();
            let (_, from) = text.split_once(".SH \"EXIT STATUS\"\n").unwrap();
            let (section, _) = from.split_once("\n.SH ").unwrap();
            section.matches(".TP").count()
        };
        assert_eq!(codes("shmsched.1"), 1 + TABLE.len());
        assert_eq!(codes("shmsched-rm.1"), 2);
        assert_eq!(codes("shmsched-list.1"), 1);
    }

    /// Nothing that `--help` says below the options is lost on the way.
    #[test]
    fn what_help_says_below_stands_in_the_page() {
        let mut program = Cli::command();
        program.build();
        for (command, (name, text)) in std::iter::once(&program)
            .chain(shown(&program))
            .zip(pages())
        {
            // roff escapes what is not a letter in several ways.
            let plain = |text: &str| {
                text.chars()
                    .filter(|c| c.is_alphanumeric())
                    .collect::<String>()
            };
            let page = plain(&text.replace(r"\*(Aq", "'"));
            let help = command.get_after_help().unwrap().to_string();
            for line in help.lines().filter(|line| !line.ends_with(':')) {
                // The number of an exit code stands apart from its meaning.
                let line = line.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit());
                assert!(page.contains(&plain(line)), "{name}: {line}");
            }
        }
    }
}
