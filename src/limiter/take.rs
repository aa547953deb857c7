//! What every way to tokens comes to: taken or refused at once, or waited for.

use super::Limiter;
use crate::Priority;
use crate::error::AcquireError;
use crate::layout::{Gate, LimiterHot};
use crate::park::waiter::Wish;
use crate::protocol::bucket::Bucket;
use crate::segment::attachment::{Attachment, state};
use crate::sys::clock;
use crate::trace::Teller;
use crate::waiting::Ask;
use std::borrow::Borrow;
use std::sync::Arc;

/// The most tokens that one request may ask for (I6).
const MOST: u32 = i32::MAX as u32;

impl Limiter {
    /// Tokens at hand, nobody in line, and nothing earned since the last refill that a coarse clock could see: one line of
    /// the segment, and the thread's own record.
    #[inline(always)]
    fn take_fast(&self, tokens: u32) -> bool {
        let attachment = &self.handle.attachment;
        let Some(record) = attachment
            .hot_index()
            .and_then(|index| self.records.get(index as usize))
        else {
            return false;
        };
        let hot: &LimiterHot = &self.hot;
        let unusual =
            attachment.state.peek() & state::LOST_OR_FORKED | hot.flags.peek() | hot.summary.peek();
        let bucket = Bucket { hot };
        if unusual != 0
            || attachment.parent.is_some()
            || hot.tokens.peek() < tokens as i32
            || !bucket.is_fresh(clock::coarse_now())
            || bucket.debit(tokens, tokens as i32).is_err()
        {
            return false;
        }
        record
            .consumed
            .poke(record.consumed.peek().wrapping_add(u64::from(tokens)));
        true
    }

    /// Takes tokens now; `false`: the caller must wait.
    #[inline]
    pub(super) fn take_now(&self, tokens: u32) -> Result<bool, AcquireError> {
        if tokens.wrapping_sub(1) < MOST && self.take_fast(tokens) {
            return Ok(true);
        }
        self.take_slow(tokens)
    }

    /// The same for a caller who goes on to wait or to fail: tells of what fails.
    #[inline]
    pub(super) fn take_or_tell(
        &self,
        tokens: u32,
        priority: Option<Priority>,
    ) -> Result<bool, AcquireError> {
        let taken = self.take_now(tokens);
        if let Err(failure) = &taken {
            self.tell_refusal(tokens, priority, failure);
        }
        taken
    }

    #[cold]
    pub(super) fn tell_refusal(
        &self,
        tokens: u32,
        priority: Option<Priority>,
        failure: &AcquireError,
    ) {
        if let Some(teller) = self.trace.teller(self.attachment()) {
            let wish = self.wish(tokens, priority.unwrap_or_default());
            teller.refused(wish, failure);
        }
    }

    #[cold]
    fn take_slow(&self, tokens: u32) -> Result<bool, AcquireError> {
        if tokens > MOST {
            return Err(AcquireError::TooManyTokens { amount: tokens });
        }
        let attachment = self.attachment();
        if let Some(failure) = attachment.failure_at(Gate::Limiter) {
            return Err(failure);
        }
        attachment.notice_gone_at_times();
        Ok(attachment.take_tokens_now(tokens))
    }

    /// Not refused on the account of a dead one in line.
    #[cold]
    pub(super) fn try_at_last(&self, tokens: u32) -> Result<bool, AcquireError> {
        match self.attachment().somebody_waits_for_tokens() {
            true => Tokens(self, tokens, Priority::Normal).take_at_last(),
            false => Ok(false),
        }
    }
}

/// What a caller of a Limiter asks for: so many tokens, at a priority.
pub(crate) struct Tokens<L>(pub(super) L, pub(super) u32, pub(super) Priority);

impl<L: Borrow<Limiter>> Ask for Tokens<L> {
    type Error = AcquireError;

    fn attachment(&self) -> &Arc<Attachment> {
        self.0.borrow().attachment()
    }

    fn wish(&self) -> Wish {
        self.0.borrow().wish(self.1, self.2)
    }

    fn teller(&self) -> Option<Teller> {
        let limiter = self.0.borrow();
        limiter.trace.teller(limiter.attachment())
    }

    fn take_now(&self) -> Result<bool, AcquireError> {
        self.0.borrow().take_or_tell(self.1, Some(self.2))
    }
}
