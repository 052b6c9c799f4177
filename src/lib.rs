//! `ModelRollout`: moves production traffic to a new AI model and its prompt in judged stages, and back at once.
//!
//! # The map
//!
//! | folder | what it is | what it must not do |
//! | --- | --- | --- |
//! | [`api`] | the wire contract: spec, status, names, reasons | decide, read, write |
//! | [`engine`] | every decision: `plan(&ModelRollout, &Observed, now) -> Plan` | know a client, a clock, a task |
//! | [`shell`] | all I/O: `observe` reads caches, `apply` writes, `controller` loops | decide |
//! | [`ops`] | metrics, health, logs, shutdown | know what a rollout is for |
//!
//! One pass of the loop: observe → plan → apply, again until nothing is left to do. A crash anywhere is cured by planning
//! again, since everything that cannot be observed is in `status.attempt` before it is acted on.
//!
//! # The states of an attempt
//!
//! ```text
//!            target != active            ready, bound           last stage passed
//!  (rest) ────────────────────► Preparing ───────────► Stage i ───────────────────► Promoting
//!    ▲                              │                  │  ▲ │ hold over, gates pass,     │ backend switched
//!    │                              │                  │  └─┘ approved: i + 1            ▼
//!    │        deadline, act,        │                  │                             Buffering ──► (rest) promoted
//!    │        target turned back    │                  │ gate failed, Pods lost,         │
//!    └──────────────────────────────┘                  │ act, target turned back, …      │ the same
//!    └───────────────────────── traffic back ◄─────────┴─────────────────────────────────┘
//! ```
//!
//! Order of writes: intent (status) → traffic → scale → result (status) → Events. Going back writes traffic *first*.

pub mod api;
pub mod engine;
pub mod ops;
pub mod shell;
