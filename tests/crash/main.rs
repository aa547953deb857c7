//! Death after every single write to the segment, in every operation.
//!
//! A child arms the crash hook, which kills it by SIGKILL right after its n-th write, for n = 1, 2, ... until the
//! operation gets through. After each death the survivor (this process) must find exactly the full budget again.
#![cfg(feature = "crash-hook")]

#[path = "../support/mod.rs"]
mod support;

mod gate_bench;
mod gate_operations;
mod gates;
mod lent;
mod operations;
mod pairs;
mod spares;
mod sweep;

#[test]
#[ignore = "the children's entry point"]
fn child() {
    support::enter(&[
        ("operate", operations::operate),
        ("gates", gate_operations::operate),
        ("hold", operations::hold),
        ("keep", operations::keep),
        ("orphan", operations::orphan),
        ("waiter", lent::waiter),
    ]);
}
