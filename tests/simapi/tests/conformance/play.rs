//! Plays a trace against a server, whichever it is.

use std::collections::BTreeMap;

use modelrollout_simapi::server::Request;
use serde_json::{Value, json};

use super::trace::{Step, Told, Trace};

/// What a server answered to a step.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// Name of the step.
    pub id: String,
    /// The HTTP status; 0 if the step could not be asked.
    pub status: u16,
    /// The body; of a watch, `{"events": […]}`.
    pub body: Value,
    /// The warnings in its headers. The model has none.
    pub warnings: Vec<String>,
    /// What a list's version tells.
    pub listed: Listed,
}

/// What the version of a list tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listed {
    /// No more than that it is new enough.
    #[default]
    Latest,
    /// It is the one that was asked for, which some object has.
    Exact,
    /// It is that of the list's other pages.
    Page,
}

/// A server.
pub trait Server {
    /// Answers.
    async fn answer(&mut self, request: &Request) -> Reply;
    /// Waits until a second in which nothing was written yet: the order of managed fields depends on their times.
    async fn next_second(&mut self);
    /// Answers as soon as `fits`. Before the model answers, it does what `meanwhile` says.
    async fn until(&mut self, request: &Request, fits: &(dyn Fn(&Reply) -> bool + Sync)) -> Reply;
    /// Whether it is to be told what controllers do.
    fn is_model(&self) -> bool;
    /// Forgets all history.
    fn compact(&mut self) {}
}

/// All answers of a trace.
pub async fn play(server: &mut impl Server, trace: &Trace, namespace: &str) -> Vec<Reply> {
    let mut answers: BTreeMap<String, Value> = BTreeMap::new();
    let mut replies = Vec::new();
    let mut last = None;
    for step in &trace.steps {
        if server.is_model() {
            for one in &step.meanwhile {
                if let Ok(request) = one.request(trace, &Told { namespace, answers: &answers }) {
                    pace(server, &mut last, &request).await;
                    let reply = server.answer(&request).await;
                    if reply.status >= 400 {
                        println!("{}: what controllers do before {}: {}", trace.name, step.id, reply.body);
                    }
                }
            }
        } else if !step.meanwhile.is_empty() {
            last = Some("a controller".to_owned());
        }
        if step.compact {
            server.compact();
        }
        let mut reply = match step.request(trace, &Told { namespace, answers: &answers }) {
            Err(why) => Reply { body: json!({ "could not be asked": why }), ..Reply::default() },
            Ok(request) => {
                pace(server, &mut last, &request).await;
                let mut reply = match &step.until {
                    None => server.answer(&request).await,
                    Some(until) => server.until(&request, &|reply| fits(until, reply)).await,
                };
                if request.query.get("resourceVersionMatch").is_some_and(|it| it == "Exact") {
                    reply.listed = Listed::Exact;
                } else if request.query.contains_key("continue")
                    || reply.body.pointer("/metadata/continue").is_some_and(|it| *it != "")
                {
                    reply.listed = Listed::Page;
                }
                reply
            }
        };
        reply.id.clone_from(&step.id);
        shorten(&mut reply.body);
        sort_causes(&mut reply.body);
        if trace.unordered {
            sort_managers(&mut reply.body);
        }
        answers.insert(step.id.clone(), reply.body.clone());
        for pointer in &step.ignore {
            forget(&mut reply.body, pointer);
        }
        replies.push(reply);
    }
    replies
}

async fn pace(server: &mut impl Server, last: &mut Option<String>, request: &Request) {
    if let Some(writer) = Step::writer(request) {
        if last.as_ref().is_some_and(|last| *last != writer) {
            server.next_second().await;
        }
        *last = Some(writer);
    }
}

fn fits(until: &BTreeMap<String, Value>, reply: &Reply) -> bool {
    until.iter().all(|(pointer, want)| match pointer.as_str() {
        "status" => *want == reply.status,
        pointer => reply.body.pointer(pointer).unwrap_or(&Value::Null) == want,
    })
}

/// Sorts what is wrong with a ModelRollout: the real server finds it in another order each time.
fn sort_causes(body: &mut Value) {
    if body.pointer("/details/group").is_none_or(|group| group != "modelrollout.dev") {
        return;
    }
    let Some(Value::Array(causes)) = body.pointer_mut("/details/causes") else { return };
    causes.sort_by_key(|cause| ["field", "message"].map(|key| cause[key].to_string()));
    let parts: Vec<String> = causes.iter().filter_map(part).collect();
    let sorted = parts.join(", ");
    // but only if the message is made of just these
    if let Some((before, list)) = body["message"].as_str().and_then(|text| text.split_once(" is invalid: ["))
        && list.len() == sorted.len() + 1
        && parts.iter().all(|part| list.contains(part.as_str()))
    {
        body["message"] = format!("{before} is invalid: [{sorted}]").into();
    }
}

/// A cause as it stands in a message.
fn part(cause: &Value) -> Option<String> {
    Some(format!("{}: {}", cause["field"].as_str()?, cause["message"].as_str()?))
}

/// Sorts managed fields by name.
fn sort_managers(body: &mut Value) {
    if let Some(Value::Array(entries)) = body.pointer_mut("/metadata/managedFields") {
        entries.sort_by_key(|entry| ["operation", "manager", "subresource"].map(|key| entry[key].to_string()));
    }
}

/// Takes whole objects out of messages: the order of fields in them is that of the real server's types.
fn shorten(value: &mut Value) {
    const BEGIN: &str = "Invalid value: \"{";
    const END: &str = "}\": ";
    match value {
        Value::String(text) => {
            if let (Some(begin), Some(end)) = (text.find(BEGIN), text.rfind(END)) {
                *text = format!("{}Invalid value: <object>: {}", &text[..begin], &text[end + END.len()..]);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(shorten),
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        _ => {}
    }
}

/// Removes what is at `pointer`, if it is there.
fn forget(body: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return };
    match body.pointer_mut(parent) {
        Some(Value::Object(fields)) => drop(fields.remove(&last.replace("~1", "/").replace("~0", "~"))),
        Some(Value::Array(items)) => {
            if let Some(place) = last.parse::<usize>().ok().and_then(|index| items.get_mut(index)) {
                *place = Value::Null;
            }
        }
        _ => {}
    }
}
