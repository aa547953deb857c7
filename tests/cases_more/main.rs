//! Cases of other tools at the command line: wakes, strangers, exit codes, rates and intervals, damage, nesting,
//! holders, documents, the live screen. Each test is named after its case. The library's side of the same cases is in
//! `tests/processes`.

#![cfg(feature = "cli")]

mod demo;
mod gate_passing;
mod gate_settings;
mod help;
mod metrics_server;
#[path = "../support/mod.rs"]
mod support;

mod codes;
mod damage;
mod documents;
mod files;
mod gates;
mod holders;
mod looks;
mod metrics;
mod nesting;
mod pipe;
mod planted;
mod shells;
mod stage;
mod strangers;
mod terminal;
mod top;
mod waits;

#[test]
#[ignore = "the children's entry point"]
fn child() {
    support::enter(&[
        ("unit", stage::unit),
        ("loops", damage::loops),
        ("closes", holders::closes),
        ("dumps", holders::dumps),
    ]);
}
