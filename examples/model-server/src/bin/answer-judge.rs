//! Judges a model by its answers, for a `job` gate of the operator.
//!
//! The exit code is 0 when every answer was right, 1 when one was wrong, 2 when the settings are bad, and 143 when it was
//! told to stop before it had a verdict. As PID 1 of a container it needs its own handler for that.

use std::process::ExitCode;

use clap::Parser;
use modelrollout_model_server::{Judge, JudgeConfig};
use tokio::signal::unix::{Signal, SignalKind, signal};

const BAD_SETTINGS: u8 = 2;
/// As if the signal had ended it: a Job of the operator is tried again then.
const TERMINATED: u8 = 128 + 15;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(&JudgeConfig::parse()).await {
        Ok(Some(true)) => ExitCode::SUCCESS,
        Ok(Some(false)) => ExitCode::FAILURE,
        Ok(None) => {
            eprintln!("answer-judge: stopped before there was a verdict");
            ExitCode::from(TERMINATED)
        }
        Err(error) => {
            eprintln!("answer-judge: {error}");
            ExitCode::from(BAD_SETTINGS)
        }
    }
}

/// Whether every answer was right; none if it was stopped before.
async fn run(config: &JudgeConfig) -> Result<Option<bool>, Box<dyn std::error::Error>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let judge = Judge::new(config)?;
    let verdict = tokio::select! {
        verdict = judge.run() => verdict,
        () = first_of(&mut terminate, &mut interrupt) => return Ok(None),
    };
    println!("{verdict}");
    Ok(Some(verdict.passed()))
}

async fn first_of(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
