//! What is wrong for certain with a regular expression: the syntax of Prometheus (RE2) is not that of Rust's `regex`.

use super::Fault;
use super::scan::placeholder_at;

/// Checks the brackets of a regular expression, and that each placeholder in it can stand for a name.
///
/// `chars` are what its string stands for, each with its place in `text`.
pub fn check(text: &str, chars: &[(usize, char)]) -> Result<(), Fault> {
    let mut open = Vec::new();
    let mut repeatable = false;
    let mut rest = chars;
    while let Some((&(at, c), tail)) = rest.split_first() {
        if let Some(length) = placeholder_at(text, at) {
            rest = rest.get(length..).unwrap_or_default();
            if let [(next, '*' | '+' | '?'), ..] | [(next, '{'), (_, '0'..='9'), ..] = rest {
                return Err(Fault::at(
                    *next,
                    "this repeats only the last character of the name: put the placeholder into ()",
                ));
            }
            repeatable = true;
            continue;
        }
        rest = tail;
        match (c, tail) {
            ('\\', []) => return Err(Fault::at(at, "the regular expression ends in a lone backslash")),
            ('\\', [(_, 'Q'), tail @ ..]) => {
                let end = find_pair(tail, '\\', 'E').unwrap_or(tail.len());
                if tail.iter().take(end).any(|(at, _)| placeholder_at(text, *at).is_some()) {
                    return Err(Fault::at(at, "a placeholder cannot stand after \\Q: names are escaped without it"));
                }
                rest = tail.get(end + 2..).unwrap_or_default();
            }
            ('\\', [(next, _), tail @ ..]) => {
                if placeholder_at(text, *next).is_some() {
                    return Err(Fault::at(at, "a backslash cannot stand just before a placeholder"));
                }
                rest = tail;
            }
            ('[', _) => rest = after_class(text, at, tail)?,
            ('(', [(_, '?'), (_, '=' | '!'), ..] | [(_, '?'), (_, '<'), (_, '=' | '!'), ..]) => {
                return Err(Fault::at(at, "the regular expressions of Prometheus (RE2) cannot look ahead or behind"));
            }
            ('(', [(_, '?'), flags @ ..]) => {
                open.push(at);
                rest = flags;
            }
            ('(', _) => open.push(at),
            (')', _) if open.pop().is_none() => {
                return Err(Fault::at(at, "nothing is open in the regular expression that this ) could close"));
            }
            ('*' | '+' | '?', _) if !repeatable => {
                return Err(Fault::at(at, format!("there is nothing that this {c} could repeat")));
            }
            _ => {}
        }
        repeatable = !matches!(c, '(' | '|');
    }
    match open.last() {
        Some(at) => Err(Fault::at(*at, "this ( of the regular expression is not closed")),
        None => Ok(()),
    }
}

/// What follows after a class of characters, whose `[` stands at `at`.
fn after_class<'c>(text: &str, at: usize, chars: &'c [(usize, char)]) -> Result<&'c [(usize, char)], Fault> {
    // as the first in a class, ] is a character
    let ([(_, '^'), (_, ']'), inner @ ..] | [(_, '^' | ']'), inner @ ..] | inner) = chars;
    let mut rest = inner;
    while let Some((&(here, c), tail)) = rest.split_first() {
        if placeholder_at(text, here).is_some() {
            return Err(Fault::at(
                here,
                "between [ and ] only single characters count: a placeholder cannot stand there",
            ));
        }
        rest = match (c, tail) {
            (']', _) => return Ok(tail),
            ('\\', [_, tail @ ..]) => tail,
            ('[', [(_, ':'), named @ ..]) => {
                find_pair(named, ':', ']').and_then(|end| named.get(end + 2..)).unwrap_or(tail)
            }
            _ => tail,
        };
    }
    Err(Fault::at(at, "this [ of the regular expression is not closed"))
}

fn find_pair(chars: &[(usize, char)], first: char, second: char) -> Option<usize> {
    chars.windows(2).position(|pair| matches!(pair, [(_, a), (_, b)] if *a == first && *b == second))
}
