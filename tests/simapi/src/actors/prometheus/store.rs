//! Samples. All series of one target are scraped at the same time, so the times are kept once per target.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::ast::Selector;

/// What marks the end of a series, `value.StaleNaN`: not a number, but not the usual one.
pub const STALE: f64 = f64::from_bits(0x7FF0_0000_0000_0002);

/// Whether `value` is that mark.
pub fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE.to_bits()
}

/// Labels in rising order of their names, `__name__` among them.
pub type Labels = Vec<(&'static str, Arc<str>)>;

/// One series.
#[derive(Clone, Debug)]
pub struct Column {
    pub labels: Labels,
    /// `labels` as JSON.
    pub json: Vec<u8>,
    /// The number of the scrape that its first value is from.
    start: u64,
    values: VecDeque<f64>,
}

/// The series of one target.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Of each scrape that left a mark, in milliseconds since 1970.
    times: VecDeque<u64>,
    /// So many older scrapes are forgotten.
    dropped: u64,
    pub columns: Vec<Column>,
}

impl Table {
    /// Begins a scrape at `at`; then comes a value for each column, in order.
    pub fn begin(&mut self, at: u64) {
        self.times.push_back(at);
    }

    /// Adds a series, whose first value comes with the scrape that was begun last.
    pub fn add(&mut self, mut labels: Labels) {
        labels.sort_unstable_by_key(|(name, _)| *name);
        let mut json = Vec::with_capacity(256);
        super::json::labels(&mut json, labels.iter().map(|(name, value)| (*name, &**value)));
        let start = self.dropped + self.times.len() as u64 - 1;
        self.columns.push(Column { labels, json, start, values: VecDeque::new() });
    }

    /// The next value of a column.
    pub fn push(&mut self, column: usize, value: f64) {
        self.columns[column].values.push_back(value);
    }

    /// All series end with the scrape that was begun last.
    pub fn end_all(&mut self) {
        for column in &mut self.columns {
            column.values.push_back(STALE);
        }
    }

    /// Forgets what is older than `from`.
    pub fn forget(&mut self, from: u64) {
        while self.times.front().is_some_and(|at| *at < from) {
            self.times.pop_front();
            for column in self.columns.iter_mut().filter(|column| column.start == self.dropped) {
                column.values.pop_front();
                column.start += 1;
            }
            self.dropped += 1;
        }
    }

    /// The numbers of the scrapes after `after` and up to `to`, of those that are kept: Prometheus 3 leaves the left end out.
    fn scrapes(&self, after: u64, to: u64) -> Range<usize> {
        let end = self.times.partition_point(|at| *at <= to);
        self.times.partition_point(|at| *at <= after).min(end)..end
    }

    /// The times of these scrapes.
    pub fn times(&self, after: u64, to: u64) -> impl Iterator<Item = u64> {
        self.times.range(self.scrapes(after, to)).copied()
    }

    /// The values of `column` at the last of these times; fewer if it began later. Some may be the mark of its end.
    pub fn values<'a>(&self, column: &'a Column, after: u64, to: u64) -> impl ExactSizeIterator<Item = &'a f64> {
        let scrapes = self.scrapes(after, to);
        let skipped = (column.start - self.dropped) as usize;
        column.values.range(scrapes.start.saturating_sub(skipped)..scrapes.end.saturating_sub(skipped))
    }

    /// The samples of `column` after `after` and up to `to`.
    pub fn range(&self, column: &Column, after: u64, to: u64) -> impl Iterator<Item = (u64, f64)> {
        let values = self.values(column, after, to);
        let skipped = self.scrapes(after, to).len() - values.len();
        let samples = self.times(after, to).skip(skipped).zip(values);
        samples.map(|(at, value)| (at, *value)).filter(|(_, value)| !is_stale(*value))
    }

    /// The last value of `column` after `after` and up to `at`, unless the series had ended then.
    pub fn instant(&self, column: &Column, after: u64, at: u64) -> Option<(u64, f64)> {
        let last = self.times.partition_point(|time| *time <= at).checked_sub(1)?;
        let time = *self.times.get(last).filter(|time| **time > after)?;
        let value = *column.values.get(last.checked_sub((column.start - self.dropped) as usize)?)?;
        (!is_stale(value)).then_some((time, value))
    }
}

impl Column {
    /// The value of a label; empty if there is none.
    pub fn label(&self, name: &str) -> &str {
        self.labels.iter().find(|(label, _)| *label == name).map_or("", |(_, value)| value)
    }

    /// Whether `selector` selects it.
    pub fn is_selected(&self, selector: &Selector) -> bool {
        selector.matchers.iter().all(|matcher| matcher.fits(self.label(&matcher.name)))
    }
}
