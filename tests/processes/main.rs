//! Real processes on one segment: killed, stopped, forked, and simply many.

#[path = "../support/mod.rs"]
mod support;

mod churn;
mod deaths;
mod forks;
mod lent;
mod lent_roles;
mod lent_storms;
mod life;
mod load;
mod lookout;
mod misuse;
mod namespaces;
mod order;
mod pacer;
mod puppet;
mod reboot;
mod review;
mod spare_storms;
mod spares;
mod stopped;
mod taps;
mod token_order;
mod token_roles;
mod tokens;
mod traced;
mod wakes;

#[test]
#[ignore = "the children's entry point"]
fn child() {
    support::enter(&[
        ("puppet", puppet::play),
        ("churn", churn::play),
        ("spin", churn::spin),
        ("steady", load::steady),
        ("forked_steady", load::forked_steady),
        ("impatient", churn::impatient),
        ("prefork", forks::prefork),
        ("inherit", forks::inherit),
        ("fork_amid", forks::fork_amid),
        ("fork_in_callback", forks::fork_in_callback),
        ("panics_in_drop", misuse::panics_in_drop),
        ("aborts", misuse::aborts),
        ("signalled", wakes::signalled),
        ("vain", traced::vain),
        ("scribbled", life::scribbled),
        ("caller", pacer::caller),
        ("pacing", pacer::pacing),
        ("hasty", pacer::hasty),
        ("tap", token_roles::play),
        ("drip", token_roles::drip),
        ("fork_tokens", token_roles::fork_tokens),
        ("wreck", reboot::wreck),
        ("reborn", reboot::reborn),
        ("keeps", spares::keeps),
        ("stormy", spare_storms::stormy),
        ("forks_with_spares", spares::forks),
        ("lacks", lookout::lacks),
        ("leaves", lookout::leaves),
        ("look_forks", lookout::forks),
        ("closes", lookout::closes),
        ("brisk", lent_roles::brisk),
        ("waits", lent_roles::waits),
    ]);
}
