//! The model, as a server that traces are played on.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use modelrollout_simapi::server::{Answer, Request, Server};
use serde_json::{Value, json};

use super::play::{self, Reply};

/// A model with a namespace.
pub struct Model {
    server: Server,
    now: Timestamp,
}

impl Model {
    /// As a cluster is when a trace begins.
    pub fn new(definition: &Value, namespace: &str) -> Self {
        let mut model = Self { server: Server::new(), now: "2026-01-01T00:00:00Z".parse().expect("a time") };
        model.server.install_crd(definition);
        model.make("/api/v1/namespaces", "conformance/1.0", &json!({ "metadata": { "name": namespace } }));
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        model.make(&accounts, "kube-controller-manager/v1", &json!({ "metadata": { "name": "default" } }));
        model
    }

    fn make(&mut self, path: &str, agent: &str, body: &Value) {
        let request = Request {
            method: "POST".to_owned(),
            path: path.to_owned(),
            content_type: "application/json".to_owned(),
            accept: "application/json".to_owned(),
            user_agent: agent.to_owned(),
            body: body.to_string().into_bytes(),
            ..Request::default()
        };
        match self.server.handle(&request, self.now) {
            Answer::Done { status: 201, .. } => {}
            Answer::Done { body, .. } => println!("{path}: {body}"),
            Answer::Watch(_) => println!("{path} is watched"),
        }
    }
}

impl play::Server for Model {
    async fn answer(&mut self, request: &Request) -> Reply {
        match self.server.handle(request, self.now) {
            Answer::Done { status, body } => Reply { status, body, ..Reply::default() },
            Answer::Watch(watch) => {
                let body = match self.server.events(&watch, watch.after) {
                    Ok(events) => events.iter().map(|event| Value::clone(&event.body)).collect(),
                    Err(status) => vec![json!({ "type": "ERROR", "object": status })],
                };
                Reply { status: 200, body: events(body), ..Reply::default() }
            }
        }
    }

    async fn next_second(&mut self) {
        self.now += SignedDuration::from_secs(1);
    }

    async fn until(&mut self, request: &Request, _: &(dyn Fn(&Reply) -> bool + Sync)) -> Reply {
        // what is found last takes as many passes as owners are above it
        for _ in 0..4 {
            self.server.collect_garbage(self.now);
        }
        self.answer(request).await
    }

    fn is_model(&self) -> bool {
        true
    }

    fn compact(&mut self) {
        self.server.compact(self.server.version());
    }
}

/// Events of a watch, without the bookmarks that come by the clock.
pub fn events(mut events: Vec<Value>) -> Value {
    events.retain(|event| {
        event["type"] != "BOOKMARK"
            || event.pointer("/object/metadata/annotations/k8s.io~1initial-events-end").is_some()
    });
    json!({ "events": events })
}
