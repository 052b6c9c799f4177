//! The strings of PromQL: what one stands for, and how a character is written into one.

use std::str::CharIndices;

use super::scan::Token;
use super::{Fault, shown};

/// What a closed string stands for.
pub fn value(quoted: &Token<'_>) -> Result<String, Fault> {
    Ok(literal(quoted)?.into_iter().map(|(_, c)| c).collect())
}

/// The characters that a closed string stands for, each with its place in the text.
pub fn literal(quoted: &Token<'_>) -> Result<Vec<(usize, char)>, Fault> {
    let quote = quoted.text.chars().next().unwrap_or('"');
    let body = quoted.text.strip_prefix(quote).and_then(|body| body.strip_suffix(quote)).unwrap_or_default();
    let mut out = Vec::with_capacity(body.len());
    let mut chars = body.char_indices();
    while let Some((at, c)) = chars.next() {
        let at = quoted.at + 1 + at;
        let value = match c {
            '\\' if quote != '`' => {
                // a closed string does not end in a backslash
                let Some((_, kind)) = chars.next() else { break };
                unescape(kind, &mut chars, quote).ok_or_else(|| {
                    let escape = shown(&format!("\\{kind}"));
                    Fault::at(at, format!("{escape} is no escape in a string: for a backslash write two"))
                })?
            }
            '\n' if quote != '`' => return Err(Fault::at(at, "the line ends inside of a string: close its quotes")),
            c => c,
        };
        out.push((at, value));
    }
    Ok(out)
}

/// The character that an escape stands for (as in Go); `kind` is what stands after the backslash.
fn unescape(kind: char, chars: &mut CharIndices<'_>, quote: char) -> Option<char> {
    let mut code = |first: u32, digits: usize, radix: u32| {
        let mut digit = || chars.next().and_then(|(_, digit)| digit.to_digit(radix));
        let code = (0..digits).try_fold(first, |code, _| code.checked_mul(radix)?.checked_add(digit()?))?;
        char::from_u32(code)
    };
    match kind {
        'a' => Some('\x07'),
        'b' => Some('\x08'),
        'f' => Some('\x0c'),
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        'v' => Some('\x0b'),
        '\\' => Some('\\'),
        'x' => code(0, 2, 16),
        'u' => code(0, 4, 16),
        'U' => code(0, 8, 16),
        '0'..='3' => code(kind.to_digit(8)?, 2, 8),
        _ if kind == quote => Some(quote),
        _ => None,
    }
}

/// Writes one character into a string so that it stands for itself.
pub fn push_escaped(out: &mut String, c: char, quote: char) {
    match (quote, c) {
        // cannot be written there at all: let it match nothing rather than end the string
        ('`', '`') => out.push(char::REPLACEMENT_CHARACTER),
        ('`', c) => out.push(c),
        (_, '\n') => out.push_str("\\n"),
        (quote, c) => {
            if c == '\\' || c == quote {
                out.push('\\');
            }
            out.push(c);
        }
    }
}
