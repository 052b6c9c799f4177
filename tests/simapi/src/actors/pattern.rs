//! Regular expressions, as far as label matchers and `canary-by-header-pattern` need them: compiled in well under a
//! microsecond, since queries are compiled each time they are asked.
//!
//! Knows `. [] [^] () (?:) | * + ? {n,m} ^ $ \d \w \s` and escapes, with lazy quantifiers. Anything else is an error: look-around,
//! back references, named groups.

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Char(char),
    Any,
    Class(bool, Vec<(char, char)>),
    Start,
    End,
    Group(Vec<Vec<Node>>),
    Repeat(Box<Node>, usize, usize, bool),
}

/// A compiled regular expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern(Vec<Vec<Node>>);

impl Pattern {
    /// Compiles `text`. None if it is not a regular expression that is understood here.
    pub fn new(text: &str) -> Option<Self> {
        let mut parser = Parser { rest: text, depth: 0 };
        let alternatives = parser.alternatives()?;
        parser.rest.is_empty().then_some(Self(alternatives))
    }

    /// Whether all of `text` matches, as of a label matcher of Prometheus.
    pub fn is_whole(&self, text: &str) -> bool {
        self.0.iter().any(|nodes| run(nodes, text, 0, &mut |at| at == text.len()))
    }

