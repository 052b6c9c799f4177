//! A report as a table for people.

use std::fmt;

use crate::report::{Latency, Moment, PairReport, Report};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed_ms as f64 / 1000.0;
        writeln!(
            f,
            "{} requests in {seconds:.1} s, {} still running",
            self.total,
            self.sent.saturating_sub(self.total)
        )?;
        writeln!(f, "  plain {} (on new connections {}), streamed {}", self.plain, self.fresh, self.streamed)?;
        writeln!(f, "  whole {}, injected {}, failed {}", self.whole, self.injected, self.failed)?;
        writeln!(f, "  cut streams {}, mismatched pairs {}", self.cut_streams, self.mismatched_pairs)?;
        writeln!(f, "  connections {}, reconnects {}", self.connections_opened, self.reconnects)?;
        self.pairs(f)?;
        writeln!(f, "{:<14} {:>8} {:>9} {:>9} {:>9} {:>9}", "latency (ms)", "count", "p50", "p90", "p99", "max")?;
        row(f, "plain", self.latency.plain)?;
        row(f, "first token", self.latency.first_token)?;
        row(f, "whole stream", self.latency.stream)?;
        for (kind, count) in &self.failures {
            writeln!(f, "failed {kind:?}: {count}")?;
        }
        for error in &self.first_errors {
            writeln!(f, "  {} {:?} {:?}: {}", at(error.offset_ms), error.flow, error.kind, error.message)?;
        }
        Ok(())
    }
}

impl Report {
    fn pairs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.by_pair.iter().map(|pair| pair.pair.to_string().len()).max().unwrap_or(0).max(4);
        let head = ["answers", "streamed", "injected", "first", "last", "last sent"];
        write!(f, "{:<width$}", "pair")?;
        head.iter().try_for_each(|column| write!(f, " {column:>10}"))?;
        writeln!(f)?;
        self.by_pair.iter().try_for_each(|pair| pair_row(f, pair, width))
    }
}

fn pair_row(f: &mut fmt::Formatter<'_>, pair: &PairReport, width: usize) -> fmt::Result {
    let moment = |moment: Moment| at(moment.offset_ms);
    write!(f, "{:<width$} {:>10} {:>10} {:>10}", pair.pair.to_string(), pair.answers, pair.streamed, pair.injected)?;
    writeln!(f, " {:>10} {:>10} {:>10}", moment(pair.first), moment(pair.last), moment(pair.last_sent))
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, latency: Latency) -> fmt::Result {
    let Latency { count, p50_ms, p90_ms, p99_ms, max_ms } = latency;
    writeln!(f, "{name:<14} {count:>8} {p50_ms:>9.1} {p90_ms:>9.1} {p99_ms:>9.1} {max_ms:>9.1}")
}

fn at(offset_ms: u64) -> String {
    format!("+{:.3}s", offset_ms as f64 / 1000.0)
}
