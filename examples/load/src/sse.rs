//! Takes a stream of server-sent events apart.

/// Collects bytes until there are whole events.
#[derive(Debug, Default)]
pub struct Events {
    buffer: Vec<u8>,
}

impl Events {
    /// Adds bytes and gives the data of each event that is now whole.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<String> {
        self.buffer.extend(bytes.iter().filter(|byte| **byte != b'\r'));
        let mut found = Vec::new();
        while let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
            let event: Vec<u8> = self.buffer.drain(..end + 2).collect();
            found.extend(data(&String::from_utf8_lossy(&event)));
        }
        found
    }

    /// How many bytes wait for the end of their event.
    pub fn pending(&self) -> usize {
        self.buffer.len()
    }
}

/// The data lines of one event; none for a comment.
fn data(event: &str) -> Option<String> {
    let lines: Vec<&str> = event.lines().filter_map(|line| line.strip_prefix("data:")).collect();
    let lines: Vec<&str> = lines.into_iter().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_out_whole_however_they_were_cut() {
        let text = b": hello\n\ndata: {\"a\":1}\r\n\r\nevent: x\ndata:one\ndata: two\n\ndata: [DONE]\n\ndata: rest";
        for size in 1..text.len() {
            let mut events = Events::default();
            let found: Vec<String> = text.chunks(size).flat_map(|part| events.feed(part)).collect();
            assert_eq!(found, ["{\"a\":1}", "one\ntwo", "[DONE]"], "cut into {size}");
            assert_eq!(events.pending(), 10);
        }
    }
}
