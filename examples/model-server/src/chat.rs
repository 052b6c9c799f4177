//! `POST /v1/chat/completions`: one answer, plain or streamed.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderValue, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, Stream};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::api::{self, ChatRequest, Envelope};
use crate::metrics::Running;
use crate::state::App;

/// The header of an answer that fails or lacks its choices because the server was told so.
const INJECTED: &str = "x-injected-error";

/// Answers one chat request.
pub async fn chat(State(app): State<Arc<App>>, body: Result<Json<ChatRequest>, JsonRejection>) -> Response {
    let running = Running::start(&app.metrics);
    if !app.loaded() {
        return refuse(running, StatusCode::SERVICE_UNAVAILABLE, "overloaded_error", "the model is still loading");
    }
    let request = match body {
        Ok(Json(request)) => request,
        Err(rejection) => return invalid(running, &rejection.body_text()),
    };
    let Some(message) = request.last_user_message() else {
        return invalid(running, "there is no message of the user");
    };
    let (number, injection) = app.next_request();
    let extra = if injection.slow { app.config.slow_seconds } else { Duration::ZERO };
    sleep(app.config.answer_milliseconds + extra).await;
    if injection.fail {
        return fail(running);
    }
    let envelope = envelope(&app, number, injection.broken);
    let response = answer(&app, running, &envelope, &message, request.stream);
    if injection.broken { marked(response) } else { response }
}

fn envelope(app: &App, number: u64, broken: bool) -> Envelope {
    let identity = &app.identity;
    Envelope {
        id: format!("chatcmpl-{number}"),
        created: unix_seconds(),
        model: identity.model.clone(),
        prompt_version: identity.prompt.version.clone(),
        broken,
    }
}

fn answer(app: &App, mut running: Running, envelope: &Envelope, message: &str, streamed: bool) -> Response {
    let identity = &app.identity;
    let prompt = identity.prompt.render(message);
    let text = format!("{} with prompt {} was asked: {prompt}", identity.model, identity.prompt.version);
    if streamed {
        let tokens = usize::try_from(app.config.stream_tokens).unwrap_or(1);
        let pause = app.config.token_milliseconds;
        let chunks = chunks(envelope, &text, tokens).into_iter();
        Sse::new(events(Streamed { chunks, pause, running: Some(running) })).into_response()
    } else {
        running.token();
        running.end(StatusCode::OK.as_u16());
        Json(envelope.completion(&prompt, &text)).into_response()
    }
}

/// All chunks of an answer with the pause before each: the role, the tokens, the finish.
fn chunks(envelope: &Envelope, text: &str, tokens: usize) -> Vec<(bool, Value)> {
    let role = (false, envelope.chunk(&json!({ "role": "assistant", "content": "" }), None));
    let finish = (false, envelope.chunk(&json!({}), Some("stop")));
    let content = api::pieces(text, tokens).into_iter();
    let content = content.map(|piece| (true, envelope.chunk(&json!({ "content": piece }), None)));
    std::iter::once(role).chain(content).chain([finish]).collect()
}

struct Streamed {
    /// Each chunk, and whether it is a token that takes its time.
    chunks: std::vec::IntoIter<(bool, Value)>,
    pause: Duration,
    /// Taken at the end; when the client goes away before, its drop counts that.
    running: Option<Running>,
}

fn events(answer: Streamed) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(answer, |mut state| async move {
        if let Some((is_token, chunk)) = state.chunks.next() {
            if is_token {
                sleep(state.pause).await;
                if let Some(running) = &mut state.running {
                    running.token();
                }
            }
            return Some((Ok(Event::default().data(chunk.to_string())), state));
        }
        state.running.take()?.end(StatusCode::OK.as_u16());
        Some((Ok(Event::default().data("[DONE]")), state))
    })
}

fn fail(running: Running) -> Response {
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    marked(refuse(running, status, "server_error", "this error was injected"))
}

fn marked(mut response: Response) -> Response {
    response.headers_mut().insert(INJECTED, HeaderValue::from_static("true"));
    response
}

fn invalid(running: Running, message: &str) -> Response {
    refuse(running, StatusCode::BAD_REQUEST, "invalid_request_error", message)
}

fn refuse(running: Running, status: StatusCode, kind: &str, message: &str) -> Response {
    running.end(status.as_u16());
    (status, Json(api::error(kind, message))).into_response()
}

/// The wall clock, which the chat API wants in each answer.
#[expect(clippy::disallowed_methods, reason = "this program has no operator state that must not depend on the time")]
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
