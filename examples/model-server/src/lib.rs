//! A small HTTP server that speaks the `OpenAI` chat API without a real model behind it.
//!
//! It is what the examples, the demo and the end-to-end tests roll out. Every answer names the
//! model and the version of the prompt that produced it, so that a client can check that the two
//! always belong together. It can be told to fail or to slow down a share of its answers.
//!
//! | path | what it does |
//! |---|---|
//! | `POST /v1/chat/completions` | one answer, plain or streamed as server-sent events |
//! | `GET /v1/models` | the one model that is served |
//! | `GET /metrics` | `http_requests_total`, `http_request_duration_seconds` |
//! | `GET /readyz` | 200 once the model is loaded, 503 before that and while draining |
//! | `GET /healthz` | always 200 |

mod api;
mod chat;
mod config;
mod injection;
mod metrics;
mod prompt;
mod server;
mod state;

pub use config::Config;
pub use prompt::Prompt;
pub use server::{Server, StartError};
