//! The story: one version that is promoted, one that fails, one that is slow.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use modelrollout::api::reasons::{Cause, Outcome, Phase};
use modelrollout::api::{Color, HistoryEntry, ModelRollout};
use modelrollout_load::{Load, LoadConfig, LoadHandle, Report};
use tokio::time::{interval, sleep};

use crate::cluster::{apply, observed, ready, until_deployment, wanted};
use crate::follow::{Follower, Span};
use crate::manifests::{self, FIRST, FOURTH, HOST, SECOND, THIRD, Version};
use crate::table::{Clock, heading, note};

/// The limit of the gate p95, in milliseconds.
const SLOW_MS: f64 = 2500.0;
/// The number of Pods of a color that serves.
const REPLICAS: u32 = 3;
const PODS: Duration = Duration::from_mins(2);
const PROMOTION: Duration = Duration::from_mins(4);
const ROLLBACK: Duration = Duration::from_secs(150);

/// How one version fared.
pub struct Chapter {
    pub version: Version,
    pub color: Color,
    pub began: Instant,
    pub ended: Instant,
    pub spans: Vec<Span>,
    pub history: HistoryEntry,
    /// When the first answer that took too long was whole.
    pub first_slow: Option<Instant>,
}

/// All that is needed to judge the demo.
pub struct Story {
    pub chapters: Vec<Chapter>,
    pub report: Report,
}

/// What tells the story.
pub struct Teller<'a> {
    pub client: &'a Client,
    pub clock: Clock,
    pub follower: &'a mut Follower,
    pub url: &'a str,
    pub tag: &'a str,
    pub rate: f64,
}

impl Teller<'_> {
    /// Everything, from the first Pod to the last answer.
    pub async fn tell(&mut self) -> Result<Story, String> {
        self.set_the_stage().await?;
        let mut load = self.load().await?;
        let mut chapters = Vec::new();

        self.clock.say("(1) a new model with a new prompt, on green:");
        load.expect_pair(SECOND.pair());
        chapters.push(self.chapter(&load, SECOND, Color::Green, [&FIRST, &SECOND]).await?);
        let what = "blue is scaled to zero";
        until_deployment(self.client, Color::Blue, (PODS, what), |blue| wanted(blue) == 0).await?;
        self.clock.say("promoted; the buffer is over and blue is scaled to zero");

        self.clock.say("(2) the next version, on blue, answers one request in ten with an error:");
        load.expect_pair(THIRD.pair());
        chapters.push(self.chapter(&load, THIRD, Color::Blue, [&THIRD, &SECOND]).await?);
        sleep(Duration::from_secs(4)).await;
        self.clock.say("the failure was seen: kubectl apply with spec.target: green");
        apply(self.client, &manifests::rollout(&THIRD, &SECOND, Color::Green)?).await?;
        self.follower.until(PODS, "the rollout is stable again", |it| phase(it) == Some(Phase::Stable)).await?;

        self.clock.say("(3) another version, on blue, answers three requests in ten 3 s late:");
        load.expect_pair(FOURTH.pair());
        chapters.push(self.chapter(&load, FOURTH, Color::Blue, [&FOURTH, &SECOND]).await?);
        sleep(Duration::from_secs(4)).await;

        self.clock.say("the load stops");
        Ok(Story { chapters, report: load.stop().await })
    }

    /// Blue serves, and nothing else happens.
    async fn set_the_stage(&mut self) -> Result<(), String> {
        self.clock.say(&format!("blue serves {}", FIRST.pair()));
        let blue = FIRST.color(Color::Blue, self.tag, Some(REPLICAS))?;
        let green = SECOND.color(Color::Green, self.tag, Some(0))?;
        for objects in [blue, green, manifests::ingress()?] {
            apply(self.client, &objects).await?;
        }
        let pods = i32::try_from(REPLICAS).unwrap_or(i32::MAX);
        until_deployment(self.client, Color::Blue, (PODS, "blue's Pods are ready"), |blue| ready(blue) >= pods).await?;
        self.clock.row(&heading());
        apply(self.client, &manifests::rollout(&FIRST, &SECOND, Color::Blue)?).await?;
        let stable = |it: &ModelRollout| phase(it) == Some(Phase::Stable);
        self.follower.until(PODS, "the operator has adopted the rollout", stable).await?;
        Ok(())
    }

    /// Starts the load, once the Ingress answers.
    async fn load(&self) -> Result<LoadHandle, String> {
        let wrong = |error| format!("the load cannot start: {error}");
        let config = LoadConfig::new(self.url, HOST);
        let began = Instant::now();
        loop {
            let probe = LoadConfig {
                rate: 10.0,
                connections: 1,
                fresh: 1,
                streams: 0,
                timeout: Duration::from_secs(2),
                max_duration: Duration::from_millis(500),
                ..config.clone()
            };
            let mut probe = Load::start(probe).await.map_err(wrong)?;
            probe.finished().await;
            let seen = probe.snapshot();
            if seen.whole > 0 && seen.failed == 0 {
                break;
            }
            if began.elapsed() > PODS {
                let why = seen.first_errors.first().map(|error| error.message.clone()).unwrap_or_default();
                return Err(format!("{} does not answer for {HOST}: {why}", self.url));
            }
            sleep(Duration::from_millis(500)).await;
        }
        let config = LoadConfig {
            rate: self.rate,
            connections: 6,
            fresh: 3,
            streams: 12,
            max_duration: Duration::from_mins(20),
            expected_pairs: vec![FIRST.pair()],
            ..config
        };
        self.clock.say(&format!(
            "users ask {} questions a second at {} (Host: {HOST}), plain on kept and on new connections, and streamed",
            self.rate, self.url
        ));
        Load::start(config).await.map_err(wrong)
    }

    /// A version is applied as a user would, and followed to its end.
    async fn chapter(
        &mut self,
        load: &LoadHandle,
        version: Version,
        color: Color,
        [blue, green]: [&Version; 2],
    ) -> Result<Chapter, String> {
        let last = self.follower.latest().map_or(0, |rollout| newest(&rollout));
        let client = self.client;
        let text = format!(
            "kubectl apply: ConfigMap support-prompt-{}, Deployment support-bot-{color}; ModelRollout support-bot, spec.target: {color}",
            version.prompt
        );
        note(&text);
        apply(client, &version.color(color, self.tag, None)?).await?;
        let what = format!("the new Pod template of {color} is observed");
        until_deployment(client, color, (PODS, &what), observed).await?;
        let began = Instant::now();
        apply(client, &manifests::rollout(blue, green, color)?).await?;

        let good = version.fail_percent + version.slow_percent == 0;
        let (limit, end) = if good { (PROMOTION, Phase::Stable) } else { (ROLLBACK, Phase::RolledBack) };
        let what = format!("attempt {} has ended and the rollout is {end}", last + 1);
        let ended = move |it: &ModelRollout| newest(it) > last && phase(it) == Some(end) || unexpected(it, last, good);
        let (rollout, first_slow) = {
            let waiting = self.follower.until(limit, &what, ended);
            watch_for_slow(load, version.slow_percent > 0, waiting).await
        };
        let rollout = rollout?;
        let history = entry(&rollout, last).cloned().ok_or("the attempt has left no trace in status.history")?;
        let chapter = Chapter {
            version,
            color,
            began,
            ended: Instant::now(),
            spans: self.follower.spans_since(began),
            history,
            first_slow,
        };
        check(&chapter, good)?;
        Ok(chapter)
    }
}

