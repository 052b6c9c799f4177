//! ALL INPUT AND OUTPUT, THIN: watches, reads, writes, the clock, the lease, the metrics sources.
//!
//! `observe` reads and never writes, `apply` writes and never decides; whatever is decided is decided in
//! [`crate::engine`].

pub mod apply;
pub mod backoff;
pub mod clock;
pub mod concerns;
pub mod config;
pub mod context;
pub mod controller;
pub mod convert;
pub mod deployment;
pub mod dynamic;
pub mod error;
pub mod fresh;
pub mod leader;
pub mod lease;
pub mod notes;
pub mod observe;
pub mod prometheus;
pub mod requests;
pub mod start;
pub mod stores;
pub mod triggers;
pub mod watches;

#[cfg(test)]
pub(crate) mod testing;
