//! Changing a segment that is in use.

use super::{Segment, create};
use crate::error::SetError;
use crate::layout::Gate;
use crate::protocol::turn::Why;
use crate::settings::{Changes, Settings};
use crate::sys::clock;

impl Segment {
    /// Changes settings; what `changes` does not name stays. A gate that was not there is added.
    ///
    /// Takes effect for the next admission; slots that are held stay held, so after lowering the limit `running` exceeds
    /// it until enough were released. A rate counts from now: what was earned before is paid at the old one, a balance
    /// above the new capacity is cut to it, a debt stays. The next start is at most the new interval away. Who waits is
    /// told.
    ///
    /// # Errors
    ///
    /// [`SetError::Invalid`] or [`SetError::Concurrency`]: a number is out of its range. [`SetError::Segment`]: retired, gone,
    /// damaged, or forked. Nothing was changed.
    ///
    /// ```
    /// use shmsched::{Changes, Location, Segment, Settings};
    /// # let directory = tempfile::tempdir()?;
    /// # let location = Location::File(directory.path().join("thumbs"));
    /// let segment = Segment::create(&location, &Settings::new().concurrency(2))?;
    /// segment.set(&Changes::new().concurrency(Some(8)).rate(1_000))?;
    /// assert_eq!(segment.scheduler()?.concurrency(), Some(8));
    /// assert_eq!(segment.limiter()?.tokens_per_second(), 1_000); // it has one now
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set(&self, changes: &Changes) -> Result<(), SetError> {
        changes.validate()?;
        let attachment = self.attachment();
        if let Some(failure) = attachment.failure() {
            return Err(failure.into());
        }
        let views = &attachment.views;
        let now = clock::now();
        let mut gates = 0;
        if changes.concurrency.is_some() || changes.targets.iter().any(Option::is_some) {
            let mut concurrency = create::read_concurrency(&views.hot, &views.cold);
            if let Some(max) = changes.concurrency {
                concurrency.max = max;
            }
            for (target, change) in concurrency.targets.iter_mut().zip(changes.targets) {
                *target = change.or(*target);
            }
            concurrency.validate()?;
            create::write_concurrency(&views.hot, &views.cold, &concurrency);
            attachment.recall_spares();
            gates |= Gate::Scheduler.bit();
        }
        if let Some(rate) = changes.rate {
            let bucket = views.limiter().bucket();
            if !bucket.begin(rate, clock::now) {
                bucket.set_rate(rate, clock::now());
            }
            gates |= Gate::Limiter.bit();
        }
        if let Some(interval) = changes.interval {
            let interval = create::interval_word(interval);
            views.pacer().set_interval(interval, now);
            gates |= Gate::Pacer.bit();
        }
        views.header.gates.set_bits(gates);
        attachment.advance_after_freeing();
        for gate in [Gate::Limiter, Gate::Pacer] {
            if gates & gate.bit() != 0 {
                attachment.advance(gate, None, Why::Sooner);
            }
        }
        Ok(())
    }

    /// In what an existing segment differs from settings, a sentence each: for who asked for a segment of his own
    /// settings and got one that was there. Empty in a forked child.
    pub fn differs(&self, settings: &Settings) -> Vec<String> {
        if self.is_forked() {
            return Vec::new();
        }
        create::differences(
            &self.attachment().views,
            &self.attachment().checked,
            settings,
        )
    }
}
