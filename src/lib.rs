//! ModelRollout: moves production traffic to a new AI model and its prompt in judged stages, and back at once.

pub mod api;
pub mod engine;
pub mod ops;
pub mod shell;
