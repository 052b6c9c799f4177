//! A selector of counters is a name and braces: what else users write there, and what to do instead.

use super::Fault;
use super::scan::{Inside, Kind, Token};

pub const EXPRESSION: &str =
    "an expression: give the counter itself, without rate() or sum(); its samples are counted exactly";
pub const NUMBER: &str =
    "a number: give the selector of a counter, such as http_requests_total{service=\"{{service}}\"}";
pub const STRING: &str =
    "a string: give the selector without quotes around it; a name that needs them goes into braces, {\"my.metric\"}";
pub const RANGE: &str = "a range selector: leave out the [...]; the operator itself chooses the span that is counted";
pub const SUBQUERY: &str = "a subquery: give the counter itself, without [...]; its samples are counted exactly";
pub const OFFSET: &str = "an offset: leave it out; the counter is read for the time of the stage";
pub const AT_TIME: &str = "an @ modifier: leave it out; the counter is read for the time of the stage";

/// Checks that what stands outside of braces is a name and nothing else.
pub fn check(tokens: &[Token<'_>]) -> Result<(), Fault> {
    let mut before: Option<&Token<'_>> = None;
    for token in tokens.iter().filter(|token| token.inside == Inside::Nothing) {
        let fits = (token.kind == Kind::Word && before.is_none()) || token.is_sign(&["{"]);
        if !fits {
            return Err(misfit(token, before, tokens));
        }
        before = Some(token);
    }
    Ok(())
}

fn misfit(token: &Token<'_>, before: Option<&Token<'_>>, tokens: &[Token<'_>]) -> Fault {
    let reason = match (token.kind, token.text) {
        (Kind::Sign, "[") => {
            let subquery = tokens.iter().any(|token| token.inside == Inside::Brackets && token.text == ":");
            if subquery { SUBQUERY } else { RANGE }
        }
        (Kind::Sign, "@") => AT_TIME,
        (Kind::Sign, "(") => {
            let function = before.filter(|before| before.kind == Kind::Word).unwrap_or(token);
            return Fault::at(function.at, EXPRESSION);
        }
        (Kind::Word, _) if token.is_word("offset") => OFFSET,
        (Kind::Number, _) if tokens.len() == 1 => NUMBER,
        (Kind::Quoted { .. }, _) if before.is_none() => STRING,
        _ => EXPRESSION,
    };
    Fault::at(token.at, reason)
}
