//! The bodies of the chat API, as far as this server speaks it.
//!
//! Answers and stream chunks carry one field more than the API knows: `prompt_version`, beside
//! `model`. Clients that do not know it ignore it.

use serde::Deserialize;
use serde_json::{Value, json};

/// A chat request; fields that do not matter here are ignored.
#[derive(Debug, Deserialize)]
pub struct ChatRequest {
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// Whether to stream the answer.
    #[serde(default)]
    pub stream: bool,
}

/// One message of a conversation.
#[derive(Debug, Deserialize)]
pub struct Message {
    role: String,
    #[serde(default)]
    content: Option<Content>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(default)]
    text: String,
}

impl ChatRequest {
    /// The text of the user's last message.
    pub fn last_user_message(&self) -> Option<String> {
        let message = self.messages.iter().rfind(|message| message.role == "user")?;
        match message.content.as_ref()? {
            Content::Text(text) => Some(text.clone()),
            Content::Parts(parts) => Some(parts.iter().map(|part| part.text.as_str()).collect()),
        }
    }
}

/// What all bodies of one answer have in common.
#[derive(Debug, Clone)]
pub struct Envelope {
    /// The id of the answer.
    pub id: String,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// `<name>@<version>`.
    pub model: String,
    /// The version of the prompt.
    pub prompt_version: String,
    /// Whether to leave out `choices`, which every body must have.
    pub broken: bool,
}

impl Envelope {
    /// A whole plain answer. Words stand for tokens.
    pub fn completion(&self, prompt: &str, answer: &str) -> Value {
        let (asked, answered) = (prompt.split_whitespace().count(), answer.split_whitespace().count());
        self.spoilt(json!({
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "prompt_version": self.prompt_version,
            "choices": [{
                "index": 0,
                "message": { "role": "assistant", "content": answer },
                "finish_reason": "stop",
            }],
            "usage": { "prompt_tokens": asked, "completion_tokens": answered, "total_tokens": asked + answered },
        }))
    }

    /// One chunk of a streamed answer.
    pub fn chunk(&self, delta: &Value, finish_reason: Option<&str>) -> Value {
        self.spoilt(json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "prompt_version": self.prompt_version,
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish_reason }],
        }))
    }

    fn spoilt(&self, mut body: Value) -> Value {
        if let (true, Some(fields)) = (self.broken, body.as_object_mut()) {
            fields.remove("choices");
        }
        body
    }
}

/// An error in the form that clients of the chat API expect.
pub fn error(kind: &str, message: &str) -> Value {
    json!({ "error": { "message": message, "type": kind, "param": null, "code": null } })
}

/// The list of the one model that is served.
pub fn models(model: &str, created: u64) -> Value {
    json!({
        "object": "list",
        "data": [{ "id": model, "object": "model", "created": created, "owned_by": "modelrollout" }],
    })
}

/// Cuts a text into exactly `count` pieces of about the same length; some of a short text's
/// pieces are empty.
pub fn pieces(text: &str, count: usize) -> Vec<String> {
    let length = text.chars().count();
    let mut chars = text.chars();
    (0..count)
        .map(|piece| {
            let size = length * (piece + 1) / count - length * piece / count;
            chars.by_ref().take(size).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(body: Value) -> Option<String> {
        serde_json::from_value::<ChatRequest>(body).unwrap().last_user_message()
    }

    #[test]
    fn the_last_user_message_counts_in_either_form() {
        let plain = json!({ "model": "x", "messages": [
            { "role": "user", "content": "first" },
            { "role": "user", "content": "second" },
            { "role": "assistant", "content": null },
        ]});
        assert_eq!(last(plain).as_deref(), Some("second"));
        let parts = json!({ "messages": [{ "role": "user", "content": [
            { "type": "text", "text": "a" }, { "type": "image_url" }, { "type": "text", "text": "b" },
        ]}]});
        assert_eq!(last(parts).as_deref(), Some("ab"));
        assert_eq!(last(json!({ "messages": [{ "role": "system", "content": "s" }] })), None);
    }

    #[test]
    fn a_broken_body_lacks_nothing_but_its_choices() {
        let whole =
            Envelope { id: "x".into(), created: 1, model: "m".into(), prompt_version: "p".into(), broken: false };
        let broken = Envelope { broken: true, ..whole.clone() };
        let bodies = |it: &Envelope| [it.completion("a b", "c"), it.chunk(&json!({}), None)];
        for (mut good, bad) in bodies(&whole).into_iter().zip(bodies(&broken)) {
            assert_ne!(good, bad);
            assert!(good.as_object_mut().unwrap().remove("choices").is_some());
            assert_eq!(good, bad);
        }
    }

    #[test]
    fn pieces_add_up_to_the_text() {
        for (text, count) in [("grüße an alle", 5), ("ab", 20), ("", 3), ("abc", 1)] {
            let found = pieces(text, count);
            assert_eq!(found.len(), count);
            assert_eq!(found.concat(), text);
        }
    }
}
