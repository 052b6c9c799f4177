//! The line that `kubectl get modelrollout --watch` prints, and the clock in front of each line of the demo.

use std::time::Instant;

use modelrollout::api::reasons::Phase;
use modelrollout::api::{ModelRollout, Summary};

/// The widths of the columns; the last one ends the line.
const WIDTHS: [usize; 9] = [12, 7, 7, 17, 6, 7, 42, 35, 0];

/// Counts from the start of the demo.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// `  12.3 s`
    pub fn at(self, at: Instant) -> String {
        format!("{:>6.1} s", at.saturating_duration_since(self.0).as_secs_f64())
    }

    /// Says what the demo does.
    pub fn say(self, text: &str) {
        println!("{}  ==> {text}", self.at(Instant::now()));
    }

    /// A line of the table.
    pub fn row(self, line: &str) {
        println!("{}  {line}", self.at(Instant::now()));
    }
}

/// Adds to the line before.
pub fn note(text: &str) {
    println!("{:>8}      {text}", "");
}

/// The heading.
pub fn heading() -> String {
    align(&["NAME", "ACTIVE", "TARGET", "PHASE", "STAGE", "WEIGHT", "GATES", "MODEL", "PROMPT"].map(str::to_owned))
}

/// The columns of one `ModelRollout`.
pub fn line(rollout: &ModelRollout) -> String {
    let status = rollout.status.clone().unwrap_or_default();
    let Summary { stage, weight, gates, model, prompt, .. } = status.summary;
    align(&[
        rollout.metadata.name.clone().unwrap_or_default(),
        status.active_color.map(|color| color.to_string()).unwrap_or_default(),
        rollout.spec.target.to_string(),
        status.phase.map(|phase| phase.to_string()).unwrap_or_default(),
        stage,
        weight.map(|weight| weight.to_string()).unwrap_or_default(),
        gates,
        model,
        prompt,
    ])
}

/// What `kubectl describe` adds, when it is worth a line: why nothing moves, or why traffic went back.
pub fn remark(rollout: &ModelRollout) -> Option<String> {
    let status = rollout.status.as_ref()?;
    let told = match status.phase? {
        Phase::Holding
        | Phase::AwaitingApproval
        | Phase::Paused
        | Phase::RollingBack
        | Phase::Restoring
        | Phase::RolledBack
        | Phase::Invalid => true,
        Phase::Stable | Phase::Preparing | Phase::Progressing | Phase::Promoting | Phase::Buffering => false,
    };
    (told && !status.summary.message.is_empty()).then(|| status.summary.message.clone())
}

fn align(cells: &[String; 9]) -> String {
    let cells = cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:<width$}"));
    cells.collect::<Vec<_>>().join(" ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_their_names() {
        let heading = heading();
        let line =
            align(&["support-bot", "blue", "green", "Progressing", "1/5", "57", "", "m@1", "v7"].map(str::to_owned));
        for (name, cell) in [("PHASE", "Progressing"), ("WEIGHT", "57 "), ("MODEL", "m@1"), ("PROMPT", "v7")] {
            assert_eq!(heading.find(name), line.find(cell), "{heading}\n{line}");
        }
    }
}
