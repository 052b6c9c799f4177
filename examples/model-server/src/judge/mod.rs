//! The judge: asks a model questions and says whether all its answers are right.
//!
//! It is made for the `job` gates of the operator, which pass when a Job succeeds and fail when it
//! fails. What it looks at is not the wisdom of the answers, but that clients can read them, and
//! that the model and the prompt are those that are rolled out.

mod ask;
mod check;
mod config;
mod sse;

use std::fmt;
use std::time::{Duration, Instant};

use tokio::time::sleep;

pub use config::JudgeConfig;

use ask::{Asker, NoAnswer};
use check::Expected;

/// Asked in turn.
const QUESTIONS: [&str; 4] = [
    "How do I reset my password?",
    "Where is my order?\nIt should have come yesterday.",
    "Grüße! Can I pay in \"euros\"?",
    "What is your name?",
];
/// How many wrong answers are told one by one.
const TOLD: usize = 10;
/// The pause between two connections at the start.
const RETRY: Duration = Duration::from_millis(250);

/// Why a judge cannot begin.
#[derive(Debug, thiserror::Error)]
#[error("there is no HTTP client: {0}")]
pub struct JudgeError(#[from] reqwest::Error);

/// What came out of it. Displayed, it is a line for each wrong answer, at most ten, and the sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    questions: u32,
    wrong: Vec<String>,
}

impl Verdict {
    /// Whether all answers were right.
    pub fn passed(&self) -> bool {
        self.wrong.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for wrong in self.wrong.iter().take(TOLD) {
            writeln!(f, "{wrong}")?;
        }
        let right = (self.questions as usize).saturating_sub(self.wrong.len());
        write!(f, "{right} of {} answers have the schema", self.questions)
    }
}

/// Asks the questions.
pub struct Judge {
    asker: Asker,
    expected: Expected,
    questions: u32,
    start: Duration,
}

impl Judge {
    /// Prepares to ask; nothing is sent yet.
    pub fn new(config: &JudgeConfig) -> Result<Self, JudgeError> {
        let JudgeConfig { model, prompt_version, questions, start_seconds: start, .. } = config.clone();
        Ok(Self { asker: Asker::new(config)?, expected: Expected { model, prompt_version }, questions, start })
    }

    /// Asks all questions, one after the other.
    pub async fn run(&self) -> Verdict {
        let patient = Instant::now() + self.start;
        let mut wrong = Vec::new();
        for (number, question) in (0..self.questions).zip(QUESTIONS.iter().cycle()) {
            let streamed = number % 2 == 1;
            // Only the very first connection may find nobody.
            let patient = (number == 0).then_some(patient);
            if let Err(why) = self.ask(question, streamed, patient).await {
                let form = if streamed { "streamed" } else { "plain" };
                wrong.push(format!("answer {} ({form}): {why}", number + 1));
            }
        }
        Verdict { questions: self.questions, wrong }
    }

    async fn ask(&self, question: &str, streamed: bool, patient: Option<Instant>) -> Result<(), String> {
        let body = loop {
            match self.asker.ask(question, streamed).await {
                Err(NoAnswer::Refused) if patient.is_some_and(|until| Instant::now() < until) => sleep(RETRY).await,
                answer => break answer.map_err(|error| error.to_string())?,
            }
        };
        if streamed { self.expected.streamed(&body) } else { self.expected.plain(&body) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_ten_wrong_answers_are_told_and_all_are_counted() {
        let wrong = |count: u32| Verdict { questions: 20, wrong: (0..count).map(|n| format!("no {n}")).collect() };
        assert_eq!(wrong(0).to_string(), "20 of 20 answers have the schema");
        assert!(wrong(0).passed() && !wrong(1).passed());
        assert_eq!(wrong(3).to_string(), "no 0\nno 1\nno 2\n17 of 20 answers have the schema");
        let many = wrong(15).to_string();
        assert_eq!((many.lines().count(), many.lines().last()), (11, Some("5 of 20 answers have the schema")));
    }
}
