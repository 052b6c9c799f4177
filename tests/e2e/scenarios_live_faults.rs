//! T7: what the simulation does to the operator by plan, done to it on a real API server, under load (`fault_proxy.rs`).
//! Whatever happens: no request fails, no stream is cut, and it ends where an undisturbed run ends.
//!
//! `make test-faults-live`. Settings: `LIVE_RUNS` (200), `LIVE_PARALLEL` (6), `LIVE_SEED` (1), and `LIVE_REPLAY`, which runs
//! one line of what was printed again: `LIVE_REPLAY="promotion w7=lost-reply w9=crash-after"`.

use std::cell::Cell;
use std::io::Write as _;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures::{FutureExt as _, StreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::DeleteParams;
use modelrollout::api::reasons::Phase;
use modelrollout::api::{Color, ModelRollout, ModelRolloutStatus};
use modelrollout_load::{Load, LoadConfig};
use serde_json::json;

use crate::cluster::{INGRESS_URL, variable};
use crate::fault_proxy::{Class, Fault, FaultProxy, Kind};
use crate::harness::{LONG, SHORT, Scenario, eventually, scenario, status_if};
use crate::http;
use crate::manifests::{NAME, Setup, pair};
use crate::operator::{Launcher, Operator};

/// What is disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Story {
    Promotion,
    Gate,
    Act,
    TargetBack,
    Deletion,
}

/// With its word, and how many writes there are about: faults happen at any of them.
const STORIES: [(Story, &str, u64); 5] = [
    (Story::Promotion, "promotion", 20),
    (Story::Gate, "gate", 14),
    (Story::Act, "act", 14),
    (Story::TargetBack, "target-back", 11),
    (Story::Deletion, "deletion", 10),
];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Numbers by chance that are the same for the same seed (`SplitMix64`).
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// A story and what happens in it.
struct Plan {
    story: Story,
    faults: Vec<Fault>,
}

impl Plan {
    fn by_seed(seed: u64) -> Self {
        let mut chance = Chance(seed);
        let (story, _, writes) = STORIES[seed as usize % STORIES.len()];
        let faults = (0..=chance.below(3)).map(|_| {
            let (class, end) = match chance.below(20) {
                0..14 => (Class::Write, writes),
                14..17 => (Class::Event, 60),
                17..19 => (Class::Lease, 8),
                _ => (Class::Read, 20),
            };
            let kinds = Kind::table(class);
            Fault { class, number: 1 + chance.below(end), kind: kinds[chance.below(kinds.len() as u64) as usize] }
        });
        let faults = faults.collect();
        Self { story, faults }
    }

    fn read(line: &str) -> Self {
        let mut words = line.split_whitespace();
        let word = words.next().unwrap_or_default();
        let story = STORIES.iter().find(|story| story.1 == word);
        let story = story.unwrap_or_else(|| panic!("there is no story {word}: {STORIES:?}")).0;
        Self { story, faults: words.map(|word| word.parse().unwrap_or_else(|error| panic!("{error}"))).collect() }
    }

    fn line(&self) -> String {
        let word = STORIES.iter().find(|story| story.0 == self.story).map_or("", |story| story.1);
        let faults = self.faults.iter().map(|fault| format!(" {fault}"));
        format!("{word}{}", faults.collect::<String>())
    }

    fn name(&self) -> &'static str {
        STORIES.iter().find(|story| story.0 == self.story).map_or("", |story| story.1)
    }

    /// One Pod of each color, short holds, and few requests: many of these run at a time.
    fn setup(&self) -> Setup {
        let hold = if matches!(self.story, Story::Promotion | Story::Gate) { "1s" } else { "10m" };
        let stages = json!([{ "weight": 50, "hold": hold }, { "weight": 100, "hold": "1s" }]);
        let mut setup = Setup { load: false, ..Setup::default() }.with("/stages", stages);
        setup.blue.replicas = 1;
        for gate in 0..2 {
            setup = setup.with(&format!("/gates/{gate}/minSamples"), json!(5));
        }
        let setup = setup.with("/gates/0/errorRate/maxIncrease", json!("20%")).with("/rollback/buffer", json!("3s"));
        if self.story == Story::Gate { setup.green("FAIL_PERCENT", "70") } else { setup }
    }
}

