//! Queries, once they are read.

use crate::actors::pattern::Pattern;

/// `name{label="value", …}`.
#[derive(Clone, Debug, PartialEq)]
pub struct Selector {
    pub matchers: Vec<Matcher>,
    /// `offset`, in milliseconds.
    pub offset: u64,
}

/// One condition on a label. The name of a metric is its label `__name__`.
#[derive(Clone, Debug, PartialEq)]
pub struct Matcher {
    pub name: String,
    pub negated: bool,
    pub test: Test,
}

/// What a label is compared with.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    Equal(String),
    Pattern(Pattern),
}

impl Matcher {
    /// Whether a label with that value fits; a missing label is an empty one.
    pub fn fits(&self, value: &str) -> bool {
        self.negated
            != match &self.test {
                Test::Equal(text) => text == value,
                Test::Pattern(pattern) => pattern.is_whole(value),
            }
    }
}

/// What a query asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    Number(f64),
    Selector(Selector),
    /// The second is in milliseconds.
    Range(Selector, u64),
    /// A function of one range.
    Over(Function, Selector, u64),
    Aggregate {
        how: Aggregation,
        grouping: Grouping,
        of: Box<Expr>,
    },
    Binary(char, Box<Expr>, Box<Expr>),
    Negated(Box<Expr>),
}

/// Functions of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    Rate,
    Increase,
    Last,
    Count,
    Sum,
    Avg,
    Min,
    Max,
}

/// How several series become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregation {
    Sum,
    Min,
    Max,
    Avg,
    Count,
}

/// Which labels are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grouping {
    By(Vec<String>),
    Without(Vec<String>),
}
