//! The messages in `docs/troubleshooting.md`: each is one that the program still has.

use std::fs;
use std::path::Path;

use super::{page, root};

/// Returns the messages of the tables, each split at what differs from case to case.
fn messages(text: &str) -> Vec<Vec<&str>> {
    let cells = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    cells.map(|(message, _)| message.split('…').collect()).collect()
}

/// Reports whether a line has these parts, in order.
fn has(line: &str, parts: &[&str]) -> bool {
    let mut rest = line;
    parts.iter().all(|part| {
        let behind = rest.split_once(*part).map(|(_, behind)| behind);
        rest = behind.unwrap_or_default();
        behind.is_some()
    })
}

/// Adds the texts of the files with this ending below a folder.
fn collect(folder: &Path, ending: &str, texts: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a checkout that can be read") {
        let path = entry.expect("a checkout that can be read").path();
        if path.is_dir() {
            collect(&path, ending, texts);
        } else if path.extension().is_some_and(|extension| extension == ending) {
            texts.push(fs::read_to_string(&path).expect("a checkout that can be read"));
        }
    }
}

#[test]
fn every_message_explained_is_one_of_the_program() {
    let mut texts = Vec::new();
    collect(&root().join("tests/it/mistakes/snapshots"), "snap", &mut texts);
    collect(&root().join("src"), "rs", &mut texts);
    let lines: Vec<&str> = texts.iter().flat_map(|text| text.lines()).collect();
    let page = page("docs/troubleshooting.md".to_owned());
    let messages = messages(&page.text);
    assert!(messages.len() > 50, "only {} messages were found", messages.len());
    let unknown = messages.iter().filter(|parts| !lines.iter().any(|line| has(line, parts)));
    let unknown: Vec<String> = unknown.map(|parts| parts.join("…")).collect();
    assert!(unknown.is_empty(), "not said any more:\n  {}", unknown.join("\n  "));
}
