//! A parser of the part of PromQL that is answered here. All else is an error, as a mistake in a query is.

use super::ast::{Aggregation, Expr, Function, Grouping, Matcher, Selector, Test};
use crate::actors::pattern::Pattern;

impl Expr {
    /// Reads a whole query.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let expr = parser.sum()?;
        parser.space();
        if parser.at < text.len() { Err(parser.error("unexpected input")) } else { Ok(expr) }
    }

    fn is_range(&self) -> bool {
        matches!(self, Self::Range(..))
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

type Parsed<T> = Result<T, String>;

impl<'a> Parser<'a> {
    fn error(&self, what: &str) -> String {
        let before = &self.text[..self.at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!("{line}:{column}: parse error: {what}")
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Passes over blanks and comments.
    fn space(&mut self) {
        loop {
            let rest = self.rest();
            let rest = rest.trim_start_matches([' ', '\t', '\n', '\r']);
            self.at = self.text.len() - rest.len();
            if !rest.starts_with('#') {
                return;
            }
            self.at += rest.find('\n').unwrap_or(rest.len());
        }
    }

    fn skip(&mut self, text: &str) -> bool {
        self.space();
        let found = self.rest().starts_with(text);
        self.at += if found { text.len() } else { 0 };
        found
    }

    fn expect(&mut self, text: &str) -> Parsed<()> {
        if self.skip(text) { Ok(()) } else { Err(self.error(&format!("expected {text:?}"))) }
    }

    fn word(&mut self) -> &'a str {
        self.space();
        let rest = self.rest();
        let inside = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == ':';
        let end = rest.find(|char| !inside(char)).unwrap_or(rest.len());
        let word = if rest.starts_with(|char: char| char.is_ascii_digit()) { "" } else { &rest[..end] };
        self.at += word.len();
        word
    }

    fn operand(&mut self, expr: &Expr) -> Parsed<()> {
        if expr.is_range() {
            Err(self.error("binary expression must contain only scalar and instant vector types"))
        } else {
            Ok(())
        }
    }

    fn chain(&mut self, operators: [char; 2], next: fn(&mut Self) -> Parsed<Expr>) -> Parsed<Expr> {
        let mut left = next(self)?;
        loop {
            self.space();
            let Some(operator) = self.rest().chars().next().filter(|char| operators.contains(char)) else {
                return Ok(left);
            };
            self.at += 1;
            self.operand(&left)?;
            let right = next(self)?;
            self.operand(&right)?;
            left = Expr::Binary(operator, Box::new(left), Box::new(right));
        }
    }

    fn sum(&mut self) -> Parsed<Expr> {
        self.chain(['+', '-'], Self::product)
    }

    fn product(&mut self) -> Parsed<Expr> {
        self.chain(['*', '/'], Self::unary)
    }

    fn unary(&mut self) -> Parsed<Expr> {
        self.depth += 1;
        if self.depth > 100 {
            return Err(self.error("too deep"));
        }
        let expr = if self.skip("-") {
            let inner = self.unary()?;
            self.operand(&inner)?;
            Expr::Negated(Box::new(inner))
        } else if self.skip("(") {
            let inner = self.sum()?;
            self.expect(")")?;
            inner
        } else {
            self.primary()?
        };
        self.depth -= 1;
        Ok(expr)
    }

    fn primary(&mut self) -> Parsed<Expr> {
        self.space();
        if self.rest().starts_with(|char: char| char.is_ascii_digit() || char == '.') {
            return self.number();
        }
        if self.rest().starts_with('{') {
            return self.selector("");
        }
        let word = self.word();
        if word.is_empty() {
            return Err(self.error("unexpected input"));
        }
        let how = match word.to_ascii_lowercase().as_str() {
            "sum" => Some(Aggregation::Sum),
            "min" => Some(Aggregation::Min),
            "max" => Some(Aggregation::Max),
            "avg" => Some(Aggregation::Avg),
            "count" => Some(Aggregation::Count),
            "nan" => return Ok(Expr::Number(f64::NAN)),
            "inf" => return Ok(Expr::Number(f64::INFINITY)),
            _ => None,
        };
        self.space();
        match how {
            Some(how) if self.rest().starts_with(['(', 'b', 'w', 'B', 'W']) => self.aggregate(how),
            _ if self.rest().starts_with('(') => self.call(word),
            _ => self.selector(word),
        }
    }

    fn number(&mut self) -> Parsed<Expr> {
        let rest = self.rest();
        let inside = |(place, char): (usize, char)| {
            char.is_ascii_digit()
                || matches!(char, '.' | 'e' | 'E')
                || (matches!(char, '+' | '-') && rest[..place].ends_with(['e', 'E']))
        };
        let end = rest.char_indices().find(|one| !inside(*one)).map_or(rest.len(), |(place, _)| place);
        let number = rest[..end].parse().map_err(|_| self.error("bad number"))?;
        self.at += end;
        if self.rest().starts_with(|char: char| char.is_ascii_alphabetic()) {
            return Err(self.error("bad number or duration syntax"));
        }
        Ok(Expr::Number(number))
    }

    fn grouping(&mut self) -> Parsed<Option<Grouping>> {
        let start = self.at;
        let word = self.word().to_ascii_lowercase();
        if word != "by" && word != "without" {
            self.at = start;
            return Ok(None);
        }
        self.expect("(")?;
        let mut labels = Vec::new();
        while !self.skip(")") {
            let label = self.word();
            if label.is_empty() || label.contains(':') {
                return Err(self.error("unexpected input in grouping opts"));
            }
            labels.push(label.to_owned());
            if !self.skip(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(Some(if word == "by" { Grouping::By(labels) } else { Grouping::Without(labels) }))
    }

    fn aggregate(&mut self, how: Aggregation) -> Parsed<Expr> {
        let before = self.grouping()?;
        self.expect("(")?;
        let of = self.sum()?;
        self.expect(")")?;
        if of.is_range() || matches!(of, Expr::Number(_)) {
            return Err(self.error("expected type instant vector in aggregation expression"));
        }
        let grouping = match before {
            Some(grouping) => grouping,
            None => self.grouping()?.unwrap_or(Grouping::By(Vec::new())),
        };
        Ok(Expr::Aggregate { how, grouping, of: Box::new(of) })
    }

    fn call(&mut self, name: &str) -> Parsed<Expr> {
        let function = match name {
            "rate" => Function::Rate,
            "increase" => Function::Increase,
            "last_over_time" => Function::Last,
            "count_over_time" => Function::Count,
            "sum_over_time" => Function::Sum,
            "avg_over_time" => Function::Avg,
            "min_over_time" => Function::Min,
            "max_over_time" => Function::Max,
            _ => return Err(self.error(&format!("unknown function with name {name:?}"))),
        };
        self.expect("(")?;
        let of = self.sum()?;
        self.expect(")")?;
        match of {
            Expr::Range(selector, range) => Ok(Expr::Over(function, selector, range)),
            _ => {
                Err(self.error(&format!("expected type range vector in call to function {name:?}, got instant vector")))
            }
        }
    }

    fn selector(&mut self, name: &str) -> Parsed<Expr> {
        let mut matchers = Vec::new();
        if !name.is_empty() {
            matchers.push(Matcher { name: "__name__".to_owned(), negated: false, test: Test::Equal(name.to_owned()) });
        }
        if self.skip("{") {
            while !self.skip("}") {
                matchers.push(self.matcher()?);
                if !self.skip(",") {
                    self.expect("}")?;
                    break;
                }
            }
        }
        if matchers.iter().all(|matcher| matcher.fits("")) {
            return Err(self.error("vector selector must contain at least one non-empty matcher"));
        }
        let range = if self.skip("[") {
            let range = self.duration()?;
            self.expect("]")?;
            Some(range)
        } else {
            None
        };
        let start = self.at;
        let offset = if self.word() == "offset" {
            self.duration()?
        } else {
            self.at = start;
            0
        };
        self.space();
        if self.rest().starts_with(['[', '@']) {
            return Err(self.error("no subqueries and no @ here"));
        }
        let selector = Selector { matchers, offset };
        Ok(range.map_or(Expr::Selector(selector.clone()), |range| Expr::Range(selector, range)))
    }

    fn matcher(&mut self) -> Parsed<Matcher> {
        let name = self.word().to_owned();
        if name.is_empty() || name.contains(':') {
            return Err(self.error("unexpected input in label matching, expected a label"));
        }
        let found = ["=~", "!~", "!=", "="].into_iter().find(|operator| self.skip(operator));
        let Some(operator) = found else { return Err(self.error("expected a label matching operator")) };
        let value = self.string()?;
        let test = if operator.ends_with('~') {
            Test::Pattern(Pattern::new(&value).ok_or_else(|| self.error("error parsing regexp"))?)
        } else {
            Test::Equal(value)
        };
        Ok(Matcher { name, negated: operator.starts_with('!'), test })
    }

    fn string(&mut self) -> Parsed<String> {
        self.space();
        let mut chars = self.rest().char_indices();
        let Some((_, quote @ ('"' | '\'' | '`'))) = chars.next() else { return Err(self.error("expected a string")) };
        let mut text = String::new();
        while let Some((place, char)) = chars.next() {
            match char {
                _ if char == quote => {
                    self.at += place + 1;
                    return Ok(text);
                }
                '\\' if quote != '`' => match chars.next().map(|(_, next)| next) {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some(same @ ('\\' | '"' | '\'')) => text.push(same),
                    _ => return Err(self.error("unknown escape sequence")),
                },
                '\n' if quote != '`' => break,
                _ => text.push(char),
            }
        }
        Err(self.error("unterminated quoted string"))
    }

    /// In milliseconds; a plain number is seconds.
    fn duration(&mut self) -> Parsed<u64> {
        self.space();
        let mut total = 0_u64;
        let start = self.at;
        loop {
            let rest = self.rest();
            let digits = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
            if digits == 0 {
                break;
            }
            let count: u64 = rest[..digits].parse().map_err(|_| self.error("duration out of range"))?;
            let units = [
                ("ms", 1),
                ("s", 1000),
                ("m", 60_000),
                ("h", 3_600_000),
                ("d", 86_400_000),
                ("w", 604_800_000),
                ("y", 31_536_000_000),
            ];
            let unit = units.into_iter().find(|(unit, _)| rest[digits..].starts_with(unit));
            let (unit, size) = unit.unwrap_or(("", 1000));
            let more = count.checked_mul(size).ok_or_else(|| self.error("duration out of range"))?;
            total = total.saturating_add(more);
            self.at += digits + unit.len();
            if unit.is_empty() {
                break;
            }
        }
        if self.at == start || total == 0 { Err(self.error("bad duration syntax")) } else { Ok(total) }
    }
}
