//! Takes a whole stream of server-sent events apart.

/// The data of each event. What no empty line ends is no event.
pub fn events(body: &str) -> Vec<String> {
    let body = body.replace("\r\n", "\n");
    let Some((whole, _cut)) = body.rsplit_once("\n\n") else { return Vec::new() };
    whole.split("\n\n").filter_map(data).collect()
}

/// The data lines of one event; none for a comment.
fn data(event: &str) -> Option<String> {
    let lines = event.lines().filter_map(|line| line.strip_prefix("data:"));
    let lines: Vec<&str> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_and_the_cut_one_is_not() {
        let text = ": hello\n\ndata: {\"a\":1}\r\n\r\nevent: x\ndata:one\ndata: two\n\ndata: [DONE]\n\ndata: rest";
        assert_eq!(events(text), ["{\"a\":1}", "one\ntwo", "[DONE]"]);
        assert!(events("data: rest").is_empty() && events("").is_empty());
    }
}
