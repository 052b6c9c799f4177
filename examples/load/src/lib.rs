//! A bounded load generator that checks every answer of a chat API.
//!
//! It keeps three kinds of requests going against one base URL: plain ones on kept connections,
//! plain ones on a new connection each, and streamed ones. Every request ends in exactly one of
//! three ways:
//!
//! - **whole**: status 200, a valid answer to the question that was asked, with a model and a
//!   prompt that belong together;
//! - **injected**: the answer carries `x-injected-error`, so the server was told to spoil it;
//! - **failed**: everything else, such as a refused or reset connection, a time-out, another
//!   status, invalid JSON, wrong content, a stream that is cut before its `[DONE]`, or a model and
//!   a prompt that do not belong together.
//!
//! # Retries
//!
//! The generator does not retry, with one exception: when the server closes a kept connection
//! between two requests, the next request goes out on a new connection. That is done only while
//! it is certain that not a byte of the request was sent; it is counted under `reconnects`. Real
//! clients go further: many retry also when a reused connection ends before the first byte of the
//! answer. Here that is a failure of the kind [`FailureKind::ReusedConnectionClosed`], because the
//! server may have run the request.
//!
//! # Guard
//!
//! It sends only to loopback and private addresses. The host of the base URL is resolved once, the
//! address is checked, and only that address is ever connected to.

mod answer;
mod client;
mod config;
mod guard;
mod handle;
mod outcome;
mod recorder;
mod report;
mod sse;
mod table;
mod worker;

pub use config::{LoadConfig, LoadError};
pub use handle::{Load, LoadHandle};
pub use outcome::{FailureKind, Flow, Pair};
pub use report::{Bucket, BucketPair, ErrorSample, Latencies, Latency, Moment, PairCount, PairReport, Report};
