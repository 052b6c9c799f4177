//! The text in pieces. Nothing is refused here, and all pieces together are the text, whatever it is.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Blank,
    Comment,
    Word,
    Number,
    Quoted { closed: bool, role: Role },
    Placeholder { closed: bool },
    Sign,
}

/// What a string is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The value of a label, after `=` or `!=`.
    Value,
    /// The regular expression for a label, after `=~` or `!~`.
    Regex,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    Nothing,
    Braces,
    Brackets,
}

/// A piece of the text.
#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    pub at: usize,
    pub text: &'a str,
    pub kind: Kind,
    /// Where it stands; a bracket that opens stands outside of what it opens, one that closes inside.
    pub inside: Inside,
}

impl Token<'_> {
    pub fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(word)
    }

    pub fn is_sign(&self, signs: &[&str]) -> bool {
        self.kind == Kind::Sign && signs.contains(&self.text)
    }
}

pub struct Scanner<'a> {
    text: &'a str,
    at: usize,
    inside: Inside,
    /// What a string would be for, were it next.
    role: Role,
}

impl<'a> Scanner<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0, inside: Inside::Nothing, role: Role::Other }
    }

    fn measure(&self, first: char, rest: &str) -> (Kind, usize) {
        if rest.starts_with("{{") {
            let (length, closed) = placeholder(rest);
            return (Kind::Placeholder { closed }, length);
        }
        // in brackets a colon parts the range of a subquery from its step
        let colons = self.inside == Inside::Nothing;
        match first {
            ' ' | '\t' | '\n' | '\r' => (Kind::Blank, run(rest, |c| matches!(c, ' ' | '\t' | '\n' | '\r'))),
            '#' => (Kind::Comment, run(rest, |c| !matches!(c, '\n' | '\r'))),
            '"' | '\'' | '`' => {
                let (length, closed) = string(rest, first);
                (Kind::Quoted { closed, role: self.role }, length)
            }
            'a'..='z' | 'A'..='Z' | '_' => (Kind::Word, word(rest, colons)),
            ':' if colons => (Kind::Word, word(rest, colons)),
            '0'..='9' => (Kind::Number, number(rest)),
            '.' if rest.chars().nth(1).is_some_and(|c| c.is_ascii_digit()) => (Kind::Number, number(rest)),
            '=' | '!' | '<' | '>' if matches!(rest.as_bytes().get(1), Some(b'=' | b'~')) => (Kind::Sign, 2),
            _ => (Kind::Sign, first.len_utf8()),
        }
    }
}

impl<'a> Iterator for Scanner<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let rest = self.text.get(self.at..)?;
        let (kind, length) = self.measure(rest.chars().next()?, rest);
        let token = Token { at: self.at, text: rest.get(..length)?, kind, inside: self.inside };
        self.at += length;
        if matches!(kind, Kind::Blank | Kind::Comment) {
            return Some(token);
        }
        self.role = match (self.inside, token.text) {
            (Inside::Braces, "=" | "!=") => Role::Value,
            (Inside::Braces, "=~" | "!~") => Role::Regex,
            _ => Role::Other,
        };
        self.inside = match (self.inside, token.text) {
            (Inside::Nothing, "{") => Inside::Braces,
            (Inside::Nothing, "[") => Inside::Brackets,
            (Inside::Braces, "}") | (Inside::Brackets, "]") => Inside::Nothing,
            (inside, _) => inside,
        };
        Some(token)
    }
}

/// The length of what `rest` begins with, as long as all of it is to `keep`.
fn run(rest: &str, keep: impl Fn(char) -> bool) -> usize {
    rest.find(|c| !keep(c)).unwrap_or(rest.len())
}

fn word(rest: &str, colons: bool) -> usize {
    run(rest, |c| c.is_ascii_alphanumeric() || c == '_' || (colons && c == ':'))
}

/// A number or a duration, with all that clings to it.
fn number(rest: &str) -> usize {
    let clings = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let length = run(rest, clings);
    let (head, tail) = rest.split_at_checked(length).unwrap_or((rest, ""));
    let exponent = head.strip_suffix(['e', 'E']).is_some_and(|h| h.chars().all(|c| c.is_ascii_digit() || c == '.'));
    match tail.strip_prefix(['+', '-']) {
        Some(digits) if exponent => length + 1 + run(digits, clings),
        _ => length,
    }
}

/// The length of the string that `rest` begins with, and whether it ends.
fn string(rest: &str, quote: char) -> (usize, bool) {
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if c == quote {
            return (at + c.len_utf8(), true);
        }
        // between backticks a backslash is a character like any other
        if c == '\\' && quote != '`' {
            chars.next();
        }
    }
    (rest.len(), false)
}

/// The length of the placeholder that `rest` begins with, and whether it ends.
fn placeholder(rest: &str) -> (usize, bool) {
    let name = rest.get(2..).unwrap_or_default();
    let length = run(name, |c| !matches!(c, '{' | '}' | '"' | '\'' | '`' | '\\' | '\n'));
    if name.get(length..).is_some_and(|end| end.starts_with("}}")) { (length + 4, true) } else { (2, false) }
}

/// The length of the placeholder that stands at a place in the text.
pub fn placeholder_at(text: &str, at: usize) -> Option<usize> {
    let rest = text.get(at..).filter(|rest| rest.starts_with("{{"))?;
    Some(placeholder(rest).0)
}

/// The places and texts of the placeholders in a string, and whether each of them ends.
pub fn placeholders(string: &str) -> impl Iterator<Item = (usize, &str, bool)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let rest = string.get(from..)?;
        let at = from + rest.find("{{")?;
        let (length, closed) = placeholder(string.get(at..)?);
        from = at + length;
        Some((at, string.get(at..from)?, closed))
    })
}
