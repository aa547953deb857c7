//! `pressure`: for how long anybody has waited.

use crate::cli::Pressure;
use crate::exit::{Code, Outcome};
use crate::output::json::{self, Form};
use crate::output::{self, pressure};

pub fn pressure(arguments: &Pressure) -> Outcome {
    let location = arguments.existing.locate()?;
    let mut observer = super::observe(&location, arguments.existing.trust_foreign)?;
    let snapshot = super::snapshot(&mut observer, &location)?;
    output::print(&match arguments.json {
        true => json::text(&json::pressure::Pressure::new(&snapshot), Form::Pretty),
        false => pressure::text(&snapshot),
    })?;
    let above = arguments.above.is_some_and(|above| {
        let gates = pressure::gates(&snapshot);
        let mut shares = gates.iter().map(|(_, gate)| gate.some.averages[0]);
        shares.any(|share| share > above)
    });
    Ok(if above { Code::Found as u8 } else { 0 })
}
