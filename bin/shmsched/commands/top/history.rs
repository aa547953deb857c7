//! How a counter and a pressure went lately: a rate, and a column a second for the sparklines.

use std::collections::VecDeque;
use std::time::Duration;

/// A rate is that of so long.
const WINDOW: Duration = Duration::from_secs(2);
/// The time of a column.
const COLUMN: Duration = Duration::from_secs(1);
/// More columns than any terminal shows.
const MOST: usize = 512;

/// Of one gate.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Readings of the window, and one before it; the oldest first.
    readings: VecDeque<(Duration, u64)>,
    /// Where the column that is not complete began.
    begun: (Duration, u64),
    rates: VecDeque<u64>,
    pressures: VecDeque<u64>,
}

impl History {
    /// A reading of the counter, and of the pressure in hundredths of a percent.
    pub fn take(&mut self, at: Duration, count: u64, pressure: u16) {
        match self.readings.back() {
            // The segment began anew.
            Some((_, last)) if count < *last => *self = History::default(),
            Some((last, _)) if at <= *last => return,
            _ => {}
        }
        if self.readings.is_empty() {
            self.begun = (at, count);
        }
        self.readings.push_back((at, count));
        while self
            .readings
            .get(1)
            .is_some_and(|(then, _)| at - *then >= WINDOW)
        {
            self.readings.pop_front();
        }
        let passed = at - self.begun.0;
        if passed >= COLUMN {
            // More than one after a pause: what happened meanwhile is spread over them.
            let columns = (passed.as_secs_f64() / COLUMN.as_secs_f64()) as usize;
            let rate = per_second(self.begun, (at, count));
            for _ in 0..columns.min(MOST) {
                push(&mut self.rates, (rate * 1_000.0) as u64);
                push(&mut self.pressures, pressure.into());
            }
            self.begun = (at, count);
        }
    }

    /// How many a second, lately; `None` before there is anything to compare.
    pub fn rate(&self) -> Option<f64> {
        let (first, last) = (self.readings.front()?, self.readings.back()?);
        (first.0 < last.0).then(|| per_second(*first, *last))
    }

    /// Thousandths a second, the newest first.
    pub fn rates(&self) -> Vec<u64> {
        self.rates.iter().copied().collect()
    }

    /// Hundredths of a percent, the newest first.
    pub fn pressures(&self) -> Vec<u64> {
        self.pressures.iter().copied().collect()
    }
}

fn push(columns: &mut VecDeque<u64>, value: u64) {
    columns.push_front(value);
    columns.truncate(MOST);
}

fn per_second(from: (Duration, u64), to: (Duration, u64)) -> f64 {
    (to.1 - from.1) as f64 / (to.0 - from.0).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn rates_come_from_differences() {
        let mut history = History::default();
        assert_eq!(history.rate(), None);
        for tick in 0..50 {
            history.take(ms(tick * 100), tick * 2, 150);
        }
        assert!((history.rate().unwrap() - 20.0).abs() < 0.01);
        assert_eq!(history.rates(), [20_000; 4]);
        assert_eq!(history.pressures(), [150; 4]);
        // Nothing more happens: after the window it is nothing.
        for tick in 50..80 {
            history.take(ms(tick * 100), 98, 0);
        }
        assert_eq!(history.rate(), Some(0.0));
        assert_eq!(history.rates()[0], 0);
    }

    #[test]
    fn a_pause_is_spread() {
        let mut history = History::default();
        history.take(ms(0), 0, 0);
        history.take(ms(5_000), 10, 100);
        assert_eq!(history.rates(), [2_000; 5]);
        history.take(Duration::from_secs(1 << 30), 10, 100);
        assert_eq!(history.rates().len(), MOST);
    }

    #[test]
    fn a_counter_that_begins_anew() {
        let mut history = History::default();
        history.take(ms(0), 5, 0);
        history.take(ms(1_500), 9, 0);
        history.take(ms(1_600), 1, 0);
        assert_eq!((history.rate(), history.rates().len()), (None, 0));
        // The same moment twice is one.
        history.take(ms(1_600), 3, 0);
        assert_eq!(history.rate(), None);
    }
}
