//! Shows a rollout, a rollback by errors and one by latency on a real cluster, under load, and checks that no user
//! noticed. `make demo` prepares the cluster and runs it.

mod cluster;
mod follow;
mod manifests;
mod story;
mod summary;
mod table;

use std::process::ExitCode;

use clap::Parser;
use kube::Client;

use follow::Follower;
use story::Teller;
use table::Clock;

/// Shows a rollout, a rollback by errors and one by latency on a real cluster. The operator runs there already, and the
/// namespace `demo` is there and empty.
#[derive(Debug, Parser)]
#[command(name = "modelrollout-demo", version)]
struct Cli {
    /// Where the ingress controller answers, a private address
    #[arg(long, env = "DEMO_URL", default_value = "http://10.99.0.2/")]
    url: String,
    /// How many questions users ask per second
    #[arg(long, env = "DEMO_RATE", default_value_t = 60.0)]
    rate: f64,
    /// The tag of the model server's image
    #[arg(long, env = "TAG", default_value = "dev")]
    tag: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Cli::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("\nerror: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: &Cli) -> Result<bool, String> {
    rustls::crypto::aws_lc_rs::default_provider().install_default().map_err(|_| "there are two TLS providers")?;
    let client = Client::try_default().await.map_err(|error| format!("no cluster can be reached: {error}"))?;
    let clock = Clock::start();
    let mut follower = Follower::start(&client, clock);
    let Cli { url, rate, tag } = cli;
    let mut teller = Teller { client: &client, clock, follower: &mut follower, url, tag, rate: *rate };
    match teller.tell().await {
        Ok(story) => Ok(summary::print(&story, *rate).is_empty()),
        Err(error) => {
            let seen = follower.latest();
            Err(format!("{error}\n{}", cluster::describe(&client, seen.as_deref()).await))
        }
    }
}