/// Requests per second of one run.
const RATE: f64 = 8.0;

async fn start_load(it: &mut Scenario) {
    let ready = async || http::get(&it.host, "/readyz", &[]).await?.ok();
    eventually("the ingress controller sends requests to a model server", LONG, ready).await;
    let mut config = LoadConfig::new(&variable(INGRESS_URL), &it.host);
    (config.rate, config.connections, config.fresh, config.streams) = (RATE, 1, 1, 2);
    config.expected_pairs = vec![pair("blue"), pair("green")];
    it.load = Some(Load::start(config).await.unwrap());
}

/// Kills and starts the operator whenever the proxy says so; `dead` says in between that it is. Never ends.
async fn attend(proxy: &mut FaultProxy, launcher: &Launcher, operator: &mut Operator, dead: &Cell<bool>) {
    loop {
        let absent = proxy.crashed().await;
        dead.set(true);
        operator.kill().await;
        tokio::time::sleep(absent).await;
        proxy.thaw();
        *operator = launcher.start(&operator.identity);
        dead.set(false);
    }
}

/// One run. It panics if it does not end as it has to.
async fn run(plan: &Plan) {
    scenario(&format!("live-{}", plan.name()), plan.setup(), async |it| {
        let mut proxy = FaultProxy::start(&it.client, &plan.faults).await;
        it.operator.take().unwrap().kill().await;
        proxy.lead_here(&it.launcher.folder, &it.launcher.folder);
        start_load(it).await;
        let launcher = it.launcher.clone();
        let mut operator = launcher.start("operator-1");
        let dead = Cell::new(false);
        let played = tokio::select! {
            played = AssertUnwindSafe(play(it, plan.story)).catch_unwind() => played,
            () = attend(&mut proxy, &launcher, &mut operator, &dead) => Ok(()),
        };
        if dead.get() {
            // all was done before it came back
            proxy.thaw();
            operator = launcher.start(&operator.identity);
        }
        it.operator = Some(operator);
        if let Err(panic) = played {
            let writes: Vec<_> = proxy.writes().into_iter().map(|seen| seen.line).collect();
            eprintln!("-- {}\n-- its writes\n{}", plan.line(), writes.join("\n"));
            std::panic::resume_unwind(panic);
        }
        let (writes, left) = (proxy.writes().len(), proxy.left());
        let _ =
            writeln!(std::io::stderr(), "    live: {} ({writes} writes, {left} faults did not come up)", plan.line());
    })
    .await;
}

