//! What a query gives at one instant.

use super::ast::{Aggregation, Expr, Function, Grouping, Selector};
use super::json;
use super::store::{Column, Table, is_stale};

/// An instant selector looks back so far, in milliseconds.
const LOOK_BACK: u64 = 300_000;

type Labels<'a> = Vec<(&'a str, &'a str)>;

/// One element of a vector.
struct Point<'a> {
    labels: Labels<'a>,
    value: f64,
}

enum Value<'a> {
    Scalar(f64),
    Vector(Vec<Point<'a>>),
}

/// All series, and the time of the question in milliseconds since 1970.
pub struct Eval<'a> {
    pub tables: Vec<&'a Table>,
    pub at: u64,
}

impl<'a> Eval<'a> {
    /// Writes the `data` of an answer.
    pub fn answer(&self, expr: &Expr, out: &mut Vec<u8>) -> Result<(), String> {
        if let Expr::Range(selector, range) = expr {
            out.extend(br#"{"resultType":"matrix","result":["#);
            self.matrix(out, selector, *range);
            out.extend(b"]}");
            return Ok(());
        }
        match self.value(expr)? {
            Value::Scalar(value) => {
                out.extend(br#"{"resultType":"scalar","result":"#);
                json::sample(out, self.at, value);
                out.push(b'}');
            }
            Value::Vector(points) => {
                out.extend(br#"{"resultType":"vector","result":["#);
                for (place, point) in points.iter().enumerate() {
                    out.extend_from_slice(if place == 0 { br#"{"metric":"# } else { br#",{"metric":"# });
                    json::labels(out, point.labels.iter().copied());
                    out.extend(br#","value":"#);
                    json::sample(out, self.at, point.value);
                    out.push(b'}');
                }
                out.extend(b"]}");
            }
        }
        Ok(())
    }

    fn columns(&self, selector: &Selector) -> impl Iterator<Item = (&'a Table, &'a Column)> {
        let all = self.tables.iter().flat_map(|table| table.columns.iter().map(move |column| (*table, column)));
        all.filter(move |(_, column)| column.is_selected(selector))
    }

    /// Raw samples. The series of a target share their times, so these are written once for all of them.
    fn matrix(&self, out: &mut Vec<u8>, selector: &Selector, range: u64) {
        let end = self.at.saturating_sub(selector.offset);
        let start = end.saturating_sub(range);
        let mut is_first = true;
        // of each time, where its text ends
        let (mut text, mut ends) = (Vec::new(), Vec::new());
        for table in &self.tables {
            ends.clear();
            for column in table.columns.iter().filter(|column| column.is_selected(selector)) {
                if ends.is_empty() {
                    text.clear();
                    for at in table.times(start, end) {
                        text.extend(b",[");
                        json::time(&mut text, at);
                        text.push(b',');
                        ends.push(text.len());
                    }
                }
                // the last times are this column's, which may have begun later
                let values = table.values(column, start, end);
                let skipped = ends.len() - values.len();
                let mut from = skipped.checked_sub(1).map_or(0, |place| ends[place]);
                let mut open = false;
                for (value, to) in values.zip(&ends[skipped..]) {
                    if !is_stale(*value) {
                        if !open {
                            out.extend_from_slice(if is_first { br#"{"metric":"# } else { br#",{"metric":"# });
                            out.extend_from_slice(&column.json);
                            out.extend(br#","values":["#);
                            is_first = false;
                        }
                        out.extend_from_slice(&text[from + usize::from(!open)..*to]);
                        json::value(out, *value);
                        out.push(b']');
                        open = true;
                    }
                    from = *to;
                }
                if open {
                    out.extend(b"]}");
                }
            }
        }
    }

    fn value(&self, expr: &Expr) -> Result<Value<'a>, String> {
        Ok(match expr {
            Expr::Number(number) => Value::Scalar(*number),
            Expr::Selector(selector) => {
                let end = self.at.saturating_sub(selector.offset);
                let points = self.columns(selector).filter_map(|(table, column)| {
                    let (_, value) = table.instant(column, end.saturating_sub(LOOK_BACK), end)?;
                    Some(Point { labels: labels(column, true), value })
                });
                Value::Vector(points.collect())
            }
            Expr::Range(..) => return Err("a range where an instant vector is expected".to_owned()),
            Expr::Over(function, selector, range) => Value::Vector(self.over(*function, selector, *range)?),
            Expr::Aggregate { how, grouping, of } => match self.value(of)? {
                Value::Vector(points) => Value::Vector(aggregate(*how, grouping, points)),
                Value::Scalar(_) => return Err("expected an instant vector".to_owned()),
            },
            Expr::Binary(operator, left, right) => binary(*operator, self.value(left)?, self.value(right)?)?,
            Expr::Negated(of) => match self.value(of)? {
                Value::Scalar(value) => Value::Scalar(-value),
                Value::Vector(points) => Value::Vector(map(points, |value| -value)),
            },
        })
    }

    fn over(&self, function: Function, selector: &Selector, range: u64) -> Result<Vec<Point<'a>>, String> {
        let end = self.at.saturating_sub(selector.offset);
        let start = end.saturating_sub(range);
        let mut samples: Vec<(u64, f64)> = Vec::new();
        let mut points: Vec<Point<'a>> = Vec::new();
        for (table, column) in self.columns(selector) {
            samples.clear();
            samples.extend(table.range(column, start, end));
            let Some(&(_, last)) = samples.last() else { continue };
            let count = samples.len() as f64;
            let values = samples.iter().map(|(_, value)| *value);
            let value = match function {
                Function::Last => Some(last),
                Function::Count => Some(count),
                Function::Sum => Some(values.sum()),
                Function::Avg => Some(values.sum::<f64>() / count),
                Function::Min => Some(values.fold(f64::INFINITY, f64::min)),
                Function::Max => Some(values.fold(f64::NEG_INFINITY, f64::max)),
                Function::Increase => increase(&samples, start, end),
                Function::Rate => increase(&samples, start, end).map(|value| value * 1000.0 / range as f64),
            };
            let Some(value) = value else { continue };
            points.push(Point { labels: labels(column, function == Function::Last), value });
        }
        unique(&points)?;
        Ok(points)
    }
}

fn labels(column: &Column, with_name: bool) -> Labels<'_> {
    let all = column.labels.iter().map(|(name, value)| (*name, &**value));
    all.filter(|(name, _)| with_name || *name != "__name__").collect()
}

/// Without their names two series may be the same.
fn unique(points: &[Point<'_>]) -> Result<(), String> {
    let mut all: Vec<&Labels<'_>> = points.iter().map(|point| &point.labels).collect();
    all.sort_unstable();
    if all.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err("vector cannot contain metrics with the same labelset".to_owned());
    }
    Ok(())
}

/// `extrapolatedRate` of Prometheus' functions.go: steps with resets, stretched to the edges of the range, but by no more
/// than half an interval where samples are missing, and not to below zero.
fn increase(samples: &[(u64, f64)], start: u64, end: u64) -> Option<f64> {
    let (&(begin, first), &(finish, last)) = (samples.first()?, samples.last()?);
    if samples.len() < 2 {
        return None;
    }
    let resets = samples.windows(2).filter(|pair| pair[1].1 < pair[0].1).map(|pair| pair[0].1);
    let grown = last - first + resets.sum::<f64>();
    let seconds = |from: u64, to: u64| (to - from) as f64 / 1000.0;
    let covered = seconds(begin, finish);
    let average = covered / (samples.len() - 1) as f64;
    let stretched = |gap: f64| if gap >= average * 1.1 { average / 2.0 } else { gap };
    let mut to_start = stretched(seconds(start, begin));
    if grown > 0.0 && first >= 0.0 {
        to_start = to_start.min(covered * (first / grown));
    }
    Some(grown * ((covered + to_start + stretched(seconds(finish, end))) / covered))
}

fn aggregate<'a>(how: Aggregation, grouping: &Grouping, points: Vec<Point<'a>>) -> Vec<Point<'a>> {
    let is_kept = |name: &str| match grouping {
        Grouping::By(labels) => labels.iter().any(|label| label == name),
        Grouping::Without(labels) => name != "__name__" && !labels.iter().any(|label| label == name),
    };
    let mut groups: Vec<(Point<'a>, f64)> = Vec::new();
    for Point { mut labels, value } in points {
        labels.retain(|(name, _)| is_kept(name));
        let Some((group, count)) = groups.iter_mut().find(|(group, _)| group.labels == labels) else {
            groups.push((Point { labels, value }, 1.0));
            continue;
        };
        *count += 1.0;
        group.value = match how {
            Aggregation::Sum | Aggregation::Avg | Aggregation::Count => group.value + value,
            // a NaN gives way to any number
            Aggregation::Min => group.value.min(value),
            Aggregation::Max => group.value.max(value),
        };
    }
    let finish = |(mut point, count): (Point<'a>, f64)| {
        match how {
            Aggregation::Avg => point.value /= count,
            Aggregation::Count => point.value = count,
            _ => {}
        }
        point
    };
    groups.into_iter().map(finish).collect()
}

fn map<'a>(points: Vec<Point<'a>>, change: impl Fn(f64) -> f64) -> Vec<Point<'a>> {
    let change = |Point { mut labels, value }: Point<'a>| {
        labels.retain(|(name, _)| *name != "__name__");
        Point { labels, value: change(value) }
    };
    points.into_iter().map(change).collect()
}

fn calculate(operator: char, left: f64, right: f64) -> f64 {
    match operator {
        '+' => left + right,
        '-' => left - right,
        '*' => left * right,
        _ => left / right,
    }
}

fn binary<'a>(operator: char, left: Value<'a>, right: Value<'a>) -> Result<Value<'a>, String> {
    Ok(match (left, right) {
        (Value::Scalar(left), Value::Scalar(right)) => Value::Scalar(calculate(operator, left, right)),
        (Value::Vector(left), Value::Scalar(right)) => {
            Value::Vector(map(left, |left| calculate(operator, left, right)))
        }
        (Value::Scalar(left), Value::Vector(right)) => {
            Value::Vector(map(right, |right| calculate(operator, left, right)))
        }
        (Value::Vector(left), Value::Vector(right)) => {
            let (left, right) = (map(left, |value| value), map(right, |value| value));
            unique(&left).and(unique(&right)).map_err(|_| "found duplicate series for the match group".to_owned())?;
            let partner = |one: &Point<'_>| right.iter().find(|other| other.labels == one.labels).map(|it| it.value);
            let pairs = left.into_iter().filter_map(|point| {
                let value = calculate(operator, point.value, partner(&point)?);
                Some(Point { labels: point.labels, value })
            });
            Value::Vector(pairs.collect())
        }
    })
}
