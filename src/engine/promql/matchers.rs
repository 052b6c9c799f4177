//! What stands in braces: the matchers, among them the name of a metric.

use std::iter::Peekable;

use super::scan::{Inside, Kind, Token, placeholders};
use super::string::value;
use super::{Fault, shown};

const METRIC_NAME: &str = "__name__";

#[derive(Debug)]
pub struct Matcher<'a> {
    pub at: usize,
    pub label: String,
    pub operator: &'a str,
    pub value: String,
}

/// The matchers in all braces, with the places of what is wrong in them.
pub fn read<'a>(tokens: &[Token<'a>]) -> Result<Vec<Matcher<'a>>, Fault> {
    let mut found = Vec::new();
    let mut rest = tokens.iter().filter(|token| token.inside == Inside::Braces).peekable();
    while let Some(first) = rest.next() {
        if first.is_sign(&["}"]) {
            continue;
        }
        found.push(matcher(first, &mut rest)?);
        match rest.next() {
            Some(next) if next.is_word("or") => {
                return Err(Fault::at(
                    next.at,
                    "there is no or between braces in PromQL: use =~\"a|b\", or two selectors",
                ));
            }
            Some(next) if !next.is_sign(&[",", "}"]) => {
                return Err(Fault::at(next.at, "a comma or the closing } is missing before this"));
            }
            _ => {}
        }
    }
    Ok(found)
}

fn matcher<'t, 'a: 't>(
    first: &Token<'a>,
    rest: &mut Peekable<impl Iterator<Item = &'t Token<'a>>>,
) -> Result<Matcher<'a>, Fault> {
    let at = first.at;
    let quoted = matches!(first.kind, Kind::Quoted { .. });
    let label = match first.kind {
        Kind::Word => first.text.to_owned(),
        Kind::Quoted { .. } => value(first)?,
        _ => return Err(Fault::at(at, "the name of a label is missing here, as in {service=\"{{service}}\"}")),
    };
    let Some(operator) = rest.next_if(|next| next.is_sign(&["=", "!=", "=~", "!~"])) else {
        if quoted {
            return Ok(Matcher { at, label: METRIC_NAME.to_owned(), operator: "=", value: label });
        }
        let name = shown(first.text);
        return Err(Fault::at(at, format!("after the label {name} one of =, !=, =~ and !~ is missing")));
    };
    let Some(string) = rest.next_if(|next| matches!(next.kind, Kind::Quoted { .. })) else {
        let sign = operator.text;
        let reason = format!("the value after {sign} stands in quotes, as in service=\"{{{{service}}}}\"");
        return Err(Fault::at(operator.at, reason));
    };
    if label == METRIC_NAME && placeholders(string.text).next().is_some() {
        return Err(Fault::at(string.at, "the name of a metric cannot have placeholders: write it out"));
    }
    Ok(Matcher { at, label, operator: operator.text, value: value(string)? })
}

/// The name of the metric that a plain selector asks for; `None` if there is only a regular expression for it.
pub fn metric_name(tokens: &[Token<'_>], matchers: &[Matcher<'_>]) -> Result<Option<String>, Fault> {
    let twice =
        |matcher: &Matcher<'_>| Err(Fault::at(matcher.at, "the name of the metric is given a second time here"));
    let named: Vec<_> = matchers.iter().filter(|matcher| matcher.label == METRIC_NAME).collect();
    if let Some(word) = tokens.first().filter(|token| token.kind == Kind::Word) {
        return match named.first() {
            Some(other) => twice(other),
            None => Ok(Some(word.text.to_owned())),
        };
    }
    let mut exact = named.iter().filter(|matcher| matcher.operator == "=");
    match (exact.next(), exact.next()) {
        (Some(_), Some(second)) => twice(second),
        (Some(one), None) if !one.value.is_empty() => Ok(Some(one.value.clone())),
        (None, _) if named.iter().any(|matcher| matcher.operator == "=~") => Ok(None),
        _ => Err(Fault::of_all("the name of a metric is missing: begin with it, as in http_requests_total{...}")),
    }
}
