//! Compares an answer with the recorded one, whose masks are bound to values as they appear.

use std::collections::BTreeMap;

use serde_json::Value;

use super::mask::{LIST_VERSION, time};

/// What the masks of one trace stand for in this run.
#[derive(Default)]
pub struct Masks {
    values: BTreeMap<String, String>,
    tokens: BTreeMap<String, String>,
}

/// One difference.
#[derive(Debug)]
pub struct Difference {
    /// JSON pointer in the answer.
    pub pointer: String,
    /// As recorded.
    pub expected: String,
    /// As answered.
    pub actual: String,
}

impl Difference {
    fn new(pointer: &str, expected: Option<&Value>, actual: Option<&Value>) -> Self {
        let show = |value: Option<&Value>| value.map_or_else(|| "(nothing)".to_owned(), ToString::to_string);
        Self { pointer: pointer.to_owned(), expected: show(expected), actual: show(actual) }
    }
}

impl Masks {
    /// All differences of `actual` from `expected`.
    pub fn compare(&mut self, expected: &Value, actual: &Value) -> Vec<Difference> {
        let mut found = Vec::new();
        self.walk("", expected, actual, &mut found);
        found
    }

    fn walk(&mut self, pointer: &str, expected: &Value, actual: &Value, found: &mut Vec<Difference>) {
        match (expected, actual) {
            (Value::Object(wants), Value::Object(has)) => {
                let mut matched = Vec::new();
                for (key, want) in wants {
                    let place = below(pointer, key);
                    // keys of managed fields may hold a uid
                    let real = if has.contains_key(key) {
                        Some(key)
                    } else {
                        has.keys().find(|it| key.contains('<') && self.text(key, it).is_none())
                    };
                    match real {
                        None => found.push(Difference::new(&place, Some(want), None)),
                        Some(real) => {
                            matched.push(real);
                            self.walk(&place, want, &has[real], found);
                        }
                    }
                }
                for (key, value) in has.iter().filter(|(key, _)| !matched.contains(key)) {
                    found.push(Difference::new(&below(pointer, key), None, Some(value)));
                }
            }
            (Value::Array(wants), Value::Array(has)) => {
                for index in 0..wants.len().max(has.len()) {
                    let place = below(pointer, &index.to_string());
                    match (wants.get(index), has.get(index)) {
                        (Some(want), Some(has)) => self.walk(&place, want, has, found),
                        (want, has) => found.push(Difference::new(&place, want, has)),
                    }
                }
            }
            (Value::String(want), Value::String(has)) => {
                if let Some(why) = self.text(want, has) {
                    found.push(Difference { pointer: pointer.to_owned(), expected: why, actual: format!("{has:?}") });
                }
            }
            _ if expected == actual => {}
            _ => found.push(Difference::new(pointer, Some(expected), Some(actual))),
        }
    }

    /// Nothing if they agree, else what was expected.
    fn text(&mut self, want: &str, has: &str) -> Option<String> {
        let Some((before, token, after)) = first_token(want) else {
            return (want != has).then(|| format!("{want:?}"));
        };
        let Some(rest) = has.strip_prefix(before) else { return Some(format!("{want:?}")) };
        // what follows the mask ends it
        let next = first_token(after).map_or(after, |(literal, ..)| literal);
        let end = if next.is_empty() { Some(rest.len()) } else { rest.find(next) };
        let Some((value, rest)) = end.map(|end| rest.split_at(end)) else { return Some(format!("{want:?}")) };
        self.token(token, value).or_else(|| self.text(after, rest).map(|_| format!("{want:?}")))
    }

    fn token(&mut self, token: &str, value: &str) -> Option<String> {
        let number = value.parse::<u64>().ok();
        let fits = match token.trim_start_matches('<').split(['-', '>']).next().unwrap_or_default() {
            "time" | "micro" => time(value) == Some(token),
            "list" => return self.list_version(number),
            "rv" | "page" => number.is_some(),
            "uid" => value.len() == 36,
            "suffix" => value.len() == 5,
            _ => !value.is_empty(),
        };
        if !fits {
            return Some(token.to_owned());
        }
        if matches!(token, "<time>" | "<micro-time>" | "<continue>") {
            return None;
        }
        if let Some(bound) = self.values.get(token) {
            return (bound != value).then(|| format!("{token}, which was {bound:?}"));
        }
        if token.starts_with("<page") {
            // it may be that of an object too
            self.values.insert(token.to_owned(), value.to_owned());
            return None;
        }
        let before = self.tokens.get(value).map(|other| format!("{token}, but {value:?} was {other}"));
        let wrong = before.or_else(|| self.disorder(token, number?));
        self.values.insert(token.to_owned(), value.to_owned());
        self.tokens.entry(value.to_owned()).or_insert_with(|| token.to_owned());
        wrong
    }

    /// A list is at least as new as every object that was seen before.
    fn list_version(&self, number: Option<u64>) -> Option<String> {
        let seen = self.values.iter().filter(|(token, _)| token.starts_with("<rv"));
        let newest = seen.filter_map(|(_, value)| value.parse::<u64>().ok()).max().unwrap_or_default();
        (number < Some(newest)).then(|| format!("{LIST_VERSION} of at least {newest}"))
    }

    /// Versions are numbered in their order.
    fn disorder(&self, token: &str, value: u64) -> Option<String> {
        let rank = rank(token)?;
        let wrong = self.values.iter().find(|(other, bound)| {
            let (Some(other), Ok(bound)) = (self::rank(other), bound.parse::<u64>()) else { return false };
            (other < rank) != (bound < value)
        });
        wrong.map(|(other, bound)| format!("{token}, in order with {other}, which was {bound:?}"))
    }
}

fn below(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

fn rank(token: &str) -> Option<u64> {
    token.strip_prefix("<rv-")?.strip_suffix('>')?.parse().ok()
}

/// What is before the first mask of a text, the mask, and the rest.
fn first_token(text: &str) -> Option<(&str, &str, &str)> {
    const KINDS: [&str; 9] =
        ["<uid-", "<rv-", "<page-", "<ip-", "<suffix-", "<time>", "<micro-time>", "<continue>", LIST_VERSION];
    let start = KINDS.iter().filter_map(|kind| text.find(kind)).min()?;
    let end = start + text[start..].find('>')? + 1;
    Some((&text[..start], &text[start..end], &text[end..]))
}
