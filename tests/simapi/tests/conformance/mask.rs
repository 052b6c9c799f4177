//! Takes from answers what differs from run to run, and nothing else: what was equal or in order stays so.

use std::collections::BTreeMap;

use serde_json::Value;

use super::play::{Listed, Reply};

/// The version of a list or a bookmark: anything may have been written in between by others.
pub const LIST_VERSION: &str = "<list-version>";

/// Masks the answers of one trace.
pub fn mask(replies: &mut [Reply], namespace: &str) {
    let mut names = Names::default();
    for reply in replies.iter() {
        names.collect(&reply.body);
        if reply.listed == Listed::Page
            && let Some(version) = version(&reply.body)
        {
            let next = names.pages.len() + 1;
            names.pages.entry(version).or_insert_with(|| format!("<page-{next}>"));
        }
    }
    let mut versions: Vec<u64> = std::mem::take(&mut names.versions);
    versions.sort_unstable();
    versions.dedup();
    for (index, version) in versions.iter().enumerate() {
        names.tokens.insert(version.to_string(), format!("<rv-{}>", index + 1));
    }
    for reply in replies {
        names.apply(&mut reply.body, namespace, reply.listed);
    }
}

#[derive(Default)]
struct Names {
    versions: Vec<u64>,
    tokens: BTreeMap<String, String>,
    /// Of lists that go on.
    pages: BTreeMap<u64, String>,
    counts: BTreeMap<&'static str, usize>,
}

impl Names {
    fn collect(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.collect_text(text),
            Value::Array(items) => items.iter().for_each(|item| self.collect(item)),
            Value::Object(fields) => {
                if let Some(version) = version(value).filter(|_| !is_list(value)) {
                    self.versions.push(version);
                }
                let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
                if let (Some(prefix), Some(name)) = (text("/metadata/generateName"), text("/metadata/name"))
                    && let Some(suffix) = name.strip_prefix(prefix).filter(|suffix| suffix.len() == 5)
                {
                    self.name(suffix, "suffix");
                }
                for (key, value) in fields {
                    self.collect_text(key);
                    self.collect(value);
                }
            }
            _ => {}
        }
    }

    fn collect_text(&mut self, text: &str) {
        for uid in uids(text) {
            self.name(uid, "uid");
        }
        if text.starts_with("10.96.") {
            self.name(text, "ip");
        }
    }

    fn name(&mut self, raw: &str, kind: &'static str) {
        if !self.tokens.contains_key(raw) {
            let count = self.counts.entry(kind).or_default();
            *count += 1;
            self.tokens.insert(raw.to_owned(), format!("<{kind}-{count}>"));
        }
    }

    fn apply(&self, value: &mut Value, namespace: &str, listed: Listed) {
        match value {
            Value::String(text) => *text = self.text(text, namespace),
            Value::Array(items) => items.iter_mut().for_each(|item| self.apply(item, namespace, listed)),
            Value::Object(_) => {
                let number = version(value);
                let token = match listed {
                    Listed::Latest if is_list(value) => None,
                    Listed::Page if is_list(value) => number.and_then(|number| self.pages.get(&number)),
                    _ => number.and_then(|number| self.tokens.get(&number.to_string())),
                };
                if let Some(place) = value.pointer_mut("/metadata/resourceVersion").filter(|it| *it != "") {
                    *place = token.map_or(LIST_VERSION, String::as_str).into();
                }
                if let Some(place) = value.pointer_mut("/metadata/continue").filter(|it| *it != "") {
                    *place = "<continue>".into();
                }
                let Some(fields) = value.as_object_mut() else { return };
                for (key, mut value) in std::mem::take(fields) {
                    self.apply(&mut value, namespace, listed);
                    fields.insert(self.text(&key, namespace), value);
                }
            }
            _ => {}
        }
    }

    fn text(&self, text: &str, namespace: &str) -> String {
        if let Some(kind) = time(text) {
            return kind.to_owned();
        }
        let mut text = text.replace(namespace, "{ns}");
        for (raw, token) in &self.tokens {
            // a version is a mere number: only where versions are spoken of
            let is_version = token.starts_with("<rv");
            if !is_version && text.contains(raw.as_str()) {
                text = text.replace(raw.as_str(), token);
            }
        }
        if let Some((before, _)) = text.split_once("current: ").filter(|_| text.contains("resource version")) {
            return format!("{before}current: {LIST_VERSION}");
        }
        if text.contains("ResourceVersion in") {
            return self.numbers(&text);
        }
        text
    }

    /// `text` with the versions that are known in it masked.
    fn numbers(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(start) = rest.find(|it: char| it.is_ascii_digit()) {
            let (before, from) = rest.split_at(start);
            let end = from.find(|it: char| !it.is_ascii_digit()).unwrap_or(from.len());
            let (number, after) = from.split_at(end);
            out.push_str(before);
            out.push_str(self.tokens.get(number).map_or(number, String::as_str));
            rest = after;
        }
        out.push_str(rest);
        out
    }
}

/// Whether a value is a list, or stands for one.
fn is_list(value: &Value) -> bool {
    let is_list = value.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    is_list || value.pointer("/metadata/annotations/k8s.io~1initial-events-end").is_some()
}

fn version(value: &Value) -> Option<u64> {
    value.pointer("/metadata/resourceVersion")?.as_str()?.parse().ok()
}

/// The mask of a time of this run; the traces themselves use times of 2020.
pub fn time(text: &str) -> Option<&'static str> {
    let bytes = text.as_bytes();
    let shape = bytes.len() >= 20 && bytes[4] == b'-' && bytes[10] == b'T' && bytes[13] == b':' && text.ends_with('Z');
    let year: u32 = text.get(..4)?.parse().ok()?;
    (shape && year > 2020).then_some(if text.contains('.') { "<micro-time>" } else { "<time>" })
}

/// All uids in a text, but those that begin like the made-up ones of the traces.
fn uids(text: &str) -> Vec<&str> {
    let is_uid = |part: &&str| {
        let shape = part.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
        shape && !part.starts_with("11111111-")
    };
    let places = 0..text.len().saturating_sub(35);
    places.filter_map(|start| text.get(start..start + 36)).filter(is_uid).collect()
}
