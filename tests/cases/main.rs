//! What went wrong for others, at the command line: each test is named after the number of its case.
//!
//! A unit of work is this binary again, in a role: it stamps its begin and its end into a log, and nothing else is
//! believed. What takes long has a `stress_` twin, ignored here.

#![cfg(feature = "cli")]

#[path = "../support/mod.rs"]
mod support;

mod deaths;
mod fds;
mod files;
mod killed_create;
mod lives;
mod namespaces;
mod settings;
mod shell;
mod signals;
mod unit;
mod versions;

#[test]
#[ignore = "the children's entry point"]
fn child() {
    unit::enter();
}
