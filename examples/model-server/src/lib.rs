//! A small HTTP server that speaks the `OpenAI` chat API without a real model behind it.
//!
//! It is what the examples, the demo and the end-to-end tests roll out. Every answer names the
//! model and the version of the prompt that produced it, so that a client can check that the two
//! always belong together. It can be told to fail, to slow down or to break a share of its answers.
//!
//! | path | what it does |
//! |---|---|
//! | `POST /v1/chat/completions` | one answer, plain or streamed as server-sent events |
//! | `GET /v1/models` | the one model that is served |
//! | `GET /metrics` | requests by status and by how they finished, latencies, times of tokens |
//! | `GET /readyz` | 200 once the model is loaded, 503 before that and while draining |
//! | `GET /healthz` | always 200 |
//!
//! Beside it there is [`Judge`], the program `answer-judge`: it asks such a server questions and
//! says whether all answers have the schema and come from the expected model and prompt.

mod api;
mod chat;
mod config;
mod injection;
mod judge;
mod metrics;
mod prompt;
mod server;
mod state;

pub use config::Config;
pub use judge::{Judge, JudgeConfig, JudgeError, Verdict};
pub use prompt::Prompt;
pub use server::{Server, StartError};
