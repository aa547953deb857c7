//! Limiter and Pacer as the library will have them, until it does: no segment has one, so nobody can have these either.

#![allow(dead_code, unreachable_code)]

use std::convert::Infallible;
use std::future::ready;

use shmsched::{AcquireError, Deadline, NoGate, Priority, Segment, TryAcquireError};

#[derive(Debug, thiserror::Error)]
#[error("the queue is full")]
pub struct QueueFull;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    #[error(transparent)]
    QueueFull(QueueFull),
    #[error(transparent)]
    Failed(AcquireError),
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TryStartError {
    #[error("not yet")]
    NotYet,
    #[error(transparent)]
    Failed(AcquireError),
}

pub struct Limiter(Infallible);

impl Limiter {
    pub fn try_consume(&self, _: u32) -> Result<(), TryAcquireError> {
        match self.0 {}
    }

    pub fn acquire_until(
        &self,
        _: u32,
        _: Priority,
        _: impl Into<Deadline>,
    ) -> impl Future<Output = Result<(), AcquireError>> + Send + '_ {
        ready(match self.0 {})
    }
}

pub struct Pacer(Infallible);

impl Pacer {
    pub fn try_start(&self) -> Result<(), TryStartError> {
        match self.0 {}
    }

    pub fn start_until(
        &self,
        _: impl Into<Deadline>,
    ) -> impl Future<Output = Result<(), StartError>> + Send + '_ {
        ready(match self.0 {})
    }
}

pub trait Pending {
    fn limiter(&self) -> Result<Limiter, NoGate> {
        Err(NoGate("limiter"))
    }

    fn pacer(&self) -> Result<Pacer, NoGate> {
        Err(NoGate("pacer"))
    }
}

impl Pending for Segment {}
