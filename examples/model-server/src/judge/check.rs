//! Whether an answer has the schema of a chat completion and comes from whom it should.
//!
//! Each check says what is wrong in half a sentence that fits on one line.

use serde_json::Value;

use super::sse;

/// How much of an unexpected text a message quotes.
const QUOTED: usize = 80;
/// Why an answer can end, as the chat API has it.
const FINISH_REASONS: [&str; 5] = ["stop", "length", "tool_calls", "content_filter", "function_call"];

/// Who has to answer.
#[derive(Debug, Clone)]
pub struct Expected {
    /// `<name>@<version>`.
    pub model: String,
    /// The version of the prompt; when empty it does not matter.
    pub prompt_version: String,
}

impl Expected {
    /// Checks a whole plain answer.
    pub fn plain(&self, body: &str) -> Result<(), String> {
        let body = json(body)?;
        self.envelope(&body, "chat.completion")?;
        same(&body, "/choices/0/message/role", "assistant")?;
        text(&body, "/choices/0/message/content")?;
        finish_reason(text(&body, "/choices/0/finish_reason")?)?;
        usage(&body)
    }

    /// Checks a whole streamed answer.
    pub fn streamed(&self, body: &str) -> Result<(), String> {
        let mut events = sse::events(body);
        if events.pop().as_deref() != Some("[DONE]") {
            return Err("the stream does not end with [DONE]".to_owned());
        }
        let mut stream = Stream::default();
        for (number, event) in (1..).zip(&events) {
            let chunk = json(event).and_then(|chunk| {
                self.envelope(&chunk, "chat.completion.chunk")?;
                stream.add(&chunk)
            });
            chunk.map_err(|wrong| format!("chunk {number}: {wrong}"))?;
        }
        stream.end()
    }

    /// Checks what plain answers and chunks have in common.
    fn envelope(&self, body: &Value, object: &str) -> Result<(), String> {
        same(body, "/object", object)?;
        text(body, "/id")?;
        same(body, "/model", &self.model)?;
        if !self.prompt_version.is_empty() {
            same(body, "/prompt_version", &self.prompt_version)?;
        }
        match body.get("choices") {
            None | Some(Value::Null) => Err("choices is missing".to_owned()),
            Some(Value::Array(choices)) if choices.first().is_some_and(Value::is_object) => Ok(()),
            Some(_) => Err("choices is not a list of objects".to_owned()),
        }
    }
}

/// What the chunks so far add up to.
#[derive(Default)]
struct Stream {
    id: Option<String>,
    content: String,
    finished: bool,
}

impl Stream {
    fn add(&mut self, chunk: &Value) -> Result<(), String> {
        if self.finished {
            return Err("it comes after the finish_reason".to_owned());
        }
        if let Some(id) = &self.id {
            same(chunk, "/id", id)?;
        } else {
            self.id = Some(text(chunk, "/id")?.to_owned());
            same(chunk, "/choices/0/delta/role", "assistant")?;
        }
        match chunk.pointer("/choices/0/delta") {
            Some(delta @ Value::Object(_)) => {
                self.content.push_str(delta.get("content").and_then(Value::as_str).unwrap_or_default());
            }
            _ => return Err("choices.0.delta is missing".to_owned()),
        }
        if chunk.pointer("/choices/0/finish_reason").is_some_and(|reason| !reason.is_null()) {
            finish_reason(text(chunk, "/choices/0/finish_reason")?)?;
            self.finished = true;
        }
        Ok(())
    }

    fn end(&self) -> Result<(), String> {
        match (self.finished, self.content.is_empty()) {
            (false, _) => Err("the stream has no finish_reason".to_owned()),
            (true, true) => Err("the stream has no content".to_owned()),
            (true, false) => Ok(()),
        }
    }
}

fn usage(body: &Value) -> Result<(), String> {
    let number = |name: &str| {
        let found = body.get("usage").and_then(|usage| usage.get(name)).and_then(Value::as_u64);
        found.ok_or_else(|| format!("usage.{name} is missing or not a whole number"))
    };
    let (prompt, completion, total) = (number("prompt_tokens")?, number("completion_tokens")?, number("total_tokens")?);
    if prompt.checked_add(completion) != Some(total) {
        return Err(format!("usage: {prompt} and {completion} tokens are not {total}"));
    }
    if completion == 0 {
        return Err("usage.completion_tokens is 0, but there is content".to_owned());
    }
    Ok(())
}

fn finish_reason(reason: &str) -> Result<(), String> {
    if FINISH_REASONS.contains(&reason) { Ok(()) } else { Err(format!("finish_reason is {}", quote(reason))) }
}

fn json(body: &str) -> Result<Value, String> {
    serde_json::from_str(body).map_err(|_| format!("not JSON: {}", quote(body)))
}

/// The text at a JSON pointer, which must not be empty.
fn text<'a>(body: &'a Value, pointer: &str) -> Result<&'a str, String> {
    let path = || pointer.trim_start_matches('/').replace('/', ".");
    match body.pointer(pointer) {
        None | Some(Value::Null) => Err(format!("{} is missing", path())),
        Some(Value::String(text)) if text.is_empty() => Err(format!("{} is empty", path())),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("{} is not a text", path())),
    }
}

fn same(body: &Value, pointer: &str, wanted: &str) -> Result<(), String> {
    match text(body, pointer)? {
        found if found == wanted => Ok(()),
        found => {
            let path = pointer.trim_start_matches('/').replace('/', ".");
            Err(format!("{path} is {}, not {}", quote(found), quote(wanted)))
        }
    }
}

/// The beginning of a text, on one line.
pub fn quote(text: &str) -> String {
    format!("{:?}", text.chars().take(QUOTED).collect::<String>())
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
