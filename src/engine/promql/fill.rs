//! Names for placeholders.

use super::Names;
use super::scan::{Kind, Role, Scanner, placeholders};
use super::string::push_escaped;

/// Fills in the names of one color, escaped for the strings they stand in. `{{window}}` and comments stay as they are.
///
/// Any text is taken; in one that [`super::selector`] or [`super::query`] refused, placeholders outside of strings stay.
pub fn fill(text: &str, names: &Names<'_>) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    for token in Scanner::new(text) {
        match token.kind {
            Kind::Quoted { closed: true, role } => fill_string(&mut out, token.text, role, names),
            _ => out.push_str(token.text),
        }
    }
    out
}

fn fill_string(out: &mut String, string: &str, role: Role, names: &Names<'_>) {
    let quote = string.chars().next().unwrap_or('"');
    let mut done = 0;
    for (at, placeholder, _) in placeholders(string) {
        let name = match placeholder {
            "{{namespace}}" => names.namespace,
            "{{service}}" => names.service,
            "{{deployment}}" => names.deployment,
            _ => continue,
        };
        out.push_str(string.get(done..at).unwrap_or_default());
        done = at + placeholder.len();
        for c in name.chars() {
            if role == Role::Regex { push_literal(out, c, quote) } else { push_escaped(out, c, quote) }
        }
    }
    out.push_str(string.get(done..).unwrap_or_default());
}

/// Writes one character into the string of a regular expression so that it matches itself.
fn push_literal(out: &mut String, c: char, quote: char) {
    if c == '`' {
        // no escape of the string would help between backticks
        push_escaped(out, '\\', quote);
        out.push_str("x60");
        return;
    }
    if r"\.+*?()|[]{}^$".contains(c) {
        push_escaped(out, '\\', quote);
    }
    push_escaped(out, c, quote);
}
