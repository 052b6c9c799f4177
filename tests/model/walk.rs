//! Is the small status honest? Long random walks of one operator, in which the whole status goes along: the engine must
//! decide from it what it decides from the model's picture of it.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use modelrollout::api::ModelRolloutStatus;
use serde_json::Value;
use stateright::Model;

use super::scope::Scope;
use super::state::{Both, Left, Sec, Write};
use super::system::{Happening, System};

/// Whole statuses beside the small ones: the one on record, and the one of the turn.
#[derive(Default)]
struct Whole {
    stored: ModelRolloutStatus,
    wanted: ModelRolloutStatus,
}

#[test]
fn the_engine_decides_from_the_small_status_what_it_decides_from_the_whole_one() {
    let left = Left { crashes: 2, takeovers: 0, errors: 2, losses: Both(1, 2), supersedes: 1, turns: 2, acts: 2 };
    let mut plans = 0;
    for seed in 0..600 {
        plans += walk(&System::new(Scope { left, ..Scope::calm() }), seed);
    }
    assert!(plans > 4000, "{plans}");
}

fn walk(system: &System, seed: u64) -> usize {
    let mut random = seed;
    let mut plans = 0;
    let mut whole = Whole::default();
    let mut state = system.init_states()[0];
    for _ in 0..150 {
        let mut actions = Vec::new();
        system.actions(&state, &mut actions);
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let Some(action) = actions.get((random >> 33) as usize % actions.len().max(1)) else { return plans };
        let span = system.next_due(&state);
        let Some(next) = system.next_state(&state, *action) else { continue };
        match action {
            Happening::Plan(oracle) => {
                plans += 1;
                let view = state.operators[0].cache.view;
                // the whole status is written when numbers move too: the small one knows none
                whole.stored.refreshed_at = None;
                let (answered, wanted) = system.engine.plan_with(&view, whole.stored.clone(), *oracle);
                let turn = next.operators[0].turn.expect("it does something");
                assert_eq!(answered.status, turn.status, "seed {seed}");
                let acts = |todo: &[Option<Write>]| -> Vec<Write> {
                    todo.iter().flatten().copied().filter(|write| *write != Write::Status).collect()
                };
                assert_eq!(acts(&answered.todo), acts(&turn.todo), "seed {seed}");
                whole.wanted = wanted;
            }
            Happening::Land(0) => {
                let turn = state.operators[0].turn.expect("something lands");
                if turn.todo[0] == Some(Write::Status) && !turn.changed[0] {
                    whole.stored = whole.wanted.clone();
                }
            }
            Happening::Wait => {
                let span = span.expect("something comes due");
                whole.stored = earlier(&whole.stored, span);
                whole.wanted = earlier(&whole.wanted, span);
            }
            _ => {}
        }
        state = next;
    }
    plans
}

/// The same, `span` seconds ago.
fn earlier(status: &ModelRolloutStatus, span: Sec) -> ModelRolloutStatus {
    let mut value = serde_json::to_value(status).expect("JSON");
    shift(&mut value, SignedDuration::from_secs(i64::from(span)));
    serde_json::from_value(value).expect("a status")
}

fn shift(value: &mut Value, span: SignedDuration) {
    match value {
        Value::String(text) => {
            if let Ok(at) = text.parse::<Timestamp>() {
                *text = (at - span).to_string();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| shift(item, span)),
        Value::Object(fields) => fields.values_mut().for_each(|item| shift(item, span)),
        _ => {}
    }
}
