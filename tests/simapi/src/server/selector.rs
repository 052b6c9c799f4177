//! Label and field selectors.

use serde_json::Value;

use super::errors::{Failure, bad_request};

/// Which objects are wanted.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    labels: Vec<Requirement>,
    fields: Vec<(String, String, bool)>,
}

#[derive(Clone, Debug)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    Missing,
    Above,
    Below,
}

impl Selection {
    pub fn new(labels: &str, fields: &str) -> Result<Self, Box<Failure>> {
        let labels = parts(labels).into_iter().map(requirement).collect::<Result<_, _>>()?;
        let mut wanted = Vec::new();
        for part in fields.split(',').filter(|it| !it.is_empty()) {
            let (name, value, equal) = if let Some((name, value)) = part.split_once("!=") {
                (name, value, false)
            } else if let Some((name, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (name, value, true)
            } else {
                return Err(bad_request(&format!("invalid selector: '{fields}'; can't understand '{part}'")));
            };
            wanted.push((name.trim().to_owned(), value.trim().to_owned(), equal));
        }
        Ok(Self { labels, fields: wanted })
    }

    pub fn is_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Fields that this kind cannot be selected by.
    pub fn unknown_field(&self, known: &[&str]) -> Option<&str> {
        let meta = ["metadata.name", "metadata.namespace"];
        self.fields.iter().map(|it| it.0.as_str()).find(|name| !meta.contains(name) && !known.contains(name))
    }

    pub fn fits(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let of_labels = self.labels.iter().all(|it| {
            let value = labels.get(&it.key).and_then(Value::as_str);
            match it.operator {
                Operator::In => value.is_some_and(|value| it.values.iter().any(|one| one == value)),
                Operator::NotIn => value.is_none_or(|value| it.values.iter().all(|one| one != value)),
                Operator::Exists => value.is_some(),
                Operator::Missing => value.is_none(),
                Operator::Above | Operator::Below => {
                    let (has, than) = (value.and_then(|it| it.parse::<i64>().ok()), it.values[0].parse::<i64>().ok());
                    let (Some(has), Some(than)) = (has, than) else { return false };
                    if it.operator == Operator::Above { has > than } else { has < than }
                }
            }
        });
        of_labels
            && self.fields.iter().all(|(name, wanted, equal)| {
                let mut at = object;
                for step in name.split('.') {
                    at = &at[step];
                }
                let has = match at {
                    Value::String(text) => text.as_str() == wanted,
                    Value::Null => wanted.is_empty(),
                    other => other.to_string() == *wanted,
                };
                has == *equal
            })
    }
}

/// Split at commas outside of parentheses.
fn parts(text: &str) -> Vec<&str> {
    let (mut out, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, one) in text.char_indices() {
        match one {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                out.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    out.push(&text[start..]);
    out.into_iter().map(str::trim).filter(|it| !it.is_empty()).collect()
}

fn requirement(text: &str) -> Result<Requirement, Box<Failure>> {
    let new = |key: &str, operator, values: Vec<String>| Requirement { key: key.trim().to_owned(), operator, values };
    if let Some((head, list)) = text.split_once('(') {
        let list = list.trim_end_matches(')').split(',').map(|it| it.trim().to_owned()).collect();
        let mut words = head.split_whitespace();
        return match (words.next(), words.next()) {
            (Some(key), Some("in")) => Ok(new(key, Operator::In, list)),
            (Some(key), Some("notin")) => Ok(new(key, Operator::NotIn, list)),
            _ => Err(bad_request(&format!("unable to parse requirement: found '{text}'"))),
        };
    }
    // a value has no operator in it
    if let Some(rest) = text.split_once('=').map(|it| it.1.trim_start_matches('=')).filter(|it| it.contains('=')) {
        let found = if rest.contains("==") { "==" } else { "=" };
        return Err(bad_request(&format!("found '{found}', expected: ',' or 'end of string'")));
    }
    if let Some((key, value)) = text.split_once("!=") {
        return Ok(new(key, Operator::NotIn, vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Ok(new(key, Operator::In, vec![value.trim().to_owned()]));
    }
    for (sign, operator) in [('>', Operator::Above), ('<', Operator::Below)] {
        if let Some((key, value)) = text.split_once(sign) {
            return Ok(new(key, operator, vec![value.trim().to_owned()]));
        }
    }
    if let Some(key) = text.strip_prefix('!') {
        return Ok(new(key, Operator::Missing, Vec::new()));
    }
    if text.contains(char::is_whitespace) {
        let words: Vec<&str> = text.split_whitespace().collect();
        if let [_, "in" | "notin", value, ..] = words.as_slice() {
            return Err(bad_request(&format!("unable to parse requirement: found '{value}' expected: '('")));
        }
        let found = words[1];
        return Err(bad_request(&format!(
            "unable to parse requirement: found '{found}', expected: in, notin, =, ==, !=, gt, lt"
        )));
    }
    Ok(new(text, Operator::Exists, Vec::new()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Selection;

    fn fits(labels: &str, fields: &str) -> bool {
        let object = json!({ "metadata": { "name": "x", "labels": { "app": "a", "tier": "web" } } });
        Selection::new(labels, fields).unwrap().fits(&object)
    }

    #[test]
    fn labels_are_selected() {
        for (labels, expected) in [
            ("app=a", true),
            ("app==b", false),
            ("app!=b", true),
            ("app in (a, b),tier=web", true),
            ("app notin (a)", false),
            ("tier", true),
            ("!tier", false),
            ("!other", true),
            ("other!=x", true),
            ("", true),
        ] {
            assert_eq!(fits(labels, ""), expected, "{labels}");
        }
        assert!(fits("", "metadata.name=x") && !fits("", "metadata.name!=x"));
    }
}
