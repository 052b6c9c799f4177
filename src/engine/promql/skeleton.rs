//! The grammar and the types, judged by `promql_parser`, which gets to see a skeleton of the text.

use promql_parser::parser::{self, Expr};

use super::check::is_large;
use super::scan::{Inside, Kind, Role, Scanner, Token};
use super::string::{push_escaped, value};
use super::{Fault, shown};

/// What the parser makes of the text, whose checked tokens these are.
pub fn parse(text: &str, tokens: &[Token<'_>]) -> Result<Expr, Fault> {
    parser::parse(&skeleton(text)).map_err(|message| explain(&message, tokens))
}

/// The parser's message in our words where they are better, with the place of the word it names.
fn explain(message: &str, tokens: &[Token<'_>]) -> Fault {
    let is_named = |token: &&Token<'_>| token.kind == Kind::Word && message.contains(&format!("'{}'", token.text));
    let mut candidates = tokens.iter().filter(is_named);
    // with two of them nobody knows which one is meant
    let place = candidates.next().filter(|_| candidates.next().is_none());
    let name = place.map(|token| shown(token.text)).unwrap_or_default();
    let reason = if message.starts_with("unknown function") {
        format!("there is no function {name}")
    } else if message.starts_with("expected type matrix in call") {
        format!("the function {name} needs samples of a range: write [{{{{window}}}}] after the selector")
    } else if message == "invalid promql query"
        || message.chars().nth(200).is_some()
        || message.contains(char::is_control)
    {
        "not PromQL: its parts do not fit together; look for a missing operator, comma or function".to_owned()
    } else {
        format!("not PromQL: {message}")
    };
    Fault { at: place.map(|token| token.at), reason }
}

/// What the parser gets to see: the text with all that does not matter for its grammar and type made harmless.
///
/// A number is never large (as a duration it would panic), a regular expression is a value that is about as empty as
/// what it matches, a string has double quotes and only escapes that the parser knows, and a placeholder for a duration
/// is one.
pub fn skeleton(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for token in Scanner::new(text) {
        match token.kind {
            Kind::Blank | Kind::Comment => out.push(' '),
            Kind::Placeholder { .. } => out.push_str(" 1m "),
            Kind::Number if is_large(token.text) => out.push('1'),
            Kind::Word if token.inside == Inside::Nothing && (token.is_word("inf") || token.is_word("nan")) => {
                out.push('1');
            }
            Kind::Quoted { role, .. } => {
                let value = value(&token).unwrap_or_default();
                let value = match (role, value.as_str()) {
                    (Role::Regex, "" | ".*") => "",
                    (Role::Regex, _) => "x",
                    (Role::Value | Role::Other, value) => value,
                };
                out.push('"');
                value.chars().for_each(|c| push_escaped(&mut out, c, '"'));
                out.push('"');
            }
            Kind::Word | Kind::Number | Kind::Sign => out.push_str(match (token.inside, token.text) {
                (Inside::Braces, "=~") => "=",
                (Inside::Braces, "!~") => "!=",
                (_, text) => text,
            }),
        }
    }
    out
}
