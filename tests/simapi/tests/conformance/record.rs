//! Recorded answers as files: YAML whose small parts are on one line.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::Value;

use super::play::Reply;
use super::trace::{Trace, folder, read};

/// What fits into a line stays in it.
const LINE: usize = 160;

/// A recorded answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// The step.
    pub id: String,
    /// What was asked.
    pub asked: String,
    /// The HTTP status.
    pub status: u16,
    /// Warnings in its headers.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The body, masked.
    pub body: Value,
}

/// The recorded answers of a trace in a run whose namespace is `namespace`.
pub fn load(trace: &Trace, namespace: &str) -> Vec<Recorded> {
    let mut all: Vec<Recorded> = read(&folder().join(format!("recorded/{}.yaml", trace.name)));
    for one in &mut all {
        fill(&mut one.body, namespace);
    }
    all
}

fn fill(value: &mut Value, namespace: &str) {
    match value {
        Value::String(text) => *text = text.replace("{ns}", namespace),
        Value::Array(items) => items.iter_mut().for_each(|item| fill(item, namespace)),
        Value::Object(fields) => {
            for (key, mut value) in std::mem::take(fields) {
                fill(&mut value, namespace);
                fields.insert(key.replace("{ns}", namespace), value);
            }
        }
        _ => {}
    }
}

/// Writes masked answers.
pub fn save(trace: &Trace, replies: &[Reply]) {
    let mut out = String::from("# Recorded from a real API server by the test in tests/conformance.rs. Do not edit.\n");
    for (step, reply) in trace.steps.iter().zip(replies) {
        let _ = write!(out, "- id: {}\n  asked: {}\n  status: {}\n", step.id, text(&step.line), reply.status);
        if !reply.warnings.is_empty() {
            let _ = writeln!(out, "  warnings: {}", serde_json::json!(reply.warnings));
        }
        out.push_str("  body:");
        emit(&mut out, &reply.body, 4);
    }
    std::fs::write(folder().join(format!("recorded/{}.yaml", trace.name)), out).expect("a file");
}

fn emit(out: &mut String, value: &Value, indent: usize) {
    let line = value.to_string();
    let whole = indent + line.len() <= LINE;
    match value {
        Value::Object(fields) if !whole && !fields.is_empty() => {
            out.push('\n');
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            for (key, value) in fields {
                let _ = write!(out, "{:indent$}{}:", "", text(key));
                match value.as_array().filter(|entries| key == "managedFields" && !entries.is_empty()) {
                    // most of an answer is who manages what: a line for each
                    Some(entries) => {
                        out.push('\n');
                        for entry in entries {
                            let _ = writeln!(out, "{:indent$}- {entry}", "");
                        }
                    }
                    None => emit(out, value, indent + 2),
                }
            }
        }
        Value::Array(items) if !whole && !items.is_empty() => {
            out.push('\n');
            for item in items {
                let _ = write!(out, "{:indent$}-", "");
                emit(out, item, indent + 2);
            }
        }
        _ => {
            let _ = writeln!(out, " {line}");
        }
    }
}

/// A text as YAML, in quotes where it needs them.
fn text(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_/.".contains(&byte);
    let word = text.bytes().all(plain) && text.starts_with(|first: char| first.is_ascii_alphabetic());
    let reserved = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    if word && !reserved.contains(&text.to_lowercase().as_str()) { text.to_owned() } else { format!("{text:?}") }
}
