//! The document of `pressure`.

use serde::Serialize;
use shmsched::{Snapshot, Stalled};

use super::numbers::{Int, Percent};
use super::{Patient, SCHEMA};

#[derive(Serialize)]
pub struct Pressure<'a> {
    schema: u32,
    segment: Patient<'a>,
    scheduler: Option<Signals>,
    limiter: Option<Signals>,
    pacer: Option<Signals>,
}

/// The two of a gate.
#[derive(Serialize)]
pub struct Signals {
    some: Signal,
    full: Signal,
}

#[derive(Serialize)]
struct Signal {
    avg10: Percent,
    avg60: Percent,
    avg300: Percent,
    total_us: Int,
}

impl Signal {
    fn new(stalled: Stalled) -> Signal {
        let [avg10, avg60, avg300] = stalled.averages.map(Percent);
        Signal {
            avg10,
            avg60,
            avg300,
            total_us: Int(stalled.total_us),
        }
    }
}

impl Signals {
    pub fn new(pressure: shmsched::Pressure) -> Signals {
        Signals {
            some: Signal::new(pressure.some),
            full: Signal::new(pressure.full),
        }
    }
}

impl<'a> Pressure<'a> {
    pub fn new(snapshot: &'a Snapshot) -> Pressure<'a> {
        let signals = |pressure: Option<shmsched::Pressure>| pressure.map(Signals::new);
        Pressure {
            schema: SCHEMA,
            segment: Patient::new(&snapshot.segment),
            scheduler: signals(snapshot.scheduler.as_ref().map(|gate| gate.pressure)),
            limiter: signals(snapshot.limiter.as_ref().map(|gate| gate.pressure)),
            pacer: signals(snapshot.pacer.as_ref().map(|gate| gate.pressure)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::json::{Form, text};
    use crate::output::pressure::samples;

    #[test]
    fn the_document_of_pressure() {
        let expected = r#"{"schema":1,"segment":{"name":"uplink","path":"/dev/shm/shmsched-0/uplink","id":"000102030405060708090a0b0c0d0e0f"},"scheduler":null,"limiter":{"some":{"avg10":40.5,"avg60":0.07,"avg300":0,"total_us":9007199254740991},"full":{"avg10":100,"avg60":12.34,"avg300":1,"total_us":5}},"pacer":{"some":{"avg10":0,"avg60":0,"avg300":0,"total_us":0},"full":{"avg10":0,"avg60":0,"avg300":0,"total_us":0}}}"#;
        let snapshot = samples::stalled();
        let found = text(&Pressure::new(&snapshot), Form::Line);
        assert_eq!(found, format!("{expected}\n"));
    }
}
