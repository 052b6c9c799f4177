//! What is wrong with single pieces and with brackets, and what is too much for the parser.

use super::scan::{Inside, Kind, Role, Scanner, Token, placeholders};
use super::string::literal;
use super::{Fault, regex, shown};

/// Twice of what the schema of the API lets through.
pub const LONGEST: usize = 4096;
/// Parentheses in parentheses. The parser's trees are dropped and typed recursively.
pub const DEEPEST: usize = 64;
/// Signs outside of braces and brackets: a chain of operators is as deep a tree as parentheses are.
pub const MOST_SIGNS: usize = 512;
/// Beyond any number of seconds that Prometheus takes for a duration (292 years).
const LONGEST_SECONDS: f64 = 9.2e9;
const MOST_DURATION_DIGITS: usize = 12;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Use {
    Selector,
    Query,
}

impl Use {
    fn placeholders(self) -> &'static str {
        match self {
            Self::Selector => "{{namespace}}, {{service}} and {{deployment}}",
            Self::Query => "{{namespace}}, {{service}}, {{deployment}} and {{window}}",
        }
    }
}

/// The tokens that count, with strings, placeholders, numbers and brackets checked.
pub fn read(text: &str, usage: Use) -> Result<Vec<Token<'_>>, Fault> {
    // counts no further than it must
    if text.chars().nth(LONGEST).is_some() {
        return Err(Fault::of_all(format!("more than {LONGEST} characters: make it shorter")));
    }
    let tokens: Vec<_> = Scanner::new(text).filter(|t| !matches!(t.kind, Kind::Blank | Kind::Comment)).collect();
    if tokens.is_empty() {
        return Err(Fault::of_all(match usage {
            Use::Selector => "empty: give the selector of a counter, such as http_requests_total",
            Use::Query => "empty: give a query, such as avg(up{service=\"{{service}}\"})",
        }));
    }
    for (index, token) in tokens.iter().enumerate() {
        let before = tokens.get(..index).unwrap_or_default();
        check_token(text, token, before, usage)?;
    }
    check_brackets(&tokens)?;
    Ok(tokens)
}

fn check_token(text: &str, token: &Token<'_>, before: &[Token<'_>], usage: Use) -> Result<(), Fault> {
    let fault = |reason: &str| Err(Fault::at(token.at, reason));
    match token.kind {
        Kind::Quoted { closed: false, .. } => fault("the string that begins here does not end: close its quotes"),
        Kind::Quoted { role, .. } => check_string(text, token, role, usage),
        Kind::Placeholder { closed } => {
            check_placeholder(token.at, token.text, closed, usage)?;
            if token.text != "{{window}}" {
                return Err(misplaced(token.at, token.text));
            }
            if is_duration(token, before) {
                return Ok(());
            }
            fault("{{window}} stands where a duration stands: [{{window}}] after a selector, or after offset")
        }
        Kind::Number | Kind::Word if is_duration(token, before) && is_too_long(token.text) => {
            fault(&format!("the duration {} is too long", shown(token.text)))
        }
        Kind::Sign if !token.text.starts_with(|c: char| "(){}[],:=!<>~+-*/%^@".contains(c)) => {
            fault(&format!("{:?} means nothing here: what has such characters stands in quotes", token.text))
        }
        _ => Ok(()),
    }
}

fn check_string(text: &str, token: &Token<'_>, role: Role, usage: Use) -> Result<(), Fault> {
    for (at, placeholder, closed) in placeholders(token.text) {
        let at = token.at + at;
        check_placeholder(at, placeholder, closed, usage)?;
        if placeholder == "{{window}}" {
            return Err(Fault::at(
                at,
                "{{window}} stands where a duration stands, as in [{{window}}], not in a string",
            ));
        }
        if role == Role::Other {
            return Err(misplaced(at, placeholder));
        }
    }
    let chars = literal(token)?;
    if role == Role::Regex { regex::check(text, &chars) } else { Ok(()) }
}

fn check_placeholder(at: usize, placeholder: &str, closed: bool, usage: Use) -> Result<(), Fault> {
    let wrong = match placeholder {
        "{{namespace}}" | "{{service}}" | "{{deployment}}" => return Ok(()),
        "{{window}}" if usage == Use::Query => return Ok(()),
        "{{window}}" => "the placeholder {{window}} is none of a selector".to_owned(),
        _ if !closed => "the placeholder that begins here does not end".to_owned(),
        _ => format!("unknown placeholder {}", shown(placeholder)),
    };
    Err(Fault::at(at, format!("{wrong}: there are {}", usage.placeholders())))
}

fn misplaced(at: usize, placeholder: &str) -> Fault {
    let name = placeholder.trim_matches(['{', '}']);
    Fault::at(at, format!("{placeholder} stands only in the quoted value of a label, as in {name}=\"{placeholder}\""))
}

/// Whether Prometheus reads a duration here.
fn is_duration(token: &Token<'_>, before: &[Token<'_>]) -> bool {
    token.inside == Inside::Brackets
        || match before {
            [.., offset, sign] if sign.is_sign(&["+", "-"]) => offset.is_word("offset"),
            [.., offset] => offset.is_word("offset"),
            [] => false,
        }
}

fn is_too_long(duration: &str) -> bool {
    is_large(duration)
        || duration.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > MOST_DURATION_DIGITS)
}

/// Whether this is a number that is no duration; `inf` and `nan` are numbers too.
pub fn is_large(number: &str) -> bool {
    number.parse().is_ok_and(|seconds: f64| seconds.is_nan() || seconds > LONGEST_SECONDS)
}

/// Checks that what opens is closed, and that the tree of the parser cannot grow deep.
fn check_brackets(tokens: &[Token<'_>]) -> Result<(), Fault> {
    let mut open: Vec<&Token<'_>> = Vec::new();
    let mut signs = 0;
    for token in tokens.iter().filter(|token| token.kind == Kind::Sign) {
        signs += usize::from(token.inside == Inside::Nothing && token.text != "{");
        if signs > MOST_SIGNS {
            return Err(Fault::at(token.at, format!("more than {MOST_SIGNS} operators and brackets: make it shorter")));
        }
        match token.text {
            "(" | "{" | "[" => {
                if open.len() >= DEEPEST {
                    return Err(Fault::at(token.at, format!("more than {DEEPEST} brackets in one another")));
                }
                open.push(token);
            }
            ")" | "}" | "]" => match (open.pop().map(|opening| opening.text), token.text) {
                (Some("("), ")") | (Some("{"), "}") | (Some("["), "]") => {}
                _ => return Err(Fault::at(token.at, format!("nothing is open that this {} could close", token.text))),
            },
            _ => {}
        }
    }
    match open.last() {
        Some(last) => Err(Fault::at(last.at, format!("this {} is not closed", last.text))),
        None => Ok(()),
    }
}
