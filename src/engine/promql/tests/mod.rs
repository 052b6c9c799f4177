mod filling;
mod grammar;
mod pieces;
mod properties;
mod queries;
mod selectors;
mod texts;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::{Names, query, selector};

const NAMES: Names<'_> = Names { namespace: "shop", service: "ml.bot-blue", deployment: "ml-bot-blue" };
const LIMIT: Duration = Duration::from_secs(2);

fn refused(text: &str) -> String {
    selector(text).expect_err(text).to_string()
}

fn refused_query(text: &str) -> String {
    query(text).expect_err(text).to_string()
}

/// What `work` gives; it must not take long. A channel waits, since the engine knows no clock (`tests/layers.rs`).
fn in_time<T: Send>(text: &str, work: impl FnOnce() -> T + Send) -> T {
    let (done, result) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || done.send(work()));
        result.recv_timeout(LIMIT).unwrap_or_else(|error| panic!("{error}: {text:?}"))
    })
}
