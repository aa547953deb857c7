//! A member's own waiters, first come first served within a post.

use super::Post;
use super::waiter::{Nudge, Waiter, note};
use crate::layout::Gate;
use std::collections::VecDeque;
use std::sync::Arc;

/// The waiters of one member.
#[derive(Default)]
pub struct Queue {
    posts: [VecDeque<Arc<Waiter>>; Post::COUNT],
    /// No deadline of a task lies before this; `None`: there is none.
    pub earliest: Option<u64>,
    /// Set once: nobody may join any more.
    pub shut: bool,
    /// Callbacks of the Limiter that wait or run.
    pub callbacks: u64,
    /// To wake once nobody waits at the Limiter and no callback of it is left.
    pub draining: Vec<Nudge>,
}

impl Queue {
    /// Who acts for the member at this post: the first that was not passed over, else the first.
    pub fn first(&self, post: Post) -> Option<&Arc<Waiter>> {
        let post = &self.posts[post.index()];
        post.iter()
            .find(|waiter| waiter.passed.peek() == 0)
            .or(post.front())
    }

    /// The first two of a post, if the very first acts for the member.
    pub fn first_two(&self, post: Post) -> Option<(&Arc<Waiter>, &Arc<Waiter>)> {
        let post = &self.posts[post.index()];
        let (first, next) = (post.front()?, post.get(1)?);
        (first.passed.peek() == 0).then_some((first, next))
    }

    /// Takes the very first of a post out; others are left.
    pub fn take_first(&mut self, post: Post) -> Option<Arc<Waiter>> {
        self.posts[post.index()].pop_front()
    }

    /// Whether this waiter acts for the member.
    pub fn is_first(&self, waiter: &Arc<Waiter>) -> bool {
        self.first(waiter.post)
            .is_some_and(|first| Arc::ptr_eq(first, waiter))
    }

    /// Joins at the end of its post.
    pub fn push(&mut self, waiter: Arc<Waiter>) {
        if let (Some(deadline), false) = (waiter.deadline, waiter.is_thread()) {
            self.earliest = Some(
                self.earliest
                    .map_or(deadline, |earliest| earliest.min(deadline)),
            );
        }
        let gate = waiter.post.gate;
        self.posts[waiter.post.index()].push_back(waiter.clone());
        waiter.pending.put(self.pending(gate) as u32);
    }

    /// How many wait at a gate.
    fn pending(&self, gate: Gate) -> usize {
        Post::of(gate).map(|post| self.len(post)).sum()
    }

    /// Takes a waiter out, wherever it stands. `false` if it was not there.
    pub fn remove(&mut self, waiter: &Arc<Waiter>) -> bool {
        let post = &mut self.posts[waiter.post.index()];
        // Those that leave mostly stand at the front.
        let Some(at) = post.iter().position(|other| Arc::ptr_eq(other, waiter)) else {
            return false;
        };
        post.remove(at);
        if self.pending(waiter.post.gate) == 0 {
            waiter.notes.set_bits(note::LAST);
        }
        true
    }

    /// How many wait at a post.
    pub fn len(&self, post: Post) -> usize {
        self.posts[post.index()].len()
    }

    /// Takes everybody of a gate out.
    pub fn drain(&mut self, gate: Gate) -> Vec<Arc<Waiter>> {
        let posts = Post::of(gate);
        let all: Vec<_> = posts
            .flat_map(|post| std::mem::take(&mut self.posts[post.index()]))
            .collect();
        if let Some(last) = all.last() {
            last.notes.set_bits(note::LAST);
        }
        all
    }

    /// Who waits for the Limiter to have nobody left, if that is so now.
    pub fn drained(&mut self) -> Vec<Nudge> {
        match self.is_drained() {
            true => std::mem::take(&mut self.draining),
            false => Vec::new(),
        }
    }

    /// Wakes whoever waits for that, once.
    pub fn tell_when_drained(&mut self, nudge: Nudge) {
        let known = self.draining.iter().any(|known| match (known, &nudge) {
            (Nudge::Task(known), Nudge::Task(new)) => known.will_wake(new),
            (Nudge::Thread(known), Nudge::Thread(new)) => known.id() == new.id(),
            _ => false,
        });
        if !known {
            self.draining.push(nudge);
        }
    }

    /// Nobody waits at the Limiter, and every callback of it has run.
    pub fn is_drained(&self) -> bool {
        self.callbacks == 0 && Post::of(Gate::Limiter).all(|post| self.len(post) == 0)
    }

    /// The tasks and callbacks whose deadline has passed; also finds the next deadline.
    pub fn expired(&mut self, now: u64) -> Vec<Arc<Waiter>> {
        if self.earliest.is_none_or(|earliest| now < earliest) {
            return Vec::new();
        }
        let mut expired = Vec::new();
        self.earliest = None;
        for waiter in self
            .posts
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
