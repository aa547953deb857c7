//! `completions`: print the completions of a shell.

use clap::CommandFactory;

use crate::cli::{Cli, Completions};
use crate::exit::Outcome;
use crate::output;

pub fn completions(arguments: &Completions) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "shmsched", &mut text);
    output::print(&String::from_utf8_lossy(&text))?;
    Ok(0)
}
