//! The layers keep to what they are for: the engine is pure, only one file writes, only one asks for the time.

#![allow(missing_docs, clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut out = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("a readable folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).expect("a readable file");
                out.push((path, text));
            }
        }
    }
    assert!(!out.is_empty(), "{folder} has sources");
    out
}

fn none_says(folder: &str, words: &[&str]) {
    // tests of the engine may look at the time that it takes
    let product = |path: &Path| {
        let in_tests = path.parent().is_some_and(|folder| folder.ends_with("tests"));
        !in_tests && !path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests"))
    };
    for (path, text) in sources(folder).into_iter().filter(|(path, _)| product(path)) {
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        for (number, line) in code.enumerate() {
            for word in words {
                assert!(
                    !line.contains(word),
                    "{} says `{word}` (line {number} without comments): {line}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn the_engine_knows_no_client_no_task_no_clock_and_no_chance() {
    none_says(
        "src/engine",
        &[
            "kube::",
            "tokio",
            "reqwest",
            "HashMap",
            "HashSet",
            "Timestamp::now",
            "Instant",
            "SystemTime",
            "rand::",
            "crate::shell",
        ],
    );
}

#[test]
fn the_api_knows_neither_engine_nor_shell() {
    none_says("src/api", &["crate::engine", "crate::shell", "tokio"]);
}

#[test]
fn only_apply_and_the_lease_write_to_the_api_server() {
    for (path, text) in sources("src/shell") {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        // Leases and Events are no part of a plan: they have their own files.
        let applies = path.parent().is_some_and(|folder| folder.ends_with("shell/apply"));
        if applies || matches!(name.as_str(), "lease.rs" | "leader.rs" | "notes.rs") {
            continue;
        }
        for parameter in ["PatchParams", "PostParams", "DeleteParams"] {
            assert!(!text.contains(parameter), "{name} uses `{parameter}`: it writes");
        }
    }
}
