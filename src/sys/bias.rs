//! Who comes by a mutex without it: the thread that used it again and again.
//!
//! A locked instruction takes longer than what is done under most locks. A thread that has the *bias* goes in and out by
//! plain stores, and does not touch the mutex. Any other thread takes the mutex, and then *revokes* the bias before it goes
//! on: it pays a fence in every thread, and waits until the owner is outside.
//!
//! | word | who writes it | what it says |
//! | --- | --- | --- |
//! | owner, of the mutex | who holds the mutex | the thread that has the bias; 0: nobody |
//! | inside, of a thread | that thread, plain stores | the mutex in which it is by its bias; 0: in none |
//!
//! *In*: inside names the mutex, then (compiler fence) the owner is read again: still this thread, or inside is 0 again and
//! the way leads by the mutex. *Revoke*, under the mutex: owner 0, the heavy fence, then the last owner's word is read until
//! it names another mutex or none. Pair `bias`: either the thread sees that it is no owner any more, or the revoker sees it
//! inside. Only a thread that holds the mutex makes itself the owner, as the last thing before it lets go; so it is never
//! inside and the holder at once.
//!
//! The second word is the thread's and not the mutex's: a thread that read that it is the owner may store to it much later,
//! when the mutex has another owner. For the same reason a thread is in one mutex by its bias at most; in a second it
//! must come by the mutex. Its word is stored by release each time: who reads it sees what was done in the mutex before.

/// A word of 64 bits.
pub trait Word {
    /// Relaxed load.
    fn peek(&self) -> u64;
    /// Acquire load.
    fn get(&self) -> u64;
    /// Release store.
    fn put(&self, value: u64);
}

/// What the protocol runs on: this machine, or a model of one.
pub trait Machine {
    /// Its words.
    type Word: Word;
    /// Orders a store before the next load, given that the other side passes [`Machine::heavy_fence`].
    fn light_fence();
    /// Each thread of this process has passed a full fence when it returns.
    fn heavy_fence();
    /// Lets the owner get on; called again and again.
    fn pause(rounds: u32);
    /// Whether this step is to be left out; models only.
    #[inline(always)]
    fn lacks(_step: &str) -> bool {
        false
    }
}

const NOBODY: u64 = 0;

/// The word of one mutex.
pub struct Bias<M: Machine> {
    owner: M::Word,
}

impl<M: Machine> Bias<M> {
    /// Nobody has it: the word is 0.
    pub const fn new(owner: M::Word) -> Bias<M> {
        Bias { owner }
    }

    /// Whether the thread `me`, not 0, has the bias of the mutex `this`, not 0, and is inside now.
    #[inline(always)]
    pub fn enter(&self, me: u64, inside: &M::Word, this: u64) -> bool {
        if self.owner.peek() != me || inside.peek() != 0 {
            return false;
        }
        inside.put(this);
        M::light_fence(); // pair: bias
        if self.owner.get() == me || M::lacks("bias-recheck") {
            return true;
        }
        Self::leave(inside);
        false
    }

    /// Out again.
    #[inline(always)]
    pub fn leave(inside: &M::Word) {
        inside.put(0);
    }

    /// Gives this thread the bias. It holds the mutex, nobody has the bias, and it lets go of the mutex next.
    pub fn grant(&self, me: u64) {
        self.owner.put(me);
    }

    /// Who has the bias, if somebody does. Under the mutex.
    #[inline(always)]
    pub fn owner(&self) -> Option<u64> {
        Some(self.owner.peek()).filter(|owner| *owner != NOBODY)
    }

    /// Takes the bias from its owner, whose word is `inside`, and waits until that one is outside. Under the mutex.
    pub fn revoke(&self, inside: &M::Word, this: u64) {
        self.owner.put(NOBODY);
        M::heavy_fence(); // pair: bias
        let mut rounds = 0;
        while inside.get() == this && !M::lacks("bias-wait") {
            M::pause(rounds);
            rounds = rounds.saturating_add(1);
        }
    }
}
