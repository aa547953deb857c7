//! The public API in one process: scheduler, permits, errors, cancellation.

mod basics;
