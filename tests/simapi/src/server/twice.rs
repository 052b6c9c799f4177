//! Keys that a JSON text has twice in one object: strict decoding refuses them.

/// The places of such keys, as the server tells them.
pub(super) fn keys(body: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(body);
    let mut found = Vec::new();
    // of each object that is open: its place, its keys, and the key that is read
    let mut open: Vec<Option<(String, Vec<String>)>> = Vec::new();
    let mut place = String::new();
    let mut key = None;
    let mut rest = text.chars().peekable();
    while let Some(one) = rest.next() {
        match one {
            '{' => open.push(Some((place.clone(), Vec::new()))),
            '[' => open.push(None),
            '}' | ']' => {
                open.pop();
            }
            '"' => {
                let mut word = String::new();
                while let Some(next) = rest.next() {
                    match next {
                        '"' => break,
                        '\\' => word.extend(rest.next()),
                        other => word.push(other),
                    }
                }
                key = Some(word);
            }
            ':' => {
                let (Some(Some((base, keys))), Some(name)) = (open.last_mut(), key.take()) else { continue };
                place = if base.is_empty() { name.clone() } else { format!("{base}.{name}") };
                if keys.contains(&name) {
                    found.push(place.clone());
                }
                keys.push(name);
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::keys;

    #[test]
    fn keys_that_are_there_twice_are_found() {
        assert_eq!(keys(br#"{"a":{"b":1,"c":[{"b":2}],"b":"b:"},"b":1}"#), ["a.b"]);
        assert!(keys(br#"{"a":"a","b":{"a":"\"a\":"}}"#).is_empty());
    }
}