/// Waits, and meanwhile looks for the first answer that took too long.
async fn watch_for_slow(
    load: &LoadHandle,
    wanted: bool,
    waiting: impl Future<Output = Result<Arc<ModelRollout>, String>>,
) -> (Result<Arc<ModelRollout>, String>, Option<Instant>) {
    let slowest = || {
        let latency = load.snapshot().latency;
        latency.plain.max_ms.max(latency.stream.max_ms)
    };
    let mut look = interval(Duration::from_millis(100));
    let mut first = None;
    // An answer that was as slow before would hide the first one.
    let looking = wanted && slowest() < SLOW_MS;
    let mut waiting = std::pin::pin!(waiting);
    loop {
        tokio::select! {
            seen = &mut waiting => return (seen, first),
            at = look.tick(), if looking && first.is_none() => {
                first = (slowest() > SLOW_MS).then(|| at.into_std());
            }
        }
    }
}

fn phase(rollout: &ModelRollout) -> Option<Phase> {
    rollout.status.as_ref().and_then(|status| status.phase)
}

/// The number of the newest attempt that has ended.
fn newest(rollout: &ModelRollout) -> i64 {
    let history = rollout.status.as_ref().map(|status| status.history.as_slice()).unwrap_or_default();
    history.iter().map(|entry| entry.attempt).max().unwrap_or(0)
}

/// The first attempt that ended after attempt `last`.
fn entry(rollout: &ModelRollout, last: i64) -> Option<&HistoryEntry> {
    let history = rollout.status.as_ref()?.history.iter();
    history.filter(|entry| entry.attempt > last).min_by_key(|entry| entry.attempt)
}

/// Whether waiting on is of no use.
fn unexpected(rollout: &ModelRollout, last: i64, good: bool) -> bool {
    let wanted = if good { Outcome::Promoted } else { Outcome::RolledBack };
    entry(rollout, last).is_some_and(|entry| entry.outcome != wanted)
}

/// Whether a version ended as it should.
fn check(chapter: &Chapter, good: bool) -> Result<(), String> {
    let HistoryEntry { attempt, outcome, cause, message, .. } = &chapter.history;
    let as_it_should = match outcome {
        Outcome::Promoted => good,
        Outcome::RolledBack => !good && *cause == Some(Cause::GateFailed) && failed_gate(chapter) == gate(chapter),
        Outcome::Restored | Outcome::Aborted => false,
    };
    if as_it_should {
        return Ok(());
    }
    let wanted = gate(chapter).map_or("be promoted".to_owned(), |gate| format!("be rolled back by the gate {gate}"));
    Err(format!(
        "attempt {attempt} should {wanted}, but it ended as {outcome}: {}",
        message.clone().unwrap_or_default()
    ))
}

/// The gate that has to fail.
pub fn gate(chapter: &Chapter) -> Option<&'static str> {
    match (chapter.version.fail_percent, chapter.version.slow_percent) {
        (0, 0) => None,
        (0, _) => Some("p95"),
        _ => Some("errors"),
    }
}

fn failed_gate(chapter: &Chapter) -> Option<&'static str> {
    let message = chapter.history.message.as_deref().unwrap_or_default();
    ["errors", "p95"].into_iter().find(|gate| message.starts_with(&format!("gate {gate}:")))
}
