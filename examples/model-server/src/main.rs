//! Starts the model server from its environment and drains it on SIGTERM.
//!
//! The program installs its own handlers, so it needs no init process in front of it when it runs
//! as PID 1 of a container.

use std::process::ExitCode;

use clap::Parser;
use modelrollout_model_server::{Config, Server, StartError};
use tokio::signal::unix::{Signal, SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Config::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("model-server: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(config: Config) -> Result<(), StartError> {
    // Before anything else: a signal that comes early must not be lost.
    let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let server = Server::bind(config).await?;
    println!("model-server: {} listens on {}", server.identity(), server.local_addr());
    server.run(first_of(terminate, interrupt)).await?;
    println!("model-server: drained");
    Ok(())
}

async fn first_of(mut terminate: Signal, mut interrupt: Signal) {
    tokio::select! {
        _ = terminate.recv() => println!("model-server: SIGTERM, draining"),
        _ = interrupt.recv() => println!("model-server: SIGINT, draining"),
    }
}
