//! Good answers, and each way in which one can be wrong.

use serde_json::{Value, json};

use super::*;
use crate::api::Envelope;

fn expected() -> Expected {
    Expected { model: "bot@2".into(), prompt_version: "v7".into() }
}

fn envelope() -> Envelope {
    Envelope { id: "chat-1".into(), created: 1, model: "bot@2".into(), prompt_version: "v7".into(), broken: false }
}

/// Checks an answer after one place of it was changed; null stands for what is missing.
fn plain(pointer: &str, value: Value) -> Result<(), String> {
    let mut body = envelope().completion("how are you", "very well");
    *body.pointer_mut(pointer).unwrap() = value;
    expected().plain(&body.to_string())
}

fn chunks() -> Vec<Value> {
    let deltas =
        [json!({ "role": "assistant", "content": "" }), json!({ "content": "very " }), json!({ "content": "well" })];
    let mut chunks: Vec<Value> = deltas.iter().map(|delta| envelope().chunk(delta, None)).collect();
    chunks.push(envelope().chunk(&json!({}), Some("stop")));
    chunks
}

fn streamed(chunks: &[Value]) -> Result<(), String> {
    let events = chunks.iter().map(Value::to_string).chain(["[DONE]".to_owned()]);
    let events: Vec<String> = events.map(|event| format!("data: {event}\n\n")).collect();
    expected().streamed(&events.concat())
}

fn changed_chunk(index: usize, pointer: &str, value: Value) -> Result<(), String> {
    let mut chunks = chunks();
    *chunks[index].pointer_mut(pointer).unwrap() = value;
    streamed(&chunks)
}

#[test]
fn a_good_answer_passes_in_either_form() {
    assert_eq!(plain("/id", json!("other")), Ok(()));
    assert_eq!(plain("/choices/0/finish_reason", json!("length")), Ok(()));
    assert_eq!(streamed(&chunks()), Ok(()));
}

#[test]
fn a_plain_answer_needs_each_part() {
    for (pointer, value, wrong) in [
        ("/object", json!("chat.completion.chunk"), r#"object is "chat.completion.chunk", not "chat.completion""#),
        ("/id", json!(""), "id is empty"),
        ("/id", json!(7), "id is not a text"),
        ("/model", json!("bot@1"), r#"model is "bot@1", not "bot@2""#),
        ("/prompt_version", json!("v6"), r#"prompt_version is "v6", not "v7""#),
        ("/prompt_version", Value::Null, "prompt_version is missing"),
        ("/choices", Value::Null, "choices is missing"),
        ("/choices", json!([]), "choices is not a list of objects"),
        ("/choices", json!("x"), "choices is not a list of objects"),
        ("/choices/0/message", Value::Null, "choices.0.message.role is missing"),
        ("/choices/0/message/role", json!("user"), r#"choices.0.message.role is "user", not "assistant""#),
        ("/choices/0/message/content", json!(""), "choices.0.message.content is empty"),
        ("/choices/0/finish_reason", Value::Null, "choices.0.finish_reason is missing"),
        ("/choices/0/finish_reason", json!("error"), r#"finish_reason is "error""#),
        ("/usage", Value::Null, "usage.prompt_tokens is missing or not a whole number"),
        ("/usage/total_tokens", json!(-1), "usage.total_tokens is missing or not a whole number"),
        ("/usage/total_tokens", json!(6), "usage: 3 and 2 tokens are not 6"),
        (
            "/usage",
            json!({ "prompt_tokens": u64::MAX, "completion_tokens": 2, "total_tokens": 1 }),
            "usage: 18446744073709551615 and 2 tokens are not 1",
        ),
        (
            "/usage",
            json!({ "prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3 }),
            "usage.completion_tokens is 0, but there is content",
        ),
    ] {
        assert_eq!(plain(pointer, value), Err(wrong.to_owned()), "{pointer}");
    }
    assert_eq!(expected().plain("<html>\nno"), Err(r#"not JSON: "<html>\nno""#.to_owned()));
    assert_eq!(expected().plain("[]"), Err("object is missing".to_owned()));
}

#[test]
fn a_prompt_version_is_checked_only_if_one_is_expected() {
    let anyone = Expected { prompt_version: String::new(), ..expected() };
    let mut body = envelope().completion("a", "b");
    body.as_object_mut().unwrap().remove("prompt_version");
    assert_eq!(anyone.plain(&body.to_string()), Ok(()));
    assert!(expected().plain(&body.to_string()).is_err());
}

#[test]
fn each_chunk_of_a_stream_is_checked() {
    for (index, pointer, value, wrong) in [
        (0, "/choices/0/delta/role", Value::Null, "chunk 1: choices.0.delta.role is missing"),
        (
            1,
            "/object",
            json!("chat.completion"),
            r#"chunk 2: object is "chat.completion", not "chat.completion.chunk""#,
        ),
        (1, "/choices", Value::Null, "chunk 2: choices is missing"),
        (1, "/choices/0/delta", Value::Null, "chunk 2: choices.0.delta is missing"),
        (2, "/id", json!("other"), r#"chunk 3: id is "other", not "chat-1""#),
        (2, "/model", json!("bot@1"), r#"chunk 3: model is "bot@1", not "bot@2""#),
        (2, "/prompt_version", json!("v6"), r#"chunk 3: prompt_version is "v6", not "v7""#),
        (1, "/choices/0/finish_reason", json!("stop"), "chunk 3: it comes after the finish_reason"),
        (3, "/choices/0/finish_reason", json!("error"), r#"chunk 4: finish_reason is "error""#),
        (3, "/choices/0/finish_reason", Value::Null, "the stream has no finish_reason"),
    ] {
        assert_eq!(changed_chunk(index, pointer, value), Err(wrong.to_owned()), "{index} {pointer}");
    }
}

#[test]
fn a_stream_has_content_and_its_end() {
    let chunks = chunks();
    let silent = [chunks[0].clone(), chunks[3].clone()];
    assert_eq!(streamed(&silent), Err("the stream has no content".to_owned()));
    assert_eq!(streamed(&[]), Err("the stream has no finish_reason".to_owned()));
    let without_end = "the stream does not end with [DONE]".to_owned();
    assert_eq!(expected().streamed(&format!("data: {}\n\n", chunks[0])), Err(without_end.clone()));
    assert_eq!(expected().streamed("data: [DONE]"), Err(without_end.clone()));
    assert_eq!(expected().streamed(""), Err(without_end));
    let early = format!("data: [DONE]\n\ndata: {}\n\ndata: [DONE]\n\n", chunks[0]);
    assert_eq!(expected().streamed(&early), Err(r#"chunk 1: not JSON: "[DONE]""#.to_owned()));
}