/// What the user does, and where it has to end.
async fn play(it: &Scenario, story: Story) {
    it.create_rollout().await;
    let status = match story {
        Story::Promotion => it.promoted().await,
        Story::Gate => it.rolled_back().await,
        Story::Act => {
            it.stage(50).await;
            it.annotate("modelrollout.dev/rollback", "live").await;
            it.rolled_back().await
        }
        Story::TargetBack => {
            it.stage(50).await;
            it.patch::<ModelRollout>(NAME, json!({ "spec": { "target": "blue" } })).await;
            let back = |status: &ModelRolloutStatus| {
                status.phase == Some(Phase::Stable) && status.attempt.as_ref().is_some_and(|attempt| !attempt.open)
            };
            let status = it.until("target back", LONG, |object| status_if(object, back)).await;
            it.at_rest("bot-blue").await;
            status
        }
        Story::Deletion => {
            it.stage(50).await;
            it.api::<ModelRollout>().delete(NAME, &DeleteParams::default()).await.unwrap();
            it.rollouts.gone(LONG).await;
            it.ingresses
                .until("the users' Ingress alone, and it names blue", SHORT, |all| {
                    all.len() == 1 && it.all_name(all, "bot-blue")
                })
                .await;
            // users go on asking: what would be lost now was lost by the deletion
            tokio::time::sleep(Duration::from_secs(5)).await;
            return;
        }
    };
    let active = if story == Story::Promotion { Color::Green } else { Color::Blue };
    assert_eq!(status.active_color, Some(active));
    let attempt = status.attempt.unwrap();
    assert_eq!((attempt.id, attempt.open, status.history.len()), (1, false, 1), "one attempt, and it is over");
    let failed = matches!(story, Story::Gate | Story::Act);
    assert_eq!(status.failed_revision.is_some(), failed, "whether the revision counts as failed");
    let acts: Vec<_> = status.acts.iter().map(|act| (act.act.as_str(), act.effect.as_str())).collect();
    match story {
        Story::Act => assert!(acts.len() == 1 && acts[0].1.starts_with("ActApplied"), "carried out once: {acts:?}"),
        _ => assert!(acts.is_empty(), "{acts:?}"),
    }
    let act = |object: &ModelRollout| {
        let all = object.metadata.annotations.iter().flatten();
        all.filter(|(key, _)| key.starts_with("modelrollout.dev/")).count()
    };
    it.until("no act is left", SHORT, |object| (act(object) == 0).then_some(())).await;
    // Pods that nobody needs any more go: the old color's after a promotion, the target's after a rollback.
    let (kept, gone) = if active == Color::Green { ("bot-green", "bot-blue") } else { ("bot-blue", "bot-green") };
    eventually(&format!("{gone} is scaled to zero"), SHORT, async || {
        let replicas = it.replicas(gone).await;
        if replicas == 0 { Ok(()) } else { Err(replicas.to_string()) }
    })
    .await;
    assert_eq!(it.replicas(kept).await, 1, "{kept} keeps its Pod");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster, and half an hour: make test-faults-live"]
async fn whatever_the_api_server_does_no_request_fails_and_it_ends_where_it_should() {
    if let Ok(line) = std::env::var("LIVE_REPLAY") {
        run(&Plan::read(&line)).await;
        return;
    }
    let (runs, first) = (number("LIVE_RUNS", 200), number("LIVE_SEED", 1));
    let began = Instant::now();
    let all = stream::iter(first..first + runs).map(async |seed| {
        let plan = Plan::by_seed(seed);
        let result = AssertUnwindSafe(run(&plan)).catch_unwind().await;
        let word = if result.is_ok() { "ok" } else { "FAILED" };
        let line = format!("    live: seed {seed} {word}: LIVE_REPLAY=\"{}\"", plan.line());
        let _ = writeln!(std::io::stderr(), "{line}");
        result.is_err().then_some(line)
    });
    let parallel = usize::try_from(number("LIVE_PARALLEL", 6)).unwrap();
    let failed: Vec<_> = all.buffer_unordered(parallel).filter_map(async |line| line).collect().await;
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    let _ = writeln!(std::io::stderr(), "    live: {runs} runs, {} failed, {minutes:.1} min", failed.len());
    assert!(failed.is_empty(), "{} of {runs} runs failed:\n{}", failed.len(), failed.join("\n"));
}

/// A leader and a standby, each behind a proxy of its own, which counts what it writes.
struct Two {
    leader: (FaultProxy, Operator),
    standby: (FaultProxy, Operator),
}

async fn two(it: &mut Scenario) -> Two {
    it.operator.take().unwrap().kill().await;
    let mut both = Vec::new();
    for identity in ["operator-1", "operator-2"] {
        let proxy = FaultProxy::start(&it.client, &[]).await;
        let folder = it.launcher.folder.join(identity);
        proxy.lead_here(&it.launcher.folder, &folder);
        let launcher = Launcher { folder, ..it.launcher.clone() };
        both.push((proxy, launcher.start(identity)));
        // the first one leads: it had the lease before
        leads(it, "operator-1").await;
    }
    let standby = both.pop().unwrap();
    Two { leader: both.pop().unwrap(), standby }
}

/// Waits until `identity` has the lease.
async fn leads(it: &Scenario, identity: &str) {
    eventually(&format!("{identity} leads"), SHORT, async || {
        let lease = it.api::<Lease>().get("modelrollout-operator").await.map_err(|error| error.to_string())?;
        let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
        if holder == identity { Ok(()) } else { Err(holder) }
    })
    .await;
}

fn signal(operator: &Operator, name: &str) {
    let pid = operator.pid().to_string();
    let status = std::process::Command::new("kill").args([name, &pid]).status();
    assert!(status.unwrap().success(), "{name} {pid}");
}

/// So often the leader goes, each time at another moment of a promotion.
const MOMENTS: u64 = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster, and some minutes: make test-faults-live"]
async fn a_leader_that_stood_still_writes_nothing_when_it_goes_on() {
    for moment in 0..number("LIVE_MOMENTS", MOMENTS) {
        let plan = Plan { story: Story::Promotion, faults: Vec::new() };
        scenario("live-stopped", plan.setup(), async |it| {
            start_load(it).await;
            let two = two(it).await;
            it.create_rollout().await;
            // anywhere between the first write and the last
            let count = 2 + moment * 3;
            eventually(&format!("write {count}"), LONG, async || {
                let writes = two.leader.0.writes().len() as u64;
                if writes >= count { Ok(()) } else { Err(writes.to_string()) }
            })
            .await;
            signal(&two.leader.1, "-STOP");
            let stopped = Instant::now();
            leads(it, "operator-2").await;
            let took = stopped.elapsed();
            tokio::time::sleep(Duration::from_secs(8).saturating_sub(took)).await;
            signal(&two.leader.1, "-CONT");
            let woke = Instant::now();
            it.promoted().await;
            tokio::time::sleep(Duration::from_secs(3)).await;
            let late: Vec<_> = two.leader.0.writes().into_iter().filter(|seen| seen.at >= woke).collect();
            let done: Vec<_> = late.iter().filter(|seen| seen.done).map(|seen| &seen.line).collect();
            let (first, second) = (two.leader.0.writes().len(), two.standby.0.writes().len());
            let took = took.as_secs_f64();
            let _ = writeln!(
                std::io::stderr(),
                "    live: stopped after write {first}, standby leads after {took:.1} s and writes {second}; late writes: {}",
                late.len()
            );
            assert!(done.is_empty(), "written by who leads no more: {done:?}");
            // it has noticed: it ended, and stands by again
            assert!(two.leader.1.check_running() > 0, "the lease was lost, and that ends the process");
            it.operator = Some(two.standby.1);
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the local cluster, and some minutes: make test-faults-live"]
async fn a_standby_ends_what_a_killed_leader_began_at_any_moment() {
    for moment in 0..number("LIVE_MOMENTS", MOMENTS) {
        let plan = Plan { story: Story::Promotion, faults: Vec::new() };
        scenario("live-killed", plan.setup(), async |it| {
            start_load(it).await;
            let mut two = two(it).await;
            it.create_rollout().await;
            let count = 3 + moment * 3;
            eventually(&format!("write {count}"), LONG, async || {
                let writes = two.leader.0.writes().len() as u64;
                if writes >= count { Ok(()) } else { Err(writes.to_string()) }
            })
            .await;
            two.leader.1.kill().await;
            let killed = Instant::now();
            leads(it, "operator-2").await;
            let took = killed.elapsed().as_secs_f64();
            let status = it.promoted().await;
            assert_eq!((status.attempt.unwrap().id, status.history.len()), (1, 1), "one attempt");
            let (first, second) = (two.leader.0.writes().len(), two.standby.0.writes().len());
            let _ = writeln!(
                std::io::stderr(),
                "    live: killed after write {first}, standby leads after {took:.1} s and writes {second}"
            );
            it.operator = Some(two.standby.1);
        })
        .await;
    }
}

#[test]
fn a_plan_is_read_as_it_is_written() {
    for seed in 0..1000 {
        let plan = Plan::by_seed(seed);
        let again = Plan::read(&plan.line());
        assert_eq!((again.story, &again.faults), (plan.story, &plan.faults));
        assert!((1..=3).contains(&plan.faults.len()));
    }
}
