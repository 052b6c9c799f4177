//! The operator's program: installs the one TLS provider, reads the command line, starts what it asks for.

use std::process::ExitCode;

use clap::Parser as _;
use modelrollout::api;
use modelrollout::shell::config::{Cli, Command, RunArgs};
use modelrollout::shell::start;

fn main() -> ExitCode {
    // kube and the metrics client must agree on one provider; without this the first that starts would choose
    let installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let result = match (installed, Cli::parse()) {
        (Err(_), _) => Err("another TLS provider is installed already".to_owned()),
        (Ok(()), Cli { command: Some(Command::Crd), .. }) => print_crd(),
        (Ok(()), Cli { command: Some(Command::Run(args)), .. }) => run(*args),
        (Ok(()), Cli { command: None, run: args }) => run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("modelrollout-operator: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn print_crd() -> Result<(), String> {
    let text = api::crd_yaml().map_err(|error| error.to_string())?;
    print!("{text}");
    Ok(())
}

fn run(args: RunArgs) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| format!("the runtime cannot start: {error}"))?;
    runtime.block_on(start::run(args))
}
