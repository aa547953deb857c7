//! The samples of one family, and how each kind of value is written.

use std::fmt;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use shmsched::Durations;

use crate::output::escaped;

/// A label and its value.
type Label = (&'static str, String);

#[derive(Default)]
pub struct Samples {
    segment: String,
    all: Vec<(Vec<Label>, Value)>,
}

enum Value {
    Count(u64),
    /// A counter of seconds, in microseconds.
    Seconds(u64),
    Gauge(i64),
    Real(f64),
    Histogram(Box<Durations>),
}

impl Samples {
    /// What follows is of that segment.
    pub fn of(&mut self, segment: &str) {
        self.segment = escaped(segment);
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn add(&mut self, labels: &[(&'static str, &str)], value: Value) {
        let more = labels.iter().map(|(name, value)| (*name, escaped(value)));
        let labels = [("segment", self.segment.clone())]
            .into_iter()
            .chain(more)
            .collect();
        self.all.push((labels, value));
    }

    pub fn count(&mut self, count: u64) {
        self.add(&[], Value::Count(count));
    }

    pub fn seconds(&mut self, microseconds: u64) {
        self.add(&[], Value::Seconds(microseconds));
    }

    pub fn gauge(&mut self, labels: &[(&'static str, &str)], value: impl Into<i64>) {
        self.add(labels, Value::Gauge(value.into()));
    }

    pub fn real(&mut self, labels: &[(&'static str, &str)], value: f64) {
        self.add(labels, Value::Real(value));
    }

    /// A limit: infinite if there is none.
    pub fn limit(&mut self, labels: &[(&'static str, &str)], limit: Option<u32>) {
        match limit {
            Some(limit) => self.gauge(labels, limit),
            None => self.real(labels, f64::INFINITY),
        }
    }

    pub fn histogram(&mut self, durations: Durations) {
        self.add(&[], Value::Histogram(Box::new(durations)));
    }

    pub fn encode(&self, metric: &mut MetricEncoder) -> fmt::Result {
        for (labels, value) in &self.all {
            let mut metric = metric.encode_family(labels)?;
            match value {
                Value::Count(count) => ConstCounter::new(*count).encode(metric)?,
                Value::Seconds(us) => ConstCounter::new(*us as f64 / 1e6).encode(metric)?,
                Value::Gauge(value) => ConstGauge::new(*value).encode(metric)?,
                Value::Real(value) => ConstGauge::new(*value).encode(metric)?,
                Value::Histogram(durations) => {
                    let (sum, buckets) = histogram(durations);
                    let count = durations.count();
                    metric.encode_histogram::<Vec<Label>>(sum, count, &buckets, None)?;
                }
            }
        }
        Ok(())
    }
}

/// The sum in seconds, and each bucket's upper end with what is in that bucket alone.
fn histogram(durations: &Durations) -> (f64, [(f64, u64); 32]) {
    let end = |at: usize| 2f64.powi(at as i32) / 1e6;
    let last = durations.buckets.len() - 1;
    let buckets = std::array::from_fn(|at| {
        let end = if at == last { f64::INFINITY } else { end(at) };
        (end, durations.buckets[at])
    });
    (durations.sum_us as f64 / 1e6, buckets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_double_and_the_last_is_open() {
        let mut durations = Durations::default();
        (
            durations.buckets[0],
            durations.buckets[11],
            durations.buckets[31],
        ) = (2, 4, 1);
        durations.sum_us = 2_147_489_793;
        let (sum, buckets) = histogram(&durations);
        assert_eq!(buckets[0], (1e-6, 2));
        assert_eq!(buckets[11], (2_048e-6, 4));
        assert_eq!(buckets[30], (1_073.741824, 0));
        assert_eq!(buckets[31], (f64::INFINITY, 1));
        assert!((sum - 2_147.489793).abs() < 1e-9, "{sum}");
    }
}
