//! A member's own waiters, first come first served within a lane.

use super::waiter::Waiter;
use crate::layout::LANES;
use std::collections::VecDeque;
use std::sync::Arc;

/// The waiters of one member.
#[derive(Default)]
pub struct Queue {
    lanes: [VecDeque<Arc<Waiter>>; LANES],
    /// No deadline of a task lies before this; `None`: there is none.
    pub earliest: Option<u64>,
    /// Set once: nobody may join any more.
    pub shut: bool,
}

impl Queue {
    /// Who acts for the member in this lane: the first that was not passed over, else the first.
    pub fn first(&self, lane: usize) -> Option<&Arc<Waiter>> {
        let lane = &self.lanes[lane];
        lane.iter()
            .find(|waiter| waiter.passed.peek() == 0)
            .or(lane.front())
    }

    /// Whether this waiter acts for the member.
    pub fn is_first(&self, waiter: &Arc<Waiter>) -> bool {
        self.first(waiter.lane)
            .is_some_and(|first| Arc::ptr_eq(first, waiter))
    }

    /// Joins at the end of its lane.
    pub fn push(&mut self, waiter: Arc<Waiter>) {
        if let (Some(deadline), false) = (waiter.deadline, waiter.is_thread()) {
            self.earliest = Some(
                self.earliest
                    .map_or(deadline, |earliest| earliest.min(deadline)),
            );
        }
        self.lanes[waiter.lane].push_back(waiter);
    }

    /// Takes a waiter out, wherever it stands. `false` if it was not there.
    pub fn remove(&mut self, waiter: &Arc<Waiter>) -> bool {
        let lane = &mut self.lanes[waiter.lane];
        // Those that leave mostly stand at the front.
        match lane.iter().position(|other| Arc::ptr_eq(other, waiter)) {
            Some(at) => lane.remove(at).is_some(),
            None => false,
        }
    }

    /// How many wait in a lane.
    pub fn len(&self, lane: usize) -> usize {
        self.lanes[lane].len()
    }

    /// Takes everybody out.
    pub fn drain(&mut self) -> Vec<Arc<Waiter>> {
        self.earliest = None;
        self.lanes
            .iter_mut()
            .flat_map(|lane| lane.drain(..))
            .collect()
    }

    /// The tasks and callbacks whose deadline has passed; also finds the next deadline.
    pub fn expired(&mut self, now: u64) -> Vec<Arc<Waiter>> {
        if self.earliest.is_none_or(|earliest| now < earliest) {
            return Vec::new();
        }
        let mut expired = Vec::new();
        self.earliest = None;
        for waiter in self
            .lanes
            .iter()
            .flatten()
            .filter(|waiter| !waiter.is_thread())
        {
            match waiter.deadline {
                Some(deadline) if deadline <= now => expired.push(waiter.clone()),
                Some(deadline) => {
                    self.earliest = Some(self.earliest.map_or(deadline, |e| e.min(deadline)))
                }
                None => {}
            }
        }
        expired
    }
}
