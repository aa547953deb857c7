//! Metrics for Prometheus: what the segments say, as OpenMetrics or as Prometheus' older text.
//!
//! Names and units follow Prometheus' conventions, and names stay: dashboards and alerts hang on them (docs/metrics.md).
//! Counters are of a segment since it was made, whoever counted and is dead now. Gauges are of the living.

mod families;
mod members;
mod samples;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text, text};
use prometheus_client::registry::Registry;
use shmsched::Snapshot;

use self::families::FAMILIES;
use self::samples::Samples;

/// The prefix of all names.
const PREFIX: &str = "shmsched";

/// What was seen of one segment.
#[derive(Clone, Debug)]
pub struct Scrape {
    /// The label `segment`, another for each.
    pub segment: String,
    /// What it says, if it could be read.
    pub snapshot: Option<Snapshot>,
}

/// The two forms of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus 0.0.4, for who does not know the other.
    Prometheus,
}

impl Form {
    /// Its media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Form::Prometheus => prometheus_text::CONTENT_TYPE,
        }
    }
}

/// Everything at one moment.
pub struct Page(Registry);

impl Page {
    pub fn new(scrapes: Vec<Scrape>) -> Page {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(All(scrapes)));
        Page(registry)
    }

    pub fn text(&self, form: Form) -> String {
        let mut page = String::new();
        let written = match form {
            Form::OpenMetrics => text::encode(&mut page, &self.0),
            Form::Prometheus => prometheus_text::encode(&mut page, &self.0),
        };
        written.expect("a string takes all");
        page
    }
}

#[derive(Debug)]
struct All(Vec<Scrape>);

impl Collector for All {
    /// Family by family, and within one segment by segment, as the formats demand. A family without samples is left out.
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for family in FAMILIES {
            let mut samples = Samples::default();
            for scrape in &self.0 {
                samples.of(&scrape.segment);
                (family.read)(scrape.snapshot.as_ref(), &mut samples);
            }
            if !samples.is_empty() {
                let (unit, kind) = (family.unit.as_unit(), family.kind);
                let mut metric =
                    encoder.encode_descriptor(family.name, family.help, unit.as_ref(), kind)?;
                samples.encode(&mut metric)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