    /// Whether `text` matches anywhere.
    pub fn is_in(&self, text: &str) -> bool {
        let mut starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        starts.any(|start| self.0.iter().any(|nodes| run(nodes, text, start, &mut |_| true)))
    }
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl Parser<'_> {
    fn take(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn skip(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn alternatives(&mut self) -> Option<Vec<Vec<Node>>> {
        let mut all = vec![self.sequence()?];
        while self.skip("|") {
            all.push(self.sequence()?);
        }
        Some(all)
    }

    fn sequence(&mut self) -> Option<Vec<Node>> {
        let mut nodes = Vec::new();
        while !self.rest.is_empty() && !self.rest.starts_with(['|', ')']) {
            let node = self.atom()?;
            nodes.push(self.quantified(node)?);
        }
        Some(nodes)
    }

    fn atom(&mut self) -> Option<Node> {
        Some(match self.take()? {
            '.' => Node::Any,
            '^' => Node::Start,
            '$' => Node::End,
            '[' => self.class()?,
            '\\' => self.escape()?,
            '(' => {
                if self.rest.starts_with('?') && !self.skip("?:") {
                    return None;
                }
                self.depth += 1;
                let inner = (self.depth < 64).then(|| self.alternatives())??;
                self.depth -= 1;
                self.skip(")").then_some(Node::Group(inner))?
            }
            '*' | '+' | '?' | ')' => return None,
            other => Node::Char(other),
        })
    }

    fn escape(&mut self) -> Option<Node> {
        Some(match self.take()? {
            'd' => Node::Class(false, vec![('0', '9')]),
            'D' => Node::Class(true, vec![('0', '9')]),
            'w' => Node::Class(false, vec![('0', '9'), ('A', 'Z'), ('a', 'z'), ('_', '_')]),
            'W' => Node::Class(true, vec![('0', '9'), ('A', 'Z'), ('a', 'z'), ('_', '_')]),
            's' => Node::Class(false, vec![(' ', ' '), ('\t', '\r')]),
            'n' => Node::Char('\n'),
            't' => Node::Char('\t'),
            letter if letter.is_ascii_alphanumeric() => return None,
            other => Node::Char(other),
        })
    }

    fn class(&mut self) -> Option<Node> {
        let negated = self.skip("^");
        let mut ranges = Vec::new();
        loop {
            let low = match self.take()? {
                ']' if !ranges.is_empty() => return Some(Node::Class(negated, ranges)),
                '\\' => match self.escape()? {
                    Node::Char(char) => char,
                    Node::Class(false, more) => {
                        ranges.extend(more);
                        continue;
                    }
                    _ => return None,
                },
                other => other,
            };
            let is_range = self.rest.starts_with('-') && !self.rest.starts_with("-]");
            let high = if is_range {
                self.take();
                self.take().filter(|high| *high != '\\' && *high >= low)?
            } else {
                low
            };
            ranges.push((low, high));
        }
    }

    fn quantified(&mut self, node: Node) -> Option<Node> {
        let (least, most) = match self.rest.chars().next() {
            Some('*') => (0, usize::MAX),
            Some('+') => (1, usize::MAX),
            Some('?') => (0, 1),
            Some('{') => {
                let (inside, rest) = self.rest[1..].split_once('}')?;
                self.rest = rest;
                let (least, most) = inside.split_once(',').unwrap_or((inside, inside));
                let most = if most.is_empty() { usize::MAX } else { most.parse().ok()? };
                let node = Node::Repeat(Box::new(node), least.parse().ok()?, most, !self.skip("?"));
                return (!self.rest.starts_with(['*', '+', '?'])).then_some(node);
            }
            _ => return Some(node),
        };
        self.take();
        let node = Node::Repeat(Box::new(node), least, most, !self.skip("?"));
        (!self.rest.starts_with(['*', '+', '?'])).then_some(node)
    }
}

/// Matches `nodes` from `at` on, and then `goes_on` with where they end.
fn run(nodes: &[Node], text: &str, at: usize, goes_on: &mut dyn FnMut(usize) -> bool) -> bool {
    let Some((first, rest)) = nodes.split_first() else { return goes_on(at) };
    let next = text[at..].chars().next();
    let one = |fits: bool| fits.then(|| at + next.map_or(0, char::len_utf8));
    let end = match first {
        Node::Char(char) => one(next == Some(*char)),
        Node::Any => one(next.is_some_and(|next| next != '\n')),
        Node::Class(negated, ranges) => {
            one(next.is_some_and(|next| ranges.iter().any(|(low, high)| (*low..=*high).contains(&next)) != *negated))
        }
        Node::Start => (at == 0).then_some(at),
        Node::End => (at == text.len()).then_some(at),
        Node::Group(alternatives) => {
            return alternatives.iter().any(|inner| run(inner, text, at, &mut |at| run(rest, text, at, goes_on)));
        }
        Node::Repeat(node, least, most, greedy) => {
            let repeat = Repeat { node: std::slice::from_ref(node), least: *least, most: *most, greedy: *greedy };
            return repeat.run(text, at, 0, &mut |at| run(rest, text, at, goes_on));
        }
    };
    end.is_some_and(|end| run(rest, text, end, goes_on))
}

struct Repeat<'a> {
    node: &'a [Node],
    least: usize,
    most: usize,
    greedy: bool,
}

impl Repeat<'_> {
    fn run(&self, text: &str, at: usize, count: usize, goes_on: &mut dyn FnMut(usize) -> bool) -> bool {
        if count >= self.least && !self.greedy && goes_on(at) {
            return true;
        }
        // An empty repetition adds nothing and would have no end.
        let more = count < self.most
            && run(self.node, text, at, &mut |end| {
                (end > at || count < self.least) && self.run(text, end, count + 1, goes_on)
            });
        more || (count >= self.least && self.greedy && goes_on(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(pattern: &str, text: &str) -> bool {
        Pattern::new(pattern).unwrap().is_whole(text)
    }

    fn inside(pattern: &str, text: &str) -> bool {
        Pattern::new(pattern).unwrap().is_in(text)
    }

    #[test]
    fn a_label_matches_as_a_whole() {
        assert!(whole("5..", "503") && !whole("5..", "5031") && !whole("5..", "1503") && !whole("5..", "50"));
        assert!(whole("5.*|429", "429") && whole("5.*|429", "5") && !whole("5.*|429", "4290"));
        assert!(whole(".*", "") && whole(".+", "x") && !whole(".+", ""));
        assert!(whole("[45][0-9]{2}", "499") && !whole("[45][0-9]{2}", "399"));
        assert!(whole("[^5]..", "200") && !whole("[^5]..", "500"));
        assert!(whole("(a|ab)(c|bcd)(d*)", "abcd") && whole("(?:a|b)*c", "abac"));
        assert!(whole(r"/v1/.*", "/v1/chat") && whole(r"a\.b", "a.b") && !whole(r"a\.b", "axb"));
        assert!(whole("(a*)*b", "aaab") && !whole("(a*)*b", "aaac"));
        assert!(whole("a{2,3}?", "aaa") && !whole("a{2,3}", "aaaa") && whole("", ""));
        assert!(whole(r"\d+-\w+", "12-a_b") && whole("[a-z-]+", "a-b") && whole("[]a]+", "]a"));
    }

    #[test]
    fn a_header_matches_anywhere_unless_anchored() {
        let users = "^(alice|bob\\.b)$";
        assert!(inside(users, "alice") && inside(users, "bob.b"));
        assert!(!inside(users, "alice2") && !inside(users, "xalice") && !inside(users, "bobxb"));
        assert!(inside("b+", "abbc") && !inside("d", "abc") && inside("", ""));
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for text in ["(", ")", "a)", "[a", "*", "a**", "(?!x)", "(?P<n>x)", r"\1", r"a\", "a{x}", "[b-a]", "a{2"] {
            assert_eq!(Pattern::new(text), None, "{text}");
        }
    }
}
