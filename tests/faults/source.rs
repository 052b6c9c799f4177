//! Prometheus as the operator reaches it, and the faults of its answers.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{self, BoxFuture, FutureExt as _};
use modelrollout::shell::prometheus::{Sources, Transport};
use modelrollout_simapi::actors::prometheus::corrupt::Corruption;
use modelrollout_simapi::client::Sim;

use crate::fault::{Class, Kind};
use crate::hooks::Hooks;
use crate::world::{Shared, lock};

/// A source for the operator, or for its rival, whose questions meet no fault.
pub fn source(world: &Shared, sim: &Sim<Hooks>, ours: bool) -> Sources {
    let (world, sim) = (Arc::clone(world), sim.clone());
    let transport: Transport =
        Arc::new(move |request: reqwest::Request| -> BoxFuture<'static, Option<reqwest::Response>> {
            let form = request.body().and_then(|body| body.as_bytes()).unwrap_or_default();
            let fields = pairs(&String::from_utf8_lossy(form))
                .chain(pairs(request.url().query().unwrap_or_default()))
                .collect::<Vec<_>>();
            let path = request.url().path().to_owned();
            let now = sim.millis();
            let asked = || {
                fields
                    .iter()
                    .find(|field| field.0 == "query" || field.0 == "metric")
                    .map_or_else(String::new, |field| field.1.clone())
            };
            let (kind, down) = sim.with(|_, hooks| {
                let kind = if ours { hooks.reach(Class::Query, asked) } else { None };
                if kind == Some(Kind::SourceDown60) {
                    hooks.source_down_until = now + 60_000;
                }
                (kind, now < hooks.source_down_until)
            });
            if down {
                return future::ready(None).boxed();
            }
            let (status, body) = lock(&world).prometheus.answer(&path, &fields, now);
            let answer = |status: u16, body: Vec<u8>| {
                let response = http::Response::builder().status(status).body(body).ok();
                future::ready(response.map(reqwest::Response::from)).boxed()
            };
            match kind {
                None => {
                    sim.with(|_, hooks| hooks.invariants.good_answers += u64::from(status == 200));
                    answer(status, body)
                }
                Some(Kind::SourceRefused | Kind::SourceDown60) => future::ready(None).boxed(),
                // its end is the client's deadline
                Some(Kind::SourceHangs) => async {
                    tokio::time::sleep(Duration::from_hours(1)).await;
                    None
                }
                .boxed(),
                Some(Kind::Source500) => answer(500, b"boom".to_vec()),
                Some(Kind::Redirect) => answer(302, Vec::new()),
                Some(kind) => {
                    let (status, body) = corrupted(kind, body);
                    answer(status, body)
                }
            }
        });
    Sources::simulated(transport)
}

/// What a fault makes of a good answer.
fn corrupted(kind: Kind, body: Vec<u8>) -> (u16, Vec<u8>) {
    let by = match kind {
        Kind::Nan => Corruption::NotANumber,
        Kind::Infinite => Corruption::Infinite,
        Kind::TwoSeries => Corruption::TwoSeries,
        Kind::CountsDown => Corruption::Falls,
        Kind::Old => Corruption::Old,
        Kind::Empty => Corruption::Empty,
        Kind::WrongType => Corruption::WrongType,
        Kind::SourceError => Corruption::Refused,
        Kind::Large => Corruption::Large,
        _ => Corruption::Html,
    };
    by.apply(200, body)
}

/// The fields of a form.
fn pairs(form: &str) -> impl Iterator<Item = (String, String)> + use<> {
    let url = reqwest::Url::parse(&format!("http://form/?{form}"));
    url.map(|url| url.query_pairs().into_owned().collect::<Vec<_>>()).unwrap_or_default().into_iter()
}
