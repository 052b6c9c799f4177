//! Reading the PromQL that users write: selectors of counters and queries, with placeholders for the names of a color.
//!
//! | file | its job |
//! | --- | --- |
//! | `scan` | the text in pieces: words, strings, placeholders, comments |
//! | `check` | what is wrong with single pieces, brackets and the size of it all |
//! | `string` | what a string stands for, and how a character is written into one |
//! | `regex` | what is surely wrong with a regular expression |
//! | `plain` | a selector is a name and braces, and nothing else |
//! | `matchers` | what stands in braces |
//! | `skeleton` | the grammar, judged by the crate `promql_parser` |
//! | `fill` | names for placeholders |
//!
//! That crate never sees the user's text, only a skeleton of it: by itself it panics on long durations, compiles every
//! regular expression (up to 10 MB each) and misreads backslashes in backticks.
//! Nothing here asks Prometheus or knows a window, and nothing may panic: the text comes from the API.

mod check;
mod fill;
mod matchers;
mod plain;
mod regex;
mod scan;
mod skeleton;
mod string;

use promql_parser::parser::Expr;
use promql_parser::parser::value::ValueType;
use thiserror::Error;

use check::Use;

pub use fill::fill;

/// Why a selector or a query is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{reason}", .at.map(|at| format!("at character {at}: ")).unwrap_or_default())]
pub struct QueryError {
    /// The character it is about, counted from 1, where that can be told.
    pub at: Option<usize>,
    /// What is wrong and what to do.
    pub reason: String,
}

/// A selector of counters that may be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// The name of the metric; `None` if only a regular expression for it was given.
    pub metric_name: Option<String>,
}

/// What stands for the placeholders of one color.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// For `{{namespace}}`.
    pub namespace: &'a str,
    /// For `{{service}}`.
    pub service: &'a str,
    /// For `{{deployment}}`.
    pub deployment: &'a str,
}

/// Checks that `text` is a plain selector of an instant vector, with a name of a metric.
pub fn selector(text: &str) -> Result<Selector, QueryError> {
    read_selector(text).map_err(|fault| fault.within(text))
}

/// Checks that `text` is PromQL that gives a number or an instant vector.
pub fn query(text: &str) -> Result<(), QueryError> {
    read_query(text).map_err(|fault| fault.within(text))
}

fn read_selector(text: &str) -> Result<Selector, Fault> {
    let tokens = check::read(text, Use::Selector)?;
    plain::check(&tokens)?;
    let matchers = matchers::read(&tokens)?;
    let metric_name = matchers::metric_name(&tokens, &matchers)?;
    match skeleton::parse(text, &tokens)? {
        Expr::VectorSelector(vector) if vector.offset.is_none() && vector.at.is_none() => Ok(Selector { metric_name }),
        Expr::NumberLiteral(_) => Err(Fault::of_all(plain::NUMBER)),
        _ => Err(Fault::of_all(plain::EXPRESSION)),
    }
}

fn read_query(text: &str) -> Result<(), Fault> {
    let tokens = check::read(text, Use::Query)?;
    matchers::read(&tokens)?;
    match skeleton::parse(text, &tokens)?.value_type() {
        ValueType::Scalar | ValueType::Vector => Ok(()),
        ValueType::String => Err(Fault::of_all("a string: a query must give a number or an instant vector")),
        ValueType::Matrix => Err(Fault::of_all(
            "a range of samples: put it into a function that makes one value of it, such as rate() or avg_over_time()",
        )),
    }
}

/// A [`QueryError`] whose place is still one in bytes.
#[derive(Debug)]
struct Fault {
    at: Option<usize>,
    reason: String,
}

impl Fault {
    fn at(at: usize, reason: impl Into<String>) -> Self {
        Self { at: Some(at), reason: reason.into() }
    }

    fn of_all(reason: impl Into<String>) -> Self {
        Self { at: None, reason: reason.into() }
    }

    fn within(self, text: &str) -> QueryError {
        let column = |at| text.get(..at).map(|before| before.chars().count() + 1);
        QueryError { at: self.at.and_then(column), reason: self.reason }
    }
}

/// A bit of the user's text, fit for a message.
fn shown(text: &str) -> String {
    let mut out: String = text.chars().take(40).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(40).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests;
